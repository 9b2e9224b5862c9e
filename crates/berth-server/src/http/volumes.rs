//! Volumes: named folders that workloads share.

use super::{
    ApiError,
    state::{Answer, AppState, Asked, Query},
};
use crate::{
    Folder,
    platform::{Platform, VolumeRecord},
};
use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use berth_api::{Code, Problem, Volume, VolumeList, VolumeQuery, VolumeRequest};

fn views(platform: &Platform, folder: Option<&Folder>) -> Vec<Volume> {
    let path = |volume: &VolumeRecord| match (folder, &volume.project) {
        (Some(folder), _) => folder.volumes().join(&volume.name).display().to_string(),
        (None, Some(project)) => format!("{project}/{}", volume.name),
        (None, None) => volume.name.clone(),
    };
    let view = |volume: &VolumeRecord| Volume {
        name: volume.name.clone(),
        project: volume.project.clone(),
        path: path(volume),
        created_at: volume.created.into(),
        workloads: platform.volume_users(volume),
    };
    platform.volumes().map(view).collect()
}

/// Where folders of volumes are; nowhere when a cluster has them.
fn folder(state: &AppState) -> Option<Folder> {
    state.mirror.is_none().then(|| state.folder.clone())
}

/// List volumes
#[utoipa::path(get, path = "/api/v1/volumes", tag = "volumes",
    responses((status = 200, body = VolumeList), (status = "4XX", body = Problem)))]
pub(crate) async fn list(State(state): State<AppState>) -> Response {
    let (items, _) = state.read(|platform| views(platform, folder(&state).as_ref())).await;
    Answer(VolumeList { items }).into_response()
}

/// Make a volume
#[utoipa::path(post, path = "/api/v1/volumes", tag = "volumes", request_body = VolumeRequest,
    responses((status = 201, body = Volume), (status = "4XX", body = Problem)))]
pub(crate) async fn create(
    State(state): State<AppState>,
    Asked { request, key }: Asked<VolumeRequest>,
) -> Result<Response, ApiError> {
    let folder = folder(&state);
    let command = move |platform: &mut Platform, now| {
        let size = request.size.map(|size| size.0);
        platform.create_volume(&request.name, request.project.as_ref(), size, now)?;
        if let Some(folder) = &folder {
            // The folder comes first for whoever uses it, and a folder without a volume harms nobody.
            folder.make_volume(&request.name).map_err(|error| {
                Problem::new(Code::Internal, format!("the folder of the volume could not be made: {error}"))
            })?;
        }
        let mut all = views(platform, folder.as_ref()).into_iter();
        let made = all.find(|volume| (&volume.name, &volume.project) == (&request.name, &request.project));
        Ok(made.expect("it was made a moment ago"))
    };
    Ok(state.command(key, command).await?.created())
}

/// Delete a volume that nothing uses; its folder is put away
#[utoipa::path(delete, path = "/api/v1/volumes/{name}", tag = "volumes", params(("name" = String, Path), VolumeQuery),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub(crate) async fn delete(
    State(state): State<AppState>,
    Path(name): Path<String>,
    Query(query): Query<VolumeQuery>,
) -> Result<StatusCode, ApiError> {
    let folder = folder(&state);
    let command = move |platform: &mut Platform, now: berth_types::Time| {
        platform.delete_volume(&name, query.project.as_ref(), now)?;
        if let Some(folder) = &folder
            && let Err(error) = folder.retire_volume(&name, now.0)
        {
            tracing::warn!(%error, volume = %name, "the folder of a deleted volume stays where it was");
        }
        Ok(())
    };
    state.command(None, command).await?;
    Ok(StatusCode::NO_CONTENT)
}
