//! What a replay of jobs measured, as text and as data.

use super::{
    Jobs,
    drive::{Outcome, replay},
    engine::Berth,
    lifo::Lifo,
    restart::Checkpoints,
};
use crate::trace::table::{Table, aligned};
use anyhow::{Context, bail};
use berth_types::Policy;
use serde_json::{Value, json};
use std::path::Path;

/// Who schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum JobsPolicy {
    /// Lowest share first, last-in-first-out reclaim
    Lifo,
    /// The real engine
    Berth,
}

/// What to replay.
#[derive(Debug)]
pub struct JobsExperiment {
    /// What it is called.
    pub name: String,
    /// The jobs.
    pub jobs: Jobs,
    /// Nodes and GPUs of each.
    pub nodes: (usize, u8),
    /// Who schedules.
    pub policy: JobsPolicy,
    /// What an eviction destroys.
    pub checkpoint: Checkpoints,
}

/// A line of `baselines_704gpu.csv`.
#[derive(Debug, Clone, PartialEq)]
pub struct Baseline {
    mean_s: f64,
    p50_s: f64,
    p90_s: f64,
    p99_s: f64,
    preemptions: f64,
    lost_percent: f64,
}

/// The recorded plain replay with last-in-first-out reclaim and these checkpoints.
pub fn philly_baseline(traces: &Path, checkpoint: Checkpoints) -> anyhow::Result<Baseline> {
    let wanted = match checkpoint {
        Checkpoints::Perfect => "perfect checkpoint",
        Checkpoints::Every(_) => "30 min checkpoints",
        Checkpoints::None => "no checkpoints",
    };
    let table = Table::open(&traces.join("philly/baselines_704gpu.csv"))?;
    let columns = [
        "policy",
        "mean_queue_s",
        "p50_queue_s",
        "p90_queue_s",
        "p99_queue_s",
        "preemptions",
        "lost_gpu_hours_pct",
    ];
    let rows = table.rows(&columns)?;
    let row = rows
        .iter()
        .find(|row| row.text(0) == wanted)
        .with_context(|| format!("philly/baselines_704gpu.csv: expected a row `{wanted}`"))?;
    let number = |column| row.value(column, "a number");
    Ok(Baseline {
        mean_s: number(1)?,
        p50_s: number(2)?,
        p90_s: number(3)?,
        p99_s: number(4)?,
        preemptions: number(5)?,
        lost_percent: number(6)?,
    })
}

/// Runs a replay. Answers text, data, and whether no guarantee was broken.
pub fn run(
    experiment: &JobsExperiment,
    baseline: Option<&Baseline>,
) -> anyhow::Result<(String, Value, bool)> {
    let (jobs, nodes) = (&experiment.jobs, experiment.nodes);
    let gpus = nodes.0 as u64 * u64::from(nodes.1);
    if let Some(job) = jobs.jobs.iter().find(|job| u64::from(job.gpus) > gpus) {
        bail!("a job asks for {} GPUs and the cluster has {gpus}", job.gpus);
    }
    let mut moves = 0;
    let outcome = match experiment.policy {
        JobsPolicy::Lifo => replay(jobs, nodes, experiment.checkpoint, &mut Lifo::new(jobs, nodes))?,
        JobsPolicy::Berth => {
            let mut berth = Berth::new(jobs, nodes, Policy::default())?;
            let outcome = replay(jobs, nodes, experiment.checkpoint, &mut berth)?;
            moves = berth.moves;
            outcome
        }
    };
    let figures = Figures::of(jobs, nodes, &outcome);
    let mut text = format!(
        "{}: {} jobs, {} projects, {} nodes of {} GPUs, {:?}, checkpoints {:?}\n",
        experiment.name,
        jobs.jobs.len(),
        jobs.projects.len(),
        nodes.0,
        nodes.1,
        experiment.policy,
        experiment.checkpoint
    );
    text += &figures.text(baseline);
    text += &format!("preemptions include {moves} moves\n");
    let good = figures.never_started == 0 && figures.owed_jobs == 0;
    text += &format!(
        "{} no job within quota waited for what others borrow ({} jobs, longest {} s)\n",
        if figures.owed_jobs == 0 { "ok    " } else { "MISSED" },
        figures.owed_jobs,
        figures.owed_longest_s
    );
    if figures.never_started > 0 {
        text += &format!("MISSED {} jobs never ended\n", figures.never_started);
    }
    let mut json = figures.json();
    json["experiment"] = json!(experiment.name);
    json["policy"] = json!(format!("{:?}", experiment.policy).to_lowercase());
    json["jobs"] = json!(jobs.jobs.len());
    json["moves"] = json!(moves);
    json["good"] = json!(good);
    Ok((text, json, good))
}

