//! The `berth` program beside this one, in a folder of its own.

use super::caller::Caller;
use crate::report;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Server {
    folder: PathBuf,
    nodes: String,
    child: Option<Child>,
}

impl Server {
    pub(crate) fn start(nodes: &str) -> Result<Self> {
        let folder = report::folder().join(format!("platform-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let mut server = Self { folder, nodes: nodes.into(), child: None };
        server.up()?;
        Ok(server)
    }

    /// Starts the program; gives the time until it answers.
    fn up(&mut self) -> Result<Duration> {
        let _ = fs::remove_file(self.folder.join("server.json"));
        let begin = Instant::now();
        let child = program()?
            .args([
                "up",
                "--listen",
                "127.0.0.1:0",
                "--project",
                "bench=2",
                "--nodes",
                &self.nodes,
                "--folder",
            ])
            .arg(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.child = Some(child);
        until("the server answers", || self.file())?;
        self.caller()?.get("/api/v1/cluster")?;
        Ok(begin.elapsed())
    }

    fn file(&self) -> Option<Value> {
        serde_json::from_str(&fs::read_to_string(self.folder.join("server.json")).ok()?).ok()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn caller(&self) -> Result<Caller> {
        let file = self.file().context("it runs")?;
        let address = file["address"].as_str().unwrap_or_default().trim_start_matches("http://").to_owned();
        Caller::new(&address, fs::read_to_string(self.folder.join("token"))?.trim())
    }

    /// Kills it, so that it starts from what is on the disk, and gives the time until it answers.
    pub(crate) fn restart(&mut self) -> Result<Duration> {
        self.kill();
        self.up()
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until nothing is unfinished.
    pub(crate) fn until_idle(&self, caller: &mut Caller) -> Result<()> {
        until("everything is over", || {
            let list = caller.get("/api/v1/workloads?finished=false&limit=1").ok()?;
            list.contains(r#""items":[]"#).then_some(())
        })
    }

    /// What it has in memory now.
    pub(crate) fn memory_bytes(&self) -> Result<f64> {
        let pid = self.child.as_ref().context("it runs")?.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.context("the kernel tells")? * 1024.0)
    }

    /// How long `berth list` takes as a whole.
    pub(crate) fn list(&self) -> Result<Duration> {
        let begin = Instant::now();
        let status = program()?
            .args(["list", "-p", "bench", "--folder"])
            .arg(&self.folder)
            .stdout(Stdio::null())
            .status()?;
        if !status.success() {
            bail!("berth list: {status}");
        }
        Ok(begin.elapsed())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let deadline = Instant::now() + Duration::from_secs(60);
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The program of the same build.
fn program() -> Result<Command> {
    let own = std::env::current_exe()?;
    let berth = own.with_file_name("berth");
    if !berth.exists() {
        bail!("{} is not built: run `make bench`", berth.display());
    }
    Ok(Command::new(berth))
}

/// Waits for something to be there.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("waited too long: {what}");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}
