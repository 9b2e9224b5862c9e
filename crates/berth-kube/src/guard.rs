//! What a project may do to a node. Berth makes Pods for people who perhaps may not make any, so what they ask for is
//! judged here and not left to what Berth itself may do.

use crate::{api, convert::Refusal, names, quantity};
use berth_types::{Bytes, Cpu};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};

/// The template of a workload's Pods, as far as it was accepted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Template(pub PodTemplateSpec);

/// The template of a workload's Pods, if it has one; refused when it speaks of what Berth decides, or of what the engine
/// would not see before the Pods are there.
pub fn template(workload: &api::Workload) -> Result<Option<Template>, Refusal> {
    let Some(raw) = &workload.spec.pod_template else { return Ok(None) };
    let refused = |text: String| Err(Refusal::new("InvalidTemplate", format!("podTemplate: {text}")));
    let mut raw = raw.clone();
    // A template of ours may go without what every Pod must have, because the workload has it.
    let Some(fields) = raw.as_object_mut() else { return refused("is not a template of Pods".into()) };
    let spec = fields.entry("spec").or_insert_with(|| serde_json::json!({}));
    if let Some(spec) = spec.as_object_mut() {
        spec.entry("containers").or_insert_with(|| serde_json::json!([{ "name": "main" }]));
    }
    let template: PodTemplateSpec = match serde_json::from_value(raw) {
        Ok(template) => template,
        Err(error) => return refused(format!("is not a template of Pods: {error}")),
    };
    let spec = template.spec.clone().unwrap_or_default();
    let unseen = [
        ("nodeName", spec.node_name.is_some(), "Berth chooses the node"),
        (
            "schedulerName",
            spec.scheduler_name.as_deref().is_some_and(|name| name != names::SCHEDULER),
            "it is `berth`",
        ),
        ("nodeSelector", spec.node_selector.is_some(), "write it in nodeSelector of the workload"),
        ("affinity", spec.affinity.is_some(), "use nodeSelector, topology, spread and apart of the workload"),
        (
            "topologySpreadConstraints",
            spec.topology_spread_constraints.is_some(),
            "use topology, spread and apart of the workload",
        ),
        ("resourceClaims", spec.resource_claims.is_some(), "ask with gpus or gpuMemory"),
        ("resources", spec.resources.is_some(), "use cpu and memory of the workload"),
        ("schedulingGates", spec.scheduling_gates.is_some(), "use suspend of the workload"),
        ("ephemeralContainers", spec.ephemeral_containers.is_some(), "they are added to running Pods only"),
    ];
    if let Some((field, _, instead)) = unseen.into_iter().find(|(_, set, _)| *set) {
        return refused(format!("{field} cannot be set here: {instead}"));
    }
    for container in containers(&spec) {
        let resources = container.resources.clone().unwrap_or_default();
        let mut named = resources.requests.iter().chain(&resources.limits).flat_map(|all| all.keys());
        if let Some(resource) =
            named.find(|name| !["cpu", "memory", "ephemeral-storage"].contains(&name.as_str()))
        {
            return refused(format!(
                "{resource} of container {} cannot be set here: ask with gpus",
                container.name
            ));
        }
        if resources.claims.is_some() {
            return refused(format!("claims of container {} cannot be set here", container.name));
        }
    }
    Ok(Some(Template(template)))
}

/// Whether a project allows what a workload wants of the node.
pub fn permitted(workload: &api::Workload, project: &api::ProjectSpec) -> Result<(), Refusal> {
    let spec = &workload.spec;
    let mut pod = template(workload)?.and_then(|template| template.0.spec).unwrap_or_default();
    if spec.host_network {
        pod.host_network = Some(true);
    }
    if spec.privileged && !project.allow_privileged {
        return Err(privileged("privileged"));
    }
    if !project.allow_privileged && spec.volumes.iter().any(|volume| volume.host_path.is_some()) {
        return Err(privileged("a volume with hostPath"));
    }
    pod_permitted(&pod, project)
}

/// Whether a project allows what a Pod wants of the node.
pub fn pod_permitted(pod: &PodSpec, project: &api::ProjectSpec) -> Result<(), Refusal> {
    if pod.host_network == Some(true) && !project.allow_host_network {
        let text = "hostNetwork is not allowed in this project: an administrator can set allowHostNetwork of the project";
        return Err(Refusal::new("HostNetworkNotAllowed", text));
    }
    if project.allow_privileged {
        return Ok(());
    }
    if let Some(field) = [("hostPID", pod.host_pid), ("hostIPC", pod.host_ipc)]
        .into_iter()
        .find_map(|(field, set)| (set == Some(true)).then_some(field))
    {
        return Err(privileged(field));
    }
    if pod.volumes.iter().flatten().any(|volume| volume.host_path.is_some()) {
        return Err(privileged("a volume with hostPath"));
    }
    if let Some(context) = &pod.security_context {
        let unconfined = [
            ("sysctls", context.sysctls.as_ref().is_some_and(|all| !all.is_empty())),
            ("seLinuxOptions", context.se_linux_options.is_some()),
            (
                "an unconfined seccompProfile",
                is_unconfined(context.seccomp_profile.as_ref().map(|profile| &profile.type_)),
            ),
            (
                "an unconfined appArmorProfile",
                is_unconfined(context.app_armor_profile.as_ref().map(|profile| &profile.type_)),
            ),
        ];
        if let Some((what, _)) = unconfined.into_iter().find(|(_, set)| *set) {
            return Err(privileged(what));
        }
    }
    containers(pod).try_for_each(container_permitted)
}

