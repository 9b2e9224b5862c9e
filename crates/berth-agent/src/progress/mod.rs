//! Finds progress in what tasks print.
//!
//! ```text
//! bytes --Scanner--> lines --Parser--> Report (merged) --at most twice a second--> agent
//! ```

mod parse;
mod scanner;

pub(crate) use parse::{Found, Parser};
pub(crate) use scanner::{Scanner, TICK_MS};
