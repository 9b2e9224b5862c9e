//! Asks the provider: one request over one connection, within a time, of a bounded answer.

use berth_tls::{Connector, Trust};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, StatusCode, body::Bytes, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::time::Duration;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

const WITHIN: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// An address that can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    tls: bool,
    authority: String,
    path: String,
}

impl Url {
    /// Over TLS, or on this machine: whoever is in between would say who everybody is.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err("an address begins with https://".into()),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let url = Self { tls, authority: authority.into(), path: path.into() };
        if authority.is_empty()
            || authority.contains('@')
            || text.contains(|c: char| c.is_whitespace() || c == '#')
        {
            return Err("it is no address".into());
        }
        let is_here = ["localhost", "127.0.0.1", "[::1]"].contains(&url.host());
        match tls || is_here {
            true => Ok(url),
            false => Err("it must begin with https://, unless it is on this machine".into()),
        }
    }

    pub(super) fn host(&self) -> &str {
        match self.authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &self.authority,
        }
    }

    fn socket(&self) -> String {
        match self.host().len() == self.authority.len() {
            true => format!("{}:{}", self.authority, if self.tls { 443 } else { 80 }),
            false => self.authority.clone(),
        }
    }
}

/// What is sent.
#[derive(Default)]
pub(super) struct Ask {
    /// A form; without one it is a GET.
    pub(super) form: Option<Vec<(&'static str, String)>>,
    pub(super) authorization: Option<String>,
}

/// Asks for JSON; the text says why there is none.
pub(super) async fn ask(url: &str, trust: &Trust, ask: Ask) -> Result<(StatusCode, Value), String> {
    let url = Url::parse(url)?;
    match timeout(WITHIN, answered(&url, trust, ask)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {} s", WITHIN.as_secs())),
    }
}

async fn answered(url: &Url, trust: &Trust, ask: Ask) -> Result<(StatusCode, Value), String> {
    let stream = TcpStream::connect(url.socket()).await.map_err(|error| error.to_string())?;
    match url.tls {
        false => exchange(url, stream, ask).await,
        true => {
            let connector = Connector::new(trust).map_err(|error| error.to_string())?;
            let stream = connector.connect(url.host(), stream).await.map_err(|error| error.to_string())?;
            exchange(url, stream, ask).await
        }
    }
}

async fn exchange(
    url: &Url,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ask: Ask,
) -> Result<(StatusCode, Value), String> {
    let text = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    tokio::spawn(connection);
    let mut request = Request::builder()
        .method(if ask.form.is_some() { Method::POST } else { Method::GET })
        .uri(if url.path.is_empty() { "/" } else { url.path.as_str() })
        .header(header::HOST, &url.authority)
        .header(header::ACCEPT, "application/json")
        .header(header::CONNECTION, "close");
    if let Some(authorization) = ask.authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let body = match ask.form {
        None => String::new(),
        Some(form) => {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
            query(&form)
        }
    };
    let request = request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(text)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    let value = serde_json::from_slice(&body).map_err(|_| format!("it answers {status}, and no JSON"))?;
    Ok((status, value))
}

/// Pairs as a query or a form.
pub(super) fn query(pairs: &[(&'static str, String)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    pairs.join("&")
}

/// A text with every byte that could mean something else written as its number.
pub(super) fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_elsewhere_is_asked_over_tls_only() {
        for good in [
            "https://id.example",
            "https://id.example:8443/realms/a",
            "http://127.0.0.1:9/x",
            "http://localhost:1",
        ] {
            assert!(Url::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "http://id.example",
            "http://127.0.0.1.evil.example",
            "ftp://x",
            "https://",
            "https://a b",
            "https://u@h",
            "",
        ] {
            assert!(Url::parse(bad).is_err(), "{bad}");
        }
        let url = Url::parse("https://id.example/realms/a").expect("is read");
        assert_eq!((url.host(), url.socket()), ("id.example", "id.example:443".into()));
    }

    #[test]
    fn nothing_in_a_value_ends_it() {
        assert_eq!(query(&[("a", "b&c=d e".into()), ("f", "ü".into())]), "a=b%26c%3Dd%20e&f=%C3%BC");
    }
}
