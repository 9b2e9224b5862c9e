//! Nodes.

use super::{
    ApiError,
    state::{Answer, AppState, Asked, Body, Caller},
};
use crate::{
    platform::{Platform, Sight},
    samples::Measured,
};
use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use berth_api::{Code, Node, NodeLabels, NodeList, Problem};
use berth_types::{NodeCondition, POOL_LABEL};

/// List nodes
#[utoipa::path(get, path = "/api/v1/nodes", tag = "nodes",
    responses((status = 200, body = NodeList), (status = "4XX", body = Problem)))]
pub(crate) async fn list(State(state): State<AppState>, Caller(person): Caller) -> Response {
    let (mut items, _) = state.read(|platform| platform.node_views(&state.shared.measured())).await;
    let sight = state.shared.read().sight(&person);
    items.iter_mut().for_each(|node| leave_out(node, &sight));
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
    let (node, _) = state.read(|platform| view(platform, &name, &state.shared.measured())).await;
    let mut node = node?;
    leave_out(&mut node, &state.shared.read().sight(&person));
    Ok(Answer(node).into_response())
}

fn view(platform: &Platform, name: &str, measured: &[Measured]) -> Result<Node, Problem> {
    let id = platform.known_node(name)?;
    Ok(platform.node_view(id, measured).expect("it was found a moment ago"))
}

/// How much of a node is taken is for everybody; by whom, for those who see them.
fn leave_out(node: &mut Node, sight: &Sight) {
    node.workloads.retain(|name| sight.workload(name));
    for device in &mut node.devices {
        device.workloads.retain(|one| sight.workload(&one.workload));
    }
}

/// Change the labels of a node
#[utoipa::path(patch, path = "/api/v1/nodes/{name}", tag = "nodes", params(("name" = String, Path)), request_body = NodeLabels,
    responses((status = 200, body = Node), (status = "4XX", body = Problem)))]
pub(crate) async fn label(
    State(state): State<AppState>,
    Path(name): Path<String>,
    Asked { request, key }: Asked<NodeLabels>,
) -> Result<Body, ApiError> {
    let names_pool =
        request.set.contains_key(POOL_LABEL) || request.remove.iter().any(|key| key == POOL_LABEL);
    if state.tasks.is_none() && names_pool {
        let problem =
            Problem::invalid("set", "in a cluster, a NodePool says by their labels which nodes are in it");
        return Err(ApiError(
            problem.hint("set a label that the nodeSelector of a NodePool names: `kubectl get nodepools`"),
        ));
    }
    let measured = state.shared.measured();
    let command = move |platform: &mut Platform, now| {
        platform.label_node(&name, &request, now)?;
        view(platform, &name, &measured)
    };
    state.command(key, command).await
}

/// Cordon, uncordon or drain a node
#[utoipa::path(post, path = "/api/v1/nodes/{name}/{action}", tag = "nodes",
    params(("name" = String, Path), ("action" = String, Path, description = "`cordon`, `uncordon` or `drain`")),
    responses((status = 200, body = Node), (status = "4XX", body = Problem)))]
pub(crate) async fn act(
    State(state): State<AppState>,
    Path((name, action)): Path<(String, String)>,
) -> Result<Body, ApiError> {
    let measured = state.shared.measured();
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
        view(platform, &name, &measured)
    };
    state.command(None, command).await
}
