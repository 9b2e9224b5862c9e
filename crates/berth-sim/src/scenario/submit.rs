//! The `submit` line: the flags of the command line, as far as placing is concerned.

use super::{Statement, parse::Parser, parse::RESERVED, problem::did_you_mean, words};
use crate::{Checkpoints, Work};
use berth_types::{
    Bytes, Cpu, GpuRequest, Gpus, Kind, Name, Node, ProjectId, Request, Selector, Share, Span, Spread, Tasks,
    Topology, TopologyLevel, WorkloadId, WorkloadSpec, default_pool,
};
use std::{
    collections::BTreeSet,
    num::{NonZeroU8, NonZeroU64},
};

/// Flags without a value.
const SWITCHES: [&str; 8] = [
    "--interactive",
    "--train",
    "--distributed",
    "--inference",
    "--preemptible",
    "--non-preemptible",
    "--spread",
    "--apart",
];
/// Flags with a value.
const VALUED: [&str; 22] = [
    "-p",
    "--project",
    "-g",
    "--gpu",
    "--gpu-memory",
    "--devices",
    "--workers",
    "--min-workers",
    "--cpu",
    "--memory",
    "--model",
    "--priority",
    "--max-run",
    "--runs",
    "--checkpoints",
    "--on",
    "--pool",
    "--topology",
    "--grace",
    "--retries",
    "-i",
    "--image",
];
/// A grace nobody needs to think of.
const GRACE: Span = Span::secs(30);

/// Holds the flags as they were written.
#[derive(Default)]
struct Flags {
    project: Option<ProjectId>,
    gpu: Option<Gpus>,
    gpu_memory: Option<Bytes>,
    devices: Option<u8>,
    workers: Option<u32>,
    min_workers: Option<u32>,
    cpu: Cpu,
    memory: Bytes,
    models: BTreeSet<Name>,
    priority: Option<i32>,
    kind: Option<Kind>,
    preemptible: Option<bool>,
    max_run: Option<Span>,
    work: Work,
    selector: Selector,
    pool: Option<Name>,
    topology: Topology,
    spread: Spread,
    grace: Option<Span>,
    retries: u32,
}

impl Parser {
    pub(super) fn read_submit(&mut self, rest: &[String]) -> Option<Statement> {
        let Some((name, rest)) = rest.split_first() else {
            self.problem("expected the name of the workload, as in `submit job-1 -p team-a -g 1`");
            return None;
        };
        self.noted(words::check_name("workload", name, RESERVED))?;
        let flags = self.read_flags(rest);
        let duplicate = self.workloads.contains_key(name);
        if duplicate {
            self.problem(format!("there is a workload `{name}` already; names are given once"));
        }
        if self.projects.contains_key(name) {
            self.problem(format!("`{name}` names a project; a workload needs another name"));
        }
        if flags.project.is_none() && !rest.iter().any(|word| word == "-p" || word.starts_with("--project")) {
            self.problem("no project is named; expected `-p PROJECT`");
        }
        let id = WorkloadId(self.workloads.len() as u64 + 1);
        if !duplicate {
            // The name is known even if a flag is wrong, so that one mistake is reported once.
            let owner = flags.project.unwrap_or(ProjectId(0));
            self.workloads.insert(name.clone(), (id, owner));
        }
        let work = flags.work;
        let spec = self.lower(name, flags)?;
        Some(Statement::Submit(id, Box::new(spec), work))
    }

