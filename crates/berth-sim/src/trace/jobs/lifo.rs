//! The plain way to share with quotas, to compare with: lowest share first, borrowing, last-in-first-out reclaim.
//!
//! A project's jobs are tried in the order of submission, and those that do not fit are skipped. The project with the
//! lowest use over quota goes first. A job that keeps its project within quota and does not fit takes back from
//! projects above quota, the latest start first, and only what it needs.

use super::{
    Jobs,
    drive::{Decision, Places, Scheduler},
};
use std::{cmp::Reverse, collections::BTreeSet};

/// The scheduler.
#[derive(Debug)]
pub struct Lifo<'a> {
    jobs: &'a Jobs,
    node_gpus: u8,
    free: Vec<u8>,
    used: Vec<u64>,
    waiting: Vec<BTreeSet<usize>>,
    /// Running jobs by start, with their places.
    running: BTreeSet<(u64, usize)>,
    started: Vec<u64>,
    places: Vec<Places>,
}

impl<'a> Lifo<'a> {
    /// Nobody runs and nobody waits.
    pub fn new(jobs: &'a Jobs, nodes: (usize, u8)) -> Self {
        Self {
            jobs,
            node_gpus: nodes.1,
            free: vec![nodes.1; nodes.0],
            used: vec![0; jobs.projects.len()],
            waiting: vec![BTreeSet::new(); jobs.projects.len()],
            running: BTreeSet::new(),
            started: vec![0; jobs.jobs.len()],
            places: vec![Vec::new(); jobs.jobs.len()],
        }
    }

    fn asked(&self, job: usize) -> u64 {
        let (tasks, gpus) = self.jobs.jobs[job].tasks(self.node_gpus);
        u64::from(tasks) * u64::from(gpus)
    }

    fn quota(&self, project: usize) -> u64 {
        u64::from(self.jobs.projects[project].1)
    }

    /// The tightest nodes with room for every task, or none.
    fn fit(&self, job: usize) -> Option<Places> {
        let (tasks, gpus) = self.jobs.jobs[job].tasks(self.node_gpus);
        if tasks == 1 {
            let fitting = (0..self.free.len()).filter(|&node| self.free[node] >= gpus);
            return fitting.min_by_key(|&node| self.free[node]).map(|node| vec![(node, gpus)]);
        }
        let mut free = self.free.clone();
        let mut places = Vec::new();
        for _ in 0..tasks {
            let fitting = (0..free.len()).filter(|&node| free[node] >= gpus);
            let node = fitting.min_by_key(|&node| free[node])?;
            free[node] -= gpus;
            places.push((node, gpus));
        }
        Some(places)
    }

    fn start(&mut self, job: usize, places: Places, now: u64) {
        let project = self.jobs.jobs[job].project;
        self.waiting[project].remove(&job);
        self.used[project] += self.asked(job);
        places.iter().for_each(|&(node, gpus)| self.free[node] -= gpus);
        self.places[job] = places;
        self.started[job] = now;
        self.running.insert((now, job));
    }

    fn stop(&mut self, job: usize) {
        self.used[self.jobs.jobs[job].project] -= self.asked(job);
        self.running.remove(&(self.started[job], job));
        for (node, gpus) in std::mem::take(&mut self.places[job]) {
            self.free[node] += gpus;
        }
    }

    /// The next start on free GPUs: lowest share first, sizes known not to fit left out.
    fn next_start(&self, too_large: &mut u32) -> Option<(usize, Places)> {
        let mut projects: Vec<usize> =
            (0..self.used.len()).filter(|&p| !self.waiting[p].is_empty()).collect();
        projects.sort_by_key(|&p| {
            (Reverse(self.quota(p) > 0), self.used[p] * 1_000_000 / self.quota(p).max(1), p)
        });
        for project in projects {
            for &job in &self.waiting[project] {
                let gpus = self.jobs.jobs[job].gpus;
                if gpus >= *too_large {
                    continue;
                }
                match self.fit(job) {
                    Some(places) => return Some((job, places)),
                    None => *too_large = gpus,
                }
                if *too_large <= 1 {
                    return None;
                }
            }
        }
        None
    }

