//! Wishes: what people want, as writes to the API server.

use crate::differs;
use berth_api::{Code, KindName, PriorityName, Problem, ServiceType, WorkloadRequest};
use berth_kube::{
    api::{self, WorkloadPhase},
    names, quantity, tenancy,
    view::{Reading, View},
};
use berth_server::{Made, RequestKey, Wish};
use berth_types::{Bytes, Department, Entitlement, Project, Selector, Span};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, time::Duration};

/// What fits into a volume when nobody says.
const VOLUME_SIZE: Bytes = Bytes::gib(10);
/// As often as a Workload can be started again.
const BACKOFF_LIMIT_MAX: u32 = 1_000_000;
/// How long something of the same name that is over may take to go.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// Makes a wish come true; returns when the cluster has accepted it.
pub(crate) async fn carry_out(client: &Client, view: &View, wish: Wish) -> Result<(), Problem> {
    match wish {
        Wish::Department(department, parent) => {
            let api: Api<api::Department> = Api::all(client.clone());
            put(&api, &department.name, department_spec(&department, parent)).await
        }
        Wish::DepartmentGone(name) => delete(&Api::<api::Department>::all(client.clone()), &name).await,
        Wish::Project(project, department) => {
            let api: Api<api::Project> = Api::all(client.clone());
            put(&api, &project.name, project_spec(&project, department)).await
        }
        Wish::ProjectGone(name) => delete(&Api::<api::Project>::all(client.clone()), &name).await,
        Wish::Node { name, cordoned, draining } => set_node(client, &name, cordoned, draining).await,
        Wish::NodeLabels { name, labels } => label_node(client, &name, &labels).await,
        Wish::Volume { project, name, size } => make_volume(client, view, &project, &name, size).await,
        Wish::VolumeGone { project, name } => {
            let claims: Api<PersistentVolumeClaim> =
                Api::namespaced(client.clone(), &namespace(view, &project)?);
            delete(&claims, &name).await
        }
        Wish::Submit { name, request, user, key } => {
            submit(client, view, &name, &request, &user, key.as_ref()).await
        }
        Wish::Delete { project, name } => delete(&workloads(client, view, &project)?, &name).await,
        Wish::Suspend { project, name, suspended } => {
            let patch = Patch::Merge(json!({ "spec": { "suspend": suspended } }));
            let workloads = workloads(client, view, &project)?;
            workloads.patch(&name, &PatchParams::default(), &patch).await.map_err(problem)?;
            Ok(())
        }
    }
}

async fn make_volume(
    client: &Client,
    view: &View,
    project: &str,
    name: &str,
    size: Option<Bytes>,
) -> Result<(), Problem> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace(view, project)?);
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "labels": { names::PROJECT: project } },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": size.unwrap_or(VOLUME_SIZE).0.to_string() } },
        },
    });
    let claim = serde_json::from_value(claim).expect("a claim");
    claims.create(&PostParams::default(), &claim).await.map_err(problem)?;
    Ok(())
}

/// What the API server says, as a problem.
pub(crate) fn problem(error: kube::Error) -> Problem {
    match error {
        kube::Error::Api(status) => {
            let code = match status.code {
                404 => Code::NotFound,
                409 if status.reason == "AlreadyExists" => Code::Exists,
                409 => Code::WrongState,
                401 | 403 => Code::Forbidden,
                400 | 422 => Code::Invalid,
                _ => Code::Internal,
            };
            Problem::new(code, status.message)
        }
        error => Problem::new(Code::ReadOnly, format!("the cluster does not answer: {error}")),
    }
}

/// The first namespace of a project: that is where its work goes.
pub(crate) fn namespace(view: &View, project: &str) -> Result<String, Problem> {
    let reading = view.read();
    let found = reading.projects().find(|one| one.metadata.name.as_deref() == Some(project));
    let spaces = found.map(|project| tenancy::namespaces(project)).unwrap_or_default();
    spaces
        .into_iter()
        .next()
        .ok_or_else(|| Problem::new(Code::NotFound, format!("there is no project {project}")))
}

