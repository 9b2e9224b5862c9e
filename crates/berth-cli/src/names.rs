//! Names: what cannot be one is refused before anybody is asked.

use crate::failure::Failure;
pub(crate) use berth_api::{nearest, quoted};

/// The longest name of a host.
const HOST_CHARS_MAX: usize = 253;

/// Refuses what can be no name of a workload, project, department, volume or pool. The server checks again.
pub(crate) fn check(noun: &str, name: &str) -> Result<(), Failure> {
    if berth_api::is_name(name) {
        return Ok(());
    }
    Err(Failure::misuse(format!("{} is not a name of a {noun}", quoted(name))).hint(berth_api::NAME_RULE))
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
}
