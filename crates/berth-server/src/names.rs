//! Names that people give. They become parts of paths and addresses, so their form is narrow.

use berth_api::Problem;

/// The longest name; as in DNS, so that names mean the same on Kubernetes.
const NAME_MAX: usize = 63;

/// Checks a name: lowercase letters, digits and `-`, beginning and ending with a letter or digit.
pub(crate) fn check(field: &str, name: &str) -> Result<(), Problem> {
    let is_edge =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = name.as_bytes();
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let fits = bytes.len() <= NAME_MAX && bytes.iter().all(is_inner);
    if fits && is_edge(bytes.first()) && is_edge(bytes.last()) {
        return Ok(());
    }
    Err(Problem::invalid(field, format!("{} is not a name", shown(name))).hint(format!(
        "a name has lowercase letters, digits and '-', begins and ends with a letter or digit, and is at most {NAME_MAX} \
         long"
    )))
}

/// A text from outside as it may be shown: quoted, without control characters, and short.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 80;
    let short: String = text.chars().take(SHOWN_MAX).collect();
    let more = if short.len() < text.len() { "..." } else { "" };
    format!("{short:?}{more}")
}

/// The known name that is nearest to one that is not known, if it is near.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    if name.len() > NAME_MAX {
        return None;
    }
    let distances = known.map(|other| (distance(name, other), other));
    let (distance, other) = distances.min()?;
    (distance <= name.len().max(3) / 3).then_some(other)
}

/// Letters to be put in, taken out or exchanged to get from one text to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in to.iter().enumerate() {
            let best = (diagonal + usize::from(letter != *other)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_their_folder_or_hide_are_refused() {
        for name in ["", "../x", "a/b", "a\0b", "A", "-a", "a-", "é", "a b", "a.b", &"a".repeat(64)] {
            assert!(check("name", name).is_err(), "{name:?}");
        }
        for name in ["a", "a-1", "team-a", "0", &"a".repeat(63)] {
            assert!(check("name", name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn a_near_name_is_offered_and_a_far_one_is_not() {
        let known = ["team-a".to_string(), "team-b".into(), "vision".into()];
        assert_eq!(nearest("taem-a", known.iter()), Some("team-a"));
        assert_eq!(nearest("visoin", known.iter()), Some("vision"));
        assert_eq!(nearest("finance", known.iter()), None);
    }
}
