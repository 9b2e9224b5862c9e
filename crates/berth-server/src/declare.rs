//! Nodes that are declared: for trying Berth out, their devices exist by name only while everything else is real.

use crate::{ServerError, names};
use berth_types::{Bytes, Cpu, Device, Name, Node, NodeCondition, NodeId};
use serde::Deserialize;
use std::{collections::BTreeMap, path::Path};

/// Machines known by name: GPUs, their model and memory, cores, memory.
const KNOWN: [(&str, u32, &str, Bytes, u64, Bytes); 5] = [
    // Half of such a V100 is 16,255 MiB, which is what nvidia-smi shows in half of one.
    ("dgx1", 8, "V100", Bytes::mib(32_510), 40, Bytes::gib(512)),
    ("dgx2", 16, "V100", Bytes::mib(32_510), 48, Bytes::gib(1536)),
    ("dgxa100", 8, "A100", Bytes::gib(80), 128, Bytes::gib(2048)),
    ("dgxh100", 8, "H100", Bytes::gib(80), 112, Bytes::gib(2048)),
    ("workstation", 2, "RTX4090", Bytes::gib(24), 32, Bytes::gib(128)),
];
const NODES_MAX: u32 = 10_000;

/// A file of nodes: `[[node]]` tables.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    node: Vec<FileNode>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileNode {
    name: String,
    /// A machine known by name, whose values are taken where nothing else is said.
    #[serde(rename = "type")]
    like: Option<String>,
    gpus: Option<u32>,
    model: Option<String>,
    gpu_memory: Option<String>,
    cpu: Option<u64>,
    memory: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Nodes from `2xdgx1`, `dgx1,2xworkstation`, or a file of `[[node]]` tables.
pub fn declared_nodes(text: &str) -> Result<Vec<Node>, ServerError> {
    if Path::new(text).extension().is_some_and(|extension| extension == "toml") {
        return from_file(Path::new(text));
    }
    let mut nodes = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        // A name may hold an `x` too, as `dgx1` does; a count is of digits.
        let (count, kind) = match part.split_once('x') {
            Some((count, kind)) if count.trim().parse::<u64>().is_ok() => {
                (count.trim().parse().map_err(|_| unreadable(text))?, kind)
            }
            _ if part.starts_with(|letter: char| letter.is_ascii_alphabetic()) => (1, part),
            _ => return Err(unreadable(text)),
        };
        if count == 0 || count > NODES_MAX {
            return Err(ServerError::Declared(format!(
                "{count} nodes cannot be declared: between 1 and {NODES_MAX}"
            )));
        }
        let shape = known(kind.trim())?;
        for _ in 0..count {
            nodes.push(Node { name: format!("node{}", nodes.len() + 1), ..shape.clone() });
        }
    }
    Ok(nodes)
}

/// Writes nodes as `--nodes` takes them, if [`declared_nodes`] makes the same nodes of it: so a folder that was written before
/// settings were remembered keeps its nodes.
pub fn nodes_as_declared<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Option<String> {
    let mut nodes: Vec<&Node> = nodes.into_iter().collect();
    let number = |node: &Node| node.name.strip_prefix("node").and_then(|number| number.parse::<u32>().ok());
    nodes.sort_by_key(|node| number(node));
    let mut runs: Vec<(u32, &str)> = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let is_next = number(node) == u32::try_from(index + 1).ok();
        let same = |kind: &str| {
            known(kind).is_ok_and(|known| {
                let Node { devices, cpu, memory, labels, .. } = known;
                (&devices, cpu, memory, &labels) == (&node.devices, node.cpu, node.memory, &node.labels)
            })
        };
        let (kind, ..) = KNOWN.into_iter().find(|(kind, ..)| is_next && same(kind))?;
        match runs.last_mut() {
            Some((count, last)) if *last == kind => *count += 1,
            _ => runs.push((1, kind)),
        }
    }
    let words: Vec<String> = runs.iter().map(|(count, kind)| format!("{count}x{kind}")).collect();
    (!words.is_empty()).then(|| words.join(","))
}

/// The name of this machine as a node.
pub fn machine_node() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name
        .trim()
        .to_lowercase()
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
        .collect();
    if names::check("name", &name).is_ok() { name } else { "localhost".into() }
}

