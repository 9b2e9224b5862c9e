//! Reads server-sent events: lines of `field: value`, an empty line ends an event.

/// One event as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Message {
    pub(crate) id: Option<u64>,
    pub(crate) data: String,
}

/// Collects bytes until events are complete.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// Bytes of a line whose end has not come yet.
    line: Vec<u8>,
    message: Message,
    has_data: bool,
    /// A carriage return ended a line; a line feed right after it belongs to it.
    after_return: bool,
}

/// An event is larger than anything the server sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Parser {
    /// Takes what arrived and returns the events that are complete now.
    pub(crate) fn take(&mut self, bytes: &[u8], bytes_max: usize) -> Result<Vec<Message>, TooLarge> {
        let mut messages = Vec::new();
        for &byte in bytes {
            if byte == b'\n' && std::mem::take(&mut self.after_return) {
                continue;
            }
            self.after_return = byte == b'\r';
            if byte == b'\n' || byte == b'\r' {
                let line = std::mem::take(&mut self.line);
                messages.extend(self.on_line(&String::from_utf8_lossy(&line)));
            } else {
                self.line.push(byte);
            }
            if self.line.len() + self.message.data.len() > bytes_max {
                return Err(TooLarge);
            }
        }
        Ok(messages)
    }

    fn on_line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let message = std::mem::take(&mut self.message);
            return std::mem::take(&mut self.has_data).then_some(message);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.message.data.push('\n');
                }
                self.message.data.push_str(value);
                self.has_data = true;
            }
            "id" => self.message.id = value.parse().ok(),
            // Comments keep the connection alive; the name of an event is inside of it too.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(parts: &[&str]) -> Vec<(Option<u64>, String)> {
        let mut parser = Parser::default();
        let parts = parts.iter().flat_map(|part| parser.take(part.as_bytes(), 1_000).expect("small enough"));
        parts.map(|message| (message.id, message.data)).collect()
    }

    #[test]
    fn events_are_whole_however_their_bytes_arrive() {
        let text = ": hello\n\nid: 7\nevent: started\ndata: {\"a\":1}\n\nid:8\r\ndata: x\r\ndata: y\r\n\r\n";
        let expected = vec![(Some(7), "{\"a\":1}".to_owned()), (Some(8), "x\ny".to_owned())];
        assert_eq!(parse(&[text]), expected);
        let bytes: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(parse(&bytes.iter().map(String::as_str).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn an_event_without_data_is_none_and_a_torn_one_is_not_given_out() {
        assert_eq!(parse(&["id: 3\n\ndata: torn\n"]), vec![]);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut parser = Parser::default();
        assert_eq!(parser.take(&[b'x'; 1001], 1_000), Err(TooLarge));
    }
}
