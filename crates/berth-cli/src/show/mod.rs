//! What the things of the API look like to people.

mod cluster;
mod events;
mod indices;
mod nodes;
mod owners;
mod page;
mod people;
pub(crate) mod runai;
mod submitted;
mod volumes;
mod why;
mod workload;
mod workloads;

#[cfg(test)]
pub(crate) mod examples;
#[cfg(test)]
mod tests;

pub(crate) use events::event_line;
pub(crate) use nodes::{WithLabels, node_state, size};
pub(crate) use page::Page;
pub(crate) use people::{Me, audit_line};
pub(crate) use workload::Described;
pub(crate) use workloads::{Finished, paint, workload_cells, workload_table};
