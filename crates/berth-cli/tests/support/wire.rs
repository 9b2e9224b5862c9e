//! HTTP and WebSockets by hand: what a test wants said, and nothing more.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// One request over a connection of its own.
pub(crate) fn ask_at(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let authority = address.trim_start_matches("http://");
    let mut stream = TcpStream::connect(authority).expect("the server listens");
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\ncontent-length: {}\r\n{more}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it is sent");
    read_answer(&mut BufReader::new(stream))
}

fn read_answer(reader: &mut BufReader<TcpStream>) -> Answer {
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    };
    let status = line().split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let mut headers = Vec::new();
    loop {
        let line = line();
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut body = Vec::new();
    let length =
        headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    match (status, length) {
        (101, _) => {}
        (_, Some(length)) => {
            body.resize(length, 0);
            reader.read_exact(&mut body).expect("the body");
        }
        (_, None) => drop(reader.read_to_end(&mut body).expect("the body")),
    }
    Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() }
}

/// A WebSocket by hand: what a browser would do, and nothing more.
pub(crate) struct Socket(BufReader<TcpStream>);

pub(crate) fn socket(address: &str, path: &str, headers: &[(&str, &str)]) -> Result<Socket, Answer> {
    let authority = address.trim_start_matches("http://");
    let mut stream = TcpStream::connect(authority).expect("the server listens");
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it is sent");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    let mut reader = BufReader::new(stream);
    let answer = read_answer(&mut reader);
    if answer.status == 101 { Ok(Socket(reader)) } else { Err(answer) }
}

impl Socket {
    /// Sends a text.
    pub(crate) fn say(&mut self, text: &str) {
        self.send(0x81, text.as_bytes());
    }

    /// Sends bytes.
    pub(crate) fn say_bytes(&mut self, bytes: &[u8]) {
        self.send(0x82, bytes);
    }

    /// Sends what goes on after the handshake, whatever it is.
    pub(crate) fn say_raw(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("it is sent");
    }

    /// The next so many bytes, whatever they are.
    pub(crate) fn hear_raw(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).expect("so many bytes");
        bytes
    }

    /// Masked by zeros, as clients must mask.
    fn send(&mut self, first: u8, bytes: &[u8]) {
        let length = u16::try_from(bytes.len()).expect("a short message");
        let mut frame = vec![first, 0x80 | 126];
        frame.extend(length.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(bytes);
        self.0.get_mut().write_all(&frame).expect("it is sent");
    }

    /// The next frame as text.
    pub(crate) fn hear(&mut self) -> String {
        let mut two = [0; 2];
        self.0.read_exact(&mut two).expect("a frame");
        let length = match two[1] & 0x7f {
            126 => {
                let mut bytes = [0; 2];
                self.0.read_exact(&mut bytes).expect("a length");
                u64::from(u16::from_be_bytes(bytes))
            }
            127 => {
                let mut bytes = [0; 8];
                self.0.read_exact(&mut bytes).expect("a length");
                u64::from_be_bytes(bytes)
            }
            length => u64::from(length),
        };
        let mut body = vec![0; length as usize];
        self.0.read_exact(&mut body).expect("a body");
        String::from_utf8_lossy(&body).into_owned()
    }
}
