//! Projects and departments.

use super::{
    ApiError,
    state::{Answer, AppState, Asked, Body, Query},
};
use crate::platform::Platform;
use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use berth_api::{
    Department, DepartmentList, DepartmentSettings, Problem, Project, ProjectList, ProjectSettings, Warned,
};
use berth_types::{Name, default_pool};
use serde::Deserialize;

/// Which pool of nodes the numbers are of.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PoolQuery {
    /// The pool; `default` when absent.
    pool: Option<String>,
}

fn pool(platform: &Platform, name: Option<&String>) -> Result<Name, Problem> {
    platform.pool_name(name)
}

fn project_view(platform: &Platform, name: &str, pool: &Name) -> Result<Project, Problem> {
    platform.find_project(name)?;
    let mut views = platform.project_views(pool).into_iter();
    Ok(views.find(|view| view.name == name).expect("it was found a moment ago"))
}

fn department_view(platform: &Platform, name: &str, pool: &Name) -> Result<Department, Problem> {
    platform.find_department(name)?;
    let mut views = platform.department_views(pool).into_iter();
    Ok(views.find(|view| view.name == name).expect("it was found a moment ago"))
}

/// List projects
#[utoipa::path(get, path = "/api/v1/projects", tag = "projects", params(PoolQuery),
    responses((status = 200, body = ProjectList), (status = "4XX", body = Problem)))]
pub(crate) async fn list_projects(
    State(state): State<AppState>,
    Query(query): Query<PoolQuery>,
) -> Result<Response, ApiError> {
    let look = |platform: &Platform| {
        let pool = pool(platform, query.pool.as_ref())?;
        Ok::<_, Problem>(ProjectList { items: platform.project_views(&pool) })
    };
    Ok(Answer(state.read(look).await.0?).into_response())
}

/// Show a project
#[utoipa::path(get, path = "/api/v1/projects/{name}", tag = "projects", params(("name" = String, Path), PoolQuery),
    responses((status = 200, body = Project), (status = "4XX", body = Problem)))]
pub(crate) async fn show_project(
    State(state): State<AppState>,
    Path(name): Path<String>,
    Query(query): Query<PoolQuery>,
) -> Result<Response, ApiError> {
    let look = |platform: &Platform| project_view(platform, &name, &pool(platform, query.pool.as_ref())?);
    Ok(Answer(state.read(look).await.0?).into_response())
}

/// Make a project
#[utoipa::path(post, path = "/api/v1/projects", tag = "projects", request_body = ProjectSettings,
    responses((status = 201, body = Warned<Project>), (status = "4XX", body = Problem)))]
pub(crate) async fn create_project(
    State(state): State<AppState>,
    Asked { request, key }: Asked<ProjectSettings>,
) -> Result<Response, ApiError> {
    let command = move |platform: &mut Platform, now| {
        let (_, warnings) = platform.create_project(&request, now)?;
        let pool = pool(platform, request.node_pool.as_ref())?;
        let item = project_view(platform, request.name.as_deref().unwrap_or_default(), &pool)?;
        Ok(Warned { item, warnings })
    };
    Ok(state.command(key, command).await?.created())
}

/// Change a project
#[utoipa::path(patch, path = "/api/v1/projects/{name}", tag = "projects", params(("name" = String, Path)),
    request_body = ProjectSettings, responses((status = 200, body = Warned<Project>), (status = "4XX", body = Problem)))]
pub(crate) async fn update_project(
    State(state): State<AppState>,
    Path(name): Path<String>,
    Asked { request, key }: Asked<ProjectSettings>,
) -> Result<Body, ApiError> {
    let command = move |platform: &mut Platform, now| {
        let (_, warnings) = platform.update_project(&name, &request, now)?;
        let pool = pool(platform, request.node_pool.as_ref())?;
        Ok(Warned { item: project_view(platform, &name, &pool)?, warnings })
    };
    state.command(key, command).await
}

/// Delete a project
#[utoipa::path(delete, path = "/api/v1/projects/{name}", tag = "projects", params(("name" = String, Path)),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub(crate) async fn delete_project(
    State(state): State<AppState>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    state.command(None, move |platform, now| platform.delete_project(&name, now)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List departments
#[utoipa::path(get, path = "/api/v1/departments", tag = "departments", params(PoolQuery),
    responses((status = 200, body = DepartmentList), (status = "4XX", body = Problem)))]
pub(crate) async fn list_departments(
    State(state): State<AppState>,
    Query(query): Query<PoolQuery>,
) -> Result<Response, ApiError> {
    let look = |platform: &Platform| {
        let pool = pool(platform, query.pool.as_ref())?;
        Ok::<_, Problem>(DepartmentList { items: platform.department_views(&pool) })
    };
    Ok(Answer(state.read(look).await.0?).into_response())
}

/// Show a department
#[utoipa::path(get, path = "/api/v1/departments/{name}", tag = "departments",
    params(("name" = String, Path), PoolQuery),
    responses((status = 200, body = Department), (status = "4XX", body = Problem)))]
pub(crate) async fn show_department(
    State(state): State<AppState>,
    Path(name): Path<String>,
    Query(query): Query<PoolQuery>,
) -> Result<Response, ApiError> {
    let look = |platform: &Platform| department_view(platform, &name, &pool(platform, query.pool.as_ref())?);
    Ok(Answer(state.read(look).await.0?).into_response())
}

/// Make a department
#[utoipa::path(post, path = "/api/v1/departments", tag = "departments", request_body = DepartmentSettings,
    responses((status = 201, body = Warned<Department>), (status = "4XX", body = Problem)))]
pub(crate) async fn create_department(
    State(state): State<AppState>,
    Asked { request, key }: Asked<DepartmentSettings>,
) -> Result<Response, ApiError> {
    let command = move |platform: &mut Platform, now| {
        let (_, warnings) = platform.create_department(&request, now)?;
        let name = request.name.as_deref().unwrap_or_default();
        let item = department_view(platform, name, &department_pool(&request))?;
        Ok(Warned { item, warnings })
    };
    Ok(state.command(key, command).await?.created())
}

/// Change a department
#[utoipa::path(patch, path = "/api/v1/departments/{name}", tag = "departments", params(("name" = String, Path)),
    request_body = DepartmentSettings,
    responses((status = 200, body = Warned<Department>), (status = "4XX", body = Problem)))]
pub(crate) async fn update_department(
    State(state): State<AppState>,
    Path(name): Path<String>,
    Asked { request, key }: Asked<DepartmentSettings>,
) -> Result<Body, ApiError> {
    let command = move |platform: &mut Platform, now| {
        let (_, warnings) = platform.update_department(&name, &request, now)?;
        Ok(Warned { item: department_view(platform, &name, &department_pool(&request))?, warnings })
    };
    state.command(key, command).await
}

fn department_pool(settings: &DepartmentSettings) -> Name {
    settings.node_pool.as_deref().map_or_else(default_pool, Into::into)
}

/// Delete a department
#[utoipa::path(delete, path = "/api/v1/departments/{name}", tag = "departments", params(("name" = String, Path)),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub(crate) async fn delete_department(
    State(state): State<AppState>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    state.command(None, move |platform, now| platform.delete_department(&name, now)).await?;
    Ok(StatusCode::NO_CONTENT)
}
