//! Ports of this machine that tasks of ours use.

use crate::{TaskId, TaskSpec, folder};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{Ipv4Addr, TcpListener},
};

/// Below the range from which the kernel takes ports for outgoing connections.
const GANG_FIRST: u16 = 20_000;
const GANG_COUNT: u16 = 10_000;
const TRIES_MAX: u16 = 1000;

/// Which ports are taken by tasks that run. A port may be promised a moment before somebody listens on it.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    taken: BTreeMap<TaskId, Vec<u16>>,
}

impl Ports {
    pub(crate) fn take(&mut self, id: TaskId, ports: impl IntoIterator<Item = u16>) {
        self.taken.insert(id, ports.into_iter().collect());
    }

    pub(crate) fn give_back(&mut self, id: TaskId) {
        self.taken.remove(&id);
    }

    /// The port that was asked for, with a free one that stands for it: the same when it is free.
    fn free_near(&self, asked: u16, given: &[(u16, u16)]) -> Result<(u16, u16), String> {
        let given = given.iter().map(|(_, real)| *real);
        let taken: BTreeSet<u16> = self.taken.values().flatten().copied().chain(given).collect();
        let candidates = (0..TRIES_MAX).filter_map(|offset| asked.checked_add(offset));
        let mut free = candidates.filter(|port| !taken.contains(port) && is_free(*port));
        free.next()
            .map(|real| (asked, real))
            .ok_or_else(|| format!("no port from {asked} on is free on this machine"))
    }

    /// Each port that was asked for, with one that is free and no other's: tasks of one machine may ask for the same.
    pub(crate) fn for_all(&self, asked: &[u16]) -> Result<Vec<(u16, u16)>, String> {
        let mut given: Vec<(u16, u16)> = Vec::with_capacity(asked.len());
        for port in asked {
            let found = self.free_near(*port, &given)?;
            given.push(found);
        }
        Ok(given)
    }

    /// The port on which the workers of one gang find each other, the same for all of them; behind it each of them has one.
    pub(crate) fn of_gang(&self, folder: &folder::Folder, spec: &TaskSpec) -> Result<u16, String> {
        let (id, gang) = (spec.id, if spec.gang == 0 { spec.id.run } else { spec.gang });
        let path = folder.workload_tasks(id.workload).join(format!("port-{gang}"));
        if let Some(port) = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok()) {
            return Ok(port);
        }
        let count = u16::try_from(spec.workers).unwrap_or(u16::MAX).saturating_add(1).min(GANG_COUNT / 10);
        let start =
            (id.workload.0.wrapping_mul(131).wrapping_add(u64::from(gang)) % u64::from(GANG_COUNT)) as u16;
        let taken: BTreeSet<u16> = self.taken.values().flatten().copied().collect();
        let candidates = (0..TRIES_MAX).map(|offset| GANG_FIRST + (start + offset) % GANG_COUNT);
        let is_open = |port: u16| !taken.contains(&port) && is_free(port);
        let port = candidates.into_iter().find(|first| (*first..first.saturating_add(count)).all(is_open));
        let port = port.ok_or("no port is free for the workers to find each other")?;
        folder::write(&path, port.to_string().as_bytes()).map_err(|error| error.to_string())?;
        Ok(port)
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
