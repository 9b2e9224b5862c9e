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
        let mut length = 0;
        loop {
            line.clear();
            ensure!(self.stream.read_line(&mut line)? > 0, "the answer ends too early");
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer)?;
        let answer = String::from_utf8(answer)?;
        if status >= 400 {
            bail!("{method} {path}: {status} {answer}");
        }
        Ok(answer)
    }
}
