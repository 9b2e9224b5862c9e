//! The spelling of the 2020 report and its successors, as arguments in ours.
//!
//! Only words change here: what each command does is said once, in the command itself.

use std::ffi::{OsStr, OsString};

/// Whether the command was started under the name of the report.
pub(crate) fn is_meant(program: Option<&OsString>) -> bool {
    let name = program.map(|program| std::path::Path::new(program).file_name().unwrap_or(program));
    name.and_then(OsStr::to_str).is_some_and(|name| name.ends_with("runai"))
}

/// Two words of later releases of that command, and what they are here.
const PAIRS: [(&str, &str, &[&str]); 16] = [
    ("list", "job", &["list"]),
    ("list", "jobs", &["list"]),
    ("list", "project", &["project", "list"]),
    ("list", "projects", &["project", "list"]),
    ("list", "node", &["node", "list"]),
    ("list", "nodes", &["node", "list"]),
    ("describe", "job", &["get"]),
    ("describe", "node", &["node", "describe"]),
    ("describe", "project", &["project", "describe"]),
    ("delete", "job", &["delete"]),
    ("suspend", "job", &["suspend"]),
    ("resume", "job", &["resume"]),
    ("config", "project", &["project", "set"]),
    ("top", "nodes", &["top", "node"]),
    ("top", "jobs", &["top", "job"]),
    ("completion", "bash", &["completions", "bash"]),
];

/// The arguments in our spelling; the first is the name of the program.
pub(crate) fn translate(arguments: Vec<OsString>) -> Vec<OsString> {
    let word = |index: usize| arguments.get(index).and_then(|argument| argument.to_str());
    let found = match (word(1), word(2)) {
        (Some(first), Some(second)) => PAIRS.iter().find(|(one, other, _)| *one == first && *other == second),
        _ => None,
    };
    match found {
        // A workload may be named `job`; it is meant when nothing else is named.
        Some(("delete" | "describe" | "suspend" | "resume", ..))
            if word(3).is_none_or(|w| w.starts_with('-')) =>
        {
            arguments
        }
        Some((_, _, ours)) => {
            let (program, rest) = (&arguments[0], &arguments[3..]);
            let ours = ours.iter().map(OsString::from);
            std::iter::once(program.clone()).chain(ours).chain(rest.iter().cloned()).collect()
        }
        None => arguments,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> String {
        let words = translate(line.split(' ').map(OsString::from).collect());
        words.iter().map(|word| word.to_str().expect("is text")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn later_spellings_mean_the_same() {
        assert_eq!(translated("runai list jobs -A"), "runai list -A");
        assert_eq!(translated("runai list projects"), "runai project list");
        assert_eq!(translated("runai describe job hyper1 -p team-a"), "runai get hyper1 -p team-a");
        assert_eq!(translated("runai delete job a b"), "runai delete a b");
        assert_eq!(translated("runai config project team-a"), "runai project set team-a");
    }

    #[test]
    fn the_reports_own_spelling_stays_as_it_is() {
        for line in
            ["runai list", "runai delete -p team-d d-1-gggg d-2-gg", "runai get hyper1", "runai delete job"]
        {
            assert_eq!(translated(line), line);
        }
    }

    #[test]
    fn the_name_of_the_program_decides() {
        assert!(is_meant(Some(&"/usr/local/bin/runai".into())));
        assert!(!is_meant(Some(&"/opt/runai/bin/berth".into())));
        assert!(!is_meant(None));
    }
}
