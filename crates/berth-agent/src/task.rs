//! What a task is, and what becomes of it.

use berth_types::{Bytes, Cpu, Share, Span, Time, WorkloadId};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, path::PathBuf, str::FromStr};

/// One worker of one run of a workload. It is started at most once, ever: a retry or a resumption is another run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The workload it belongs to.
    pub workload: WorkloadId,
    /// Which start of the workload, from 1.
    pub run: u32,
    /// Which worker, from 0.
    pub rank: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.workload, self.run, self.rank)
    }
}

/// A text that is no task id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a task; it looks like `17.2.0`: workload, run, rank")]
pub struct NotATask(pub String);

impl FromStr for TaskId {
    type Err = NotATask;
    fn from_str(text: &str) -> Result<Self, NotATask> {
        let no = || NotATask(text.to_owned());
        let mut parts = text.split('.');
        let mut next = || parts.next().ok_or_else(no);
        let (workload, run, rank) = (next()?, next()?, next()?);
        let id = Self {
            workload: WorkloadId(workload.parse().map_err(|_| no())?),
            run: run.parse().map_err(|_| no())?,
            rank: rank.parse().map_err(|_| no())?,
        };
        // One spelling only: the id names a folder and is looked for in other processes' environments.
        if id.to_string() == text { Ok(id) } else { Err(no()) }
    }
}

impl Serialize for TaskId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// By what a task is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeKind {
    /// As a process of this machine; the image is looked up in a table.
    Process,
    /// As a container made by an OCI runtime from a local archive or folder.
    Oci,
    /// As a container of a Docker or Podman engine.
    Docker,
}

/// A folder or file of this machine that the task sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where it is.
    pub source: PathBuf,
    /// Where the task sees it.
    pub target: PathBuf,
    /// Whether the task may not write.
    pub read_only: bool,
    /// Whether it is shown to the task whoever may enter the folders above it: it is Berth's own, or an administrator said so.
    #[serde(default)]
    pub lent: bool,
}

/// One device share given to a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The device's index on its node.
    pub index: u8,
    /// The device's identity; empty for a declared device.
    pub uuid: String,
    /// The number in the name of its file, where the driver tells.
    #[serde(default)]
    pub minor: Option<u32>,
    /// The device's model.
    pub model: String,
    /// The memory of the whole device.
    pub memory: Bytes,
    /// How much of it.
    pub share: Share,
    /// The memory of the share.
    pub memory_limit: Bytes,
}

/// Everything needed to run a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Which task.
    pub id: TaskId,
    /// The workload's name.
    pub name: String,
    /// Its project.
    pub project: String,
    /// Who submitted it.
    pub user: String,
    /// Its kind: train, interactive, ...
    pub kind: String,
    /// The node it was placed on.
    pub node: String,
    /// By what it is run.
    pub runtime: RuntimeKind,
    /// The image.
    pub image: String,
    /// Whether an engine may not fetch the image.
    #[serde(default)]
    pub local_image: bool,
    /// What replaces the image's entry point; may be empty.
    pub command: Vec<String>,
    /// Arguments.
    pub args: Vec<String>,
    /// What the user put into the environment; wins over what Berth puts there.
    pub environment: BTreeMap<String, String>,
    /// Where it starts.
    pub working_dir: Option<PathBuf>,
    /// What it sees of this machine.
    pub mounts: Vec<Mount>,
    /// Whether `/dev/shm` should be large.
    pub large_shm: bool,
    /// The ports it serves on.
    pub ports: Vec<u16>,
    /// CPU it may use; zero for no limit.
    pub cpu: Cpu,
    /// Memory it may use; zero for no limit.
    pub memory: Bytes,
    /// The device shares it was given.
    pub devices: Vec<Granted>,
    /// How many workers its gang has.
    pub workers: u32,
    /// The node of each rank.
    pub hosts: Vec<String>,
    /// User and group to run as; none for those of the agent.
    pub run_as: Option<(u32, u32)>,
    /// The start of its gang: those who join later meet where the gang did. 0 for the run of the task.
    #[serde(default)]
    pub gang: u32,
    /// How long it waits before it begins.
    #[serde(default)]
    pub pause: Span,
    /// Whether it has a terminal, which people can join.
    #[serde(default)]
    pub terminal: bool,
    /// Whether it reads what people who join it type, on a pipe if it has no terminal.
    #[serde(default)]
    pub stdin: bool,
    /// A regular expression with named groups that finds progress in its output.
    pub progress_pattern: Option<String>,
    /// How long it gets between the request to stop and the end.
    pub grace: Span,
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// The machine or the shim died, and nobody knows.
    Lost,
}

