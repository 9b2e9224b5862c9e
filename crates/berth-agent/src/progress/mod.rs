//! Finds progress in what tasks print.
//!
//! ```text
//! bytes --Scanner--> lines --Parser--> Report (merged) --at most twice a second--> agent
//! ```

mod parse;
mod reader;
mod scanner;

pub(crate) use parse::{Found, Parser};
pub use reader::{ProgressReader, Said};
pub(crate) use scanner::{Scanner, TICK_MS};
