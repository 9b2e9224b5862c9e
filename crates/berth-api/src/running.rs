//! What a running server leaves in its folder, so that whoever may read the folder finds it.

use serde::{Deserialize, Serialize};

/// The file that names the running server, in its folder. It is gone when the server ended well.
pub const SERVER_FILE: &str = "server.json";
/// The file with the token of the machine's own people, in the folder; only its owner may read it.
pub const TOKEN_FILE: &str = "token";

/// Where a server runs: the text of [`SERVER_FILE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningServer {
    /// Its address, as `http://127.0.0.1:7370`.
    pub address: String,
    /// Its process.
    pub pid: u32,
    /// Its release.
    pub version: String,
    /// The fingerprint of its certificate, when it speaks TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}
