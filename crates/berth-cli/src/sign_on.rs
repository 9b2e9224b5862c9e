//! `berth login --oidc`: a browser signs in at the provider of single sign-on, and brings back a code for this command.
//!
//! The code comes to a port on loopback, or is typed by whoever has the browser on another machine. It is of no use without the
//! proof, which never leaves this process before it is redeemed.

use crate::failure::{Exit, Failure};
use berth_api::SignInProof;
use berth_client::{Client, Proof};
use std::{
    io::{self, BufRead, IsTerminal},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time,
};

/// Whoever signs in does so within this time.
const WITHIN: Duration = Duration::from_secs(600);
/// A request of a browser begins with all that is wanted of it.
const REQUEST_BYTES_MAX: usize = 4 << 10;
const REQUEST_WITHIN: Duration = Duration::from_secs(5);
const DONE: &str =
    "<!doctype html><meta charset=\"utf-8\"><title>Berth</title><p>Signed in. This page can be closed.</p>\n";

/// A token for whoever signs in at the provider.
pub(crate) async fn token(client: &Client) -> anyhow::Result<String> {
    let offered = client.single_sign_on().await?;
    let (Some(name), Some(start)) = (offered.name, offered.start) else {
        let text = format!("{} has no single sign-on", client.address());
        return Err(Failure::new(Exit::Refused, text)
            .hint("log in with a token instead, without --oidc")
            .into());
    };
    let proof = Proof::new();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    eprintln!("berth: open this in a browser, and sign in with {name}:");
    eprintln!("  {}{start}?port={port}&challenge={}", client.address(), proof.challenge);
    let typed = typed();
    let brought = time::timeout(WITHIN, async {
        tokio::select! {
            code = brought(&listener) => code,
            Ok(code) = typed => Ok(code),
        }
    });
    let code = match brought.await {
        Ok(code) => code?,
        Err(_) => {
            let text = format!("nobody signed in within {} minutes", WITHIN.as_secs() / 60);
            return Err(Failure::new(Exit::TimedOut, text).into());
        }
    };
    Ok(client.redeem(&SignInProof { code, verifier: proof.verifier }).await?.secret)
}

/// What a person types. A thread of its own waits for it, which ends with the process.
fn typed() -> oneshot::Receiver<String> {
    let (sender, receiver) = oneshot::channel();
    if io::stdin().is_terminal() {
        eprintln!("berth: if that browser is on another machine, type the code that it shows:");
        std::thread::spawn(move || {
            let lines = io::stdin().lock().lines().map_while(Result::ok);
            let code = lines.map(|line| line.trim().to_owned()).find(|line| !line.is_empty());
            // Nobody waits for it once the browser was quicker.
            let _ = code.map(|code| sender.send(code));
        });
    }
    // Without a terminal nobody types, and only the browser is waited for.
    receiver
}

/// The code that a browser brings.
async fn brought(listener: &TcpListener) -> anyhow::Result<String> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        let Ok(Some(code)) = time::timeout(REQUEST_WITHIN, request(&mut stream)).await else { continue };
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\nreferrer-policy: no-referrer\r\n\
             connection: close\r\n\r\n{DONE}",
            DONE.len()
        );
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
        return Ok(code);
    }
}

/// The code in a request, if it is one that brings it. Browsers ask for more than they are told to.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    while !read.windows(4).any(|end| end == b"\r\n\r\n") && read.len() < REQUEST_BYTES_MAX {
        let mut buffer = [0; 1024];
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => read.extend_from_slice(&buffer[..count]),
        }
    }
    let text = String::from_utf8_lossy(&read);
    let (code, _) = text.strip_prefix("GET /?code=")?.split_once(' ')?;
    let is_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_code.then(|| code.to_owned())
}
