//! Watches the guarantee from outside: does a job within its project's quota wait for what others borrow?

use super::{Jobs, drive::Places};
use std::collections::{BTreeMap, BTreeSet};

/// Who uses what, who waits, and how long jobs within quota waited though borrowed GPUs could have served them.
#[derive(Debug)]
pub struct Guarantee {
    asked: Vec<(usize, u32, u8, u32)>,
    quotas: Vec<u64>,
    node_gpus: u8,
    used: Vec<u64>,
    free: Vec<u8>,
    on_node: Vec<BTreeMap<usize, u64>>,
    places: Vec<Places>,
    waiting: Vec<BTreeSet<usize>>,
    owed: Vec<usize>,
    owed_s: Vec<u64>,
}

impl Guarantee {
    /// Nobody runs and nobody waits.
    pub fn new(jobs: &Jobs, nodes: (usize, u8)) -> Self {
        let asked = |job: &super::Job| {
            let (tasks, gpus) = job.tasks(nodes.1);
            (job.project, tasks, gpus, tasks * u32::from(gpus))
        };
        Self {
            asked: jobs.jobs.iter().map(asked).collect(),
            quotas: jobs.projects.iter().map(|(_, quota)| u64::from(*quota)).collect(),
            node_gpus: nodes.1,
            used: vec![0; jobs.projects.len()],
            free: vec![nodes.1; nodes.0],
            on_node: vec![BTreeMap::new(); nodes.0],
            places: vec![Vec::new(); jobs.jobs.len()],
            waiting: vec![BTreeSet::new(); jobs.projects.len()],
            owed: Vec::new(),
            owed_s: vec![0; jobs.jobs.len()],
        }
    }

    /// GPUs in use.
    pub fn used_gpus(&self) -> u64 {
        self.used.iter().sum()
    }

    /// Jobs that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.iter().map(BTreeSet::len).sum()
    }

    /// How long each job waited for GPUs that others borrowed, though it was within quota.
    pub fn owed_s(&self) -> &[u64] {
        &self.owed_s
    }

    pub(super) fn on_submit(&mut self, job: usize) {
        self.waiting[self.asked[job].0].insert(job);
    }

    pub(super) fn on_start(&mut self, job: usize, places: Places) {
        let project = self.asked[job].0;
        self.waiting[project].remove(&job);
        for &(node, gpus) in &places {
            self.free[node] = self.free[node].checked_sub(gpus).expect("no node is given out twice");
            *self.on_node[node].entry(project).or_default() += u64::from(gpus);
            self.used[project] += u64::from(gpus);
        }
        self.places[job] = places;
    }

    pub(super) fn on_end(&mut self, job: usize) {
        let project = self.asked[job].0;
        for (node, gpus) in std::mem::take(&mut self.places[job]) {
            self.free[node] += gpus;
            *self.on_node[node].entry(project).or_default() -= u64::from(gpus);
            self.used[project] -= u64::from(gpus);
        }
    }

    pub(super) fn on_evict(&mut self, job: usize) {
        self.on_end(job);
        self.waiting[self.asked[job].0].insert(job);
    }

    /// Time passes in which nothing changes.
    pub(super) fn pass(&mut self, span_s: u64) {
        for &job in &self.owed {
            self.owed_s[job] += span_s;
        }
    }

    /// Finds jobs that are owed GPUs now: with one of them its project is within quota, and enough nodes have room for
    /// its tasks if what projects use above their quotas were taken back. One job per project and size is enough.
    pub(super) fn judge(&mut self) {
        self.owed.clear();
        for project in 0..self.quotas.len() {
            let room = self.quotas[project].saturating_sub(self.used[project]);
            if room == 0 || self.waiting[project].is_empty() {
                continue;
            }
            let mut sizes = BTreeSet::new();
            for &job in &self.waiting[project] {
                let (_, tasks, gpus, all) = self.asked[job];
                if u64::from(all) <= room && sizes.insert(all) && self.could_serve(tasks, gpus) {
                    self.owed.push(job);
                }
                if sizes.len() > usize::from(self.node_gpus) {
                    break;
                }
            }
        }
    }

    fn could_serve(&self, tasks: u32, gpus: u8) -> bool {
        let mut above: Vec<u64> =
            self.used.iter().zip(&self.quotas).map(|(used, quota)| used.saturating_sub(*quota)).collect();
        let mut served = 0;
        for (node, free) in self.free.iter().enumerate() {
            let mut missing = u64::from(gpus).saturating_sub(u64::from(*free));
            let mut taken = Vec::new();
            for (&project, &used) in &self.on_node[node] {
                let take = missing.min(used).min(above[project]);
                missing -= take;
                taken.push((project, take));
            }
            if missing == 0 {
                taken.into_iter().for_each(|(project, take)| above[project] -= take);
                served += 1;
            }
        }
        served >= tasks
    }
}
