//! Berth on Kubernetes.

pub mod api;
pub mod convert;
pub mod guard;
pub mod manifest;
pub mod names;
pub mod quantity;