/// Capabilities that may be added, as in the level `baseline` of Kubernetes: every container has them by default.
const PLAIN_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Whether a container stays within the level `baseline` of Kubernetes.
fn container_permitted(container: &Container) -> Result<(), Refusal> {
    let Some(context) = &container.security_context else { return Ok(()) };
    let added = context.capabilities.as_ref().and_then(|capabilities| capabilities.add.as_ref());
    let unusual = added.into_iter().flatten().find(|name| !PLAIN_CAPABILITIES.contains(&name.as_str()));
    let beyond = [
        ("privileged", context.privileged == Some(true)),
        ("an added capability", unusual.is_some()),
        ("procMount", context.proc_mount.as_deref().is_some_and(|mount| mount != "Default")),
        ("seLinuxOptions", context.se_linux_options.is_some()),
        (
            "an unconfined seccompProfile",
            is_unconfined(context.seccomp_profile.as_ref().map(|profile| &profile.type_)),
        ),
        (
            "an unconfined appArmorProfile",
            is_unconfined(context.app_armor_profile.as_ref().map(|profile| &profile.type_)),
        ),
    ];
    match beyond.into_iter().find(|(_, set)| *set) {
        Some((what, _)) => Err(privileged(&format!("container {}: {what}", container.name))),
        None => Ok(()),
    }
}

fn is_unconfined(profile: Option<&String>) -> bool {
    profile.is_some_and(|kind| kind == "Unconfined")
}

fn privileged(what: &str) -> Refusal {
    let text = format!(
        "{what} is not allowed in this project: an administrator can set allowPrivileged of the project"
    );
    Refusal::new("PrivilegedNotAllowed", text)
}

fn containers(pod: &PodSpec) -> impl Iterator<Item = &Container> {
    pod.init_containers.iter().flatten().chain(&pod.containers)
}

impl Template {
    /// CPU and memory of one Pod, when its main container has these: with the other containers, or with the largest of
    /// those that run before them.
    pub fn requests(&self, cpu: Option<Cpu>, memory: Option<Bytes>) -> Result<(Cpu, Bytes), Refusal> {
        let Some(spec) = &self.0.spec else {
            return Ok((cpu.unwrap_or(Cpu::ZERO), memory.unwrap_or(Bytes::ZERO)));
        };
        let (mut all_cpu, mut all_memory) = (Cpu::ZERO, Bytes::ZERO);
        for (index, container) in spec.containers.iter().enumerate() {
            let (own_cpu, own_memory) = requests_of(container)?;
            let is_main = index == 0;
            all_cpu = all_cpu.saturating_add(cpu.filter(|_| is_main).unwrap_or(own_cpu));
            all_memory = all_memory.saturating_add(memory.filter(|_| is_main).unwrap_or(own_memory));
        }
        let (mut first_cpu, mut first_memory) = (Cpu::ZERO, Bytes::ZERO);
        // What starts before and stays, and what is needed at most while others start.
        let (mut beside_cpu, mut beside_memory) = (Cpu::ZERO, Bytes::ZERO);
        for container in spec.init_containers.iter().flatten() {
            let (own_cpu, own_memory) = requests_of(container)?;
            if container.restart_policy.as_deref() == Some("Always") {
                beside_cpu = beside_cpu.saturating_add(own_cpu);
                beside_memory = beside_memory.saturating_add(own_memory);
                first_cpu = first_cpu.max(beside_cpu);
                first_memory = first_memory.max(beside_memory);
            } else {
                first_cpu = first_cpu.max(beside_cpu.saturating_add(own_cpu));
                first_memory = first_memory.max(beside_memory.saturating_add(own_memory));
            }
        }
        let cpu = all_cpu.saturating_add(beside_cpu).max(first_cpu);
        Ok((cpu, all_memory.saturating_add(beside_memory).max(first_memory)))
    }
}

/// What a container asks for; a limit is a request when nothing else is said, as in Kubernetes.
fn requests_of(container: &Container) -> Result<(Cpu, Bytes), Refusal> {
    let resources = container.resources.clone().unwrap_or_default();
    let asked = |name: &str| {
        let requested = resources.requests.as_ref().and_then(|all| all.get(name));
        requested.or_else(|| resources.limits.as_ref()?.get(name)).map_or("0", |quantity| quantity.0.as_str())
    };
    let wrong = |error: quantity::QuantityError| {
        Refusal::new("InvalidTemplate", format!("podTemplate: container {}: {error}", container.name))
    };
    Ok((quantity::cpu(asked("cpu")).map_err(wrong)?, quantity::bytes(asked("memory")).map_err(wrong)?))
}
