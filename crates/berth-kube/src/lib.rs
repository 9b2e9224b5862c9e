//! Berth on Kubernetes: the scheduler and the controllers, with all state in the API server.

pub mod api;
pub mod convert;
pub mod guard;
mod health;
mod lease;
pub mod manifest;
pub mod names;
pub mod pods;
pub mod quantity;
pub mod run;
mod seen;
pub mod tenancy;
pub mod view;
mod watch;
mod world;
mod write;
