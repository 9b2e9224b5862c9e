//! A port nobody uses.

use anyhow::{Context, Result, bail};
use std::net::{Ipv4Addr, TcpListener};

/// Below what Linux gives to outgoing connections, so that a server that is stopped for a while finds its port free.
const FIRST: u16 = 12_000;
const COUNT: u16 = 18_000;
const TRIES: u32 = 200;

/// A port of the loopback address that was free a moment ago. Somebody else may take it before it is used, so whoever
/// starts a server on it must be ready to ask for another.
pub(crate) fn free() -> Result<u16> {
    for _ in 0..TRIES {
        let mut dice = [0; 2];
        getrandom::fill(&mut dice).context("random numbers for a port")?;
        let port = FIRST + u16::from_le_bytes(dice) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port of 127.0.0.1 between {FIRST} and {} after {TRIES} tries", FIRST + COUNT)
}