/// Waiting times of some jobs.
#[derive(Debug, Clone, Copy, Default)]
struct Waits {
    jobs: usize,
    mean_s: f64,
    p50_s: u64,
    p90_s: u64,
    p99_s: u64,
    longest_s: u64,
}

impl Waits {
    fn of(mut waits: Vec<u64>) -> Self {
        if waits.is_empty() {
            return Self::default();
        }
        waits.sort_unstable();
        let at = |percent: usize| waits[(waits.len() * percent).div_ceil(100).saturating_sub(1)];
        Self {
            jobs: waits.len(),
            mean_s: waits.iter().sum::<u64>() as f64 / waits.len() as f64,
            p50_s: at(50),
            p90_s: at(90),
            p99_s: at(99),
            longest_s: at(100),
        }
    }

    fn json(&self) -> Value {
        json!({
            "jobs": self.jobs, "mean_s": self.mean_s, "p50_s": self.p50_s, "p90_s": self.p90_s,
            "p99_s": self.p99_s, "longest_s": self.longest_s,
        })
    }
}

#[derive(Debug)]
struct Figures {
    all: Waits,
    large: Waits,
    preemptions: u64,
    lost_percent: f64,
    utilisation_percent: f64,
    stranded_percent: f64,
    served: Vec<f64>,
    owed_jobs: usize,
    owed_longest_s: u64,
    never_started: usize,
}

impl Figures {
    fn of(jobs: &Jobs, nodes: (usize, u8), outcome: &Outcome) -> Self {
        let records = &outcome.ledger.records;
        let waits = |wanted: &dyn Fn(u32) -> bool| {
            let chosen = jobs.jobs.iter().zip(records).filter(|(job, _)| wanted(job.gpus));
            Waits::of(chosen.map(|(_, record)| record.waited_s).collect())
        };
        let work: u64 = jobs.jobs.iter().map(|job| job.duration_s * u64::from(job.gpus)).sum();
        let lost: u64 = records.iter().map(|record| record.lost_gpu_s).sum();
        let offered = (nodes.0 as u128 * u128::from(nodes.1) * u128::from(outcome.window_s)).max(1) as f64;
        let mut served = vec![(0u64, 0u64); jobs.projects.len()];
        for (job, record) in jobs.jobs.iter().zip(records) {
            let (ran, present) = &mut served[job.project];
            *ran += job.duration_s * u64::from(job.gpus);
            *present += (job.duration_s + record.waited_s) * u64::from(job.gpus);
        }
        let owed = outcome.guarantee.owed_s();
        Self {
            all: waits(&|_| true),
            large: waits(&|gpus| gpus > u32::from(nodes.1)),
            preemptions: records.iter().map(|record| u64::from(record.evictions)).sum(),
            lost_percent: 100.0 * lost as f64 / work.max(1) as f64,
            utilisation_percent: 100.0 * outcome.used_gpu_s as f64 / offered,
            stranded_percent: 100.0 * outcome.free_while_waiting_gpu_s as f64 / offered,
            served: served
                .into_iter()
                .filter(|(_, present)| *present > 0)
                .map(|(ran, present)| ran as f64 / present as f64)
                .collect(),
            owed_jobs: owed.iter().filter(|&&owed| owed > 0).count(),
            owed_longest_s: owed.iter().copied().max().unwrap_or(0),
            never_started: records.iter().filter(|record| record.ended_s.is_none()).count(),
        }
    }