    fn read_flags(&mut self, rest: &[String]) -> Flags {
        let mut flags = Flags::default();
        let mut words = rest.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let (flag, attached) = match word.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag, Some(value)),
                _ => (word, None),
            };
            if SWITCHES.contains(&flag) {
                if attached.is_some() {
                    self.problem(format!("`{flag}` takes no value"));
                }
                self.read_switch(flag, &mut flags);
            } else if VALUED.contains(&flag) {
                match attached.or_else(|| words.next()) {
                    Some(value) => {
                        if let Err(text) = self.read_valued(flag, value, &mut flags) {
                            self.problem(text);
                        }
                    }
                    None => self.problem(format!("`{flag}` has no value")),
                }
            } else {
                let known = SWITCHES.into_iter().chain(VALUED);
                let hint = match did_you_mean(flag, known) {
                    hint if hint.is_empty() => "; the flags are listed in docs/scenarios.md".into(),
                    hint => hint,
                };
                self.problem(format!("unknown flag `{flag}`{hint}"));
            }
        }
        flags
    }

    fn read_switch(&mut self, flag: &str, flags: &mut Flags) {
        let kind = match flag {
            "--train" => Kind::Train,
            "--interactive" => Kind::Interactive,
            "--distributed" => Kind::Distributed,
            "--inference" => Kind::Inference,
            "--spread" => {
                flags.spread = Spread::Spread;
                return;
            }
            "--apart" => {
                flags.spread = Spread::Apart;
                return;
            }
            preemptible => {
                if flags.preemptible.is_some() {
                    self.problem("whether it is preemptible is said twice; expected it once");
                }
                flags.preemptible = Some(preemptible == "--preemptible");
                return;
            }
        };
        if flags.kind.is_some_and(|known| known != kind) {
            self.problem(format!("`{flag}` names a second kind; expected one"));
        }
        flags.kind = Some(kind);
    }

    fn read_valued(&mut self, flag: &str, value: &str, flags: &mut Flags) -> Result<(), String> {
        let largest_gang = i64::from(Tasks::MAX);
        match flag {
            "-p" | "--project" => flags.project = self.project_id(value),
            "-g" | "--gpu" => flags.gpu = Some(words::positive(flag, value)?),
            "--gpu-memory" => flags.gpu_memory = Some(words::positive(flag, value)?),
            "--devices" => {
                flags.devices = Some(words::number(flag, value, 1, Node::DEVICES_MAX as i64)? as u8);
            }
            "--workers" => flags.workers = Some(words::number(flag, value, 1, largest_gang)? as u32),
            "--min-workers" => flags.min_workers = Some(words::number(flag, value, 1, largest_gang)? as u32),
            "--cpu" => flags.cpu = words::positive(flag, value)?,
            "--memory" => flags.memory = words::positive(flag, value)?,
            "--model" => flags.models.extend(value.split(',').map(Name::from)),
            "--priority" => flags.priority = Some(words::number(flag, value, -1_000_000, 1_000_000)? as i32),
            "--max-run" => flags.max_run = Some(words::positive_span(flag, value)?),
            "--runs" => flags.work.runs = Some(words::positive_span(flag, value)?),
            "--checkpoints" => {
                flags.work.checkpoints = match value {
                    "perfect" => Checkpoints::Perfect,
                    "never" => Checkpoints::Never,
                    span => Checkpoints::Every(
                        words::positive_span(flag, span)
                            .map_err(|text| format!("{text}; or write `perfect` or `never`"))?,
                    ),
                };
            }
            "--on" => words::select(flag, value, &mut flags.selector)?,
            "--pool" => flags.pool = Some(Name::from(value)),
            "--topology" => read_topology(value, &mut flags.topology)?,
            "--grace" => flags.grace = Some(words::span(flag, value)?),
            "--retries" => flags.retries = words::number(flag, value, 0, 1000)? as u32,
            // Commands can be pasted as they are; what runs does not matter here.
            _ => {}
        }
        Ok(())
    }

    fn lower(&mut self, name: &str, flags: Flags) -> Option<WorkloadSpec> {
        let gpu = self.noted(gpu_request(&flags))?;
        if gpu == GpuRequest::None && !flags.models.is_empty() {
            self.problem(
                "`--model` names a GPU model, but no GPU is asked for; expected `-g` or `--gpu-memory`",
            );
            return None;
        }
        let workers = flags.workers.or(flags.min_workers).unwrap_or(1);
        let least = flags.min_workers.unwrap_or(workers);
        let Some(tasks) = Tasks::new(least, workers) else {
            self.problem(format!("--min-workers: {least} is above --workers {workers}"));
            return None;
        };
        let kind = flags.kind.unwrap_or(if workers > 1 { Kind::Distributed } else { Kind::Train });
        let preemptible = flags.preemptible.unwrap_or(kind.preemptible());
        let pool = flags.pool.unwrap_or_else(default_pool);
        if !self.nodes.values().any(|node| node.pool() == pool) {
            self.warn(format!("no node is in pool {pool}, so {name} can never start"));
        }
        let count = u64::from(workers);
        if flags.cpu.times(count) > Cpu::MAX || flags.memory.times(count) > Bytes::MAX {
            self.problem("the CPU or memory of all workers together is too large");
            return None;
        }
        Some(WorkloadSpec {
            name: name.into(),
            project: flags.project?,
            user: "scenario".into(),
            kind,
            request: Request { gpu, models: flags.models, cpu: flags.cpu, memory: flags.memory },
            tasks,
            pool,
            selector: flags.selector,
            topology: flags.topology,
            spread: flags.spread,
            priority: flags.priority.unwrap_or_else(|| kind.priority(preemptible)),
            preemptible,
            max_run: flags.max_run,
            retry_limit: flags.retries,
            grace: flags.grace.unwrap_or(GRACE),
        })
    }
}

