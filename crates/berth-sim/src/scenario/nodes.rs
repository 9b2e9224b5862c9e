//! Lines about nodes: `node NAME [PRESET] key=value...` and `nodes COUNT x PRESET key=value...`.

use super::{
    parse::Parser,
    problem::did_you_mean,
    words::{self, Settings},
};
use berth_types::{Bytes, Cpu, Device, Name, Node, NodeCondition, NodeId, POOL_LABEL};
use std::collections::BTreeMap;

/// Machines known by name: GPUs, their model and memory, cores, memory.
const PRESETS: [(&str, usize, &str, Bytes, u64, Bytes); 5] = [
    // TR-4858 shows half of a V100 as 16,255 MiB.
    ("dgx1", 8, "V100", Bytes::mib(32_510), 40, Bytes::gib(512)),
    ("dgx2", 16, "V100", Bytes::mib(32_510), 48, Bytes::gib(1536)),
    ("dgxa100", 8, "A100", Bytes::gib(80), 128, Bytes::gib(2048)),
    ("dgxh100", 8, "H100", Bytes::gib(80), 112, Bytes::gib(2048)),
    ("workstation", 2, "RTX4090", Bytes::gib(24), 32, Bytes::gib(128)),
];
const KEYS: [&str; 9] =
    ["gpus", "model", "gpu-memory", "cpu", "memory", "pool", "prefix", "label.KEY", "cordoned"];
/// Enough for the largest clusters; a typing error shall not eat all memory.
const NODES_MAX: usize = 100_000;

impl Parser {
    pub(super) fn read_node(&mut self, rest: &[String]) -> Vec<Node> {
        let Some((name, rest)) = rest.split_first() else {
            self.problem("expected the name of the node, as in `node big gpus=4`");
            return Vec::new();
        };
        let node = self.read_shape(rest);
        self.add_nodes(vec![name.clone()], node)
    }

    pub(super) fn read_nodes(&mut self, rest: &[String]) -> Vec<Node> {
        let Some((count, rest)) = rest.split_first() else {
            self.problem("expected how many and of which kind, as in `nodes 2 x dgx1`");
            return Vec::new();
        };
        let Some(count) = self.noted(words::number("nodes", count, 1, NODES_MAX as i64)) else {
            return Vec::new();
        };
        let rest = match rest.split_first() {
            Some((by, rest)) if by == "x" => rest,
            _ => rest,
        };
        let (prefixes, rest): (Vec<String>, Vec<String>) =
            rest.iter().cloned().partition(|word| word.starts_with("prefix="));
        let prefix = prefixes.first().map_or("node", |word| &word["prefix=".len()..]);
        let node = self.read_shape(&rest);
        let taken = self.nodes.len();
        let names: Vec<String> = (1..)
            .map(|number| format!("{prefix}{number}"))
            .filter(|name| !self.nodes.contains_key(name))
            .take((count as usize).min(NODES_MAX.saturating_sub(taken)))
            .collect();
        self.add_nodes(names, node)
    }

    fn add_nodes(&mut self, names: Vec<String>, shape: Option<Node>) -> Vec<Node> {
        let mut nodes = Vec::new();
        for name in names {
            if self.noted(words::check_name("node", &name, &[])).is_none() {
                return Vec::new();
            }
            if self.nodes.contains_key(&name) {
                self.problem(format!("there is a node `{name}` already; names are given once"));
                return Vec::new();
            }
            if self.nodes.len() >= NODES_MAX {
                self.problem(format!("too many nodes; expected at most {NODES_MAX}"));
                return nodes;
            }
            let id = NodeId(self.nodes.len() as u64 + 1);
            // A name is known even if its shape is wrong, so that one mistake is reported once.
            let node = Node { id, name: name.clone(), ..shape.clone().unwrap_or_else(empty_node) };
            self.nodes.insert(name, node.clone());
            nodes.push(node);
        }
        nodes
    }

    fn read_shape(&mut self, rest: &[String]) -> Option<Node> {
        let (preset, rest) = match rest.split_first() {
            Some((word, rest)) if !word.contains('=') => {
                let found = PRESETS.iter().find(|preset| preset.0 == word);
                if found.is_none() {
                    let names = PRESETS.iter().map(|preset| preset.0);
                    let hint = match did_you_mean(word, names.clone()) {
                        hint if hint.is_empty() => {
                            format!("; expected one of {}", names.collect::<Vec<_>>().join(", "))
                        }
                        hint => hint,
                    };
                    self.problem(format!("unknown kind of node `{word}`{hint}"));
                    return None;
                }
                (found, rest)
            }
            _ => (None, rest),
        };
        let (_, gpus, model, gpu_memory, cores, memory) = *preset.unwrap_or(&PRESETS[0]);
        let mut problems = Vec::new();
        let mut settings = Settings::read(rest, &mut problems);
        let gpus = settings
            .take("gpus", &mut problems, |what, text| words::number(what, text, 0, Node::DEVICES_MAX as i64))
            .map_or(gpus, |gpus| gpus as usize);
        let model = settings
            .take("model", &mut problems, |what, text| {
                words::check_name("GPU model", text, &[])
                    .map(|()| text.to_string())
                    .map_err(|error| format!("{what}: {error}"))
            })
            .unwrap_or_else(|| model.to_string());
        let gpu_memory =
            settings.take("gpu-memory", &mut problems, words::positive::<Bytes>).unwrap_or(gpu_memory);
        let cpu = settings.take("cpu", &mut problems, words::positive::<Cpu>).unwrap_or(Cpu::cores(cores));
        let memory = settings.take("memory", &mut problems, words::positive::<Bytes>).unwrap_or(memory);
        let cordoned = settings.take("cordoned", &mut problems, words::switch).unwrap_or(false);
        let mut labels = BTreeMap::new();
        if let Some(pool) = settings.take("pool", &mut problems, |_, text| Ok(text.to_string())) {
            labels.insert(Name::from(POOL_LABEL), Name::from(pool));
        }
        for (key, value) in settings.take_prefixed("label.") {
            labels.insert(Name::from(key), Name::from(value));
        }
        settings.finish(&KEYS, &mut problems);
        let wrong = !problems.is_empty();
        self.problems_found(problems);
        let device = Device { model: Name::from(model), memory: gpu_memory };
        (!wrong).then(|| Node {
            devices: vec![device; gpus],
            cpu,
            memory,
            labels,
            condition: if cordoned { NodeCondition::Cordoned } else { NodeCondition::Ready },
            ..empty_node()
        })
    }
}

fn empty_node() -> Node {
    Node {
        id: NodeId(0),
        name: String::new(),
        devices: Vec::new(),
        cpu: Cpu::ZERO,
        memory: Bytes::ZERO,
        labels: BTreeMap::new(),
        condition: NodeCondition::Ready,
    }
}
