//! The event loop under every scheduler: submissions, ends and checkpoints happen; the scheduler decides.

use super::{Jobs, guarantee::Guarantee, ledger::Ledger, restart::Checkpoints};
use crate::trace::progress::Progress;
use std::{cmp::Reverse, collections::BinaryHeap};

/// Nodes and the GPUs a job has on each.
pub type Places = Vec<(usize, u8)>;

/// What a scheduler decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// A waiting job starts; on each named node it has so many GPUs.
    Start {
        /// Which.
        job: usize,
        /// Nodes and GPUs on them.
        places: Places,
    },
    /// A running job goes back to the queue.
    Evict {
        /// Which.
        job: usize,
    },
}

/// Decides who runs where. Times are in seconds.
pub trait Scheduler {
    /// A job was submitted.
    fn on_submit(&mut self, job: usize, now: u64) -> anyhow::Result<()>;
    /// A running job ended.
    fn on_end(&mut self, job: usize, now: u64) -> anyhow::Result<()>;
    /// A running job saved its state at `at`, which is not later than the next plan.
    fn on_checkpoint(&mut self, _job: usize, _at: u64) -> anyhow::Result<()> {
        Ok(())
    }
    /// Decides until nothing is left to decide at `now`; the decisions have happened for the scheduler. Answers them
    /// in order.
    fn plan(&mut self, now: u64) -> anyhow::Result<Vec<Decision>>;
    /// When it wants to plan again though nothing happened.
    fn wake(&self) -> Option<u64> {
        None
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End { job: usize, run: u32 },
    Submit { job: usize },
    Checkpoint { job: usize, run: u32 },
    Wake,
}

/// What a replay measured.
#[derive(Debug)]
pub struct Outcome {
    /// Every job's record.
    pub ledger: Ledger,
    /// GPUs in use, integrated over the time in which jobs are submitted.
    pub used_gpu_s: u128,
    /// GPUs free while some job waits, integrated over the same time.
    pub free_while_waiting_gpu_s: u128,
    /// The length of that time.
    pub window_s: u64,
    /// Whether jobs within quota waited for what others borrow.
    pub guarantee: Guarantee,
}

/// Replays all jobs on `nodes` nodes of so many GPUs.
pub fn replay(
    jobs: &Jobs,
    nodes: (usize, u8),
    checkpoints: Checkpoints,
    scheduler: &mut dyn Scheduler,
) -> anyhow::Result<Outcome> {
    let total = nodes.0 as u64 * u64::from(nodes.1);
    let mut ledger = Ledger::new(jobs, checkpoints);
    let mut guarantee = Guarantee::new(jobs, nodes);
    let mut events: BinaryHeap<Reverse<(u64, Event)>> = BinaryHeap::new();
    for (job, submitted) in jobs.jobs.iter().enumerate() {
        events.push(Reverse((submitted.submit_s, Event::Submit { job })));
    }
    let window =
        jobs.jobs.first().map_or(0, |job| job.submit_s)..jobs.jobs.last().map_or(0, |job| job.submit_s);
    let progress = Progress::new("jobs", jobs.jobs.len() as u64);
    let (mut used_gpu_s, mut free_while_waiting_gpu_s) = (0u128, 0u128);
    let (mut now, mut woken) = (0, None);
    while let Some(&Reverse((at, _))) = events.peek() {
        if window.contains(&now) {
            let span = u128::from(at.min(window.end) - now);
            used_gpu_s += span * u128::from(guarantee.used_gpus());
            if guarantee.waiting() > 0 {
                free_while_waiting_gpu_s += span * u128::from(total - guarantee.used_gpus());
            }
        }
        guarantee.pass(at - now);
        now = at;
        // Checkpoints matter only when somebody plans, so they alone cause no plan.
        let mut planned = false;
        while let Some(&Reverse((same, event))) = events.peek()
            && same == now
        {
            events.pop();
            match event {
                Event::Submit { job } => {
                    ledger.on_submit(job, now);
                    guarantee.on_submit(job);
                    scheduler.on_submit(job, now)?;
                    planned = true;
                }
                Event::End { job, run }
                    if ledger.records[job].run == run && ledger.running_since(job).is_some() =>
                {
                    ledger.on_end(job, now);
                    guarantee.on_end(job);
                    scheduler.on_end(job, now)?;
                    progress.advance(1);
                    planned = true;
                }
                Event::Checkpoint { job, run }
                    if ledger.records[job].run == run && ledger.running_since(job).is_some() =>
                {
                    scheduler.on_checkpoint(job, now)?;
                    if let Checkpoints::Every(period_s) = checkpoints {
                        events.push(Reverse((now + period_s, Event::Checkpoint { job, run })));
                    }
                }
                Event::End { .. } | Event::Checkpoint { .. } => {}
                Event::Wake => planned = true,
            }
        }
        if !planned {
            continue;
        }
        for decision in scheduler.plan(now)? {
            match decision {
                Decision::Start { job, places } => {
                    let (works_from, end) = ledger.on_start(job, jobs.jobs[job].gpus, now);
                    guarantee.on_start(job, places);
                    let run = ledger.records[job].run;
                    events.push(Reverse((end, Event::End { job, run })));
                    if let Checkpoints::Every(period_s) = checkpoints
                        && works_from + period_s < end
                    {
                        events.push(Reverse((works_from + period_s, Event::Checkpoint { job, run })));
                    }
                }
                Decision::Evict { job } => {
                    ledger.on_evict(job, jobs.jobs[job].gpus, now);
                    guarantee.on_evict(job);
                }
            }
        }
        guarantee.judge();
        if let Some(wake) = scheduler.wake().filter(|&wake| wake > now && woken != Some(wake)) {
            events.push(Reverse((wake, Event::Wake)));
            woken = Some(wake);
        }
    }
    Ok(Outcome {
        ledger,
        used_gpu_s,
        free_while_waiting_gpu_s,
        window_s: window.end - window.start,
        guarantee,
    })
}
