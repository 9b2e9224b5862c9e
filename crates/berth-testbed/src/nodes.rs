//! Simulated nodes, and the devices they publish.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{DeviceClass, ResourceSlice},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The driver whose devices simulated nodes publish, and the name of the device class that selects them.
pub const DRIVER: &str = "gpu.berth.dev";

/// The capacity `share` of a whole device. A millionth is the smallest part: the stock allocator rounds requests up to
/// whole numbers before it looks at the step, so fractions of one would all become one.
pub const SHARE_WHOLE: u32 = 1_000_000;

/// The API server takes no longer list of devices in one slice.
const SLICE_DEVICES_MAX: u32 = 128;
const NODES_MAX: u32 = 10_000;
/// What a kubelet allows by default is 110; the largest gangs of small tasks shall not meet that limit first.
const NODE_PODS_MAX: u32 = 250;

/// Nodes of one kind, named `<prefix><first>` and so on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// What their names begin with.
    pub prefix: String,
    /// The number of the first; 1 unless there are others of the same prefix.
    pub first: u32,
    /// How many there are.
    pub count: u32,
    /// GPUs of each.
    pub gpus: u32,
    /// What the GPUs are called.
    pub model: String,
    /// Memory of one GPU.
    pub gpu_memory_mib: u64,
    /// Cores, as the simulator counts them: a real node says how many threads it has, which are twice as many.
    pub cpu: u32,
    /// Main memory.
    pub memory_gib: u64,
    /// Labels besides those that every node has.
    pub labels: BTreeMap<String, String>,
    /// Whether GPUs are published as devices of a slice, not as a count of `nvidia.com/gpu`.
    pub dra: bool,
}

/// Machines known by name, as the simulator knows them: GPUs, their model and memory in MiB, cores, memory in GiB.
const KNOWN: [(&str, u32, &str, u64, u32, u64); 5] = [
    ("dgx1", 8, "V100", 32_510, 40, 512),
    ("dgx2", 16, "V100", 32_510, 48, 1_536),
    ("dgxa100", 8, "A100", 81_920, 128, 2_048),
    ("dgxh100", 8, "H100", 81_920, 112, 2_048),
    ("workstation", 2, "RTX4090", 24_576, 32, 128),
];

impl NodeSpec {
    /// DGX-1: eight V100 with 32,510 MiB each, counted as `nvidia.com/gpu`; named `node1` and so on.
    #[must_use]
    pub fn dgx1(count: u32) -> Self {
        let [(_, gpus, model, gpu_memory_mib, cpu, memory_gib), ..] = KNOWN;
        Self {
            prefix: "node".into(),
            first: 1,
            count,
            gpus,
            model: model.into(),
            gpu_memory_mib,
            cpu,
            memory_gib,
            labels: BTreeMap::from([(INSTANCE_TYPE.into(), "dgx1".into())]),
            dra: false,
        }
    }

    /// The same nodes with GPUs as devices, of which claims take a part.
    #[must_use]
    pub fn with_dra(self) -> Self {
        Self { dra: true, ..self }
    }

    /// Nodes from words like `2xdgx1`.
    ///
    /// # Errors
    /// Says what is expected when the words are not understood.
    pub fn parse(text: &str) -> Result<Self> {
        let words = text.split_once('x').and_then(|(count, kind)| Some((count.parse().ok()?, kind)));
        let (count, kind): (u32, &str) = words
            .with_context(|| format!("`{text}` is not understood: write how many of what, as 2xdgx1"))?;
        if count == 0 || count > NODES_MAX {
            bail!("{count} nodes are not possible: between 1 and {NODES_MAX}");
        }
        let Some((_, gpus, model, gpu_memory_mib, cpu, memory_gib)) =
            KNOWN.into_iter().find(|known| known.0 == kind)
        else {
            let all = KNOWN.map(|known| known.0).join(", ");
            bail!("there is no machine called {kind} here: choose one of {all}");
        };
        let labels = BTreeMap::from([(INSTANCE_TYPE.into(), kind.into())]);
        let model = model.into();
        Ok(Self { gpus, model, gpu_memory_mib, cpu, memory_gib, labels, ..Self::dgx1(count) })
    }

