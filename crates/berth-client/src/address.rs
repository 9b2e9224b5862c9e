//! Addresses of servers.

use crate::ClientError;
use std::{fmt, str::FromStr};

/// Where a server listens: with or without TLS, a host, a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    tls: bool,
    host: String,
    port: u16,
}

impl Address {
    /// Host and port, as sockets and the `host` header want them.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Whether it is to be reached by TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The host alone.
    pub fn host(&self) -> &str {
        &self.host
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl FromStr for Address {
    type Err = ClientError;

    fn from_str(text: &str) -> Result<Self, ClientError> {
        let wrong = |reason| ClientError::Address { address: text.to_owned(), reason };
        let (tls, rest) = match text.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix("http://").unwrap_or(text)),
        };
        let rest = rest.trim_end_matches('/');
        if rest.contains("://") {
            return Err(wrong("an address begins with http:// or https://"));
        }
        if rest.is_empty() || rest.contains(|c: char| c == '/' || c == '@' || c == '?' || c.is_whitespace()) {
            return Err(wrong("an address is a host and a port, as http://127.0.0.1:7370"));
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !host.ends_with(':') && (!host.contains(':') || host.ends_with(']')) => {
                (host, port.parse().map_err(|_| wrong("its port is not a number below 65536"))?)
            }
            None => (rest, if tls { 443 } else { 80 }),
            Some(_) => return Err(wrong("an address of IPv6 is written in brackets, as http://[::1]:7370")),
        };
        if host.is_empty() || port == 0 {
            return Err(wrong("an address is a host and a port, as http://127.0.0.1:7370"));
        }
        Ok(Self { tls, host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, read) in [
            ("http://127.0.0.1:7370", "http://127.0.0.1:7370"),
            ("127.0.0.1:7370/", "http://127.0.0.1:7370"),
            ("http://[::1]:7370", "http://[::1]:7370"),
            ("berth.example", "http://berth.example:80"),
            ("https://berth.example/", "https://berth.example:443"),
            ("https://[::1]:7370", "https://[::1]:7370"),
        ] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), read);
        }
    }

    #[test]
    fn what_cannot_be_called_is_refused_with_the_reason() {
        for (text, reason) in [
            ("ftp://berth.example", "begins with http:// or https://"),
            ("http://", "a host and a port"),
            ("http://a/b", "a host and a port"),
            ("http://user@a:1", "a host and a port"),
            ("http://a:0", "a host and a port"),
            ("http://a:70000", "below 65536"),
            ("http://::1:80", "in brackets"),
        ] {
            let refused = text.parse::<Address>().expect_err(text).to_string();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
    }
}
