//! Instructions of one run: the same on a busy machine and on an idle one, so small changes show.

use crate::{
    report::{self, Report, Row},
    scenarios::{self, huge},
};
use anyhow::{Context, Result, bail};
use std::process::Command;

/// Nodes of the large cluster under callgrind, which makes everything fifty times slower.
const HUGE_NODES: usize = 40;

/// Counts the instructions of every scenario, or says that it could not.
pub(crate) fn run_all(report: &mut Report) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        report.skip("instructions, because valgrind is not installed (package `valgrind`)");
        return;
    }
    println!("instructions, by callgrind");
    let sizes = scenarios::ALL.iter().map(|scenario| (scenario.name, scenario.headline));
    for (name, size) in sizes.chain([(huge::NAME, HUGE_NODES)]) {
        match instructions(name, size) {
            Ok(count) => {
                println!("  {name}/{size}: {count}");
                report.add(Row::count(format!("{name}/{size}/instructions"), count, "count"));
            }
            Err(error) => report.skip(&format!("instructions of {name}/{size}: {error:#}")),
        }
    }
}

fn instructions(name: &str, size: usize) -> Result<u64> {
    let folder = report::folder();
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let profile = folder.join(format!("callgrind.{name}.out"));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*measure*measured*"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe()?)
        .args(["one", name, &size.to_string()])
        .output()
        .context("starting valgrind")?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let error = log.lines().find(|line| line.starts_with("Error:"));
        bail!("{}", error.unwrap_or("valgrind failed"));
    }
    collected(&log).context("callgrind did not say what it collected")
}

/// The number after `Collected :`, of which there may be one per event; instructions come first.
fn collected(log: &str) -> Option<u64> {
    let line = log.lines().find_map(|line| line.split_once("Collected :"))?.1;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_collected_number_is_found_in_the_log() {
        let log = "==7== Events    : Ir\n==7== Collected : 1234567\n==7==\n";
        assert_eq!(collected(log), Some(1_234_567));
        assert_eq!(collected("==7== nothing\n"), None);
    }
}
