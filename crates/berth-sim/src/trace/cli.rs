//! The arguments of `berth sim trace`, and what they run.

use super::{
    jobs::{
        Jobs,
        report::{self as jobs_report, JobsExperiment, JobsPolicy},
        restart::Checkpoints,
    },
    openb::{
        LISTS,
        replay::Ties,
        report::{self as openb_report, Experiment, Placement},
    },
};
use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use std::{ops::RangeInclusive, path::PathBuf, process::ExitCode};

/// Replays of public traces, compared with published results.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The folder that holds the traces
    #[arg(long, env = "BERTH_TRACES", default_value = "../shared/traces", global = true, value_name = "DIR")]
    traces: PathBuf,
    /// Print everything as JSON
    #[arg(long, global = true)]
    json: bool,
    /// Which trace
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// How much of 6,212 GPUs can be given out: the experiment of the FGD paper
    Openb {
        /// Pod lists, or `all`
        #[arg(long, default_value = "default", value_delimiter = ',')]
        lists: Vec<String>,
        /// First and last seed
        #[arg(long, default_value = "42..51", value_parser = parse_seeds)]
        seeds: RangeInclusive<u64>,
        /// How nodes are chosen
        #[arg(long, default_value = "berth")]
        policy: Placement,
        /// Break ties between nodes at random at every decision
        #[arg(long)]
        shuffle_nodes: bool,
    },
    /// How long two months of jobs of 11 groups wait on 704 GPUs
    Philly {
        /// Who schedules
        #[arg(long, default_value = "berth")]
        policy: JobsPolicy,
        /// What an eviction destroys
        #[arg(long, default_value = "30m", value_parser = Checkpoints::parse)]
        checkpoint: Checkpoints,
    },
    /// The same questions about a file with the columns submit_s,duration_s,gpus,project
    Csv {
        /// The jobs
        file: PathBuf,
        /// Nodes and GPUs of each, as 88x8
        #[arg(long, value_parser = parse_nodes, value_name = "NxG")]
        nodes: (usize, u8),
        /// A file with the columns project,quota_gpus
        #[arg(long, value_name = "FILE")]
        quotas: PathBuf,
        /// Who schedules
        #[arg(long, default_value = "berth")]
        policy: JobsPolicy,
        /// What an eviction destroys
        #[arg(long, default_value = "30m", value_parser = Checkpoints::parse)]
        checkpoint: Checkpoints,
    },
}

/// Runs a replay and prints what it found. The exit code says whether results are as they should be.
pub fn run(args: TraceArgs) -> anyhow::Result<ExitCode> {
    let (text, json, good) = match args.command {
        TraceCommand::Openb { lists, seeds, policy, shuffle_nodes } => {
            let experiment = Experiment {
                lists: known_lists(&lists)?,
                seeds,
                placement: policy,
                ties: if shuffle_nodes { Ties::Shuffled } else { Ties::FixedOrder },
            };
            let results = openb_report::run(&args.traces, &experiment)?;
            let report = openb_report::report(&experiment, &results);
            (report.text, report.json, report.good)
        }
        TraceCommand::Philly { policy, checkpoint } => {
            let experiment = JobsExperiment {
                name: "philly".into(),
                jobs: Jobs::philly(&args.traces)?,
                nodes: (88, 8),
                policy,
                checkpoint,
            };
            let baseline = jobs_report::philly_baseline(&args.traces, checkpoint)?;
            jobs_report::run(&experiment, Some(&baseline))?
        }
        TraceCommand::Csv { file, nodes, quotas, policy, checkpoint } => {
            let experiment = JobsExperiment {
                name: file.display().to_string(),
                jobs: Jobs::csv(&file, &quotas)?,
                nodes,
                policy,
                checkpoint,
            };
            jobs_report::run(&experiment, None)?
        }
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&json)?);
    } else {
        print!("{text}");
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn known_lists(lists: &[String]) -> anyhow::Result<Vec<String>> {
    if lists == ["all"] {
        return Ok(LISTS.iter().map(ToString::to_string).collect());
    }
    if let Some(unknown) = lists.iter().find(|list| !LISTS.contains(&list.as_str())) {
        bail!("there is no pod list `{unknown}`; known are `all`, {}", LISTS.join(", "));
    }
    Ok(lists.to_vec())
}

fn parse_seeds(text: &str) -> anyhow::Result<RangeInclusive<u64>> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let seed = |part: &str| {
        part.trim_start_matches('=')
            .parse::<u64>()
            .map_err(|_| anyhow!("`{text}` names no seeds; write for example `42..51`"))
    };
    let seeds = seed(first)?..=seed(last)?;
    if seeds.is_empty() || seeds.end() - seeds.start() >= 10_000 {
        bail!("`{text}` names no seeds, or more than 10,000; write for example `42..51`");
    }
    Ok(seeds)
}

fn parse_nodes(text: &str) -> anyhow::Result<(usize, u8)> {
    let wrong = || anyhow!("`{text}` names no nodes; write for example `88x8`");
    let (nodes, gpus) = text.split_once('x').ok_or_else(wrong)?;
    let nodes: usize = nodes.parse().map_err(|_| wrong())?;
    let gpus: u8 = gpus.parse().map_err(|_| wrong())?;
    if nodes == 0 || nodes > 100_000 || gpus == 0 || gpus > 64 {
        bail!("`{text}`: 1 to 100,000 nodes with 1 to 64 GPUs each are supported");
    }
    Ok((nodes, gpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_include_the_last() {
        assert_eq!(parse_seeds("42..51").unwrap().count(), 10);
        assert_eq!(parse_seeds("7").unwrap(), 7..=7);
        assert!(parse_seeds("9..3").is_err() && parse_seeds("x").is_err());
    }

    #[test]
    fn nodes_are_a_count_and_gpus_of_each() {
        assert_eq!(parse_nodes("88x8").unwrap(), (88, 8));
        assert!(parse_nodes("88").is_err() && parse_nodes("0x8").is_err() && parse_nodes("2x65").is_err());
    }
}