fn workloads(client: &Client, view: &View, project: &str) -> Result<Api<api::Workload>, Problem> {
    Ok(Api::namespaced(client.clone(), &namespace(view, project)?))
}

/// Makes an object what it should be. Fields that the API of the platform does not know stay as they are.
async fn put<K>(api: &Api<K>, name: &str, spec: Map<String, Value>) -> Result<(), Problem>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object = |spec: Value, meta: Value| {
        let object = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": meta, "spec": spec,
        });
        serde_json::from_value::<K>(object).map_err(|error| Problem::new(Code::Invalid, error.to_string()))
    };
    loop {
        let Some(found) = api.get_opt(name).await.map_err(problem)? else {
            let spec: Map<_, _> = spec.iter().filter(|(_, value)| !value.is_null()).map(clone).collect();
            let new = object(spec.into(), json!({ "name": name }))?;
            match api.create(&PostParams::default(), &new).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => continue,
                Err(error) => return Err(problem(error)),
            }
        };
        let mut whole = serde_json::to_value(&found).expect("an object is JSON");
        let known = whole["spec"].as_object_mut().expect("a spec is an object");
        for (field, value) in &spec {
            if value.is_null() {
                known.remove(field);
            } else {
                known.insert(field.clone(), value.clone());
            }
        }
        let changed = object(whole["spec"].take(), whole["metadata"].take())?;
        match api.replace(name, &PostParams::default(), &changed).await {
            Ok(_) => return Ok(()),
            // Somebody else changed it meanwhile.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(problem(error)),
        }
    }
}

fn clone((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

async fn delete<K>(api: &Api<K>, name: &str) -> Result<(), Problem>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        // It is what they wanted.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(problem(error)),
    }
}

async fn set_node(client: &Client, name: &str, cordoned: bool, draining: bool) -> Result<(), Problem> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({ "spec": { "unschedulable": cordoned } }));
    nodes.patch(name, &PatchParams::default(), &patch).await.map_err(problem)?;
    if !draining {
        return Ok(());
    }
    let pods: Api<Pod> = Api::all(client.clone());
    let here = ListParams::default().fields(&format!("spec.nodeName={name}"));
    for pod in pods.list(&here).await.map_err(problem)?.items {
        let ours = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref())
            == Some(berth_kube::names::SCHEDULER);
        let Some(namespace) = pod.namespace().filter(|_| ours) else { continue };
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        match pods.evict(&pod.name_any(), &EvictParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(kube::Error::Api(status)) if status.code == 429 => {
                let text =
                    format!("{namespace}/{} is kept by a disruption budget; try again later", pod.name_any());
                return Err(Problem::new(Code::InUse, text));
            }
            Err(error) => return Err(problem(error)),
        }
    }
    Ok(())
}

/// A label without a value is removed: so a merge patch says it.
async fn label_node(
    client: &Client,
    name: &str,
    labels: &BTreeMap<String, Option<String>>,
) -> Result<(), Problem> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
    nodes.patch(name, &PatchParams::default(), &patch).await.map_err(problem)?;
    Ok(())
}

