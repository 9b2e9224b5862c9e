//! Processes that never outlive this program.

use crate::binaries::SETPRIV;
use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, OnceLock, mpsc},
    thread,
    time::{Duration, Instant},
};

/// How much of a log goes into an error.
const TAIL_LINES: usize = 15;
const POLL: Duration = Duration::from_millis(20);

/// One running component: its process and its log.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program in its own process group. What it says is appended to `<name>.log` in the folder.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        environment: &[(&str, &str)],
        folder: &Path,
    ) -> Result<Self> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = folder.join(format!("{name}.log"));
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("opening {}", log.display()))?;
        let mut command = Command::new(SETPRIV);
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .current_dir(folder)
            // Go programs keep caches and look for settings below the home folder.
            .env("HOME", folder)
            .env_remove("KUBECONFIG")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        let child = spawn_from_keeper(command).with_context(|| format!("starting {}", program.display()))?;
        Ok(Self { name, child, log })
    }

    /// An error with the end of the log, if the process has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.failure(&ended(status))),
        }
    }

    /// What went wrong, and the end of the log.
    pub(crate) fn failure(&self, what: &str) -> anyhow::Error {
        let tail = self.tail();
        anyhow!("{} {what}; the end of {}:\n{tail}", self.name, self.log.display())
    }

    /// The last lines of the log.
    pub(crate) fn tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks the process to end, and ends it when it has not within the time.
    pub(crate) fn stop(mut self, patience: Duration) -> Result<()> {
        self.signal(Signal::TERM);
        let until = Instant::now() + patience;
        while Instant::now() < until {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            thread::sleep(POLL);
        }
        self.kill()
    }

    /// Ends the process at once, as a crash would, and waits until it is gone.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            self.signal(Signal::KILL);
            self.child.wait()?;
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        // The child has not been waited for, so its number is not another's; an error says that it has ended already.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("berth-testbed: {} could not be ended: {error}", self.name);
        }
    }
}

fn ended(status: ExitStatus) -> String {
    format!("has ended ({status})")
}

type Job = (Command, mpsc::Sender<std::io::Result<Child>>);

/// The kernel sends a child its death signal when the *thread* that started it ends, so children come from a thread
/// that never does: tests start clusters from threads of their own, which end long before the program.
fn spawn_from_keeper(command: Command) -> Result<Child> {
    static KEEPER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let run = move || {
            for (mut command, answer) in inbox {
                // The asker waits for it; if it has panicked meanwhile, the child it will never see is ended here.
                if let Err(mpsc::SendError(Ok(mut child))) = answer.send(command.spawn()) {
                    let _ = child.kill().and_then(|()| child.wait());
                }
            }
        };
        thread::Builder::new()
            .name("keeper of processes".into())
            .spawn(run)
            .expect("a thread can be started");
        Mutex::new(jobs)
    });
    let (answer, result) = mpsc::channel();
    let sent = keeper.lock().map_err(|_| anyhow!("the keeper of processes is gone"))?.send((command, answer));
    sent.map_err(|_| anyhow!("the keeper of processes is gone"))?;
    Ok(result.recv().context("the keeper of processes is gone")??)
}