fn gpu_request(flags: &Flags) -> Result<GpuRequest, String> {
    let devices = flags.devices.and_then(NonZeroU8::new);
    match (flags.gpu, flags.gpu_memory) {
        (Some(_), Some(_)) => {
            Err("`-g` and `--gpu-memory` say the same thing twice; expected one of them".into())
        }
        (None, None) if devices.is_some() => {
            Err("`--devices` needs to know how much of each; expected `-g` or `--gpu-memory`".into())
        }
        (None, None) => Ok(GpuRequest::None),
        (None, Some(memory)) => Ok(GpuRequest::Memory {
            bytes: NonZeroU64::new(memory.0).ok_or("--gpu-memory: expected more than zero")?,
            devices: devices.unwrap_or(NonZeroU8::MIN),
        }),
        (Some(gpus), None) if gpus >= Gpus::ONE && gpus.0.is_multiple_of(Gpus::SCALE) => {
            if devices.is_some() {
                return Err("`--devices` is for fractions and GPU memory; expected `-g` below 1".into());
            }
            u8::try_from(gpus.0 / Gpus::SCALE)
                .ok()
                .filter(|count| usize::from(*count) <= Node::DEVICES_MAX)
                .and_then(NonZeroU8::new)
                .map(GpuRequest::Whole)
                .ok_or_else(|| {
                    format!(
                        "-g: one worker cannot have {gpus} GPUs; expected at most {}, or more `--workers`",
                        Node::DEVICES_MAX
                    )
                })
        }
        (Some(gpus), None) => {
            let share = u32::try_from(gpus.0).ok().and_then(Share::from_millionths);
            let share = share.ok_or_else(|| {
                format!(
                    "-g: {gpus} is neither whole nor below 1; expected for example 2, or `-g 0.5 --devices 3`"
                )
            })?;
            Ok(GpuRequest::Fraction { share, devices: devices.unwrap_or(NonZeroU8::MIN) })
        }
    }
}

fn read_topology(text: &str, topology: &mut Topology) -> Result<(), String> {
    let wrong = || format!("--topology: expected required:LEVEL or preferred:LEVEL, found `{text}`");
    let (how, level) = text.split_once(':').ok_or_else(wrong)?;
    let level = topology_level(level).ok_or_else(wrong)?;
    match how {
        "required" => topology.required = Some(level),
        "preferred" => topology.preferred = Some(level),
        _ => return Err(wrong()),
    }
    Ok(())
}

/// A level of the topology: `node`, or the label whose values are the domains.
pub(super) fn topology_level(text: &str) -> Option<TopologyLevel> {
    match text {
        "" => None,
        "node" => Some(TopologyLevel::Node),
        label => Some(TopologyLevel::Label(Name::from(label))),
    }
}
