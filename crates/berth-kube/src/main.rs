//! The operator: scheduler and controllers in one process.

fn main() {}