    /// The victims that let a job within quota start, the latest starts first, and where it goes then.
    fn reclaim(&mut self, job: usize) -> Option<(Vec<usize>, Places)> {
        let claimant = self.jobs.jobs[job].project;
        let mut above: Vec<u64> = (0..self.used.len())
            .map(|project| self.used[project].saturating_sub(self.quota(project)))
            .collect();
        above[claimant] = 0;
        let mut victims = Vec::new();
        let mut fits = None;
        for &(_, victim) in self.running.iter().rev() {
            let project = self.jobs.jobs[victim].project;
            if above[project] == 0 {
                continue;
            }
            above[project] = above[project].saturating_sub(self.asked(victim));
            self.places[victim].iter().for_each(|&(node, gpus)| self.free[node] += gpus);
            victims.push(victim);
            fits = self.fit(job);
            if fits.is_some() {
                break;
            }
        }
        // Who is not needed stays: those taken first are tried first.
        if fits.is_some() {
            victims.retain(|&victim| {
                self.places[victim].iter().for_each(|&(node, gpus)| self.free[node] -= gpus);
                let needed = match self.fit(job) {
                    Some(places) => {
                        fits = Some(places);
                        false
                    }
                    None => true,
                };
                if needed {
                    self.places[victim].iter().for_each(|&(node, gpus)| self.free[node] += gpus);
                }
                needed
            });
        }
        let fits = fits.and_then(|_| self.fit(job));
        for &victim in &victims {
            self.places[victim].iter().for_each(|&(node, gpus)| self.free[node] -= gpus);
        }
        fits.map(|places| (victims, places))
    }
}

impl Scheduler for Lifo<'_> {
    fn on_submit(&mut self, job: usize, _now: u64) -> anyhow::Result<()> {
        self.waiting[self.jobs.jobs[job].project].insert(job);
        Ok(())
    }

    fn on_end(&mut self, job: usize, _now: u64) -> anyhow::Result<()> {
        self.stop(job);
        Ok(())
    }

    fn plan(&mut self, now: u64) -> anyhow::Result<Vec<Decision>> {
        let mut decisions = Vec::new();
        // Guarantees first: else borrowers would be started only to be evicted in the same plan.
        let mut hopeless: BTreeSet<(usize, u32)> = BTreeSet::new();
        loop {
            let within = (0..self.used.len()).flat_map(|project| {
                let room = self.quota(project).saturating_sub(self.used[project]);
                self.waiting[project].iter().copied().filter(move |_| room > 0).map(move |job| (job, room))
            });
            let next = within
                .filter(|&(job, room)| self.asked(job) <= room)
                .map(|(job, _)| job)
                .find(|&job| !hopeless.contains(&(self.jobs.jobs[job].project, self.jobs.jobs[job].gpus)));
            let Some(job) = next else { break };
            let found = self.fit(job).map(|places| (Vec::new(), places)).or_else(|| self.reclaim(job));
            let Some((victims, places)) = found else {
                hopeless.insert((self.jobs.jobs[job].project, self.jobs.jobs[job].gpus));
                continue;
            };
            for victim in victims {
                self.stop(victim);
                self.waiting[self.jobs.jobs[victim].project].insert(victim);
                decisions.push(Decision::Evict { job: victim });
            }
            self.start(job, places.clone(), now);
            decisions.push(Decision::Start { job, places });
        }
        let mut too_large = u32::MAX;
        while let Some((job, places)) = self.next_start(&mut too_large) {
            self.start(job, places.clone(), now);
            decisions.push(Decision::Start { job, places });
        }
        Ok(decisions)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{drive::replay, restart::Checkpoints},
        *,
    };
    use crate::trace::table::Table;

    #[test]
    fn the_last_borrower_gives_way_and_returns() {
        let quotas = Table::from_text("quotas.csv", "project,quota_gpus\nred,4\nblue,4\n");
        let text = "submit_s,duration_s,gpus,project\n0,100,4,red\n1,100,4,red\n10,50,4,blue\n";
        let jobs = Jobs::parse_csv(&quotas, &Table::from_text("jobs.csv", text)).unwrap();
        let mut lifo = Lifo::new(&jobs, (1, 8));
        let outcome = replay(&jobs, (1, 8), Checkpoints::Perfect, &mut lifo).unwrap();
        let records = &outcome.ledger.records;
        let seen: Vec<_> =
            records.iter().map(|record| (record.waited_s, record.evictions, record.ended_s)).collect();
        // The borrower worked 9 s, waits until blue ends, pays 30 s and works 91 s.
        assert_eq!(seen, [(0, 0, Some(100)), (50, 1, Some(60 + 30 + 91)), (0, 0, Some(60))]);
        assert!(outcome.guarantee.owed_s().iter().all(|&owed| owed == 0));
    }
}
