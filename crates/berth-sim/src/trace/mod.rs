//! Replays of public traces, to measure Berth against published results.
//!
//! ```text
//! openb   pods arrive on 1,213 hosts, nothing departs: how much of the GPUs can be given out?   (packing)
//! philly  two months of jobs of 11 groups on 704 GPUs: how long do they wait?                   (quota, reclaim)
//! csv     the same questions about anybody's own jobs
//! ```
//!
//! The files are not part of the project; their folder is an argument. Floats appear in statistics and in policies that
//! were published with them, never in Berth's own decisions.

pub mod cli;
pub mod jobs;
pub mod openb;
pub mod progress;
pub mod table;
