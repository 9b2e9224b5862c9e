//! Tells the agent what happens, when it listens.

use crate::task_folder::Told;
use std::{
    fs::File,
    os::{fd::AsRawFd, unix::net::UnixDatagram},
    path::{Path, PathBuf},
};

/// The agent's end is this file in its folder.
pub(crate) const SOCKET: &str = "facts.sock";

/// A socket that is never waited for: what cannot be told now is told again later, or read from a file.
#[derive(Debug)]
pub(super) struct Teller {
    socket: UnixDatagram,
    address: PathBuf,
    /// The address goes through this descriptor, because the path of a socket may have 107 bytes only.
    _agent: File,
}

impl Teller {
    pub(super) fn open(agent: &Path) -> Option<Self> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        let agent = File::open(agent).ok()?;
        let address = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", agent.as_raw_fd()));
        Some(Self { socket, address, _agent: agent })
    }

    /// Whether the agent has it, or there is no agent to have it.
    pub(super) fn tell(&self, told: &Told) -> bool {
        let text = serde_json::to_vec(told).unwrap_or_default();
        match self.socket.send_to(&text, &self.address) {
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
            Ok(_) => true,
        }
    }
}
