//! What can go wrong between a caller and the server.

use berth_api::Problem;
use berth_tls::TlsError;
use std::{io, path::PathBuf, time::Duration};

/// Why a call has no answer. Each variant is something a caller may do differently about.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The folder names no server.
    #[error("berth is not running in {}", folder.display())]
    NotRunning {
        /// The folder that was looked at.
        folder: PathBuf,
    },
    /// A file of the folder cannot be used.
    #[error("cannot read {}", path.display())]
    Folder {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The address is of a kind that this release cannot call.
    #[error("{address}: {reason}")]
    Address {
        /// The address as it was written.
        address: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Nobody answers at the address.
    #[error("nobody answers at {address}")]
    Unreachable {
        /// The address.
        address: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// What the server shows to prove that it is the right one does not.
    #[error("the server at {address} is not trusted")]
    Tls {
        /// The address.
        address: String,
        /// Why not.
        #[source]
        source: TlsError,
    },
    /// The token is missing, or the server does not know it.
    #[error("the server at {address} does not know the token")]
    Unauthorised {
        /// The address.
        address: String,
    },
    /// The server refused, and says why.
    #[error("{0}")]
    Problem(Problem),
    /// Client and server are of releases that need not understand each other.
    #[error("this is berth {client}, and the server at {address} is berth {server}")]
    Version {
        /// The release of this client.
        client: String,
        /// The release of the server.
        server: String,
        /// The address.
        address: String,
    },
    /// No answer in time.
    #[error("the server at {address} did not answer within {} s", after.as_secs())]
    Timeout {
        /// The address.
        address: String,
        /// The time that was given.
        after: Duration,
    },
    /// What came back is no answer of Berth.
    #[error("{address} answers, and not as berth does: {what}")]
    Protocol {
        /// The address.
        address: String,
        /// What is wrong with it.
        what: String,
    },
    /// The connection ended before the answer was complete.
    #[error("the server at {address} closed the connection")]
    Closed {
        /// The address.
        address: String,
    },
}

impl ClientError {
    /// What the server said, if it was the server who refused.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            _ => None,
        }
    }
}
