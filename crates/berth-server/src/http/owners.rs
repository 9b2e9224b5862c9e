//! Projects and departments.

use super::{
    ApiError,
    audit::About,
    state::{Answer, AppState, Asked, Body, Caller, Query},
};
use crate::platform::{Act, Person, Place, Platform, Sight};
use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use berth_api::{
    Code, Department, DepartmentList, DepartmentSettings, Problem, Project, ProjectList, ProjectSettings,
    Warned,
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

/// Whether somebody may move a project or a department to where it is to be.
fn may_move(
    platform: &Platform,
    person: &Person,
    to: Option<&str>,
    unset: &[String],
    field: &str,
) -> Result<(), Problem> {
    if to.is_none() && !unset.iter().any(|name| name == field) {
        return Ok(());
    }
    platform.may_set_below(person, to.filter(|name| !name.is_empty()))
}

/// What reaches out of its container reaches other projects too.
fn may_allow(platform: &Platform, person: &Person, settings: &ProjectSettings) -> Result<(), Problem> {
    match settings.allow_privileged.or(settings.allow_host_network) {
        Some(_) => platform.may(person, Act::Rule, Place::Everywhere),
        None => Ok(()),
    }
}

/// Whether somebody sees a department: of its projects, those that they see.
fn leave_out(department: &mut Department, platform: &Platform, person: &Person, sight: &Sight) -> bool {
    department.projects.retain(|project| sight.project(project));
    !department.projects.is_empty()
        || platform.is_allowed(person, Act::See, Place::Department(&department.name))
}

/// List projects
#[utoipa::path(get, path = "/api/v1/projects", tag = "projects", params(PoolQuery),
    responses((status = 200, body = ProjectList), (status = "4XX", body = Problem)))]
pub(crate) async fn list_projects(
    State(state): State<AppState>,
    Caller(person): Caller,
    Query(query): Query<PoolQuery>,
) -> Result<Response, ApiError> {
    let look = |platform: &Platform| {
        let pool = pool(platform, query.pool.as_ref())?;
        let sight = platform.sight(&person);
        let mut items = platform.project_views(&pool);
        items.retain(|project| sight.project(&project.name));
        Ok::<_, Problem>(ProjectList { items })
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
    Caller(person): Caller,
    Asked { request, key }: Asked<ProjectSettings>,
) -> Result<Response, ApiError> {
    let name = request.name.clone().unwrap_or_default();
    let command = move |platform: &mut Platform, now| {
        let department = request.department.as_deref().filter(|name| !name.is_empty());
        platform.may_set_below(&person, department)?;
        may_allow(platform, &person, &request)?;
        let (_, warnings) = platform.create_project(&request, now)?;
        let pool = pool(platform, request.node_pool.as_ref())?;
        let item = project_view(platform, request.name.as_deref().unwrap_or_default(), &pool)?;
        Ok(Warned { item, warnings })
    };
    Ok(About::made(state.command(key, command).await?.created(), name))
}

/// Change a project
#[utoipa::path(patch, path = "/api/v1/projects/{name}", tag = "projects", params(("name" = String, Path)),
    request_body = ProjectSettings, responses((status = 200, body = Warned<Project>), (status = "4XX", body = Problem)))]
pub(crate) async fn update_project(
    State(state): State<AppState>,
    Caller(person): Caller,
    Path(name): Path<String>,
    Asked { request, key }: Asked<ProjectSettings>,
) -> Result<Body, ApiError> {
    let command = move |platform: &mut Platform, now| {
        may_move(platform, &person, request.department.as_deref(), &request.unset, "department")?;
        may_allow(platform, &person, &request)?;
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
    Caller(person): Caller,
    Query(query): Query<PoolQuery>,
) -> Result<Response, ApiError> {
    let look = |platform: &Platform| {
        let pool = pool(platform, query.pool.as_ref())?;
        let sight = platform.sight(&person);
        let mut items = platform.department_views(&pool);
        items.retain_mut(|department| leave_out(department, platform, &person, &sight));
        Ok::<_, Problem>(DepartmentList { items })
    };
    Ok(Answer(state.read(look).await.0?).into_response())
}

/// Show a department
#[utoipa::path(get, path = "/api/v1/departments/{name}", tag = "departments",
    params(("name" = String, Path), PoolQuery),
    responses((status = 200, body = Department), (status = "4XX", body = Problem)))]
pub(crate) async fn show_department(
    State(state): State<AppState>,
    Caller(person): Caller,
    Path(name): Path<String>,
    Query(query): Query<PoolQuery>,
) -> Result<Response, ApiError> {
    let look = |platform: &Platform| {
        let refused = platform.may(&person, Act::See, Place::Department(&name));
        let pool = pool(platform, query.pool.as_ref())?;
        let Ok(mut department) = department_view(platform, &name, &pool) else {
            refused?;
            return department_view(platform, &name, &pool);
        };
        match leave_out(&mut department, platform, &person, &platform.sight(&person)) {
            true => Ok(department),
            false => Err(refused.err().unwrap_or_else(|| Problem::new(Code::NotFound, "there is none"))),
        }
    };
    Ok(Answer(state.read(look).await.0?).into_response())
}

/// Make a department
#[utoipa::path(post, path = "/api/v1/departments", tag = "departments", request_body = DepartmentSettings,
    responses((status = 201, body = Warned<Department>), (status = "4XX", body = Problem)))]
pub(crate) async fn create_department(
    State(state): State<AppState>,
    Caller(person): Caller,
    Asked { request, key }: Asked<DepartmentSettings>,
) -> Result<Response, ApiError> {
    let made = request.name.clone().unwrap_or_default();
    let command = move |platform: &mut Platform, now| {
        let parent = request.parent.as_deref().filter(|name| !name.is_empty());
        platform.may_set_below(&person, parent)?;
        let (_, warnings) = platform.create_department(&request, now)?;
        let name = request.name.as_deref().unwrap_or_default();
        let item = department_view(platform, name, &department_pool(&request))?;
        Ok(Warned { item, warnings })
    };
    Ok(About::made(state.command(key, command).await?.created(), made))
}

/// Change a department
#[utoipa::path(patch, path = "/api/v1/departments/{name}", tag = "departments", params(("name" = String, Path)),
    request_body = DepartmentSettings,
    responses((status = 200, body = Warned<Department>), (status = "4XX", body = Problem)))]
pub(crate) async fn update_department(
    State(state): State<AppState>,
    Caller(person): Caller,
    Path(name): Path<String>,
    Asked { request, key }: Asked<DepartmentSettings>,
) -> Result<Body, ApiError> {
    let command = move |platform: &mut Platform, now| {
        platform.may_set_department(&person, &name)?;
        may_move(platform, &person, request.parent.as_deref(), &request.unset, "parent")?;
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
    Caller(person): Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let command = move |platform: &mut Platform, now| {
        platform.may_set_department(&person, &name)?;
        platform.delete_department(&name, now)
    };
    state.command(None, command).await?;
    Ok(StatusCode::NO_CONTENT)
}
