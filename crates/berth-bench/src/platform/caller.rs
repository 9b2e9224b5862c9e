//! One client on one connection that is kept, as quick as a client can be, so that the server is what is measured.

use anyhow::{Context, Result, bail, ensure};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

pub(crate) struct Caller {
    stream: BufReader<TcpStream>,
    head: String,
}

impl Caller {
    pub(crate) fn new(address: &str, token: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).context("the server listens")?;
        stream.set_nodelay(true)?;
        let head = format!("host: {address}\r\nauthorization: Bearer {token}\r\n");
        Ok(Self { stream: BufReader::new(stream), head })
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Result<String> {
        self.call("POST", path, body)
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<String> {
        self.call("GET", path, "")
    }

    pub(crate) fn delete(&mut self, path: &str) -> Result<String> {
        self.call("DELETE", path, "")
    }

    fn call(&mut self, method: &str, path: &str, body: &str) -> Result<String> {
        let request =
            format!("{method} {path} HTTP/1.1\r\n{}content-length: {}\r\n\r\n{body}", self.head, body.len());
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status: u16 =
            line.split(' ').nth(1).and_then(|status| status.parse().ok()).context("a status")?;
        let (mut length, mut is_chunked) = (0, false);
        loop {
            line.clear();
            ensure!(self.stream.read_line(&mut line)? > 0, "the answer ends too early");
            if line == "\r\n" {
                break;
            }
            let header = line.to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            is_chunked |=
                header.strip_prefix("transfer-encoding:").is_some_and(|value| value.trim() == "chunked");
        }
        let mut answer = Vec::new();
        match is_chunked {
            true => self.read_chunks(&mut answer)?,
            false => self.read_part(length, &mut answer)?,
        }
        let answer = String::from_utf8(answer)?;
        if status >= 400 {
            bail!("{method} {path}: {status} {answer}");
        }
        Ok(answer)
    }

    fn read_part(&mut self, length: usize, into: &mut Vec<u8>) -> Result<()> {
        let begin = into.len();
        into.resize(begin + length, 0);
        Ok(self.stream.read_exact(&mut into[begin..])?)
    }

    /// Reads an answer whose length is not known before its end, such as a log.
    fn read_chunks(&mut self, into: &mut Vec<u8>) -> Result<()> {
        let mut line = String::new();
        loop {
            line.clear();
            ensure!(self.stream.read_line(&mut line)? > 0, "the answer ends too early");
            let length = usize::from_str_radix(line.trim(), 16).context("the length of a chunk")?;
            self.read_part(length, into)?;
            // Each chunk is followed by the end of a line, the last one of no bytes too.
            line.clear();
            self.stream.read_line(&mut line)?;
            if length == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Gives what a caller makes of two answers on one connection.
    fn read(answers: [&'static str; 2]) -> [Result<String>; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a caller");
            let mut reader = BufReader::new(stream.try_clone().expect("the same stream"));
            for answer in answers {
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    reader.read_line(&mut line).expect("a request");
                }
                stream.write_all(answer.as_bytes()).expect("the caller listens");
            }
        });
        let mut caller = Caller::new(&address, "token").expect("it listens");
        let read = [caller.get("/a"), caller.get("/b")];
        server.join().expect("both were asked for");
        read
    }

    #[test]
    fn an_answer_in_chunks_is_read_whole_and_the_next_begins_after_it() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n123456\r\nb\r\n7890abcdefg\r\n0\r\n\r\n";
        let [log, next] = read([chunked, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]);
        assert_eq!(
            (log.expect("a log").as_str(), next.expect("an answer").as_str()),
            ("1234567890abcdefg", "ok")
        );
    }

    #[test]
    fn a_refusal_is_an_error_with_what_the_server_said() {
        let refused = "HTTP/1.1 404 Not Found\r\nContent-Length: 12\r\n\r\nit never ran";
        let [refused, _] = read([refused, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]);
        assert_eq!(refused.expect_err("a refusal").to_string(), "GET /a: 404 it never ran");
    }
}
