//! Chores of the repository. `make` is the front door; what takes more than a line of shell lives here.
//!
//! ```text
//! cargo run -p xtask -- tidy                 every house rule that a machine can check
//! cargo run -p xtask -- test [SUITE...]      every test, suite by suite
//! cargo run -p xtask -- glibc FILE VERSION   whether a program starts where glibc is of this version
//! ```

mod edges;
mod elf;
mod ledger;
mod suites;
mod tidy;
mod way_in;

use anyhow::{Context, Result, bail};
use std::{path::Path, process::ExitCode};

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["tidy"] => run_tidy(),
        ["test", ref names @ ..] => suites::run(repository(), names),
        ["glibc", file, version] => run_glibc(Path::new(file), version),
        _ => bail!("usage: cargo run -p xtask -- tidy | test [SUITE...] | glibc FILE VERSION"),
    }
}

fn run_tidy() -> Result<ExitCode> {
    let broken = broken_rules(repository())?;
    for found in &broken {
        eprintln!("{found}");
    }
    if broken.is_empty() {
        println!("tidy: every house rule holds");
        Ok(ExitCode::SUCCESS)
    } else {
        eprintln!("tidy: house rules are broken in {} places", broken.len());
        Ok(ExitCode::FAILURE)
    }
}

fn run_glibc(file: &Path, version: &str) -> Result<ExitCode> {
    let latest = elf::check_file(file, version)?;
    println!("{} asks for glibc {latest}, and starts where it is {version} or later", file.display());
    Ok(ExitCode::SUCCESS)
}

/// Every house rule that is broken in the repository at `root`, by file.
fn broken_rules(root: &Path) -> Result<Vec<tidy::Broken>> {
    let mut broken = tidy::check_tree(root).context("reading the repository's files")?;
    broken.extend(edges::check_workspace(root).context("reading the crate graph")?);
    broken.extend(ledger::check_repository(root).context("reading docs/reports.md")?);
    broken.extend(way_in::check_workspace(root).context("reading what `make run` compiles")?);
    Ok(broken)
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_keeps_its_house_rules() {
        let broken = broken_rules(repository()).expect("the repository can be read");
        let lines: Vec<String> = broken.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    }
}