async fn submit(
    client: &Client,
    view: &View,
    name: &str,
    request: &WorkloadRequest,
    user: &str,
    key: Option<&RequestKey>,
) -> Result<(), Problem> {
    differs::check(request)?;
    let workloads = workloads(client, view, &request.project)?;
    let made_by = key.map(|RequestKey { key, request }| format!("{key}.{request}"));
    let annotations: BTreeMap<&str, String> = [
        (names::REQUEST, made_by),
        (names::COMMAND_LINE, request.command_line.clone()),
        (names::PROGRESS_PATTERN, request.progress_pattern.clone()),
        (names::FRAMEWORK, differs::framework_name(request.framework).map(str::to_owned)),
        (names::NOTEBOOK, request.notebook.then(|| "true".to_owned())),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect();
    let workload = json!({
        "apiVersion": "berth.dev/v1alpha1", "kind": "Workload",
        "metadata": { "name": name, "annotations": annotations },
        "spec": workload_spec(request, user),
    });
    let workload: api::Workload =
        serde_json::from_value(workload).map_err(|error| Problem::new(Code::Invalid, error.to_string()))?;
    let end = tokio::time::Instant::now() + GONE_WITHIN;
    loop {
        match workloads.create(&PostParams::default(), &workload).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 && tokio::time::Instant::now() < end => {
                // A name is free again when its workload is over, as on one machine.
                match workloads.get_opt(name).await.map_err(problem)? {
                    Some(found) if is_over(&found) => {
                        delete(&workloads, name).await?;
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    Some(found) if found.metadata.deletion_timestamp.is_some() => {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    Some(_) => {
                        let text = format!("{}/{name} is there already and not over", request.project);
                        return Err(Problem::new(Code::Exists, text));
                    }
                    None => {}
                }
            }
            Err(error) => return Err(problem(error)),
        }
    }
}

/// The workload that a request made.
pub(crate) fn made_by(reading: &Reading<'_>, key: &RequestKey) -> Option<Made> {
    reading.workloads().find_map(|(_, workload)| {
        let made_by = workload.metadata.annotations.as_ref()?.get(names::REQUEST)?;
        let (by, request) = made_by.split_once('.').filter(|(by, _)| *by == key.key)?;
        let project = reading.project_of(workload.metadata.namespace.as_deref()?).ok()?;
        Some(Made {
            project: project.metadata.name.clone()?,
            name: workload.metadata.name.clone()?,
            by: RequestKey { key: by.into(), request: request.into() },
        })
    })
}

fn is_over(workload: &api::Workload) -> bool {
    let phase = workload.status.as_ref().and_then(|status| status.phase);
    phase.is_some_and(WorkloadPhase::is_final)
}

fn workload_spec(request: &WorkloadRequest, user: &str) -> Value {
    let kind = match request.kind {
        KindName::Train => "train",
        KindName::Interactive => "interactive",
        KindName::Distributed => "distributed",
        KindName::Inference => "inference",
    };
    let priority = request.priority.as_ref().map(|priority| match priority {
        PriorityName::Number(number) => json!(number),
        PriorityName::Name(name) => name.parse::<i32>().map_or_else(|_| json!(name), |number| json!(number)),
    });
    let service = request.service_type.map(|service| match service {
        ServiceType::Portforward => "ClusterIP",
        ServiceType::Nodeport => "NodePort",
        ServiceType::Loadbalancer => "LoadBalancer",
        ServiceType::Ingress => "Ingress",
    });
    let env: Vec<Value> =
        request.environment.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    let claims = request
        .volumes
        .iter()
        .map(|volume| json!({ "claim": volume.name, "path": volume.target, "readOnly": volume.read_only }));
    let folders = request
        .mounts
        .iter()
        .map(|mount| json!({ "hostPath": mount.source, "path": mount.target, "readOnly": mount.read_only }));
    let topology = match (&request.topology_required, &request.topology_preferred) {
        (None, None) => Value::Null,
        (required, preferred) => trim(json!({ "required": required, "preferred": preferred })),
    };
    let (command, args) = differs::started(request);
    trim(json!({
        "kind": kind,
        "user": Some(user).filter(|user| !user.is_empty()),
        "image": request.image,
        "imagePullPolicy": request.local_image.then_some("Never"),
        "command": command,
        "args": args,
        "env": env,
        "workingDir": request.working_dir,
        "stdin": request.stdin,
        "tty": request.tty,
        "gpus": request.gpus.map(|gpus| quantity::gpus_text(gpus.0)),
        "gpuMemory": request.gpu_memory.map(|memory| memory.0.0.to_string()),
        "gpuDevices": request.gpu_devices,
        "gpuModels": request.gpu_models,
        "cpu": request.cpu.map(|cpu| quantity::cpu_text(cpu.0)),
        "memory": request.memory.map(|memory| memory.0.0.to_string()),
        "workers": request.workers.filter(|_| request.completions.is_none()),
        "completions": request.completions,
        "parallelism": request.parallelism,
        "minWorkers": request.min_workers,
        "restart": differs::restart(request),
        "priority": priority,
        "preemptible": request.preemptible,
        "nodePool": request.node_pool,
        "nodeSelector": request.node_selector,
        "topology": topology,
        "spread": request.spread,
        "apart": request.apart,
        "ports": request.ports,
        "serviceType": service.filter(|_| !request.ports.is_empty()),
        "volumes": claims.chain(folders).collect::<Vec<_>>(),
        "largeShm": request.large_shm,
        "hostNetwork": request.host_network,
        "privileged": request.privileged,
        "runAsUser": request.run_as.as_deref().and_then(|user| user.split(':').next()?.parse::<i64>().ok()),
        "maxRunTime": request.max_run_secs.map(|seconds| format!("{seconds}s")),
        "gracePeriod": request.grace_secs.map(|seconds| format!("{seconds}s")),
        // What serves is started again for ever, and the field has a bound.
        "backoffLimit": request.backoff_limit.map(|limit| limit.min(BACKOFF_LIMIT_MAX)),
    }))
}

/// Leaves out what says nothing.
fn trim(value: Value) -> Value {
    let Value::Object(fields) = value else { return value };
    let says = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    };
    // Whether it may be preempted is said either way.
    fields
        .into_iter()
        .filter(|(field, value)| says(value) || (field == "preemptible" && value.is_boolean()))
        .collect()
}

fn entitlement(entitlement: &Entitlement) -> Map<String, Value> {
    let gpus = |amount: Option<berth_types::Gpus>| amount.map(quantity::gpus_text);
    let models: BTreeMap<_, _> = entitlement
        .model_quotas
        .iter()
        .map(|(model, amount)| (model.to_string(), quantity::gpus_text(*amount)))
        .collect();
    let fields = json!({
        "quota": gpus(entitlement.quota),
        "modelQuotas": Some(models).filter(|models| !models.is_empty()),
        "cpuQuota": entitlement.cpu_quota.map(quantity::cpu_text),
        "memoryQuota": entitlement.memory_quota.map(|memory| memory.0.to_string()),
        "limit": gpus(entitlement.limit),
        "weight": gpus(entitlement.weight),
        "rank": Some(entitlement.rank).filter(|rank| *rank != 0),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Entitlements of the default pool lie flat in a spec, those of others by pool.
fn entitlements(all: &BTreeMap<berth_types::Name, Entitlement>) -> Map<String, Value> {
    let default = berth_types::default_pool();
    let mut spec = entitlement(&all.get(&default).cloned().unwrap_or_default());
    let others: Map<String, Value> = all
        .iter()
        .filter(|(pool, _)| **pool != default)
        .map(|(pool, one)| (pool.to_string(), trim(Value::Object(entitlement(one)))))
        .collect();
    spec.insert("pools".into(), if others.is_empty() { Value::Null } else { others.into() });
    spec
}

fn department_spec(department: &Department, parent: Option<String>) -> Map<String, Value> {
    let mut spec = entitlements(&department.entitlements);
    spec.insert("parent".into(), parent.into());
    spec
}

fn project_spec(project: &Project, department: Option<String>) -> Map<String, Value> {
    let nodes = |selector: &Selector| match selector.0.is_empty() {
        true => Value::Null,
        false => json!(selector.0),
    };
    let span = |span: Option<Span>| Value::from(span.map(|span| format!("{}s", span.as_secs())));
    let mut spec = entitlements(&project.entitlements);
    for (field, value) in [
        ("department", department.into()),
        ("trainNodes", nodes(&project.train_nodes)),
        ("interactiveNodes", nodes(&project.interactive_nodes)),
        ("interactiveTimeLimit", span(project.interactive_time_limit)),
        ("timeLimit", span(project.time_limit)),
        ("idleLimit", span(project.idle_limit)),
        ("minRunTime", span(Some(project.min_run).filter(|span| !span.is_zero()))),
        ("allowHostNetwork", project.allow_host_network.then_some(true).into()),
        ("allowPrivileged", project.allow_privileged.then_some(true).into()),
    ] {
        spec.insert(field.into(), value);
    }
    spec
}
