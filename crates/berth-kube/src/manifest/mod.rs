//! What is installed.

mod yaml;

pub use yaml::yaml;
#[cfg(test)]
pub(crate) use yaml::fresh;
