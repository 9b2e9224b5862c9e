//! A server that answers what a test tells it to, byte by byte, on a port of its own.

use berth_client::{Client, Endpoint, Limits};
use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

/// What the server does with a request.
pub(crate) enum Reply {
    /// Sends these bytes and keeps the connection.
    Keep(Vec<u8>),
    /// Sends these bytes and closes the connection.
    Close(Vec<u8>),
    /// Says nothing until the test is over.
    Hang,
}

/// Holds what was asked, in order.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().expect("no test panics while it holds the list").clone()
    }
}

/// Starts a server whose answer depends on how many requests came before, and on the request.
pub(crate) fn serve(answer: impl Fn(usize, &str) -> Reply + Send + Sync + 'static) -> (Client, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let asked = Asked::default();
    let (seen, answer) = (asked.clone(), Arc::new(answer));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (seen, answer) = (seen.clone(), answer.clone());
            thread::spawn(move || converse(stream.expect("a connection"), &seen, &*answer));
        }
    });
    let endpoint = Endpoint::new(address.parse().expect("an address"), "secret").expect("a token");
    (Client::new(endpoint, "ada").with_limits(limits()), asked)
}

/// Long enough for a busy machine, but where a test is about bounds.
pub(crate) fn limits() -> Limits {
    Limits { reconnect: Duration::from_millis(1), answer_bytes_max: 100_000, ..Limits::default() }
}

fn converse(stream: TcpStream, seen: &Asked, answer: &dyn Fn(usize, &str) -> Reply) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut stream = stream;
    while let Some(request) = read_request(&mut reader) {
        let count = {
            let mut all = seen.0.lock().expect("no test panics while it holds the list");
            all.push(request.clone());
            all.len() - 1
        };
        match answer(count, &request) {
            Reply::Keep(bytes) => {
                let _ = stream.write_all(&bytes);
            }
            Reply::Close(bytes) => {
                let _ = stream.write_all(&bytes);
                return;
            }
            Reply::Hang => {
                // The sender lives as long as the receiver, so this waits for the end of the process.
                let (_sender, receiver) = mpsc::channel::<()>();
                let _ = receiver.recv();
            }
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<String> {
    let mut request = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        let is_end = line == "\r\n";
        request.push_str(&line);
        if is_end {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    request.push_str(&String::from_utf8_lossy(&body));
    Some(request)
}

/// An answer of this release.
pub(crate) fn json(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nberth-version: {}\r\n{headers}content-length: {}\r\n\r\n{body}",
        berth_api::release(),
        body.len()
    )
    .into_bytes()
}

/// The beginning of a stream of events, which lasts until the connection is closed.
pub(crate) fn sse(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nberth-version: {}\r\ncontent-type: text/event-stream\r\n\r\n{body}",
        berth_api::release()
    )
    .into_bytes()
}

/// An event as a stream sends it.
pub(crate) fn event(seq: u64) -> String {
    format!(
        "id: {seq}\nevent: started\ndata: {{\"seq\":{seq},\"at\":\"2026-11-17T08:00:00.000Z\",\"kind\":\"started\",\
         \"level\":\"normal\",\"message\":\"m\"}}\n\n"
    )
}
