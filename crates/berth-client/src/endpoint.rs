//! Where the server is, and the token it wants.

use crate::{Address, ClientError};
use berth_api::{RunningServer, SERVER_FILE, TOKEN_FILE};
use berth_tls::Trust;
use std::{fs, io, path::Path};

/// A server that may be called.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub address: Address,
    /// What the caller shows; plain characters.
    token: String,
    /// Its process, when it runs on this machine and says so.
    pub pid: Option<u32>,
    /// Whose certificate it may show.
    trust: Trust,
}

impl Endpoint {
    /// A server whose address and token are known. No token is sent when it is empty.
    pub fn new(address: Address, token: &str) -> Result<Self, ClientError> {
        match is_plain(token) {
            true => Ok(Self { address, token: token.to_owned(), pid: None, trust: Trust::System }),
            false => Err(ClientError::Unauthorised { address: address.to_string() }),
        }
    }

    /// With another opinion of whose certificate it may show.
    #[must_use]
    pub fn trusting(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    pub(crate) fn trust(&self) -> &Trust {
        &self.trust
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The server of a folder on this machine.
    pub fn of_folder(folder: &Path) -> Result<Self, ClientError> {
        let running =
            running(folder)?.ok_or_else(|| ClientError::NotRunning { folder: folder.to_owned() })?;
        // Whoever may write the folder may say which certificate is the right one.
        let trust = match running.fingerprint.as_deref().map(str::parse) {
            None => Trust::System,
            Some(Ok(fingerprint)) => Trust::Fingerprint(fingerprint),
            Some(Err(reason)) => {
                let source = io::Error::new(io::ErrorKind::InvalidData, reason);
                return Err(ClientError::Folder { path: folder.join(SERVER_FILE), source });
            }
        };
        Ok(Self {
            trust,
            address: running.address.parse()?,
            token: read_token(&folder.join(TOKEN_FILE))?,
            pid: Some(running.pid),
        })
    }
}

/// A token is a secret, so it is left out of whatever is printed for debugging.
impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address)
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

/// What a folder says about its server; nothing when there is none. A file may outlive a server that was killed, so what
/// it says is a claim until somebody answers.
pub fn running(folder: &Path) -> Result<Option<RunningServer>, ClientError> {
    let path = folder.join(SERVER_FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(source) => return Err(ClientError::Folder { path, source }),
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| ClientError::Folder {
        path,
        source: io::Error::new(io::ErrorKind::InvalidData, error),
    })
}

fn read_token(path: &Path) -> Result<String, ClientError> {
    let unreadable = |source| ClientError::Folder { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let token = text.trim();
    if token.is_empty() || !is_plain(token) {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidData, "it holds no token")));
    }
    Ok(token.to_owned())
}

/// Whether it can stand in a header.
fn is_plain(token: &str) -> bool {
    token.bytes().all(|byte| byte.is_ascii_graphic())
}
