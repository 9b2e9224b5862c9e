//! Nodes.

use super::{
    ApiError,
    state::{Answer, AppState, Body, Caller},
};
use crate::platform::{Platform, Sight};
use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use berth_api::{Code, DeviceUse, MemoryAmount, Node, NodeList, Problem};
use berth_types::NodeCondition;

/// List nodes
#[utoipa::path(get, path = "/api/v1/nodes", tag = "nodes",
    responses((status = 200, body = NodeList), (status = "4XX", body = Problem)))]
pub(crate) async fn list(State(state): State<AppState>, Caller(person): Caller) -> Response {
    let (mut items, _) = state.read(Platform::node_views).await;
    let sight = state.shared.read().sight(&person);
    items.iter_mut().for_each(|node| leave_out(node, &sight));
    measure(&state, &mut items);
    Answer(NodeList { items }).into_response()
}

/// Show a node
#[utoipa::path(get, path = "/api/v1/nodes/{name}", tag = "nodes", params(("name" = String, Path)),
    responses((status = 200, body = Node), (status = "4XX", body = Problem)))]
pub(crate) async fn show(
    State(state): State<AppState>,
    Caller(person): Caller,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let (node, _) = state.read(|platform| view(platform, &name)).await;
    let mut nodes = [node?];
    let sight = state.shared.read().sight(&person);
    nodes.iter_mut().for_each(|node| leave_out(node, &sight));
    measure(&state, &mut nodes);
    let [node] = nodes;
    Ok(Answer(node).into_response())
}

fn view(platform: &Platform, name: &str) -> Result<Node, Problem> {
    let id = platform.known_node(name)?;
    Ok(platform.node_view(id).expect("it was found a moment ago"))
}

/// How much of a node is taken is for everybody; by whom, for those who see them.
fn leave_out(node: &mut Node, sight: &Sight) {
    node.workloads.retain(|name| sight.workload(name));
    for device in &mut node.devices {
        device.workloads.retain(|one| sight.workload(&one.workload));
    }
}

/// Adds what the hardware says of itself; declared devices have only what their workloads report.
fn measure(state: &AppState, nodes: &mut [Node]) {
    if state.declared {
        return;
    }
    let Some(tasks) = &state.tasks else { return };
    let gpus = tasks.host.devices().gpus;
    for node in nodes {
        for (device, gpu) in node.devices.iter_mut().zip(&gpus) {
            let Some(utilisation) = gpu.utilisation else { continue };
            let memory_used = Some(MemoryAmount(gpu.memory_used));
            device.usage = Some(DeviceUse { utilisation, memory_used, source: "nvml".into() });
        }
    }
}

/// Cordon, uncordon or drain a node
#[utoipa::path(post, path = "/api/v1/nodes/{name}/{action}", tag = "nodes",
    params(("name" = String, Path), ("action" = String, Path, description = "`cordon`, `uncordon` or `drain`")),
    responses((status = 200, body = Node), (status = "4XX", body = Problem)))]
pub(crate) async fn act(
    State(state): State<AppState>,
    Path((name, action)): Path<(String, String)>,
) -> Result<Body, ApiError> {
    let command = move |platform: &mut Platform, now| {
        match action.as_str() {
            "cordon" => platform.set_condition(&name, NodeCondition::Cordoned, false, now)?,
            "uncordon" => platform.set_condition(&name, NodeCondition::Ready, false, now)?,
            "drain" => platform.drain_node(&name, now)?,
            _ => {
                let problem = Problem::new(Code::NotFound, "a node can be told to cordon, uncordon or drain");
                return Err(problem);
            }
        }
        view(platform, &name)
    };
    state.command(None, command).await
}
