//! Ids: small numbers given from outside, never made here.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

id! {
    /// Identifies a node; the last tie-break between equal nodes.
    NodeId
}
id! {
    /// Identifies a department.
    DepartmentId
}
id! {
    /// Identifies a project.
    ProjectId
}
id! {
    /// Identifies a workload; the last tie-break between equal workloads.
    WorkloadId
}
