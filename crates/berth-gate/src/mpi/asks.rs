//! What `mpirun` asks for, as it comes from the first worker, and what it is answered.
//!
//! ```text
//! 812-3 17\n          which, and how many bytes follow
//! 3\norted -mca ...   the worker, and the line for its shell
//! ```

/// The longest line that is accepted: that of a daemon names every worker.
const LINE_MAX: usize = 1 << 20;
/// The longest beginning of one.
const HEAD_MAX: usize = 64;

/// Something to be run in a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) id: String,
    pub(super) rank: u32,
    pub(super) line: String,
}

/// What came and is not whole yet.
#[derive(Debug, Default)]
pub(super) struct Asks(Vec<u8>);

impl Asks {
    /// Takes what came; gives what is whole by now, or says why it can never be.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Vec<Ask>, &'static str> {
        self.0.extend_from_slice(bytes);
        let mut whole = Vec::new();
        while let Some(ask) = self.next()? {
            whole.push(ask);
        }
        Ok(whole)
    }

    fn next(&mut self) -> Result<Option<Ask>, &'static str> {
        let Some(head) = self.0.iter().position(|byte| *byte == b'\n') else {
            return if self.0.len() > HEAD_MAX { Err("it does not begin") } else { Ok(None) };
        };
        let text = std::str::from_utf8(&self.0[..head]).map_err(|_| "it is no text")?;
        let mut words = text.split_whitespace();
        let id = words.next().filter(|id| is_id(id)).ok_or("it has no number")?.to_owned();
        let length: usize = words.next().and_then(|word| word.parse().ok()).ok_or("it has no length")?;
        if length > LINE_MAX {
            return Err("it is too long");
        }
        let end = head + 1 + length;
        if self.0.len() < end {
            return Ok(None);
        }
        let body = std::str::from_utf8(&self.0[head + 1..end]).map_err(|_| "it is no text")?;
        let (rank, line) = body.split_once('\n').ok_or("it names no worker")?;
        let rank = rank.parse().map_err(|_| "it names no worker")?;
        let ask = Ask { id, rank, line: line.to_owned() };
        self.0.drain(..end);
        Ok(Some(ask))
    }
}

/// It becomes the name of a file in the first worker.
fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// An answer, in one line.
pub(super) fn answer(id: &str, code: i32, said: &str) -> String {
    let said: Vec<&str> =
        said.split(|letter: char| letter.is_control()).filter(|part| !part.is_empty()).collect();
    format!("{id} {code} {}\n", said.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_pieces_is_taken_when_it_is_whole() {
        let all = b"81-1 7\n1\norted82-12 12\n12\necho a\nb ";
        let expected = [
            Ask { id: "81-1".into(), rank: 1, line: "orted".into() },
            Ask { id: "82-12".into(), rank: 12, line: "echo a\nb ".into() },
        ];
        for size in 1..=all.len() {
            let mut asks = Asks::default();
            let pieces = all.chunks(size).flat_map(|piece| asks.take(piece).expect("it can be read"));
            assert_eq!(pieces.collect::<Vec<_>>(), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn what_can_never_be_whole_is_refused() {
        let long = "9".repeat(100);
        for (text, why) in [
            (long.as_str(), "it does not begin"),
            ("../x 3\n", "it has no number"),
            ("1-1 x\n", "it has no length"),
            ("1-1 9999999999\n", "it is too long"),
            ("1-1 4\nab\nc", "it names no worker"),
            ("1-1 3\nabc", "it names no worker"),
        ] {
            assert_eq!(Asks::default().take(text.as_bytes()), Err(why), "{text}");
        }
    }

    #[test]
    fn an_answer_is_one_line() {
        assert_eq!(answer("7-1", 0, ""), "7-1 0 \n");
        assert_eq!(answer("7-1", 127, "sh: orted:\n\nnot found\n"), "7-1 127 sh: orted: | not found\n");
    }
}
