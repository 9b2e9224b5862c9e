//! The agent: runs the tasks of one machine.
//!
//! It owns processes, containers, their logs, progress and devices, behind the [`Host`] trait. It is told which task runs and
//! which ends; it knows no scheduling rule, no network protocol and no database, and decides nothing but how.
//!
//! ```text
//! control plane --Host--> agent's thread --spawn--> shim --fork, exec--> workload
//!               <--Fact--                <--told---      <--output-----
//!                              |                     |
//!                              +---- task's folder --+   spec, started, stop, exit, log
//! ```
//!
//! Three promises hold over any crash of the agent, the shim or the machine:
//!
//! - a task is started at most once;
//! - a task that ended is told of with how it ended, or as lost when nobody knows;
//! - nothing of a task runs after its end was told, and nothing runs that is not wanted.
//!
//! They rest on one file per task that is locked by whoever is responsible for it. The lock belongs to the open file, which the
//! agent hands to the shim, so it is free exactly when both are gone.

mod access;
mod account;
mod agent;
mod cgroup;
mod check;
mod clock;
mod devices;
#[cfg(feature = "docker")]
mod engine;
mod environment;
mod error;
mod folder;
mod host;
mod housekeeping;
mod images;
mod launch;
mod listening;
mod log;
mod nvml;
mod oci;
mod ports;
mod probe;
mod process;
mod progress;
mod python;
mod reactor;
#[cfg(test)]
mod scratch;
mod shell;
mod shim;
mod sweep;
mod task;
mod task_folder;
mod trainer;
mod watch;

pub use agent::{can_run_as_others, local};
pub use check::{Checked, Planned, Unfit};
pub use devices::{Devices, Gpu, Vendor};
pub use error::AgentError;
pub use host::{AgentConfig, Host, ImageEntry, Shutdown};
pub use listening::Listening;
pub use log::{LogChunk, LogReader, LogStart};
pub use probe::{Probe, probe};
pub use progress::{ProgressReader, Said};
pub use shell::{Shell, ShellControl, ShellEnd, ShellSpec, TerminalSize};
pub use shim::shim_main;
pub use task::{Exit, Fact, Granted, Mount, NotATask, Report, RuntimeKind, TaskId, TaskSpec, Wanted};
pub use trainer::quickstart_main;