/// This machine as a node: its GPUs as the agent finds them, its CPU and memory as the kernel tells.
pub(crate) fn this_machine(host: &dyn berth_agent::Host, notes: &mut Vec<String>) -> Node {
    let devices = host.devices();
    if devices.gpus.is_empty() {
        let reason = devices.reason.unwrap_or_else(|| "none were found".into());
        notes.push(format!(
            "this machine has no GPUs to share ({reason}); work that asks for none still runs. To try it out: berth up --change --nodes 2xdgx1"
        ));
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    Node {
        id: NodeId(0),
        name: machine_node(),
        devices: devices
            .gpus
            .iter()
            .map(|gpu| Device { model: gpu.model.as_str().into(), memory: gpu.memory })
            .collect(),
        cpu: Cpu::cores(cores),
        memory: Bytes(kib.unwrap_or(1 << 20) << 10),
        labels: BTreeMap::new(),
        condition: NodeCondition::Ready,
    }
}

fn unreadable(text: &str) -> ServerError {
    let text = names::shown(text);
    ServerError::Declared(format!(
        "--nodes {text} is not understood: write for example `2xdgx1`, or name a .toml file of [[node]] tables"
    ))
}

fn known(kind: &str) -> Result<Node, ServerError> {
    let Some((_, gpus, model, gpu_memory, cores, memory)) =
        KNOWN.into_iter().find(|(name, ..)| *name == kind)
    else {
        let all = KNOWN.map(|(name, ..)| name).join(", ");
        let text = format!("there is no machine called {} here: choose one of {all}", names::shown(kind));
        return Err(ServerError::Declared(text));
    };
    let device = Device { model: model.into(), memory: gpu_memory };
    Ok(Node {
        id: NodeId(0),
        name: String::new(),
        devices: vec![device; gpus as usize],
        cpu: Cpu::cores(cores),
        memory,
        labels: BTreeMap::new(),
        condition: NodeCondition::Ready,
    })
}

fn from_file(path: &Path) -> Result<Vec<Node>, ServerError> {
    let text = std::fs::read_to_string(path).map_err(ServerError::file("reading", path))?;
    let broken = |error: String| ServerError::Declared(format!("{}: {error}", path.display()));
    let file: File = toml::from_str(&text).map_err(|error| broken(error.to_string()))?;
    let mut nodes: Vec<Node> = Vec::new();
    for wanted in file.node {
        names::check("name", &wanted.name).map_err(|problem| broken(problem.detail))?;
        if nodes.iter().any(|node| node.name == wanted.name) {
            return Err(broken(format!("node {} is declared twice", wanted.name)));
        }
        let mut node = match &wanted.like {
            Some(kind) => known(kind)?,
            None => Node { devices: Vec::new(), ..known("workstation")? },
        };
        let bytes = |text: &String| text.parse::<Bytes>().map_err(|error| broken(error.to_string()));
        let first = node.devices.first().cloned();
        let model: Name = match (&wanted.model, &first) {
            (Some(model), _) => model.as_str().into(),
            (None, Some(device)) => device.model.clone(),
            (None, None) => "GPU".into(),
        };
        let memory = match (&wanted.gpu_memory, &first) {
            (Some(text), _) => bytes(text)?,
            (None, Some(device)) => device.memory,
            (None, None) => Bytes::gib(16),
        };
        let count = wanted.gpus.map_or(node.devices.len(), |gpus| gpus as usize);
        if count > Node::DEVICES_MAX {
            return Err(broken(format!("node {}: at most {} GPUs", wanted.name, Node::DEVICES_MAX)));
        }
        node.devices = vec![Device { model, memory }; count];
        node.cpu = wanted.cpu.map_or(node.cpu, |cores| Cpu::cores(cores.min(1_000_000)));
        node.memory = wanted.memory.as_ref().map(bytes).transpose()?.unwrap_or(node.memory);
        node.labels =
            wanted.labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
        node.name = wanted.name;
        nodes.push(node);
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_machines_of_the_report_are_declared_in_a_word() {
        let nodes = declared_nodes("2xdgx1").expect("is understood");
        assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["node1", "node2"]);
        assert_eq!(nodes[0].devices.len(), 8);
        assert_eq!(nodes[0].devices[0].memory, Bytes::mib(32_510));
    }

    #[test]
    fn one_machine_needs_no_count() {
        for (text, gpus) in
            [("workstation", vec![2]), ("dgx1", vec![8]), ("dgx1, 2xworkstation", vec![8, 2, 2])]
        {
            let nodes = declared_nodes(text).expect(text);
            assert_eq!(nodes.iter().map(|node| node.devices.len()).collect::<Vec<_>>(), gpus, "{text}");
        }
    }

    #[test]
    fn nodes_are_written_as_they_were_declared() {
        for text in ["2xdgx1", "1xdgx1,2xworkstation", "12xdgxh100", "1xdgx1,1xdgx2,1xdgx1"] {
            let mut nodes = declared_nodes(text).expect(text);
            nodes.reverse();
            assert_eq!(nodes_as_declared(&nodes).as_deref(), Some(text));
            nodes[0].condition = NodeCondition::Cordoned;
            assert_eq!(nodes_as_declared(&nodes).as_deref(), Some(text), "a cordon is no part of it");
            nodes[0].cpu = Cpu::cores(1);
            assert_eq!(nodes_as_declared(&nodes), None, "it has another size");
        }
        let mut renamed = declared_nodes("2xdgx1").expect("is understood");
        renamed[0].name = "left".into();
        assert_eq!(nodes_as_declared(&renamed), None);
        assert_eq!(nodes_as_declared(&[]), None);
    }

    #[test]
    fn what_cannot_be_declared_says_what_can() {
        for (text, part) in [
            ("dgx9", "choose one of dgx1"),
            ("", "is not understood"),
            ("0xdgx1", "between 1 and"),
            ("2xdgx9", "choose one of dgx1"),
            ("99999999999xdgx1", "is not understood"),
            ("-1xdgx1", "is not understood"),
        ] {
            let error = declared_nodes(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
