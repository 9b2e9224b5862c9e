//! The installation as a whole.

use super::{
    ApiError,
    state::{Answer, AppState, Asked, Query},
};
use crate::{Shutdown, controller::store_problem, metrics as text, platform::Platform};
use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use berth_api::{Backup, BackupRequest, Cluster, Code, ManifestQuery, Problem};
use berth_store::{Batch, Sample};
use serde::Deserialize;
use std::path::PathBuf;

/// Show the cluster
#[utoipa::path(get, path = "/api/v1/cluster", tag = "cluster",
    responses((status = 200, body = Cluster), (status = "4XX", body = Problem)))]
pub(crate) async fn show(State(state): State<AppState>) -> Response {
    let (mut cluster, cursor) = state.read(|platform| view(platform, &state)).await;
    cluster.cursor = cursor;
    Answer(cluster).into_response()
}

fn view(platform: &Platform, state: &AppState) -> Cluster {
    let totals = platform.totals(&state.shared.measured());
    Cluster {
        version: berth_api::release().into(),
        mode: state.mirror.as_ref().map_or("embedded", |mirror| mirror.cluster.mode()).into(),
        started_at: state.started.into(),
        folder: state.folder.path().display().to_string(),
        nodes: totals.nodes,
        nodes_ready: totals.nodes_ready,
        gpus: totals.gpus,
        gpus_allocated: totals.gpus_allocated,
        running_count: totals.running_count,
        waiting_count: totals.pending_count,
        projects: platform.project_count() as u64,
        cursor: 0,
        declared: state.declared,
        machine: state.tasks.as_ref().and_then(|_| berth_api::machine_identity()),
        totals: Some(totals),
    }
}

/// Download the manifest that installs Berth on a Kubernetes cluster
#[utoipa::path(get, path = "/api/v1/manifest", tag = "cluster", params(ManifestQuery),
    responses((status = 200, content_type = "application/yaml", body = String), (status = "4XX", body = Problem)))]
pub(crate) async fn manifest(Query(query): Query<ManifestQuery>) -> Result<Response, ApiError> {
    let ManifestQuery { cluster, namespace, image } = query;
    let text = berth_api::manifest(
        &cluster,
        namespace.as_deref().unwrap_or(berth_api::MANIFEST_NAMESPACE),
        image.as_deref().unwrap_or(berth_api::MANIFEST_IMAGE),
    )?;
    let headers = [
        (header::CONTENT_TYPE, "application/yaml".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"berth-operator-{cluster}.yaml\"")),
    ];
    Ok((headers, text).into_response())
}

/// Write a backup to a file of the server's machine
#[utoipa::path(post, path = "/api/v1/backup", tag = "cluster", request_body = BackupRequest,
    responses((status = 201, body = Backup), (status = "4XX", body = Problem)))]
pub(crate) async fn backup(
    State(state): State<AppState>,
    Asked { request, .. }: Asked<BackupRequest>,
) -> Result<Response, ApiError> {
    let path = PathBuf::from(&request.path);
    if !path.is_absolute() {
        return Err(ApiError(Problem::invalid("path", "the file of a backup is named by an absolute path")));
    }
    if path.exists() {
        return Err(ApiError(Problem::new(Code::Exists, format!("{} is there already", path.display()))));
    }
    let target = path.clone();
    let manifest = state.load(move |store| store.backup(&target)).await?;
    let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
    let backup = Backup { path: request.path, seq: manifest.last_seq, bytes };
    Ok((StatusCode::CREATED, Answer(backup)).into_response())
}

/// How the server is stopped.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ShutdownQuery {
    /// Leave running workloads running; the next start takes them over. Otherwise they are asked to stop, and resume.
    keep_workloads: bool,
}

/// Stop the server
#[utoipa::path(post, path = "/api/v1/shutdown", tag = "cluster", params(ShutdownQuery),
    responses((status = 202), (status = "4XX", body = Problem)))]
pub(crate) async fn shutdown(
    State(state): State<AppState>,
    Query(query): Query<ShutdownQuery>,
) -> StatusCode {
    state.ask_stop(if query.keep_workloads { Shutdown::KeepWorkloads } else { Shutdown::EndWorkloads });
    StatusCode::ACCEPTED
}

/// Write nothing of meaning durably, and answer: what any command costs at least on this machine
#[utoipa::path(post, path = "/api/v1/ping", tag = "cluster",
    responses((status = 204), (status = "4XX", body = Problem), (status = "5XX", body = Problem)))]
pub(crate) async fn ping(State(state): State<AppState>) -> Result<StatusCode, ApiError> {
    let samples = vec![Sample::new("ping", 1)];
    let written = state.store.append(Batch { at: state.shared.now(), samples, ..Batch::default() }).await;
    written.map_err(|error| store_problem(&error))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Numbers for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "cluster",
    responses((status = 200, content_type = "text/plain", body = String), (status = "4XX", body = Problem)))]
pub(crate) async fn metrics(State(state): State<AppState>) -> Response {
    let (body, seq) = state.read(|platform| text::render(platform, &state.shared)).await;
    let body = format!("{body}# TYPE berth_events_total counter\nberth_events_total {seq}\n");
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], body).into_response()
}

/// Whether the process lives
#[utoipa::path(get, path = "/healthz", tag = "cluster", responses((status = 200, content_type = "text/plain", body = String)))]
pub(crate) async fn health() -> &'static str {
    "ok\n"
}

/// Whether it takes commands
#[utoipa::path(get, path = "/readyz", tag = "cluster",
    responses((status = 200, content_type = "text/plain", body = String), (status = 503, content_type = "text/plain", body = String)))]
pub(crate) async fn ready(State(state): State<AppState>) -> Response {
    match state.store.read_only() {
        None => "ok\n".into_response(),
        Some(reason) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("the store only reads: {reason}\n")).into_response()
        }
    }
}
