//! Random histories: whatever happens, the log arrives where the platform is, and no rule of capacity is broken.

use super::*;
use berth_api::KindName;

/// A small generator; a failure prints the seed that replays it.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[test]
fn every_history_is_read_again_from_its_log() {
    let cases = std::env::var("BERTH_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(150);
    let seeds = match std::env::var("BERTH_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..cases,
    };
    for seed in seeds {
        let played = std::panic::catch_unwind(|| play(seed));
        if let Err(cause) = played {
            eprintln!("replay this with BERTH_SEED={seed} cargo test -p berth-server every_history");
            std::panic::resume_unwind(cause);
        }
    }
}

fn play(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut world = World::of_the_report();
    for step in 0..120 {
        world.now = world.now + Span(random.below(30_000));
        act(&mut world, &mut random, step);
        let tasks: BTreeSet<_> = world.up.union(&world.ordered).copied().collect();
        let known = world.platform.records.values().flat_map(|record| {
            record.tasks.iter().map(|(rank, task)| TaskKey {
                workload: record.id,
                run: task.run,
                rank: *rank,
            })
        });
        assert_eq!(known.collect::<BTreeSet<_>>(), tasks, "the platform knows every task that an agent has");
    }
    world.assert_replay();
}

pub(crate) fn act(world: &mut World, random: &mut Random, step: u64) {
    let ids: Vec<WorkloadId> = world.platform.records.keys().copied().collect();
    let some = |random: &mut Random| (!ids.is_empty()).then(|| ids[random.below(ids.len() as u64) as usize]);
    match random.below(20) {
        0..6 => {
            let request = request(random, step);
            // Some are refused, and then nothing has happened.
            let _ = world.act(|platform, now| platform.submit(request, None, "ada", now));
        }
        6..10 => {
            if let Some(task) = world.ordered.pop_first() {
                world.up.insert(task);
                world.see(Seen::Started { task, pid: Some(1), ports: Vec::new() });
            }
        }
        10..13 => {
            if let Some(task) = world.told_to_stop.pop_first() {
                world.ordered.remove(&task);
                world.up.remove(&task);
                let exit = random.pick(&[0, 1]);
                world.see(Seen::Exited { task, exit: TaskExit::Code(exit) });
            }
        }
        13..15 => {
            let up: Vec<_> = world.up.iter().copied().collect();
            if !up.is_empty() {
                let task = random.pick(&up);
                world.up.remove(&task);
                world.told_to_stop.remove(&task);
                let exit = match random.below(6) {
                    0 => TaskExit::Lost,
                    1 => TaskExit::Signal(9),
                    2 => TaskExit::Code(1),
                    3 => TaskExit::Refused("no".into()),
                    _ => TaskExit::Code(0),
                };
                world.see(Seen::Exited { task, exit });
            }
        }
        15 => {
            if let Some(id) = some(random) {
                let _ = world.act(|platform, now| platform.delete(id, "ada", now));
            }
        }
        16 => {
            if let Some(id) = some(random) {
                let suspend = random.chance(50);
                let _ = world.act(|platform, now| match suspend {
                    true => platform.suspend(id, "ada", now),
                    false => platform.resume(id, "ada", now),
                });
            }
        }
        17 => {
            let up: Vec<_> = world.up.iter().copied().collect();
            if !up.is_empty() {
                let workload = random.pick(&up).workload;
                let utilisation = Some(random.pick(&[0, 100]));
                world.see(Seen::Progress {
                    workload,
                    report: TaskReport { utilisation, ..TaskReport::default() },
                });
                world.see(Seen::Checkpoint { workload });
            }
        }
        18 => {
            let settings = ProjectSettings {
                quota: random.pick(&["0", "2", "6"]).parse().ok(),
                idle_limit_secs: Some(random.pick(&[0, 60])),
                ..ProjectSettings::default()
            };
            let project = random.pick(&["team-a", "team-b"]);
            let _ = world.act(|platform, now| platform.update_project(project, &settings, now));
        }
        _ => {
            let (node, drain) = (random.pick(&["node1", "node2"]), random.chance(30));
            let _ = world.act(|platform, now| match drain {
                true => platform.drain_node(node, now),
                false => platform.set_condition(node, berth_types::NodeCondition::Ready, false, now),
            });
        }
    }
}

fn request(random: &mut Random, step: u64) -> WorkloadRequest {
    let workers = random.pick(&[1, 1, 1, 2, 4]);
    if random.chance(10) {
        let sweep = train(&format!("s{}", step % 40), random.pick(&["0.5", "1"]));
        let (completions, parallelism) = (Some(1 + random.below(5) as u32), Some(1 + random.below(2) as u32));
        return WorkloadRequest {
            completions,
            parallelism,
            backoff_limit: Some(random.pick(&[0, 2])),
            ..sweep
        };
    }
    WorkloadRequest {
        project: random.pick(&["team-a", "team-b", "team-c", "team-d"]).into(),
        kind: random.pick(&[KindName::Train, KindName::Train, KindName::Interactive]),
        workers: Some(workers),
        min_workers: Some(1 + random.below(u64::from(workers)) as u32),
        backoff_limit: Some(random.pick(&[0, 1, 6])),
        max_run_secs: random.chance(20).then_some(60),
        ..train(&format!("w{}", step % 40), random.pick(&["0", "0.5", "1", "2", "8"]))
    }
}
