//! What is said over the sockets of shells: a command beside a worker, or the worker's own terminal.
//!
//! A message of bytes belongs to a stream, named by its first byte. A message of text is JSON: what the client says is a
//! [`ShellSays`], what the server says a [`ShellTells`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// The first byte of a message from the client: what is typed.
pub const STREAM_STDIN: u8 = 0;
/// The first byte of a message from the server: what is printed.
pub const STREAM_STDOUT: u8 = 1;
/// The first byte of a message from the server: what is printed as errors.
pub const STREAM_STDERR: u8 = 2;
/// The name of this way of speaking, for the header `sec-websocket-protocol`.
pub const SHELL_PROTOCOL: &str = "berth.shell.v1";
/// The largest message, in bytes.
pub const SHELL_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Beside which worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ShellQuery {
    /// Which worker; 0 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

/// To which port of which worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ConnectQuery {
    /// Which port, as the workload names it.
    pub port: u16,
    /// Which worker; the first when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShellSize {
    /// How wide.
    pub columns: u16,
    /// How high.
    pub rows: u16,
}

/// What is to be run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShellRequest {
    /// The command and its arguments; a shell, when empty.
    pub command: Vec<String>,
    /// Variables besides those of the worker.
    pub environment: BTreeMap<String, String>,
    /// A terminal of this size; pipes, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<ShellSize>,
}

/// What the client says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ShellSays {
    /// The first message: what to run. To join a worker's own terminal, what is there runs already.
    Start(ShellRequest),
    /// The terminal has another size now.
    Resize(ShellSize),
    /// Nothing more will be typed.
    CloseStdin,
}

/// What the server says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ShellTells {
    /// It runs.
    Started {
        /// Whether it has a terminal.
        terminal: bool,
        /// The server says something at least this often.
        ping_every_ms: u64,
    },
    /// It cannot be run.
    Refused {
        /// Why, and what to do about it.
        detail: String,
    },
    /// Something that a person should know; it goes on.
    Notice {
        /// What.
        detail: String,
    },
    /// It ended by itself; the last message.
    Exit {
        /// Its code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        /// The signal it died of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
    /// It was ended from outside; the last message.
    Ended {
        /// Why.
        detail: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_plain_json() {
        let start = ShellSays::Start(ShellRequest {
            command: vec!["ls".into()],
            terminal: Some(ShellSize { columns: 80, rows: 24 }),
            ..ShellRequest::default()
        });
        let text = serde_json::to_string(&start).expect("is JSON");
        assert_eq!(
            text,
            r#"{"type":"start","command":["ls"],"environment":{},"terminal":{"columns":80,"rows":24}}"#
        );
        assert_eq!(serde_json::from_str::<ShellSays>(&text).expect("reads"), start);
        let bare: ShellSays = serde_json::from_str(r#"{"type":"start"}"#).expect("everything has a default");
        assert_eq!(bare, ShellSays::Start(ShellRequest::default()));
        let exit = serde_json::to_string(&ShellTells::Exit { code: Some(7), signal: None }).expect("is JSON");
        assert_eq!(exit, r#"{"type":"exit","code":7}"#);
        assert_eq!(
            serde_json::to_string(&ShellSays::CloseStdin).expect("is JSON"),
            r#"{"type":"close-stdin"}"#
        );
    }
}
