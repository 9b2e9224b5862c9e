//! Volumes: named folders that workloads share.

use super::{
    ApiError,
    state::{Answer, AppState, Asked},
};
use crate::{Folder, platform::Platform};
use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use berth_api::{Code, Problem, Volume, VolumeList, VolumeRequest};

fn views(platform: &Platform, folder: &Folder) -> Vec<Volume> {
    let view = |volume: &crate::platform::VolumeRecord| Volume {
        name: volume.name.clone(),
        project: volume.project.clone(),
        path: folder.volumes().join(&volume.name).display().to_string(),
        created_at: volume.created.into(),
        workloads: platform.volume_users(&volume.name),
    };
    platform.volumes().map(view).collect()
}

/// List volumes
#[utoipa::path(get, path = "/api/v1/volumes", tag = "volumes",
    responses((status = 200, body = VolumeList), (status = "4XX", body = Problem)))]
pub(crate) async fn list(State(state): State<AppState>) -> Response {
    let (items, _) = state.read(|platform| views(platform, &state.folder)).await;
    Answer(VolumeList { items }).into_response()
}

/// Make a volume
#[utoipa::path(post, path = "/api/v1/volumes", tag = "volumes", request_body = VolumeRequest,
    responses((status = 201, body = Volume), (status = "4XX", body = Problem)))]
pub(crate) async fn create(
    State(state): State<AppState>,
    Asked { request, key }: Asked<VolumeRequest>,
) -> Result<Response, ApiError> {
    let folder = state.folder.clone();
    let command = move |platform: &mut Platform, now| {
        platform.create_volume(&request.name, request.project.as_ref(), now)?;
        // The folder comes first for whoever uses it, and a folder without a volume harms nobody.
        folder.make_volume(&request.name).map_err(|error| {
            Problem::new(Code::Internal, format!("the folder of the volume could not be made: {error}"))
        })?;
        let mut all = views(platform, &folder).into_iter();
        Ok(all.find(|volume| volume.name == request.name).expect("it was made a moment ago"))
    };
    Ok(state.command(key, command).await?.created())
}

/// Delete a volume that nothing uses; its folder is put away
#[utoipa::path(delete, path = "/api/v1/volumes/{name}", tag = "volumes", params(("name" = String, Path)),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub(crate) async fn delete(
    State(state): State<AppState>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let folder = state.folder.clone();
    let command = move |platform: &mut Platform, now: berth_types::Time| {
        platform.delete_volume(&name, now)?;
        if let Err(error) = folder.retire_volume(&name, now.0) {
            tracing::warn!(%error, volume = %name, "the folder of a deleted volume stays where it was");
        }
        Ok(())
    };
    state.command(None, command).await?;
    Ok(StatusCode::NO_CONTENT)
}
