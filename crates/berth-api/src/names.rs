//! Names: what may be one, and which one was probably meant. Both sides of the wire ask here.

/// The longest name; as in DNS, so that names mean the same on Kubernetes.
const NAME_CHARS_MAX: usize = 63;

/// What a name is, for people.
pub const NAME_RULE: &str = "a name has lowercase letters, digits and '-', begins and ends with a letter or digit, and is at most 63 long";

/// Whether this may be the name of a workload, project, department, volume or pool. Names become parts of paths and
/// addresses, so their form is narrow.
pub fn is_name(name: &str) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    bytes.len() <= NAME_CHARS_MAX
        && bytes.first().is_some_and(is_plain)
        && bytes.last().is_some_and(is_plain)
        && bytes.iter().all(|byte| is_plain(byte) || *byte == b'-')
}

/// The longest value of a label, and the longest name in a key, as in Kubernetes.
const LABEL_CHARS_MAX: usize = 63;
/// The longest prefix of a key.
const PREFIX_CHARS_MAX: usize = 253;

/// What a label is, for people.
pub const LABEL_RULE: &str = "a label is KEY=VALUE: key and value have at most 63 letters, digits, '-', '_' and '.', and begin and end with a letter or digit; \
     a value may be empty; a key may have a prefix, as in example.org/rack";

/// Whether this may be the key of a label: a name, with or without a DNS name and `/` in front of it.
pub fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_label_name(key),
        Some((prefix, name)) => {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            let is_part = |part: &str| {
                part.bytes().next().is_some_and(is_plain)
                    && part.bytes().last().is_some_and(is_plain)
                    && part.bytes().all(|byte| is_plain(byte) || byte == b'-')
            };
            prefix.len() <= PREFIX_CHARS_MAX && prefix.split('.').all(is_part) && is_label_name(name)
        }
    }
}

/// Whether this may be the value of a label.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_label_name(value)
}

fn is_label_name(name: &str) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = name.as_bytes();
    bytes.len() <= LABEL_CHARS_MAX
        && bytes.first().is_some_and(is_plain)
        && bytes.last().is_some_and(is_plain)
        && bytes.iter().all(|byte| is_plain(byte) || matches!(byte, b'-' | b'_' | b'.'))
}

/// A text that may hold anything, in one short line without control characters.
pub fn quoted(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 40;
    if text.chars().count() <= SHOWN_CHARS_MAX {
        return format!("{text:?}");
    }
    let beginning: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    format!("{beginning:?}... ({} bytes)", text.len())
}

/// The candidate that `name` was probably meant to be.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance costs the product of the lengths; what is longer than any name resembles none.
    if name.len() > NAME_CHARS_MAX {
        return None;
    }
    let allowed = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate), !candidate.starts_with(name), candidate))
        .filter(|(distance, ..)| *distance <= allowed)
        .min()
        .map(|(.., candidate)| candidate)
}

/// How many letters have to be added, removed, replaced or swapped with their neighbour.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    for row in 0..=from.len() {
        for column in 0..=to.len() {
            rows[row][column] = if row == 0 || column == 0 {
                row + column
            } else {
                let replaced = rows[row - 1][column - 1] + usize::from(from[row - 1] != to[column - 1]);
                let mut best = replaced.min(rows[row - 1][column] + 1).min(rows[row][column - 1] + 1);
                let swapped = row > 1
                    && column > 1
                    && from[row - 1] == to[column - 2]
                    && from[row - 2] == to[column - 1];
                if swapped {
                    best = best.min(rows[row - 2][column - 2] + 1);
                }
                best
            };
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_their_folder_or_hide_are_none() {
        for name in [
            "",
            "../x",
            "a/b",
            "a\0b",
            "A",
            "-a",
            "a-",
            "é",
            "a b",
            "a.b",
            &"a".repeat(64),
            &"a".repeat(10_000),
        ] {
            assert!(!is_name(name), "{name:?}");
        }
        for name in ["a", "a-1", "team-a", "0", &"a".repeat(63)] {
            assert!(is_name(name), "{name:?}");
        }
    }

    #[test]
    fn labels_have_the_form_that_kubernetes_accepts() {
        for key in ["rack", "example.org/rack", "berth/pool", "a_b.c-d", "A", &"k".repeat(63)] {
            assert!(is_label_key(key), "{key:?}");
        }
        for key in ["", "-a", "a-", "a b", "/a", "a/", "a/b/c", "Upper.org/a", "é", &"k".repeat(64)] {
            assert!(!is_label_key(key), "{key:?}");
        }
        assert!(is_label_value("") && is_label_value("r1") && is_label_value("A.b_c-1"));
        assert!(!is_label_value("-r1") && !is_label_value("a b") && !is_label_value(&"v".repeat(64)));
    }

    #[test]
    fn a_near_name_is_offered_and_a_far_one_is_not() {
        let known = ["team-a", "team-b", "vision"];
        assert_eq!(nearest("taem-a", known), Some("team-a"));
        assert_eq!(nearest("visoin", known), Some("vision"));
        assert_eq!(nearest("finance", known), None);
        assert_eq!(nearest("delte", ["delete", "describe"]), Some("delete"));
        assert_eq!(nearest(&"x".repeat(10_000), known), None);
    }

    #[test]
    fn what_is_shown_of_a_text_is_short_and_plain() {
        assert_eq!(quoted("a\0\nb"), r#""a\0\nb""#);
        assert!(quoted(&"x".repeat(10_000)).len() < 80);
    }
}
