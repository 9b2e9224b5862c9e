//! TLS for both sides: whose certificate is trusted, and where a server's own comes from.
//!
//! Knows certificates and sockets, and nothing of what is said over them. One library of cryptography is named here, so that a
//! process has one.
//!
//! ```text
//! files, or made once --> Certificate --acceptor--> server   (looked at again: a changed file is taken up)
//! system, file, fingerprint --> Trust --> Connector --> client
//! ```

mod certificate;
mod fingerprint;
mod signature;
mod trust;

pub use certificate::{Certificate, Source};
pub use fingerprint::Fingerprint;
pub use signature::PublicKey;
pub use tokio_rustls::{TlsAcceptor, client::TlsStream as ClientStream, server::TlsStream as ServerStream};
pub use trust::{Connector, Trust};

use std::{io, path::PathBuf};

/// What can go wrong with a certificate, or with a connection that needs one.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The other side's certificate is not trusted.
    #[error("its certificate is not trusted: {reason}")]
    Untrusted {
        /// Which one it is, if it was seen.
        fingerprint: Option<Fingerprint>,
        /// Why not.
        reason: String,
    },
    /// The other side has another certificate than the one that is trusted.
    #[error("its certificate is another one than the one that is trusted: {found}, not {trusted}")]
    Another {
        /// What is trusted.
        trusted: Fingerprint,
        /// What it showed.
        found: Fingerprint,
    },
    /// The other side does not speak TLS.
    #[error("it does not speak TLS")]
    NotTls,
    /// The host cannot stand in a certificate.
    #[error("{0:?} is no name of a host")]
    Host(String),
    /// The handshake failed for another reason.
    #[error("the TLS handshake failed: {0}")]
    Handshake(io::Error),
    /// A file.
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file that was to be made.
    #[error("{} cannot be written: {source}", path.display())]
    Unwritable {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file, or a text, does not hold what it should.
    #[error("{place}: {reason}")]
    Content {
        /// Where.
        place: String,
        /// What is wrong.
        reason: String,
    },
}

/// The one provider of cryptography.
fn provider() -> std::sync::Arc<rustls::crypto::CryptoProvider> {
    std::sync::Arc::new(rustls::crypto::ring::default_provider())
}
