//! Volumes: named folders that workloads share.

use super::{
    ApiError,
    audit::About,
    state::{Answer, AppState, Asked, Caller, Query},
};
use crate::{
    Folder,
    platform::{Act, Person, Place, Platform, VolumeRecord},
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

/// A volume of a project is the project's; one without is everybody's, and so the admin's.
fn may_have(platform: &Platform, person: &Person, project: Option<&str>, action: Act) -> Result<(), Problem> {
    match project {
        Some(project) => platform.may(person, action, Place::Project(project)),
        None => platform.may(person, Act::Rule, Place::Everywhere),
    }
}

/// List volumes
#[utoipa::path(get, path = "/api/v1/volumes", tag = "volumes",
    responses((status = 200, body = VolumeList), (status = "4XX", body = Problem)))]
pub(crate) async fn list(State(state): State<AppState>, Caller(person): Caller) -> Response {
    let (mut items, _) = state.read(|platform| views(platform, folder(&state).as_ref())).await;
    let sight = state.shared.read().sight(&person);
    // What has no project is for everybody.
    items.retain(|volume| volume.project.as_ref().is_none_or(|project| sight.project(project)));
    items.iter_mut().for_each(|volume| volume.workloads.retain(|name| sight.workload(name)));
    Answer(VolumeList { items }).into_response()
}

/// Make a volume
#[utoipa::path(post, path = "/api/v1/volumes", tag = "volumes", request_body = VolumeRequest,
    responses((status = 201, body = Volume), (status = "4XX", body = Problem)))]
pub(crate) async fn create(
    State(state): State<AppState>,
    Caller(person): Caller,
    Asked { request, key }: Asked<VolumeRequest>,
) -> Result<Response, ApiError> {
    let (folder, made) = (folder(&state), request.name.clone());
    let command = move |platform: &mut Platform, now| {
        may_have(platform, &person, request.project.as_deref(), Act::Submit)?;
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
    Ok(About::made(state.command(key, command).await?.created(), made))
}

/// Delete a volume that nothing uses; its folder is put away
#[utoipa::path(delete, path = "/api/v1/volumes/{name}", tag = "volumes", params(("name" = String, Path), VolumeQuery),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub(crate) async fn delete(
    State(state): State<AppState>,
    Caller(person): Caller,
    Path(name): Path<String>,
    Query(query): Query<VolumeQuery>,
) -> Result<StatusCode, ApiError> {
    let folder = folder(&state);
    let command = move |platform: &mut Platform, now: berth_types::Time| {
        let known = platform.volumes().find(|volume| {
            volume.name == name
                && query.project.as_ref().is_none_or(|project| volume.project.as_ref() == Some(project))
        });
        let project = known.and_then(|volume| volume.project.clone());
        may_have(platform, &person, project.as_deref(), Act::AnyWork)?;
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
