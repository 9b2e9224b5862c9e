//! A world with a cluster that does as it is told, unless it is told otherwise.

use crate::{
    api::WorkloadStatus,
    names,
    seen::{
        Key, Text,
        claim::ClaimSeen,
        maker::{MakerSeen, Unread, unread},
        node::{NodeSeen, SliceSeen},
        pod::PodSeen,
    },
    world::{Effect, EvictOrder, Seen, Settings, StartFailure, StartOrder, World},
};
use berth_types::{Policy, Time};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The namespace that everything is in unless it says otherwise.
pub(super) const HOME: &str = "berth-team";

pub(super) struct Desk {
    pub(super) world: World,
    pub(super) now: u64,
    version: u64,
    /// Pods as the API server has them, by unique id, which is also their name.
    pub(super) pods: BTreeMap<String, Value>,
    /// What was ordered and not yet done.
    pub(super) ordered: Vec<Effect>,
    /// Everything that was ever ordered, in words.
    pub(super) log: Vec<String>,
    /// The next so many starts are refused.
    pub(super) refused_starts: u32,
    /// Pods whose eviction is refused.
    pub(super) kept: BTreeSet<String>,
    /// Makers of Pods as the API server has them, by path.
    pub(super) makers: BTreeMap<String, Value>,
    /// What was last said to each Pod and Workload.
    pub(super) said: BTreeMap<String, String>,
    /// Everything that was last said of each Workload.
    pub(super) statuses: BTreeMap<String, WorkloadStatus>,
    /// The same in whole sentences, for Pods.
    pub(super) words: BTreeMap<String, String>,
    /// How often what a project needs was to be made.
    pub(super) tenancies: u32,
}

impl Desk {
    /// A world with nodes of eight counted GPUs and a project without limits.
    pub(super) fn new(nodes: &[&str]) -> Self {
        let mut desk = Self {
            world: World::new(Settings { policy: Policy::default() }),
            now: 1_000_000_000_000,
            version: 0,
            pods: BTreeMap::new(),
            ordered: Vec::new(),
            log: Vec::new(),
            refused_starts: 0,
            kept: BTreeSet::new(),
            makers: BTreeMap::new(),
            said: BTreeMap::new(),
            statuses: BTreeMap::new(),
            words: BTreeMap::new(),
            tenancies: 0,
        };
        desk.project("team", json!({ "quota": 64 }));
        for node in nodes {
            desk.node(node, 8);
        }
        desk
    }

    /// Another process begins, and sees what there is.
    pub(super) fn restart(&mut self, mut seen: Vec<Seen>) {
        self.world = World::new(Settings { policy: Policy::default() });
        self.ordered.clear();
        seen.extend(self.pods.values().map(|pod| Seen::Pod(Box::new(pod_seen(pod)))));
        let makers = crate::world::makers_of(&seen).into_iter().filter_map(|maker| {
            let found = self.makers.get(&maker.path())?.clone();
            let found = MakerSeen::of(maker.kind, serde_json::from_value(found).expect("a maker"));
            Some(Seen::Maker { maker, found: Ok(found) })
        });
        let makers: Vec<Seen> = makers.collect();
        seen.extend(makers);
        let effects = self.world.first_look(Time(self.now), seen);
        self.note(effects);
    }

    pub(super) fn see(&mut self, seen: Vec<Seen>) {
        self.now += 1;
        let effects = self.world.step(Time(self.now), seen);
        self.note(effects);
        while self.world.has_unexplained() {
            let effects = self.world.explain_some(4);
            self.note(effects);
        }
    }

