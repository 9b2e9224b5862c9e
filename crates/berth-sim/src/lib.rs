//! The simulator: virtual clusters that run the real engine.
//!
//! ```text
//! scenario text --parse--> statements --run--> World --> report, chart
//!                                              |   ^
//!                            Change, decisions v   | confirmations, ends, faults
//!                                             Engine
//! ```
//!
//! Everything is deterministic: virtual time, seeded faults, ordered maps. This crate has no scheduling rule of its own;
//! it does what a cluster would do with decisions, and asks `berth-check` whether the rules were kept.

pub mod chart;
mod effects;
pub mod explain;
pub mod faults;
pub mod narrate;
pub mod random;
pub mod report;
pub mod scenario;
pub mod trace;
mod verify;
pub mod work;
pub mod world;

pub use faults::Faults;
pub use verify::Found;
pub use work::{Checkpoints, Work};
pub use world::{Entry, Options, World};

/// Reads settings of the engine from TOML; what is not named keeps its default. Spans are in milliseconds.
pub fn read_policy(text: &str) -> Result<berth_types::Policy, toml::de::Error> {
    toml::from_str(text)
}