    /// The names of the nodes.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        (self.first..).take(self.count as usize).map(|number| format!("{}{number}", self.prefix)).collect()
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.gpus > SLICE_DEVICES_MAX {
            bail!("{} GPUs are too many for one node: {SLICE_DEVICES_MAX} at most", self.gpus);
        }
        Ok(())
    }

    /// The Node, ready from the start: the API server takes the status of a node with the node.
    pub(crate) fn node(&self, name: &str, now: &str) -> Result<Node> {
        let mut labels = BTreeMap::from([
            ("kubernetes.io/hostname".to_owned(), name.to_owned()),
            ("kubernetes.io/os".into(), "linux".into()),
            ("kubernetes.io/arch".into(), "amd64".into()),
            (INSTANCE_TYPE.into(), "simulated".into()),
        ]);
        let mut capacity = BTreeMap::from([
            ("cpu".to_owned(), self.cpu.to_string()),
            ("memory".into(), format!("{}Gi", self.memory_gib)),
            ("pods".into(), NODE_PODS_MAX.to_string()),
        ]);
        if self.gpus > 0 && !self.dra {
            capacity.insert("nvidia.com/gpu".into(), self.gpus.to_string());
            labels.extend(self.gpu_labels());
        }
        labels.extend(self.labels.clone());
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({"type": kind, "status": status, "reason": reason, "message": "simulated",
                "lastHeartbeatTime": now, "lastTransitionTime": now})
        };
        typed(json!({
            "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "status": {
                "capacity": capacity,
                "allocatable": capacity,
                "conditions": [
                    condition("Ready", "True", "KubeletReady"),
                    condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                    condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                    condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                ],
                "addresses": [{"type": "Hostname", "address": name}],
                "nodeInfo": {
                    "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "simulated",
                    "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                    "machineID": "", "osImage": "", "systemUUID": "",
                },
                "phase": "Running",
            },
        }))
    }

    /// What labels say about GPUs that are counted.
    pub(crate) fn gpu_labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("nvidia.com/gpu.product".into(), self.model.clone()),
            ("nvidia.com/gpu.memory".into(), self.gpu_memory_mib.to_string()),
            ("nvidia.com/gpu.count".into(), self.gpus.to_string()),
        ])
    }

    /// The slice with the node's GPUs, which goes when the node goes.
    pub(crate) fn slice(&self, node: &Node) -> Result<ResourceSlice> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let memory = format!("{}Mi", self.gpu_memory_mib);
        // What a request does not name is taken whole, so that a claim without capacity gets a GPU for itself.
        let devices: Vec<Value> = (0..self.gpus)
            .map(|index| {
                json!({
                    "name": format!("gpu-{index}"),
                    "allowMultipleAllocations": true,
                    "attributes": {
                        "model": {"string": self.model},
                        "index": {"int": index},
                        "uuid": {"string": device_uuid(name, index)},
                    },
                    "capacity": {
                        "memory": {
                            "value": memory,
                            "requestPolicy": {"default": memory, "validRange": {"min": "1Mi", "step": "1Mi"}},
                        },
                        "share": {
                            "value": SHARE_WHOLE.to_string(),
                            "requestPolicy": {
                                "default": SHARE_WHOLE.to_string(),
                                "validRange": {"min": "1", "step": "1"},
                            },
                        },
                    },
                })
            })
            .collect();
        typed(json!({
            "metadata": {
                "name": format!("{name}-{DRIVER}"),
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid, "controller": true,
                }],
            },
            "spec": {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        }))
    }
}

const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

pub(crate) fn device_class() -> Result<DeviceClass> {
    typed(json!({
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == \"{DRIVER}\"")}}]},
    }))
}

/// The same for the same node and index, each time and everywhere.
fn device_uuid(node: &str, index: u32) -> String {
    // FNV-1a, written out because it must not change with a library.
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in format!("{node}/{index}").bytes() {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    let text = format!("{hash:032x}");
    format!("GPU-{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).context("an object of the testbed does not fit its type")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_in_a_word() {
        let spec = NodeSpec::parse("2xdgx1").expect("is understood");
        assert_eq!(spec, NodeSpec::dgx1(2));
        assert_eq!(spec.names(), ["node1", "node2"]);
        for (text, expected) in [
            ("dgx1", "as 2xdgx1"),
            ("0xdgx1", "between 1 and"),
            ("2xdgx9", "choose one of dgx1"),
            ("-1xdgx1", "2xdgx1"),
        ] {
            let error = NodeSpec::parse(text).expect_err("is not understood").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn devices_keep_their_identity_and_share_it_with_none() {
        assert_eq!(device_uuid("node1", 0), "GPU-a7e248d9-544f-f78d-826f-463580e651ab");
        assert_ne!(device_uuid("node1", 1), device_uuid("node1", 0));
        assert_ne!(device_uuid("node11", 0), device_uuid("node1", 10));
    }

    #[test]
    fn gpus_are_counted_or_published_never_both() {
        let counted = NodeSpec::dgx1(1).node("node1", "2026-01-01T00:00:00Z").expect("fits its type");
        let capacity = counted.status.and_then(|status| status.capacity).expect("nodes have a capacity");
        assert_eq!(capacity["nvidia.com/gpu"].0, "8");

        let spec = NodeSpec::dgx1(1).with_dra();
        let node = spec.node("node1", "2026-01-01T00:00:00Z").expect("fits its type");
        let slice = spec.slice(&node).expect("fits its type");
        assert_eq!(slice.spec.devices.map(|devices| devices.len()), Some(8));
        let capacity = node.status.and_then(|status| status.capacity).expect("nodes have a capacity");
        assert!(!capacity.contains_key("nvidia.com/gpu"));
    }
}