    fn note(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let words = match &effect {
                Effect::Start(StartOrder { tasks, run, .. }) => format!("start {} of run {run}", tasks.len()),
                Effect::Evict(EvictOrder { pod, politely: true, .. }) => format!("evict {}", pod.name),
                Effect::Evict(EvictOrder { pod, .. }) => format!("delete {}", pod.name),
                Effect::Seek { pod, .. } => format!("seek {}", pod.name),
                Effect::Release { claim, .. } => format!("release {}", claim.name),
                Effect::Read(maker) => format!("read {maker}"),
                Effect::Tenancy(_) => {
                    self.tenancies += 1;
                    continue;
                }
                Effect::Explain { pod, reason, message, .. } => {
                    self.words.insert(pod.name.to_string(), message.clone());
                    self.said.insert(pod.name.to_string(), (*reason).to_owned());
                    continue;
                }
                Effect::Status { workload, status, .. } => {
                    let phase = status.phase.map(|phase| format!("{phase:?}")).unwrap_or_default();
                    let reason = status.reason.clone().unwrap_or_default();
                    self.statuses.insert(workload.name.to_string(), (**status).clone());
                    self.said
                        .insert(workload.name.to_string(), format!("{phase} {reason}").trim().to_owned());
                    continue;
                }
            };
            self.log.push(words);
            self.ordered.push(effect);
        }
    }

    /// The cluster does what was ordered, until nothing is.
    pub(super) fn obey(&mut self) {
        for _ in 0..100 {
            if self.ordered.is_empty() {
                return;
            }
            for effect in std::mem::take(&mut self.ordered) {
                match effect {
                    Effect::Start(order) => self.start(&order),
                    Effect::Evict(order) => self.evict(&order),
                    Effect::Read(maker) => {
                        let found = self.makers.get(&maker.path()).cloned();
                        let found = found.ok_or_else(|| unread(&maker, Unread::Missing)).map(|found| {
                            MakerSeen::of(maker.kind, serde_json::from_value(found).expect("a maker"))
                        });
                        self.see(vec![Seen::Maker { maker, found }]);
                    }
                    Effect::Release { workload, .. } => self.see(vec![Seen::Released { workload }]),
                    _ => {}
                }
            }
        }
        panic!("it never ends: {:?}", self.log);
    }

    pub(super) fn start(&mut self, order: &StartOrder) {
        if self.refused_starts > 0 {
            self.refused_starts -= 1;
            return self.fail(order, Vec::new());
        }
        for position in 0..order.tasks.len() {
            self.place(order, position);
        }
        self.see(vec![Seen::Started { workload: order.workload, run: order.run, result: Ok(()) }]);
    }

    pub(super) fn fail(&mut self, order: &StartOrder, placed: Vec<usize>) {
        let result = Err(StartFailure { message: "no".into(), placed });
        self.see(vec![Seen::Started { workload: order.workload, run: order.run, result }]);
    }

    /// Binds the Pod of one task, which is made if it is to be.
    pub(super) fn place(&mut self, order: &StartOrder, position: usize) {
        let name = self.make(order, position);
        let node = order.tasks[position].node.name.clone();
        self.change(&name, &json!({ "spec": { "nodeName": node }, "status": { "phase": "Running" } }));
    }

    /// Makes the Pod of one task, if it is not there.
    pub(super) fn make(&mut self, order: &StartOrder, position: usize) -> String {
        let task = &order.tasks[position];
        if let Some(waiting) = &task.waiting {
            return waiting.uid.to_string();
        }
        let (workload, _) = order.make.as_ref().expect("a Workload");
        let meta = &workload.metadata;
        let (name, uid) = (meta.name.as_deref().expect("a name"), meta.uid.as_deref().expect("an id"));
        let pod = crate::pods::pod_name(name, order.run, task.place.rank, task.turn);
        let mut labels = json!({
            names::WORKLOAD: name, names::RANK: task.place.rank.to_string(), names::RUN: order.run.to_string(),
        });
        if let Some(index) = task.index {
            labels[names::INDEX] = index.to_string().into();
            labels[names::TURN] = task.turn.to_string().into();
        }
        let of = |taken: &berth_types::DeviceShare| format!("{}={}", taken.device, taken.share.millionths());
        let devices: Vec<String> = task.place.devices.iter().map(of).collect();
        let more = json!({ "metadata": {
            "labels": labels,
            "annotations": { names::DEVICES: devices.join(",") },
            "ownerReferences": [{
                "apiVersion": "berth.dev/v1alpha1", "kind": "Workload", "name": name, "uid": uid, "controller": true,
            }],
        } });
        self.pod(&pod, task.place.devices.len() as u32, more);
        pod
    }

    fn evict(&mut self, order: &EvictOrder) {
        let name = order.pod.name.to_string();
        if order.politely && self.kept.contains(&name) {
            let (workload, pod) = (order.workload, order.uid.clone());
            return self.see(vec![Seen::NotEvicted { workload, pod, message: "a budget".into() }]);
        }
        if self.pods.contains_key(&*order.uid) {
            self.gone(&order.uid);
        }
    }

    pub(super) fn gone(&mut self, pod: &str) {
        self.pods.remove(pod);
        self.see(vec![Seen::PodGone(pod.into())]);
    }

    /// Time passes, a second at a time, and what is ordered is done.
    pub(super) fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += 1000;
            self.see(Vec::new());
            self.obey();
            let effects = self.world.renew_some(Time(self.now), 4);
            self.note(effects);
        }
    }

    pub(super) fn project(&mut self, name: &str, spec: Value) {
        let seen = project_seen(name, spec);
        self.see(vec![seen]);
    }

    pub(super) fn node(&mut self, name: &str, gpus: u32) {
        let seen = node_seen(name, gpus);
        self.see(vec![seen]);
    }

    /// Somebody makes a Pod that asks for counted GPUs.
    pub(super) fn pod(&mut self, name: &str, gpus: u32, more: Value) {
        self.version += 1;
        let created = jiff::Timestamp::from_millisecond(self.now as i64).expect("a time");
        let mut pod = json!({
            "metadata": {
                "name": name, "namespace": HOME, "uid": name, "resourceVersion": self.version.to_string(),
                "creationTimestamp": created.to_string(),
            },
            "spec": {
                "schedulerName": "berth",
                "containers": [{ "name": "main", "resources": { "requests": {} } }],
            },
            "status": { "phase": "Pending" },
        });
        if gpus > 0 {
            pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = gpus.to_string().into();
        }
        merge(&mut pod, &more);
        self.pods.insert(name.into(), pod);
        self.change(name, &json!({}));
    }

    pub(super) fn change(&mut self, pod: &str, more: &Value) {
        self.version += 1;
        let version = self.version.to_string();
        let object = self.pods.get_mut(pod).expect("a Pod");
        merge(object, more);
        object["metadata"]["resourceVersion"] = version.into();
        let seen = Seen::Pod(Box::new(pod_seen(object)));
        self.see(vec![seen]);
    }

    pub(super) fn workload(&mut self, name: &str, spec: Value) {
        let seen = workload_seen(name, spec, Value::Null);
        self.see(vec![seen]);
    }

    /// Where Pods are, those that wait left out.
    pub(super) fn bound(&self) -> BTreeMap<&str, &str> {
        let node = |pod: &'_ Value| pod["spec"]["nodeName"].as_str().map(ToOwned::to_owned);
        let bound = self.pods.iter().filter(|(_, pod)| node(pod).is_some());
        bound.map(|(name, pod)| (name.as_str(), pod["spec"]["nodeName"].as_str().expect("bound"))).collect()
    }

    /// GPUs that the engine takes for used on a node.
    pub(super) fn used(&self) -> u64 {
        let state = self.world.engine().state();
        let places = state.workloads.values().flat_map(|one| one.occupied().cloned().collect::<Vec<_>>());
        places.map(|place| place.devices.len() as u64).sum()
    }

    pub(super) fn sound(&self) {
        let findings = berth_check::check_state(&self.world.engine().state());
        assert!(findings.is_empty(), "{findings:?}");
    }
}

