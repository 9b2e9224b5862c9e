//! What the watches bring, reduced to what decisions need.
//!
//! ```text
//! API server --JSON--> objects --reduce--> Seen --> World
//! ```

pub(crate) mod beside;
pub(crate) mod claim;
pub(crate) mod maker;
pub(crate) mod native;
pub(crate) mod node;
pub(crate) mod nodes_for;
pub(crate) mod objects;
pub(crate) mod pod;
pub(crate) mod ports;
pub(crate) mod volume;

pub(crate) use crate::convert::Refusal;
use std::sync::Arc;

/// A shared text: a name, a unique id.
pub(crate) type Text = Arc<str>;

/// What an object inside of a namespace is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: Text,
    pub(crate) name: Text,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
