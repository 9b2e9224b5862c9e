//! How long the engine takes, what it allocates, and how both grow with the cluster; what the store makes of the disk; and
//! what a person waits for in front of the running product.
//!
//! This crate owns the scenarios that are measured and the summary of their results. Each scenario knows how it must
//! end (how many starts, evictions, which reason), so a fast wrong answer fails. It measures the engine and the store, each
//! alone, and the `berth` program from outside, as its users meet it: it links no server, no simulator and no checker.
//!
//! ```text
//! scenario --prepare(n)--> engine, changes, now     not measured
//!          --measured-->   apply + plan             best of twenty, on a copy of the prepared engine
//!          --expected-->   counts, reason           a wrong outcome fails the run
//!          --> tables on stdout, target/bench/summary.json
//! ```

mod callgrind;
mod cluster;
mod counting;
mod measure;
mod platform;
mod random;
mod report;
mod scenarios;
mod store;

use anyhow::{Context, Result, bail};
use report::{Report, Row};
use scenarios::{Scenario, huge};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const USAGE: &str = "\
usage: berth-bench [all]              every scenario, its curve, instructions, and the summary
       berth-bench list               the names of the scenarios
       berth-bench scenario NAME      one scenario and its curve, merged into the summary
       berth-bench huge               the large cluster and its curves, merged into the summary
       berth-bench huge --memory      the large cluster once, printing the peak memory of this process in bytes
       berth-bench store              the store: durable appends, and a start with a long history
       berth-bench store --memory DIR the start of a filled store, printing the peak memory of this process in bytes
       berth-bench platform           the running product: submissions, starts, short tasks, memory, lists
       berth-bench one NAME N         one run of one size, for a profiler
       berth-bench digest N SEED      a number that tells whether any decision on a large cluster became another
       berth-bench profile            instructions of one run per scenario, by callgrind";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut report = Report::default();
    match arguments[..] {
        [] | ["all"] => {
            for scenario in scenarios::ALL {
                run_scenario(scenario, &mut report);
                report.save()?;
            }
            run_huge(&mut report);
            report.save()?;
            run_store(&mut report);
            report.save()?;
            run_platform(&mut report);
            report.save()?;
            callgrind::run_all(&mut report);
        }
        ["list"] => {
            for scenario in scenarios::ALL {
                println!("{:24} {}", scenario.name, scenario.about);
            }
            println!("{:24} {}", huge::NAME, huge::ABOUT);
            println!("{:24} {}", store::NAME, store::ABOUT);
            println!("{:24} {}", platform::NAME, platform::ABOUT);
            return Ok(ExitCode::SUCCESS);
        }
        ["scenario", name] => run_scenario(scenarios::find(name)?, &mut report),
        ["huge"] => run_huge(&mut report),
        ["huge", "--memory"] => {
            println!("{}", huge::peak_memory_bytes()?);
            return Ok(ExitCode::SUCCESS);
        }
        ["store"] => run_store(&mut report),
        ["store", "--memory", folder] => {
            println!("{}", store::peak_memory_bytes(folder)?);
            return Ok(ExitCode::SUCCESS);
        }
        ["platform"] => run_platform(&mut report),
        ["one", name, size] => {
            let size = size.parse().context("the size is not a number")?;
            scenarios::run_once(name, size)?;
            return Ok(ExitCode::SUCCESS);
        }
        ["digest", size, seed] => {
            let (size, seed) = (size.parse().context("the size is not a number")?, seed.parse()?);
            huge::print_digest(size, seed)?;
            return Ok(ExitCode::SUCCESS);
        }
        ["profile"] => callgrind::run_all(&mut report),
        _ => bail!("{USAGE}"),
    }
    Ok(match report.finish()? {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn run_scenario(scenario: &Scenario, report: &mut Report) {
    println!("{}: {}", scenario.name, scenario.about);
    let mut curve = report::Curve::new("nodes", &["ms", "of it apply", "allocations", "bytes"]);
    for &size in scenario.sizes {
        let prepared = (scenario.prepare)(size);
        match measure::best_of(&prepared) {
            Ok(measured) => {
                curve.add(
                    size,
                    &[
                        measured.total_ms(),
                        measured.apply_ms(),
                        measured.allocations as f64,
                        measured.allocated_bytes as f64,
                    ],
                );
                let target = (size == scenario.headline).then_some(scenario.target_ms);
                let name = format!("{}/{size}", scenario.name);
                report.add(Row::new(format!("{name}/time"), measured.total_ms(), "ms", target));
                if size == scenario.headline {
                    report.add(Row::count(format!("{name}/allocations"), measured.allocations, "count"));
                    report.add(Row::count(format!("{name}/allocated"), measured.allocated_bytes, "bytes"));
                    if let Some(note) = measured.note {
                        println!("  answer: {note}");
                    }
                }
            }
            Err(error) => report.fail(&format!("{}/{size}", scenario.name), &error),
        }
    }
    println!("{curve}");
}

fn run_huge(report: &mut Report) {
    println!("{}: {}", huge::NAME, huge::ABOUT);
    if let Err(error) = huge::run(report) {
        report.fail(huge::NAME, &error);
    }
}

fn run_store(report: &mut Report) {
    println!("{}: {}", store::NAME, store::ABOUT);
    if let Err(error) = store::run(report) {
        report.fail(store::NAME, &error);
    }
}

fn run_platform(report: &mut Report) {
    println!("{}: {}", platform::NAME, platform::ABOUT);
    if let Err(error) = platform::run(report) {
        report.fail(platform::NAME, &error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_ends_as_it_says() {
        for scenario in scenarios::ALL {
            let prepared = (scenario.prepare)(20);
            if let Err(error) = measure::once(&prepared) {
                panic!("{}: {error:#}", scenario.name);
            }
        }
    }

    #[test]
    fn a_small_copy_of_the_large_cluster_settles() {
        let size = huge::Size { nodes: 40, running: 240, waiting: 400 };
        let measured = huge::measure(size).expect("the scenario ends as it says");
        assert_eq!(measured.arrivals.len(), huge::EVENTS);
        assert_eq!(measured.completions.len(), huge::EVENTS);
    }
}
