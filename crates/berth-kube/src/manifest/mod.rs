//! What is installed.

mod yaml;

#[cfg(test)]
pub(crate) use yaml::fresh;
pub use yaml::yaml;
