//! The control plane: commands become events, events become plans, plans become tasks.
//!
//! One thread owns what is known and decides; everything else asks it, or reads beside it. What it decides is written
//! down before anybody hears of it: an answer, an order to the agent and a line of a stream all come after the sync.
//!
//! ```text
//!  HTTP --command--> controller --batch--> store
//!  agent --fact-->       |                   | durable
//!                        v                   v
//!                    platform          answers, orders to the agent, streams
//! ```
//!
//! It has no scheduling rule of its own, and knows nothing of how a task is run.

mod access;
mod attempts;
mod audit;
mod auth;
mod beside;
mod clock;
mod cluster;
mod controller;
mod declare;
mod error;
mod feed;
mod folder;
mod frameworks;
mod http;
mod listen;
mod metrics;
mod names;
mod oidc;
mod platform;
mod release;
mod run;
mod samples;
mod serve;
mod sessions;
mod tasks;

pub use access::Access;
pub use berth_agent::{ProgressReader, Report, Said};
pub use beside::{Duplex, Shell, ShellInput, ShellOutput};
pub use clock::now;
pub use cluster::{
    Cluster, ClusterImage, ClusterTask, ClusterVolume, ClusterWorkload, Later, Made, ParkedBecause,
    RequestKey, Wish,
};
pub use declare::{declared_nodes, machine_node, nodes_as_declared};
pub use error::ServerError;
pub use folder::Folder;
pub use frameworks::started_by_torchrun;
pub use http::openapi;
pub use platform::completions_shown;
pub use run::{
    ACCOUNTS_FROM, Config, PATIENCE, PING_EVERY, Running, Shutdown, TasksRunAs, Written, read_state, run,
    workload_token,
};
pub use serve::{Answering, Serving, serve};
