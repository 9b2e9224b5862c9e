//! What can go wrong when a server is started.

use std::{io, net::SocketAddr, path::PathBuf};

/// Why a server could not be started, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The database.
    #[error("the store could not be used")]
    Store(#[from] berth_store::StoreError),
    /// The agent.
    #[error("the agent could not be started")]
    Agent(#[from] berth_agent::AgentError),
    /// The log holds what this version does not understand.
    #[error("event {seq} of the log cannot be taken: {reason}")]
    Log {
        /// Which.
        seq: u64,
        /// Why.
        reason: String,
    },
    /// A file or folder.
    #[error("{doing} {}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The address is not to be had.
    #[error("cannot listen on {address}: choose another with --listen, or stop who has it")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// An address that others could reach, which needs TLS.
    #[error(
        "other machines reach {0}, so TLS is needed: name a certificate with --tls-cert and --tls-key, or have one made with \
         --tls-generate; --insecure-listen goes without, and lets whoever is in between read every token"
    )]
    NotLoopback(SocketAddr),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] berth_tls::TlsError),
    /// Work cannot run as the users it belongs to.
    #[error("work cannot run under accounts of users: {0}")]
    Accounts(String),
    /// What was declared makes no sense.
    #[error("{0}")]
    Declared(String),
    /// A thread or socket could not be had.
    #[error("starting {doing}")]
    Start {
        /// What.
        doing: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl ServerError {
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { doing, path, source }
    }
}