/// What a task says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The epoch it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// How many there will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// The step it is at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// How many there will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// The loss, as printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<String>,
    /// The accuracy, as printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<String>,
    /// Samples per second, as printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<String>,
    /// How long it thinks that it still needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta: Option<Span>,
    /// How far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// Whatever else it reports, as printed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, String>,
    /// How busy it says that its devices are, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<u8>,
}

impl Report {
    /// Done, in percent: as it says, or by its epochs and the steps within them.
    pub fn percent_done(&self) -> Option<u8> {
        if let Some(percent) = self.percent {
            return Some(percent.min(100));
        }
        let within = match (self.step, self.steps) {
            (Some(step), Some(steps)) if steps > 0 => (u128::from(step.min(steps)), u128::from(steps)),
            _ => (0, 1),
        };
        let (done, all) = match (self.epoch, self.epochs) {
            // The epoch that is reported with steps, or just began, is under way; otherwise it is done.
            (Some(epoch), Some(epochs)) if epochs > 0 => {
                let before = if self.steps.is_some() || self.step == Some(0) {
                    epoch.saturating_sub(1)
                } else {
                    epoch
                };
                (u128::from(before.min(epochs)) * within.1 + within.0, u128::from(epochs) * within.1)
            }
            _ if self.steps.is_some() => within,
            _ => return None,
        };
        Some((done * 100 / all.max(1)).min(100) as u8)
    }
}

/// Something that happened to a task. Facts may come again after a recovery; the first of each kind is the truth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    /// It runs.
    Started {
        /// Which task.
        id: TaskId,
        /// Its first process, where there is one of this machine.
        pid: Option<u32>,
        /// Each port that was asked for, and the port of this machine that serves it.
        ports: Vec<(u16, u16)>,
        /// When.
        at: Time,
    },
    /// It ended, and nothing of it runs any more.
    Exited {
        /// Which task.
        id: TaskId,
        /// How.
        exit: Exit,
        /// When.
        at: Time,
        /// Whether it had been asked to.
        stopped: bool,
    },
    /// It never ran, and would not if it were tried again.
    Refused {
        /// Which task.
        id: TaskId,
        /// Why, and what to do about it.
        message: String,
        /// When.
        at: Time,
    },
    /// It told how far it is.
    Progress {
        /// Which task.
        id: TaskId,
        /// What it told.
        report: Report,
        /// When.
        at: Time,
    },
    /// It wrote a checkpoint.
    Checkpoint {
        /// Which task.
        id: TaskId,
        /// When.
        at: Time,
    },
}

impl Fact {
    /// The task it is about.
    pub fn id(&self) -> TaskId {
        match self {
            Self::Started { id, .. }
            | Self::Exited { id, .. }
            | Self::Refused { id, .. }
            | Self::Progress { id, .. }
            | Self::Checkpoint { id, .. } => *id,
        }
    }
}

/// A task that should run, or be on its way to its end, when the agent starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The task.
    pub spec: TaskSpec,
    /// Whether it was asked to stop.
    pub stopping: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_id_has_one_spelling() {
        let id = TaskId { workload: WorkloadId(17), run: 2, rank: 0 };
        assert_eq!(id.to_string(), "17.2.0");
        assert_eq!("17.2.0".parse(), Ok(id));
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"17.2.0\"");
        for text in ["", "17", "17.2", "17.2.0.1", "017.2.0", "17.+2.0", "../1.1.1", "17.2.0 "] {
            assert!(text.parse::<TaskId>().is_err(), "{text}");
        }
    }
}