    /// Jain's index over projects of the share of GPU-time asked for that was running, not waiting.
    fn fairness(&self) -> f64 {
        let sum: f64 = self.served.iter().sum();
        let squares: f64 = self.served.iter().map(|served| served * served).sum();
        sum * sum / (squares * self.served.len() as f64).max(f64::MIN_POSITIVE)
    }

    fn text(&self, baseline: Option<&Baseline>) -> String {
        let rows = [
            ("mean queue s", format!("{:.0}", self.all.mean_s), baseline.map(|line| line.mean_s)),
            ("p50 queue s", self.all.p50_s.to_string(), baseline.map(|line| line.p50_s)),
            ("p90 queue s", self.all.p90_s.to_string(), baseline.map(|line| line.p90_s)),
            ("p99 queue s", self.all.p99_s.to_string(), baseline.map(|line| line.p99_s)),
            ("longest queue s", self.all.longest_s.to_string(), None),
            ("preemptions", self.preemptions.to_string(), baseline.map(|line| line.preemptions)),
            ("work lost %", format!("{:.2}", self.lost_percent), baseline.map(|line| line.lost_percent)),
            ("gangs over nodes", self.large.jobs.to_string(), None),
            ("  mean queue s", format!("{:.0}", self.large.mean_s), None),
            ("  p99 queue s", self.large.p99_s.to_string(), None),
            ("  longest queue s", self.large.longest_s.to_string(), None),
            ("utilisation %", format!("{:.2}", self.utilisation_percent), None),
            ("free while jobs wait %", format!("{:.2}", self.stranded_percent), None),
            ("fairness (Jain)", format!("{:.4}", self.fairness()), None),
            ("least served project", format!("{:.4}", self.served.iter().copied().fold(1.0, f64::min)), None),
        ];
        let rows: Vec<Vec<String>> = rows
            .into_iter()
            .map(|(name, value, recorded)| {
                vec![name.to_string(), value, recorded.map_or(String::new(), |recorded| recorded.to_string())]
            })
            .collect();
        aligned(&["", "here", "recorded"], &rows)
    }

    fn json(&self) -> Value {
        json!({
            "queue": self.all.json(),
            "gangs_over_nodes": self.large.json(),
            "preemptions": self.preemptions,
            "lost_percent": self.lost_percent,
            "utilisation_percent": self.utilisation_percent,
            "free_while_waiting_percent": self.stranded_percent,
            "fairness_jain": self.fairness(),
            "served_by_project": self.served,
            "owed_jobs": self.owed_jobs,
            "owed_longest_s": self.owed_longest_s,
            "never_ended": self.never_started,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let waits = Waits::of((1..=200).collect());
        assert_eq!((waits.p50_s, waits.p90_s, waits.p99_s, waits.longest_s), (100, 180, 198, 200));
        assert_eq!(Waits::of(Vec::new()).jobs, 0);
    }

    #[test]
    fn a_small_file_is_replayed_and_measured() {
        let quotas = Table::from_text("quotas.csv", "project,quota_gpus\nred,4\nblue,4\n");
        let text = "submit_s,duration_s,gpus,project\n0,100,4,red\n1,100,4,red\n10,50,4,blue\n";
        let experiment = JobsExperiment {
            name: "small".into(),
            jobs: Jobs::parse_csv(&quotas, &Table::from_text("jobs.csv", text)).unwrap(),
            nodes: (1, 8),
            policy: JobsPolicy::Lifo,
            checkpoint: Checkpoints::None,
        };
        let (text, json, good) = run(&experiment, None).unwrap();
        assert!(good, "{text}");
        assert_eq!(json["preemptions"], 1);
        assert_eq!(json["queue"]["longest_s"], 50);
    }
}
