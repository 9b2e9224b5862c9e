//! The Python helper's own tests, so that they run with all others.
#![allow(missing_docs)]

use std::{path::Path, process::Command};

#[test]
fn the_python_helper_passes_its_tests() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/tests");
    let run = Command::new("python3").args(["-m", "unittest", "discover", "-s"]).arg(tests).output();
    match run {
        Err(error) => println!("SKIPPED: the Python helper is not tested: python3: {error}"),
        Ok(run) => assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr)),
    }
}
