//! Calls the API: finds the server, sends requests, reads answers, follows streams.
//!
//! Owns the connection and what can go wrong with it. Knows what is said over the wire, and nothing behind it; prints
//! nothing, and decides nothing.
//!
//! ```text
//! Endpoint::find(folder) --> Client --> one request at a time over one kept connection
//!                                  \--> a stream, a log, a shell or a port: a connection of its own
//! ```

mod address;
mod calls;
mod client;
mod connection;
mod endpoint;
mod error;
mod proof;
mod query;
mod socket;
mod sse;
mod stream;

pub use address::Address;
pub use client::{Client, Limits, Listed};
pub use endpoint::{Endpoint, running};
pub use error::ClientError;
pub use proof::Proof;
pub use socket::{PortReceiver, PortSender, ShellMessage, ShellReceiver, ShellSender};
pub use stream::{EventStream, LogStream};
