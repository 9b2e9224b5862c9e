//! Kills the agent again and again while it starts and stops tasks, and looks each time whether the next one makes good.
//!
//! This program plays the control plane: it decides what is wanted, and forgets nothing. `BERTH_KILLS` sets how often the agent
//! is killed, `BERTH_SEED` when.
#![allow(missing_docs)]

mod support;

use berth_agent::{Exit, Fact, TaskId, TaskSpec, Wanted};
use berth_types::Span;
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};
use support::{PATIENCE, PROGRAM, Temp, id, marked, shell};

const KILLS: u64 = 10;

fn main() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (kills, seed) = (number("BERTH_KILLS").unwrap_or(KILLS), number("BERTH_SEED").unwrap_or(1));
    let temp = Temp::new();
    let mut plane = Plane::new(&temp, seed);
    for kill in 0..kills {
        let agent = Agent::start(&temp.join("agent"));
        plane.work(agent);
        println!("kill {kill}: {} tasks decided, {} ended", plane.decided, plane.ended.len());
    }
    plane.finish(Agent::start(&temp.join("agent")));
    plane.check(&temp);
    println!("{kills} kills, {} tasks, none lost, none run twice, nothing left behind", plane.decided);
}

/// The agent as a process of its own.
struct Agent {
    child: Child,
    requests: ChildStdin,
    facts: Receiver<Fact>,
}

impl Agent {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new(PROGRAM)
            .arg("serve")
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the agent starts");
        let (requests, lines) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (sender, facts) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                // The last line of a killed agent may be cut.
                let Ok(fact) = serde_json::from_str(&line) else { return };
                if sender.send(fact).is_err() {
                    return;
                }
            }
        });
        Self { child, requests, facts }
    }

    fn ask(&mut self, request: &serde_json::Value) {
        writeln!(self.requests, "{request}").expect("the agent listens");
    }

    /// Ends it at once, and gives what it had told.
    fn kill(mut self) -> Vec<Fact> {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is gone");
        self.facts.iter().collect()
    }
}

/// What the control plane knows.
struct Plane {
    random: Random,
    seed: u64,
    starts: std::path::PathBuf,
    decided: u64,
    wanted: BTreeMap<TaskId, Wanted>,
    ended: BTreeMap<TaskId, Exit>,
    /// Tasks that were asked to stop may have come to nothing.
    stopped: BTreeSet<TaskId>,
    unwanted: BTreeSet<TaskId>,
}

impl Plane {
    fn new(temp: &Temp, seed: u64) -> Self {
        Self {
            random: Random(seed),
            seed,
            starts: temp.join("starts"),
            decided: 0,
            wanted: BTreeMap::new(),
            ended: BTreeMap::new(),
            stopped: BTreeSet::new(),
            unwanted: BTreeSet::new(),
        }
    }

    /// Recovers, then decides things until a moment comes.
    fn work(&mut self, mut agent: Agent) {
        // Some tasks are wanted no more while nobody is there to be told.
        let dropped = self.wanted.keys().copied().find(|_| self.random.below(3) == 0);
        if let Some(id) = dropped {
            self.wanted.remove(&id);
            self.unwanted.insert(id);
        }
        agent.ask(&json!({ "recover": self.wanted.values().collect::<Vec<_>>() }));
        let until = Instant::now() + Duration::from_micros(self.random.below(120_000));
        while Instant::now() < until {
            match self.random.below(4) {
                0 | 1 => {
                    let spec = self.decide();
                    agent.ask(&json!({ "start": spec }));
                }
                2 => {
                    let at = self.random.below(self.wanted.len().max(1) as u64) as usize;
                    if let Some((id, wanted)) = self.wanted.iter_mut().nth(at) {
                        wanted.stopping = true;
                        self.stopped.insert(*id);
                        agent.ask(&json!({ "stop": [id, Span(100)] }));
                    }
                }
                _ => {
                    let pause = Duration::from_micros(self.random.below(5_000));
                    match agent.facts.recv_timeout(pause) {
                        Ok(fact) => self.hear(fact),
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => {
                            panic!("seed {}: the agent died by itself", self.seed)
                        }
                    }
                }
            }
        }
        for fact in agent.kill() {
            self.hear(fact);
        }
    }

    fn decide(&mut self) -> TaskSpec {
        let id = id(self.decided);
        self.decided += 1;
        let starts = self.starts.display();
        let body = match self.random.below(4) {
            0 => "true".to_owned(),
            1 => "sleep 0.05".to_owned(),
            2 => "setsid sleep 1000 & sleep 1000".to_owned(),
            _ => "trap '' TERM; sleep 1000; sleep 1000".to_owned(),
        };
        let mut spec = shell(id, &format!("echo {id} >> {starts}; {body}"));
        spec.grace = Span(100);
        self.wanted.insert(id, Wanted { spec: spec.clone(), stopping: false });
        spec
    }

    fn hear(&mut self, fact: Fact) {
        match fact {
            Fact::Exited { id, exit, .. } => {
                self.wanted.remove(&id);
                let before = self.ended.insert(id, exit);
                assert!(before.is_none_or(|before| before == exit), "seed {}: {id} ended twice", self.seed);
            }
            Fact::Refused { id, message, .. } => panic!("seed {}: {id}: {message}", self.seed),
            _ => {}
        }
    }

    /// Stops everything, and waits until all is told.
    fn finish(&mut self, mut agent: Agent) {
        agent.ask(&json!({ "recover": self.wanted.values().collect::<Vec<_>>() }));
        for id in self.wanted.keys() {
            self.stopped.insert(*id);
            agent.ask(&json!({ "stop": [id, Span(500)] }));
        }
        while !self.wanted.is_empty() {
            match agent.facts.recv_timeout(PATIENCE) {
                Ok(fact) => self.hear(fact),
                Err(_) => panic!("seed {}: no end of {:?}", self.seed, self.wanted.keys()),
            }
        }
        // Unwanted tasks are ended without a word; the agent is done with them when it has ended all.
        agent.ask(&json!("end_all"));
        agent.child.wait().expect("it ends");
    }

    fn check(&self, temp: &Temp) {
        let text = std::fs::read_to_string(&self.starts).unwrap_or_default();
        let mut starts = BTreeMap::<TaskId, u32>::new();
        for line in text.lines() {
            *starts.entry(line.parse().expect("an id")).or_default() += 1;
        }
        for (id, count) in &starts {
            assert_eq!(*count, 1, "seed {}: {id} ran {count} times", self.seed);
        }
        for (id, exit) in &self.ended {
            assert_ne!(*exit, Exit::Lost, "seed {}: {id} was lost", self.seed);
            let ran = starts.contains_key(id) || self.stopped.contains(id);
            assert!(ran, "seed {}: {id} ended and never ran", self.seed);
        }
        let known = self.ended.len() + self.unwanted.iter().filter(|id| !self.ended.contains_key(id)).count();
        assert_eq!(known as u64, self.decided, "seed {}: a task is missing", self.seed);
        let folder = std::fs::read_to_string(temp.join("agent/id")).expect("the folder's name");
        let until = Instant::now() + PATIENCE;
        let left = || marked(&format!("BERTH_TASK={folder}/"));
        while !left().is_empty() {
            assert!(Instant::now() < until, "seed {}: {:?} run and nobody wants them", self.seed, left());
            std::thread::yield_now();
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }
}
