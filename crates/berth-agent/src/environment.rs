//! What a task finds in its environment.

use crate::{TaskSpec, folder::Folder};
use std::{collections::BTreeMap, path::PathBuf};

/// What a process gets of the agent's own environment. Everything else may be a secret of the control plane.
const INHERITED: [&str; 14] = [
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV_ROOT",
];

/// Of those, what belongs to who runs the agent, and is of no use to anybody else.
const PERSONAL: [&str; 8] =
    ["HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT"];

/// Carried by every process of a task, so that none is overlooked after a crash.
pub(crate) const MARK: &str = "BERTH_TASK";

/// Where a task sees what Berth gives it.
pub(crate) struct Places {
    pub(crate) python: PathBuf,
    pub(crate) checkpoints: PathBuf,
    pub(crate) signals: PathBuf,
}

/// What a process gets of the agent's own environment.
pub(crate) fn inherited() -> BTreeMap<String, String> {
    INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect()
}

/// Where a task finds programs unless its request says otherwise: where the agent does.
pub(crate) fn usual_path() -> String {
    std::env::var("PATH")
        .unwrap_or_else(|_| "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into())
}

/// The variables of a task. The user's own win, except for the mark.
pub(crate) fn of_task(
    spec: &TaskSpec,
    folder: &Folder,
    places: &Places,
    ports: &[(u16, u16)],
    master_port: Option<u16>,
) -> BTreeMap<String, String> {
    let mut all = inherited();
    all.retain(|name, _| spec.run_as.is_none() || !PERSONAL.contains(&name.as_str()));
    all.insert("PATH".to_owned(), usual_path());
    all.insert("PYTHONPATH".to_owned(), places.python.display().to_string());
    // A trainer's lines must reach the log while they are news.
    all.insert("PYTHONUNBUFFERED".to_owned(), "1".to_owned());
    all.extend(of_berth(spec, ports, master_port));
    all.insert("BERTH_CHECKPOINT_DIR".to_owned(), places.checkpoints.display().to_string());
    let file = places.signals.join("checkpoint");
    all.insert("BERTH_CHECKPOINT_FILE".to_owned(), file.display().to_string());
    let own_path = all["PYTHONPATH"].clone();
    all.extend(spec.environment.clone());
    if let Some(path) = all.get_mut("PYTHONPATH").filter(|path| **path != own_path) {
        *path = format!("{path}:{own_path}");
    }
    all.insert(MARK.to_owned(), folder.mark(spec.id));
    all
}

/// The variables that are the same in every runtime.
pub(crate) fn of_berth(
    spec: &TaskSpec,
    ports: &[(u16, u16)],
    master_port: Option<u16>,
) -> BTreeMap<String, String> {
    let devices = visible_devices(spec);
    let gpus: u64 = spec.devices.iter().map(|device| device.share.gpus().0).sum();
    let gpus = berth_types::Gpus(gpus).to_string();
    let id = spec.id;
    let mut all = BTreeMap::new();
    let mut put = |name: &str, value: String| {
        all.insert(name.to_owned(), value);
    };
    put("CUDA_VISIBLE_DEVICES", devices.clone());
    put("NVIDIA_VISIBLE_DEVICES", if devices.is_empty() { "void".to_owned() } else { devices });
    put("BERTH_WORKLOAD", spec.name.clone());
    put("BERTH_PROJECT", spec.project.clone());
    put("BERTH_USER", spec.user.clone());
    put("BERTH_KIND", spec.kind.clone());
    put("BERTH_NODE", spec.node.clone());
    put("BERTH_RANK", id.rank.to_string());
    put("BERTH_WORKERS", spec.workers.to_string());
    put("BERTH_RUN", id.run.to_string());
    put("BERTH_GPU_SHARE", gpus.clone());
    // One number: shares of one task are of one size.
    let memory = spec.devices.iter().map(|device| device.memory_limit.0 >> 20).min().unwrap_or(0);
    put("BERTH_GPU_MEMORY_MIB", memory.to_string());
    put("RUNAI_PROJECT", spec.project.clone());
    put("RUNAI_JOB_NAME", spec.name.clone());
    put("RUNAI_NUM_OF_GPUS", gpus);
    put("RUNAI_MPI_NUM_WORKERS", spec.workers.to_string());
    put("NODE_NAME", spec.node.clone());
    put("JOB_NAME", spec.name.clone());
    // The same over every run: results of a job that was preempted belong together.
    put("JOB_UUID", format!("berth-{}", id.workload));
    put("RANK", id.rank.to_string());
    put("WORLD_SIZE", spec.workers.to_string());
    put("LOCAL_RANK", local_rank(spec).to_string());
    let places = Placed::of(spec);
    put("LOCAL_WORLD_SIZE", places.on_node.to_string());
    put("NODE_RANK", places.node.to_string());
    put("GROUP_RANK", places.node.to_string());
    if let Some(port) = master_port {
        let address = "127.0.0.1";
        put("MASTER_ADDR", address.to_owned());
        put("MASTER_PORT", port.to_string());
        put("TF_CONFIG", tensorflow(spec, address, port));
        put("JAX_COORDINATOR_ADDRESS", format!("{address}:{port}"));
        put("JAX_NUM_PROCESSES", spec.workers.to_string());
        put("JAX_PROCESS_ID", id.rank.to_string());
        for (name, value) in [
            ("RANK", id.rank as usize),
            ("SIZE", spec.workers as usize),
            ("LOCAL_RANK", local_rank(spec)),
            ("LOCAL_SIZE", places.on_node),
            ("CROSS_RANK", places.node),
            ("CROSS_SIZE", places.nodes),
        ] {
            put(&format!("HOROVOD_{name}"), value.to_string());
        }
    }
    if let Some((_, real)) = ports.first() {
        put("BERTH_PORT", real.to_string());
        // Where many programs look for it.
        put("PORT", real.to_string());
    }
    for (asked, real) in ports {
        put(&format!("BERTH_PORT_{asked}"), real.to_string());
    }
    all
}

/// Where a worker is among the others.
struct Placed {
    /// Workers on its node.
    on_node: usize,
    /// Which node, in the order of their first workers; and how many there are.
    node: usize,
    nodes: usize,
}

impl Placed {
    fn of(spec: &TaskSpec) -> Self {
        let mut nodes: Vec<&String> = Vec::new();
        for host in &spec.hosts {
            if !nodes.contains(&host) {
                nodes.push(host);
            }
        }
        let own = spec.hosts.get(spec.id.rank as usize);
        let node = nodes.iter().position(|host| Some(*host) == own).unwrap_or(0);
        let on_node = spec.hosts.iter().filter(|host| Some(*host) == own).count().max(1);
        Self { on_node, node, nodes: nodes.len().max(1) }
    }
}

/// What TensorFlow reads: where every worker listens, and which one this is.
fn tensorflow(spec: &TaskSpec, address: &str, port: u16) -> String {
    let listens = |rank: u32| format!("{address}:{}", u32::from(port) + 1 + rank);
    let workers: Vec<String> = (0..spec.workers).map(listens).collect();
    serde_json::json!({ "cluster": { "worker": workers }, "task": { "type": "worker", "index": spec.id.rank } })
        .to_string()
}

/// Identities on real devices, numbers on declared ones.
fn visible_devices(spec: &TaskSpec) -> String {
    let name = |device: &crate::Granted| {
        if device.uuid.starts_with("GPU-") || device.uuid.starts_with("MIG-") {
            device.uuid.clone()
        } else {
            device.index.to_string()
        }
    };
    spec.devices.iter().map(name).collect::<Vec<_>>().join(",")
}

/// The rank among the workers of the same node.
fn local_rank(spec: &TaskSpec) -> usize {
    let own = spec.hosts.get(spec.id.rank as usize);
    let before = spec.hosts.iter().take(spec.id.rank as usize);
    if own.is_none() { spec.id.rank as usize } else { before.filter(|host| Some(*host) == own).count() }
}
