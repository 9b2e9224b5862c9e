//! Processes: those that are measured, and what the kernel counted of them.

use anyhow::{Context, Result, bail};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The kernel counts time in hundredths of a second.
const TICKS: f64 = 100.0;
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that ends with this one.
pub(crate) struct Started {
    child: Child,
    pub(crate) log: PathBuf,
}

impl Started {
    /// Its words go to a file of their own.
    pub(crate) fn new(program: &Path, arguments: &[String], level: &str, log: PathBuf) -> Result<Self> {
        let output = File::create(&log).with_context(|| format!("writing {}", log.display()))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .env("RUST_LOG", level)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self { child, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// An error with its last words, if it has ended in another way than well.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) if !status.success() => bail!("a contender ended ({status}): {}", self.tail()),
            _ => Ok(()),
        }
    }

    fn tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            let pid = self.child.id().to_string();
            Command::new("kill").args(["-TERM", &pid]).status().context("sending a signal")?;
        }
        self.wait()
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(&mut self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > end {
                bail!("a contender does not end: {}", self.tail());
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.check()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Seconds of processor time that a process has used.
pub(crate) fn cpu_secs(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name is in parentheses and may hold anything; the 14th and 15th field are time for itself and in the kernel.
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    let field = |at: usize| after.split_whitespace().nth(at).and_then(|text| text.parse::<f64>().ok());
    (field(11).unwrap_or(0.0) + field(12).unwrap_or(0.0)) / TICKS
}

/// The most memory that a process has had, in MiB.
pub(crate) fn peak_rss_mib(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .and_then(|text| text.trim().parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

/// What the machine was busy with.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("?").to_owned()
}
