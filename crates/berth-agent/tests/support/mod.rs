//! A machine for one test: an agent on a folder of its own, and what it told.
#![allow(dead_code, unreachable_pub)]

pub mod busybox;

use berth_agent::{AgentConfig, Exit, Fact, Host, LogStart, RuntimeKind, Shutdown, TaskId, TaskSpec, local};
use berth_types::{Bytes, Cpu, Span, Time, WorkloadId};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc::{self, Receiver},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Longer than anything takes on a busy machine; a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_berth-agent");

/// A folder that goes with the test.
pub struct Temp(PathBuf);

impl Temp {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("berth-agent-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder for a test");
        Self(path.canonicalize().expect("it is there"))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn now() -> Time {
    Time(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64))
}

pub fn config(folder: &Path) -> AgentConfig {
    AgentConfig {
        shim: vec![PROGRAM.into(), "shim".into()],
        quickstart: vec![PROGRAM.into(), "quickstart".into()],
        cache: folder.join("cache"),
        ..AgentConfig::new(folder.join("agent"), now)
    }
}

pub fn id(workload: u64) -> TaskId {
    TaskId { workload: WorkloadId(workload), run: 1, rank: 0 }
}

pub fn spec(id: TaskId, command: &[&str]) -> TaskSpec {
    TaskSpec {
        id,
        name: "job".into(),
        project: "team-a".into(),
        user: "ada".into(),
        kind: "train".into(),
        node: "node-1".into(),
        runtime: RuntimeKind::Process,
        image: "ubuntu".into(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        args: Vec::new(),
        environment: BTreeMap::new(),
        local_image: false,
        working_dir: None,
        mounts: Vec::new(),
        large_shm: false,
        ports: Vec::new(),
        cpu: Cpu(0),
        memory: Bytes(0),
        devices: Vec::new(),
        workers: 1,
        hosts: vec!["node-1".into()],
        run_as: None,
        gang: 0,
        pause: Span::ZERO,
        terminal: false,
        stdin: false,
        progress_pattern: None,
        grace: Span::secs(30),
    }
}

pub fn shell(id: TaskId, script: &str) -> TaskSpec {
    spec(id, &["bash", "-c", script])
}

pub struct Machine {
    pub host: Arc<dyn Host>,
    pub facts: Receiver<Fact>,
    pub seen: Vec<Fact>,
}

impl Machine {
    pub fn new(temp: &Temp) -> Self {
        Self::with(config(temp.path()))
    }

    pub fn with(config: AgentConfig) -> Self {
        let (sender, facts) = mpsc::channel();
        let host = local(config, sender).expect("the agent starts");
        Self { host, facts, seen: Vec::new() }
    }

    /// The first fact, old or new, that is what is looked for.
    pub fn wait(&mut self, what: &str, wanted: impl Fn(&Fact) -> bool) -> Fact {
        if let Some(fact) = self.seen.iter().find(|fact| wanted(fact)) {
            return fact.clone();
        }
        loop {
            match self.facts.recv_timeout(PATIENCE) {
                Err(_) => panic!("{what} never came; there was {:#?}", self.seen),
                Ok(fact) => {
                    self.seen.push(fact.clone());
                    if wanted(&fact) {
                        return fact;
                    }
                }
            }
        }
    }

    pub fn started(&mut self, id: TaskId) -> u32 {
        match self.wait("a start", |fact| matches!(fact, Fact::Started { id: of, .. } if *of == id)) {
            Fact::Started { pid, .. } => pid.expect("a process"),
            other => panic!("{other:?}"),
        }
    }

    pub fn exited(&mut self, id: TaskId) -> (Exit, bool) {
        match self.wait("an end", |fact| matches!(fact, Fact::Exited { id: of, .. } if *of == id)) {
            Fact::Exited { exit, stopped, .. } => (exit, stopped),
            other => panic!("{other:?}"),
        }
    }

    pub fn refused(&mut self, id: TaskId) -> String {
        match self.wait("a refusal", |fact| matches!(fact, Fact::Refused { id: of, .. } if *of == id)) {
            Fact::Refused { message, .. } => message,
            other => panic!("{other:?}"),
        }
    }

    /// Everything in the task's log so far.
    pub fn log(&self, id: TaskId) -> String {
        let mut reader = self.host.log(id, LogStart::Offset(0)).expect("a log");
        let mut all = Vec::new();
        while let Some(chunk) = reader.read().expect("it reads") {
            all.extend_from_slice(&chunk.bytes);
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Waits until the log of a running task holds a text.
    pub fn log_with(&self, id: TaskId, text: &str) -> String {
        let mut reader = self.host.log(id, LogStart::Offset(0)).expect("a log");
        let mut all = String::new();
        loop {
            let ended = reader.is_ended();
            while let Some(chunk) = reader.read().expect("it reads") {
                all.push_str(&String::from_utf8_lossy(&chunk.bytes));
            }
            if all.contains(text) {
                return all;
            }
            assert!(!ended, "the task ended without saying `{text}`: {all}");
            assert!(reader.wait(PATIENCE).expect("it waits"), "`{text}` never came: {all}");
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.host.shutdown(if std::thread::panicking() { Shutdown::EndAll } else { Shutdown::Keep });
    }
}

/// Whether a process is there and runs; one that is dead and not yet reaped does not.
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Every process on this machine that carries this text in its environment.
pub fn marked(text: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(text) && runs(*pid)
    })
    .collect()
}

/// Ends one process by its number.
pub fn kill(pid: u32, signal: &str) {
    let ended = std::process::Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill");
    assert!(ended.success(), "no process {pid}");
}