pub(super) fn project_seen(name: &str, spec: Value) -> Seen {
    let project = json!({
        "apiVersion": "berth.dev/v1alpha1", "kind": "Project",
        "metadata": { "name": name }, "spec": spec,
    });
    Seen::Project(std::sync::Arc::new(serde_json::from_value(project).expect("a project")))
}

pub(super) fn node_seen(name: &str, gpus: u32) -> Seen {
    labelled(name, gpus, json!({}))
}

/// A node with labels.
pub(super) fn labelled(name: &str, gpus: u32, labels: Value) -> Seen {
    let node = json!({
        "metadata": { "name": name, "labels": labels },
        "status": {
            "allocatable": { "cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": gpus.to_string() },
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    });
    Seen::Node(Box::new(NodeSeen::of(serde_json::from_value(node).expect("a node"))))
}

/// Eight devices that can be shared.
pub(super) fn slice_seen(node: &str) -> Seen {
    let device = |index: usize| {
        json!({
            "name": format!("gpu-{index}"), "allowMultipleAllocations": true,
            "capacity": { "memory": { "value": "32510Mi" } },
        })
    };
    let slice = json!({
        "metadata": { "name": node },
        "spec": {
            "driver": names::DRIVER, "nodeName": node,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
            "devices": (0..8).map(device).collect::<Vec<_>>(),
        },
    });
    let slice = SliceSeen::of(serde_json::from_value(slice).expect("a slice"));
    Seen::Slice(slice.expect("of our driver"))
}

/// A claim of one whole device; with the device and the Pod that has it, if one does.
pub(super) fn claim_seen(name: &str, version: u64, taken: Option<(&str, &str, &str)>) -> Seen {
    let status = taken.map_or(json!({}), |(node, device, pod)| {
        json!({
            "allocation": { "devices": { "results": [{ "driver": names::DRIVER, "pool": node, "device": device }] } },
            "reservedFor": [{ "uid": pod }],
        })
    });
    let claim = json!({
        "metadata": { "name": name, "namespace": HOME, "uid": name, "resourceVersion": version.to_string() },
        "spec": { "devices": { "requests": [{
            "name": "gpu", "exactly": { "deviceClassName": names::DEVICE_CLASS, "count": 1 },
        }] } },
        "status": status,
    });
    let claim = ClaimSeen::of(serde_json::from_value(claim).expect("a claim"));
    Seen::Claim(Box::new(claim.expect("of our class")))
}

/// What a Pod with a claim has besides.
pub(super) fn claims(name: &str) -> Value {
    json!({ "spec": { "resourceClaims": [{ "name": "gpu", "resourceClaimName": name }] } })
}

pub(super) fn workload_seen(name: &str, spec: Value, status: Value) -> Seen {
    let mut all = json!({ "image": "trainer" });
    merge(&mut all, &spec);
    let mut workload = json!({
        "apiVersion": "berth.dev/v1alpha1", "kind": "Workload",
        "metadata": {
            "name": name, "namespace": HOME, "uid": format!("uid-{name}"),
            "creationTimestamp": "2001-09-09T01:46:40Z",
        },
        "spec": all,
    });
    if !status.is_null() {
        workload["status"] = status;
    }
    Seen::Workload(std::sync::Arc::new(serde_json::from_value(workload).expect("a workload")))
}

pub(super) fn workload_gone(name: &str) -> Seen {
    Seen::WorkloadGone(Key::new(HOME, &format!("uid-{name}")))
}

/// A member of a group by labels.
pub(super) fn member(group: &str, size: u32) -> Value {
    json!({ "metadata": { "labels": { names::GROUP_NAME: group }, "annotations": { names::GROUP_SIZE: size.to_string() } } })
}

/// A Pod that a controller made.
pub(super) fn owned(owner: &str) -> Value {
    json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": true },
    ] } })
}

pub(super) fn pod_seen(pod: &Value) -> PodSeen {
    PodSeen::of(serde_json::from_value(pod.clone()).expect("a Pod"))
}

pub(super) fn text(text: &str) -> Text {
    text.into()
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}
