//! The command line as it is kept with a workload. Values of variables may be secrets, and are left out.

/// What was typed, in words a shell reads again.
pub(crate) fn shown(arguments: &[String]) -> String {
    let mut words = Vec::with_capacity(arguments.len());
    let mut value_follows = false;
    let mut is_trailing = false;
    for (index, argument) in arguments.iter().enumerate() {
        let word = if index == 0 {
            argument.rsplit('/').next().unwrap_or_default().to_owned()
        } else if is_trailing {
            argument.clone()
        } else if std::mem::take(&mut value_follows) {
            without_value(argument)
        } else if let Some(value) = argument.strip_prefix("--environment=") {
            format!("--environment={}", without_value(value))
        } else if let Some(value) = argument.strip_prefix("-e").filter(|value| !value.is_empty()) {
            format!("-e{}", without_value(value))
        } else {
            argument.clone()
        };
        is_trailing |= argument == "--";
        value_follows = !is_trailing && matches!(argument.as_str(), "-e" | "--environment");
        words.push(quoted(&word));
    }
    words.join(" ")
}

fn without_value(variable: &str) -> String {
    match variable.split_once('=') {
        Some((name, _)) => format!("{name}=..."),
        None => variable.to_owned(),
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+:,./@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> String {
        shown(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_shell_reads_it_again() {
        assert_eq!(
            of(&["/usr/bin/berth", "submit", "a", "--", "echo", "it's", "", "a b"]),
            r"berth submit a -- echo 'it'\''s' '' 'a b'"
        );
    }

    #[test]
    fn values_of_variables_are_left_out() {
        let line = of(&[
            "berth",
            "submit",
            "-e",
            "KEY=hush",
            "-eKEY=hush",
            "--environment=KEY=hush",
            "--environment",
            "K=hush",
        ]);
        assert!(!line.contains("hush"), "{line}");
        assert_eq!(of(&["berth", "submit", "--", "-e", "A=1"]), "berth submit -- -e A=1");
    }
}
