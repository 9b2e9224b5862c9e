//! A real server with real processes, in a home of its own.

use super::{Home, Ran};
use serde_json::Value;
use std::{
    fs,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Longer than anything takes on a busy machine; a condition that is not met by then never will be.
const PATIENCE: Duration = Duration::from_secs(90);

/// A server that is stopped, with everything it started, when the test ends.
pub(crate) struct Server {
    pub(crate) home: Home,
    child: Option<Child>,
    options: Vec<String>,
}

impl Server {
    /// Starts one with these options of `berth up`.
    pub(crate) fn start(options: &str) -> Self {
        let mut server = Self {
            home: Home::new(),
            child: None,
            options: options.split_whitespace().map(str::to_owned).collect(),
        };
        server.up();
        server
    }

    /// One that was never started.
    pub(crate) fn stopped() -> Self {
        Self { home: Home::new(), child: None, options: Vec::new() }
    }

    /// With the nodes and the teams of the report.
    pub(crate) fn of_the_report() -> Self {
        Self::start(
            "--nodes 2xdgx1 --project team-a=4 --project team-b=2 --project team-c=2 --project team-d=8",
        )
    }

    /// Starts it again in the same home, and waits until it answers.
    pub(crate) fn up(&mut self) {
        let listen = ["--listen", "127.0.0.1:0"].map(str::to_owned);
        let options: Vec<String> = listen.into_iter().chain(self.options.clone()).collect();
        self.up_with(&options);
    }

    /// Starts it again with these options and no others.
    pub(crate) fn up_with(&mut self, options: &[impl AsRef<std::ffi::OsStr>]) {
        assert!(self.child.is_none(), "it runs already");
        let folder = self.home.server_folder();
        let _ = fs::remove_file(folder.join("server.json"));
        let before = if self.keeps_a_log() { self.log().len() } else { 0 };
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_path()).expect("a log");
        let mut child = Command::new(env!("CARGO_BIN_EXE_berth"))
            .arg("up")
            .args(options)
            .env_clear()
            .envs(self.home.environment())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("BERTH_CACHE", cache())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // Signals of the terminal are for the test.
            .process_group(0)
            .spawn()
            .expect("the binary starts");
        until("the server answers", || {
            if let Ok(Some(status)) = child.try_wait() {
                panic!("the server ended with {status}: {}", self.log());
            }
            // It can be found a moment before it has said everything.
            self.server_file().is_some_and(|file| file["pid"] == child.id())
                && (!self.keeps_a_log()
                    || self.log().get(before..).is_some_and(|said| said.contains("Ctrl-C stops it")))
        });
        self.child = Some(child);
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    fn server_file(&self) -> Option<Value> {
        serde_json::from_str(&fs::read_to_string(self.home.server_folder().join("server.json")).ok()?).ok()
    }

    fn log_path(&self) -> PathBuf {
        self.home.path().join("server.log")
    }

    /// Whether what it says can be read. A log that is a device, such as one that takes nothing, has no end.
    fn keeps_a_log(&self) -> bool {
        fs::symlink_metadata(self.log_path()).is_ok_and(|file| file.is_file())
    }

    /// What the server said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Its address and token.
    pub(crate) fn endpoint(&self) -> (String, String) {
        let file = self.server_file().expect("it runs");
        let token = fs::read_to_string(self.home.server_folder().join("token")).expect("it runs");
        (file["address"].as_str().expect("an address").to_owned(), token)
    }

    /// Ends it with a signal, and waits until it is gone.
    pub(crate) fn signal(&mut self, name: &str) -> Option<i32> {
        let mut child = self.child.take().expect("it runs");
        signal(child.id(), name);
        child.wait().expect("it was started").code()
    }

    /// Waits until it is gone after it was asked to end.
    pub(crate) fn ended(&mut self) {
        let status = self.child.take().expect("it runs").wait().expect("it was started");
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// Runs a command line that must succeed, and gives what it printed.
    pub(crate) fn run(&self, line: &str) -> String {
        let ran = self.home.run(line);
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        ran.stdout
    }

    /// Runs a command line, however it ends.
    pub(crate) fn try_run(&self, line: &str) -> Ran {
        self.home.run(line)
    }

    /// The answer of a command as JSON.
    pub(crate) fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.run(&format!("{line} -o json"))).expect("is JSON")
    }

    /// A workload as `get` shows it.
    pub(crate) fn workload(&self, place: &str) -> Value {
        self.json(&format!("berth get {place}"))
    }

    /// Waits until a workload has one of these statuses, by words separated with `|`.
    pub(crate) fn until_status(&self, place: &str, wanted: &str) -> Value {
        let mut last = Value::Null;
        until(&format!("{place} is {wanted}"), || {
            last = self.workload(place);
            wanted.split('|').any(|status| last["status"] == status)
        });
        last
    }

    /// Processes of this server's tasks, by the mark in their environment.
    pub(crate) fn task_processes(&self) -> Vec<u32> {
        // The agent's folder has a name, and without one nothing was ever started.
        let Ok(folder) = fs::read_to_string(self.home.server_folder().join("agent/id")) else {
            return Vec::new();
        };
        let mark = format!("BERTH_TASK={folder}/");
        let of_this_home = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).contains(&mark) && !is_gone(*pid)
        };
        let pids = fs::read_dir("/proc").expect("is there").flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(of_this_home).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            signal(child.id(), "TERM");
            let deadline = Instant::now() + Duration::from_secs(60);
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        for pid in self.task_processes() {
            signal(pid, "KILL");
        }
    }
}

fn is_gone(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Where tools for tests and notebooks are, outside of the home of a test.
pub(crate) fn cache() -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/berth"));
    std::env::var_os("BERTH_CACHE").map(PathBuf::from).or_else(home).unwrap_or_default()
}

/// Whether JupyterLab is there; says loudly when what needs it is not tested.
pub(crate) fn jupyter() -> bool {
    let found = cache().join("jupyter/bin/jupyter-lab").exists();
    if !found {
        eprintln!(
            "SKIPPED: notebooks are not tested, because JupyterLab is not installed (make test installs it)"
        );
    }
    found
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Waits for a condition.
pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) {
    until_or_tell(what, holds, String::new);
}

/// Waits for a condition, and tells what there is instead when that takes too long.
pub(crate) fn until_or_tell(what: &str, mut holds: impl FnMut() -> bool, there_is: impl Fn() -> String) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited too long: {what}\n{}", there_is());
        std::thread::sleep(Duration::from_millis(10));
    }
}
