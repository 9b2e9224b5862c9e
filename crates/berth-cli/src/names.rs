//! Names: what may be one, and which one was probably meant.

use crate::failure::Failure;

const NAME_CHARS_MAX: usize = 63;
/// The longest name of a host.
const HOST_CHARS_MAX: usize = 253;

/// Refuses what can be no name of a workload, project, department, volume or pool. The server checks again.
pub(crate) fn check(noun: &str, name: &str) -> Result<(), Failure> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let holds = name.len() <= NAME_CHARS_MAX
        && name.bytes().next().is_some_and(is_plain)
        && name.bytes().all(|byte| is_plain(byte) || byte == b'-');
    if holds {
        return Ok(());
    }
    Err(Failure::misuse(format!("{} is not a name of a {noun}", quoted(name)))
        .hint("names have lowercase letters, digits and '-', at most 63, and begin with a letter or a digit"))
}

/// Refuses what can be no name of a host.
pub(crate) fn check_host(name: &str) -> Result<(), Failure> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric();
    let holds = name.len() <= HOST_CHARS_MAX
        && name.bytes().next().is_some_and(is_plain)
        && name.bytes().all(|byte| is_plain(byte) || matches!(byte, b'-' | b'.' | b'_'));
    if holds {
        return Ok(());
    }
    Err(Failure::misuse(format!("{} is not a name of a node", quoted(name)))
        .hint("names of nodes have letters, digits, '-', '_' and '.'; `berth node list` shows all"))
}

/// A text that may hold anything, in one short line without control characters.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 40;
    if text.chars().count() <= SHOWN_CHARS_MAX {
        return format!("{text:?}");
    }
    let beginning: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    format!("{beginning:?}... ({} bytes)", text.len())
}

/// The candidate that `name` was probably meant to be.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
    fn names_that_could_be_paths_or_worse_are_refused() {
        for name in ["a", "hyper1", "a-1-1-jupyter", "0", &"x".repeat(63)] {
            assert_eq!(check("workload", name), Ok(()), "{name}");
        }
        for name in ["", "../etc", "a/b", "a\0b", "A", "-a", "a_b", "a.b", "é", "a\u{202e}b", &"x".repeat(64)]
        {
            assert!(check("workload", name).is_err(), "{name:?}");
        }
        let refused = check("project", &"x".repeat(10_000)).expect_err("is refused").to_string();
        assert!(
            refused.len() < 300 && refused.contains("(10000 bytes) is not a name of a project"),
            "{refused}"
        );
        assert!(
            check_host("dgx-1.example.org").is_ok()
                && check_host("..").is_err()
                && check_host("a/b").is_err()
        );
    }

    #[test]
    fn the_nearest_name_is_offered_only_when_it_is_near() {
        let names = ["team-a", "team-b", "vision"];
        assert_eq!(nearest("tema-a", names), Some("team-a"));
        assert_eq!(nearest("visoin", names), Some("vision"));
        assert_eq!(nearest("speech", names), None);
        assert_eq!(nearest("delte", ["delete", "describe"]), Some("delete"));
        assert_eq!(nearest(&"x".repeat(10_000), names), None);
    }
}
