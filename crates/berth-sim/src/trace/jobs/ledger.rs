//! What happened to every job, whoever decided it.

use super::{
    Jobs,
    restart::{Checkpoints, restart_s},
};

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    Ahead,
    Waiting { since: u64 },
    Running { since: u64, works_from: u64 },
    Done,
}

/// One job's record.
#[derive(Debug, Clone)]
pub struct Record {
    stand: Stand,
    remaining_s: u64,
    /// All time it waited so far.
    pub waited_s: u64,
    /// How often it was evicted.
    pub evictions: u32,
    /// Work destroyed, in GPU-seconds.
    pub lost_gpu_s: u64,
    /// When it ended.
    pub ended_s: Option<u64>,
    /// Which run this is; events of earlier runs are void.
    pub run: u32,
}

/// The records of all jobs.
#[derive(Debug, Clone)]
pub struct Ledger {
    checkpoints: Checkpoints,
    /// By the index of the job.
    pub records: Vec<Record>,
}

impl Ledger {
    /// Nothing has happened yet.
    pub fn new(jobs: &Jobs, checkpoints: Checkpoints) -> Self {
        let record = |duration_s| Record {
            stand: Stand::Ahead,
            remaining_s: duration_s,
            waited_s: 0,
            evictions: 0,
            lost_gpu_s: 0,
            ended_s: None,
            run: 0,
        };
        Self { checkpoints, records: jobs.jobs.iter().map(|job| record(job.duration_s)).collect() }
    }

    /// A job entered the queue.
    pub fn on_submit(&mut self, job: usize, now: u64) {
        self.records[job].stand = Stand::Waiting { since: now };
    }

    /// A job was started. Answers when it begins to work and when it will end if nobody disturbs it.
    pub fn on_start(&mut self, job: usize, gpus: u32, now: u64) -> (u64, u64) {
        let record = &mut self.records[job];
        let Stand::Waiting { since } = record.stand else { panic!("job {job} was started and did not wait") };
        record.waited_s += now - since;
        record.run += 1;
        let works_from = now + if record.evictions > 0 { restart_s(gpus) } else { 0 };
        record.stand = Stand::Running { since: now, works_from };
        (works_from, works_from + record.remaining_s)
    }

    /// A running job was evicted and waits again.
    pub fn on_evict(&mut self, job: usize, gpus: u32, now: u64) {
        let checkpoints = self.checkpoints;
        let record = &mut self.records[job];
        let Stand::Running { works_from, .. } = record.stand else {
            panic!("job {job} was evicted and did not run")
        };
        let worked_s = now.saturating_sub(works_from).min(record.remaining_s);
        let kept_s = checkpoints.kept_s(worked_s);
        record.remaining_s -= kept_s;
        record.lost_gpu_s += (worked_s - kept_s) * u64::from(gpus);
        record.evictions += 1;
        record.stand = Stand::Waiting { since: now };
    }

    /// A running job ended by itself.
    pub fn on_end(&mut self, job: usize, now: u64) {
        let record = &mut self.records[job];
        assert!(matches!(record.stand, Stand::Running { .. }), "job {job} ended and did not run");
        record.stand = Stand::Done;
        record.ended_s = Some(now);
    }

    /// When the current run was started, if the job runs.
    pub fn running_since(&self, job: usize) -> Option<u64> {
        match self.records[job].stand {
            Stand::Running { since, .. } => Some(since),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Job, *};

    #[test]
    fn an_evicted_job_repeats_what_it_lost_and_pays_for_the_restart() {
        let jobs = Jobs {
            jobs: vec![Job { submit_s: 0, duration_s: 5000, gpus: 2, project: 0 }],
            projects: vec![("red".into(), 8)],
        };
        let mut ledger = Ledger::new(&jobs, Checkpoints::Every(1800));
        ledger.on_submit(0, 0);
        assert_eq!(ledger.on_start(0, 2, 10), (10, 5010));
        ledger.on_evict(0, 2, 10 + 2000);
        assert_eq!(ledger.on_start(0, 2, 3000), (3030, 3030 + 3200));
        ledger.on_end(0, 6230);
        let record = &ledger.records[0];
        assert_eq!((record.waited_s, record.lost_gpu_s, record.ended_s), (10 + 990, 400, Some(6230)));
    }
}
