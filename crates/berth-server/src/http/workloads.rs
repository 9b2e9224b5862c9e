//! Workloads.

use super::{
    ApiError,
    audit::About,
    fit::{self, Fit},
    history::{find_gone, sees_finished},
    state::{Answer, AppState, Asked, Body, Caller, Query, User},
    too_often,
};
use crate::{
    auth::Identity,
    platform::{Act, By, Person, Place, Platform, Seen, Sight, TaskReport, user_ids},
    tasks::Tasks,
};
use axum::{
    Extension,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use berth_api::{
    Code, Preview, Problem, ReportRequest, Status, Submitted, Why, Workload, WorkloadList, WorkloadQuery,
    WorkloadRequest, World, WorldQuery,
};
use berth_store::{FinishedCursor, FinishedFilter, FinishedWorkload, Store, StoreError};
use berth_types::{Span, Time, WorkloadId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Rows of a page unless it is said how many.
pub(super) const PAGE_USUAL: usize = 500;
/// Whoever asks for a change of its world is answered after this long in any case.
const WORLD_WITHIN: std::time::Duration = std::time::Duration::from_secs(30);
/// Named values in one report.
const METRICS_MAX: usize = 100;

/// Options of a submission.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SubmitQuery {
    /// Say what would happen, and do nothing.
    dry_run: bool,
}

/// Submit a workload
#[utoipa::path(post, path = "/api/v1/workloads", tag = "workloads", params(SubmitQuery), request_body = WorkloadRequest,
    responses((status = 201, body = Submitted), (status = 200, description = "with dry_run", body = Preview), (status = "4XX", body = Problem)))]
pub(crate) async fn submit(
    State(state): State<AppState>,
    Caller(person): Caller,
    Query(query): Query<SubmitQuery>,
    Asked { request, key }: Asked<WorkloadRequest>,
) -> Result<Response, ApiError> {
    // Asked before anything else: what is wrong with a request says much about the place it is for.
    state.shared.read().may(&person, Act::Submit, Place::Project(&request.project))?;
    if let (Some(tasks), Some(account)) = (&state.tasks, &request.run_as)
        && !is_own(&state, tasks, &person, account).await
    {
        // Whoever acts under another's account of this machine has that one's files.
        state.shared.read().may(&person, Act::Rule, Place::Everywhere)?;
    }
    if let By::Token(_) = person.by
        && let Err(wait) = state.submissions.take(&person.user, state.shared.now())
    {
        return Ok(too_often(wait, "too many submissions of one user"));
    }
    let (user, project) = (person.user.clone(), request.project.clone());
    let Fit { request, unfit, program, warnings } = fit::ask(&state, request, &user).await;
    let is_root = |(user, group): (u32, u32)| user == 0 || group == 0;
    if state.tasks.is_some() && request.run_as.as_deref().and_then(user_ids).is_some_and(is_root) {
        // Whatever the user is called: root has everybody's files.
        state.shared.read().may(&person, Act::Rule, Place::Everywhere)?;
    }
    if query.dry_run {
        let sight = state.shared.read().sight(&person);
        let preview = |platform: &Platform| {
            platform.preview(request.clone(), unfit.clone(), &user, &sight, state.shared.now())
        };
        let (preview, _) = state.read(preview).await;
        let mut preview = preview?;
        preview.warnings.extend(warnings);
        let run_as = request.run_as.clone().or_else(|| state.shared.read().next_account(&user));
        let run_as = run_as.filter(|_| state.tasks.is_some());
        let working_dir = request.working_dir.clone();
        return Ok(Answer(Preview { program, working_dir, run_as, ..preview }).into_response());
    }
    let command = move |platform: &mut Platform, now| {
        platform.may(&person, Act::Submit, Place::Project(&request.project))?;
        let (id, mut all) = platform.submit(request, unfit, &user, now)?;
        all.extend(warnings);
        Ok(Submitted { workload: view(platform, id)?, warnings: all })
    };
    let body = state.command(key, command).await?;
    let target = body.read::<SubmittedName>().map(|made| format!("{project}/{}", made.workload.name));
    let mut response = body.created();
    response.extensions_mut().insert(About { project: Some(project), target: target.unwrap_or_default() });
    Ok(response)
}

/// The name in an answer to a submission.
#[derive(Deserialize)]
struct SubmittedName {
    workload: Named,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// The user and group that a text means on this machine. The text says why there is no such user.
pub(super) async fn find_account(tasks: &Tasks, text: String) -> Result<(u32, u32), String> {
    let host = Arc::clone(&tasks.host);
    // Users may be listed by a directory service somewhere else.
    let found = tokio::task::spawn_blocking(move || host.find_user(&text)).await;
    found.unwrap_or_else(|_| Err("this machine's list of users cannot be read".into()))
}

/// Whether an account of the machine is the caller's: the one that their work runs as anyway. A name alone is no proof, since names
/// may come from somebody else; where all work runs as the server does, and so as somebody mightier, it will do, unless it is a
/// number, which could be anybody's.
async fn is_own(state: &AppState, tasks: &Tasks, person: &Person, account: &str) -> bool {
    let (is_walled, known) = {
        let platform = state.shared.read();
        (platform.has_accounts(), platform.known_account(&person.user))
    };
    if !is_walled {
        return account == person.user && !account.starts_with(|first: char| first.is_ascii_digit());
    }
    let found = find_account(tasks, account.to_owned()).await;
    found.is_ok_and(|(user, group)| known == Some(format!("{user}:{group}")))
}

fn view(platform: &Platform, id: WorkloadId) -> Result<Workload, Problem> {
    platform
        .workload_view(id, true)
        .ok_or_else(|| Problem::new(Code::NotFound, format!("there is no workload {id}")))
}

/// List workloads
#[utoipa::path(get, path = "/api/v1/workloads", tag = "workloads", params(WorkloadQuery),
    responses((status = 200, body = WorkloadList), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(state): State<AppState>,
    Caller(person): Caller,
    Query(query): Query<WorkloadQuery>,
) -> Result<Response, ApiError> {
    let sight = state.shared.read().sight(&person);
    let is_gone = {
        let platform = state.shared.read();
        if let Some(project) = &query.project {
            platform.may(&person, Act::See, Place::Project(project))?;
        }
        // What ran in a project that is gone is history, for those who see everything.
        let is_gone = |project: &String| platform.project_id(project).is_none();
        sight.is_all() && state.mirror.is_none() && query.project.as_ref().is_some_and(is_gone)
    };
    let limit = query.limit.unwrap_or(PAGE_USUAL).clamp(1, berth_api::PAGE_MAX);
    let cursor = query.cursor.as_deref().map(Cursor::read).transpose()?;
    let (page, seq) = state.read(|platform| unfinished(platform, &sight, &query, cursor, limit)).await;
    let (mut items, mut next) = match page {
        Err(problem) if !is_gone || problem.code != Code::NotFound => return Err(ApiError(problem)),
        Err(_) => Page::default(),
        Ok(page) => page,
    };
    let wants_finished =
        query.finished != Some(false) && query.node.is_none() && query.status.is_none_or(Status::is_final);
    if state.mirror.is_some() {
        if next.is_none() && wants_finished {
            let room = limit - items.len();
            let ((over, more), _) = state.read(|platform| over(platform, &sight, &query, cursor, room)).await;
            items.extend(over);
            next = more;
        }
        return Ok(answer(items, next, seq));
    }
    if next.is_none() && wants_finished {
        let project = match &query.project {
            None => None,
            Some(name) => match state.shared.read().project_id(name) {
                Some(id) => Some(id),
                None if is_gone => None,
                None => return Ok(answer(items, None, seq)),
            },
        };
        let room = limit - items.len();
        let after = match cursor {
            Some(Cursor::Finished { ended, id }) => {
                Some(FinishedCursor { ended: Time(ended), id: WorkloadId(id) })
            }
            _ => None,
        };
        if room == 0 {
            next = Some(Cursor::FINISHED_FIRST.text());
        } else {
            let filter = FinishedFilter {
                project,
                user: query.user.clone(),
                name: query.name.clone(),
                phase: query.status.map(|status| status.to_string()),
                hidden: (!query.deleted).then_some(query.status == Some(Status::Deleted)),
                ended_from: query.ended_after.map(|after| after.0),
                ..FinishedFilter::default()
            };
            let (mut after, mut goes_on) = (after, true);
            // What somebody may not see is passed over, and a page is full all the same.
            while goes_on && items.len() < limit {
                let (filter, room) = (filter.clone(), limit - items.len());
                let page = state.load(move |store| store.load_finished_page(&filter, after, room)).await?;
                after = page.next;
                goes_on = page.next.is_some();
                for finished in page.workloads {
                    let mut workload: Workload = finished.document.read().map_err(damaged)?;
                    let is_asked = !is_gone || query.project.as_ref() == Some(&workload.project);
                    if is_asked && sees_finished(&state, &sight, &finished, &workload.project) {
                        workload.indices.clear();
                        items.push(workload);
                    }
                }
            }
            if let Some(project) = query.project.as_ref().filter(|_| is_gone && items.is_empty()) {
                state.shared.read().find_project(project)?;
            }
            next = after
                .filter(|_| goes_on)
                .map(|next| Cursor::Finished { ended: next.ended.0, id: next.id.0 }.text());
        }
    }
    Ok(answer(items, next, seq))
}

/// Finished work that a cluster still shows, the last to end first.
fn over(
    platform: &Platform,
    sight: &Sight,
    query: &WorkloadQuery,
    cursor: Option<Cursor>,
    room: usize,
) -> Page {
    let place = |workload: &Workload| (workload.ended.as_ref().map_or(0, |ended| ended.at.0.0), workload.id);
    let before = match cursor {
        Some(Cursor::Finished { ended, id }) => Some((ended, id)),
        _ => None,
    };
    let asked = |workload: &&&Workload| {
        sight.project(&workload.project)
            && query.project.as_ref().is_none_or(|project| workload.project == *project)
            && query.user.as_ref().is_none_or(|user| workload.user == *user)
            && query.name.as_ref().is_none_or(|name| workload.name == *name)
            && query.status.is_none_or(|status| workload.status == status)
            && query
                .ended_after
                .is_none_or(|after| workload.ended.as_ref().is_some_and(|ended| ended.at.0 >= after.0))
            && before.is_none_or(|before| place(workload) < before)
    };
    let all = platform.all_over();
    let mut found = all.iter().filter(asked);
    let items: Vec<Workload> = found.by_ref().take(room).map(|workload| (*workload).clone()).collect();
    let next = found.next().map(|_| match items.last().map(place) {
        Some((ended, id)) => Cursor::Finished { ended, id }.text(),
        None => Cursor::FINISHED_FIRST.text(),
    });
    (items, next)
}

fn answer(items: Vec<Workload>, next: Option<String>, seq: u64) -> Response {
    let list = Answer(WorkloadList { items, next });
    ([(berth_api::CURSOR_HEADER, seq.to_string())], list).into_response()
}

fn damaged(error: StoreError) -> Problem {
    Problem::new(Code::Internal, error.to_string())
}

type Page = (Vec<Workload>, Option<String>);

fn unfinished(
    platform: &Platform,
    sight: &Sight,
    query: &WorkloadQuery,
    cursor: Option<Cursor>,
    limit: usize,
) -> Result<Page, Problem> {
    if let Some(name) = &query.project {
        platform.find_project(name)?;
    }
    let after = match cursor {
        None => 0,
        Some(Cursor::Unfinished { after }) => after,
        Some(Cursor::Finished { .. }) => return Ok((Vec::new(), None)),
    };
    if query.finished == Some(true) || query.status.is_some_and(Status::is_final) {
        return Ok((Vec::new(), None));
    }
    let mut items = Vec::new();
    // Ids rise with submission, so a page goes on after the last id of the one before.
    for record in platform.unfinished().filter(|record| record.id.0 > after) {
        let fits = sight.project(&record.request.project)
            && query.project.as_ref().is_none_or(|project| record.request.project == *project)
            && query.user.as_ref().is_none_or(|user| record.user == *user)
            && query.name.as_ref().is_none_or(|name| record.name == *name);
        if !fits {
            continue;
        }
        let Some(view) = platform.workload_view(record.id, false) else { continue };
        let fits = query.status.is_none_or(|status| view.status == status)
            && query.node.as_ref().is_none_or(|node| view.tasks.iter().any(|task| task.node == *node));
        if !fits {
            continue;
        }
        if items.len() == limit {
            let last = items.last().map_or(0, |last: &Workload| last.id);
            return Ok((items, Some(Cursor::Unfinished { after: last }.text())));
        }
        items.push(view);
    }
    Ok((items, None))
}

/// A place in the list that stays where it is while others come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Cursor {
    Unfinished { after: u64 },
    Finished { ended: u64, id: u64 },
}

impl Cursor {
    /// Before every finished workload.
    const FINISHED_FIRST: Self = Self::Finished { ended: i64::MAX as u64, id: i64::MAX as u64 };

    fn text(self) -> String {
        match self {
            Self::Unfinished { after } => format!("u{after}"),
            Self::Finished { ended, id } => format!("f{ended}-{id}"),
        }
    }

    fn read(text: &str) -> Result<Self, Problem> {
        let read = || match text.split_at_checked(1)? {
            ("u", after) => Some(Self::Unfinished { after: after.parse().ok()? }),
            ("f", rest) => {
                let (ended, id) = rest.split_once('-')?;
                Some(Self::Finished { ended: ended.parse().ok()?, id: id.parse().ok()? })
            }
            _ => None,
        };
        read().ok_or_else(|| Problem::invalid("cursor", "this is no cursor: take `next` of the page before"))
    }
}

/// An unfinished workload, or the newest finished one of that name.
pub(super) enum Found {
    Unfinished(WorkloadId),
    Finished(Box<FinishedWorkload>),
}

pub(super) async fn find(state: &AppState, project: &str, name: &str) -> Result<Found, ApiError> {
    let (found, _) = state
        .read(|platform| platform.find_project(project).map(|id| (id, platform.find(project, name))))
        .await;
    let (project_id, found) = match found {
        Ok(found) => found,
        Err(problem) => return find_gone(state, project, name, problem).await,
    };
    if let Some(id) = found {
        return Ok(Found::Unfinished(id));
    }
    let wanted = name.to_owned();
    if state.mirror.is_some() {
        let look = |platform: &Platform| {
            let over = platform.all_over().into_iter();
            over.filter(|one| one.project == project && one.name == name).map(finished_row).next()
        };
        if let (Some(finished), _) = state.read(look).await {
            return Ok(Found::Finished(Box::new(FinishedWorkload { project: project_id, ..finished })));
        }
    }
    let finished = state.load(move |store| newest(store, project_id, wanted)).await?;
    match finished {
        Some(finished) => Ok(Found::Finished(Box::new(finished))),
        None => {
            let (near, _) = state.read(|platform| platform.near_name(project, name)).await;
            let problem = Problem::new(
                Code::NotFound,
                format!("there is no workload {} in {project}", crate::names::shown(name)),
            );
            Err(ApiError(problem.hint(match near {
                Some(near) => format!("did you mean {near}?"),
                None => format!("`berth list -p {project}` shows what is there"),
            })))
        }
    }
}

fn newest(
    store: &Store,
    project: berth_types::ProjectId,
    name: String,
) -> Result<Option<FinishedWorkload>, StoreError> {
    let filter = FinishedFilter { project: Some(project), name: Some(name), ..FinishedFilter::default() };
    Ok(store.load_finished_page(&filter, None, 1)?.workloads.pop())
}

/// Show a workload
#[utoipa::path(get, path = "/api/v1/workloads/{project}/{name}", tag = "workloads",
    params(("project" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Workload), (status = "4XX", body = Problem)))]
pub(crate) async fn show(
    State(state): State<AppState>,
    Path((project, name)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    match find(&state, &project, &name).await? {
        Found::Unfinished(id) => show_unfinished(&state, id).await,
        Found::Finished(finished) => {
            Ok(Answer(finished.document.read::<Workload>().map_err(damaged)?).into_response())
        }
    }
}

async fn show_unfinished(state: &AppState, id: WorkloadId) -> Result<Response, ApiError> {
    // On a cluster what is over is shown by the cluster too, and not by the store.
    let shown = |platform: &Platform| platform.workload_view(id, true).or_else(|| platform.over(id).cloned());
    let (view, _) = state.read(shown).await;
    match view {
        Some(view) => Ok(Answer(view).into_response()),
        // It ended between two looks, so it is among the finished now.
        None => show_finished(state, id).await,
    }
}

async fn show_finished(state: &AppState, id: WorkloadId) -> Result<Response, ApiError> {
    let finished = state.load(move |store| store.load_finished(id)).await?;
    let finished =
        finished.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no workload {id}")))?;
    Ok(Answer(finished.document.read::<Workload>().map_err(damaged)?).into_response())
}

/// Show a workload by its identity
#[utoipa::path(get, path = "/api/v1/workloads/{id}", tag = "workloads", params(("id" = u64, Path)),
    responses((status = 200, body = Workload), (status = "4XX", body = Problem)))]
pub(crate) async fn show_id(
    State(state): State<AppState>,
    Caller(person): Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = id.parse().map_err(|_| Problem::invalid("id", "the identity of a workload is a number"))?;
    let id = WorkloadId(id);
    // Whether there is one is said to those only who see it.
    let (project, _) = state
        .read(|platform| {
            let unfinished = platform.record(id).map(|record| record.request.project.clone());
            unfinished.or_else(|| platform.over(id).map(|over| over.project.clone()))
        })
        .await;
    let sight = state.shared.read().sight(&person);
    let sees = match project {
        Some(project) => sight.project(&project),
        None => {
            let finished = state.load(move |store| store.load_finished(id)).await?;
            finished.is_some_and(|finished| {
                let project = finished.document.read::<Workload>().map(|one| one.project);
                project.is_ok_and(|project| sees_finished(&state, &sight, &finished, &project))
            })
        }
    };
    if !sight.is_all() && !sees {
        return Err(ApiError(Problem::new(Code::NotFound, format!("there is no workload {id}"))));
    }
    show_unfinished(&state, id).await
}

/// Delete a workload: end it if it is not over, and list it no more
#[utoipa::path(delete, path = "/api/v1/workloads/{project}/{name}", tag = "workloads",
    params(("project" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Workload), (status = "4XX", body = Problem)))]
pub(crate) async fn delete(
    State(state): State<AppState>,
    User(user): User,
    Path((project, name)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    match find(&state, &project, &name).await? {
        Found::Unfinished(id) => {
            let command = move |platform: &mut Platform, now| {
                let before = view(platform, id)?;
                platform.delete(id, &user, now)?;
                // One that waited is over at once, and is shown as it was last.
                Ok(platform.workload_view(id, true).unwrap_or(Workload { status: Status::Deleted, ..before }))
            };
            Ok(state.command(None, command).await?.into_response())
        }
        Found::Finished(finished) => {
            let mut document: Workload = finished.document.read().map_err(damaged)?;
            if document.status == Status::Deleted {
                let text = format!("{project}/{name} is deleted already");
                return Err(ApiError(Problem::new(Code::NotFound, text)));
            }
            // How it ended is worth more in the history than that it was cleared away.
            let before = document.status;
            let how = document.message.take().map(|message| format!(" ({message})")).unwrap_or_default();
            document.message = Some(format!("{before}{how}; deleted by {user}"));
            document.status = Status::Deleted;
            let hidden = document.clone();
            let hide = move |platform: &mut Platform, _| {
                platform.hide(*finished, &hidden);
                Ok(())
            };
            state.command(None, hide).await?;
            Ok(Answer(document).into_response())
        }
    }
}

/// Stop a workload until it is resumed
#[utoipa::path(post, path = "/api/v1/workloads/{project}/{name}/suspend", tag = "workloads",
    params(("project" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Workload), (status = "4XX", body = Problem)))]
pub(crate) async fn suspend(
    State(state): State<AppState>,
    User(user): User,
    Path((project, name)): Path<(String, String)>,
) -> Result<Body, ApiError> {
    change(&state, &project, &name, move |platform, id, now| platform.suspend(id, &user, now)).await
}

/// Return a suspended workload to the queue
#[utoipa::path(post, path = "/api/v1/workloads/{project}/{name}/resume", tag = "workloads",
    params(("project" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Workload), (status = "4XX", body = Problem)))]
pub(crate) async fn resume(
    State(state): State<AppState>,
    User(user): User,
    Path((project, name)): Path<(String, String)>,
) -> Result<Body, ApiError> {
    change(&state, &project, &name, move |platform, id, now| platform.resume(id, &user, now)).await
}

/// Does something to an unfinished workload, and shows it.
async fn change(
    state: &AppState,
    project: &str,
    name: &str,
    change: impl FnOnce(&mut Platform, WorkloadId, Time) -> Result<(), Problem> + Send + 'static,
) -> Result<Body, ApiError> {
    let id = unfinished_only(state, project, name).await?;
    let command = move |platform: &mut Platform, now| {
        change(platform, id, now)?;
        view(platform, id)
    };
    state.command(None, command).await
}

async fn unfinished_only(state: &AppState, project: &str, name: &str) -> Result<WorkloadId, ApiError> {
    match find(state, project, name).await? {
        Found::Unfinished(id) => Ok(id),
        Found::Finished(finished) => {
            let text = format!("{project}/{name} is over: {}", finished.phase);
            Err(ApiError(Problem::new(Code::WrongState, text)))
        }
    }
}

/// Why a workload waits, and what would start it now
#[utoipa::path(get, path = "/api/v1/workloads/{project}/{name}/why", tag = "workloads",
    params(("project" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Why), (status = "4XX", body = Problem)))]
pub(crate) async fn why(
    State(state): State<AppState>,
    Caller(person): Caller,
    Path((project, name)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let sight = state.shared.read().sight(&person);
    let found = find(&state, &project, &name).await?;
    let why = match found {
        Found::Unfinished(id) => state.read(|platform| platform.why(id, &sight, state.shared.now())).await.0,
        Found::Finished(_) => None,
    };
    let over = || Why {
        workload: format!("{project}/{name}"),
        rule: "over".into(),
        text: "Not waiting: it is over.".into(),
        ..Why::default()
    };
    Ok(Answer(why.unwrap_or_else(over)).into_response())
}

/// Report progress, from inside a workload
#[utoipa::path(post, path = "/api/v1/report", tag = "reports", request_body = ReportRequest,
    responses((status = 204), (status = "4XX", body = Problem)))]
pub(crate) async fn report(
    State(state): State<AppState>,
    Extension(identity): Extension<Identity>,
    Asked { request, .. }: Asked<ReportRequest>,
) -> Result<StatusCode, ApiError> {
    let workload = itself(&identity)?;
    if request.metrics.len() > METRICS_MAX {
        return Err(ApiError(Problem::invalid(
            "metrics",
            format!("at most {METRICS_MAX} values are accepted"),
        )));
    }
    let checkpoint = request.checkpoint;
    let report = lowered(request);
    let command = move |platform: &mut Platform, now| {
        platform.on_seen(Seen::Progress { workload, report }, now);
        if checkpoint {
            platform.on_seen(Seen::Checkpoint { workload }, now);
        }
        Ok(())
    };
    state.command(None, command).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Seconds, or a text such as `90s`; anything else is not worth a failed report.
fn time_left(eta: &serde_json::Value) -> Option<Span> {
    match eta {
        serde_json::Value::String(text) => text.parse().ok(),
        other => other.as_f64().map(|secs| Span::secs(secs.clamp(0.0, 1e12) as u64)),
    }
}

/// Say that a checkpoint was just written, from inside a workload
#[utoipa::path(post, path = "/api/v1/checkpoint", tag = "reports", responses((status = 204), (status = "4XX", body = Problem)))]
pub(crate) async fn checkpoint(
    State(state): State<AppState>,
    Extension(identity): Extension<Identity>,
) -> Result<StatusCode, ApiError> {
    let workload = itself(&identity)?;
    let command = move |platform: &mut Platform, now| {
        platform.on_seen(Seen::Checkpoint { workload }, now);
        Ok(())
    };
    state.command(None, command).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which workers are there, for one of them; waits while they are those it knows, so that it hears of who joins or leaves
#[utoipa::path(get, path = "/api/v1/world", tag = "reports", params(WorldQuery),
    responses((status = 200, body = World), (status = "4XX", body = Problem)))]
pub(crate) async fn world(
    State(state): State<AppState>,
    Extension(identity): Extension<Identity>,
    Query(query): Query<WorldQuery>,
) -> Result<Response, ApiError> {
    let workload = itself(&identity)?;
    let mut bell = state.feed.bell();
    let changed = async {
        loop {
            bell.mark_unchanged();
            let (world, _) = state.read(|platform| platform.world(workload)).await;
            let world = world.ok_or_else(|| Problem::new(Code::NotFound, "it is over"))?;
            if query.unlike.as_ref() != Some(&world.known_as()) || bell.changed().await.is_err() {
                return Ok::<_, Problem>(world);
            }
        }
    };
    let world = tokio::select! {
        world = changed => world?,
        () = tokio::time::sleep(WORLD_WITHIN) => {
            let (world, _) = state.read(|platform| platform.world(workload)).await;
            world.ok_or_else(|| Problem::new(Code::NotFound, "it is over"))?
        }
        () = state.feed.closed() => {
            return Err(ApiError(Problem::new(Code::ReadOnly, "the server is stopping")));
        }
    };
    Ok(Answer(world).into_response())
}

fn itself(identity: &Identity) -> Result<WorkloadId, Problem> {
    match identity {
        Identity::Workload(workload) => Ok(*workload),
        _ => Err(Problem::new(Code::Forbidden, "only a workload reports about itself")
            .hint("its token is in BERTH_REPORT_TOKEN")),
    }
}

fn lowered(request: ReportRequest) -> TaskReport {
    let text = |value: serde_json::Value| {
        let text = match value {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        text.chars().take(64).collect::<String>()
    };
    TaskReport {
        epoch: request.epoch,
        epochs: request.epochs,
        step: request.step,
        steps: request.steps,
        percent: request.percent.map(|percent| percent.min(100)),
        loss: request.loss.map(text),
        accuracy: request.accuracy.map(text),
        throughput: request.throughput.map(text),
        left: request.eta.as_ref().and_then(time_left),
        utilisation: request.utilisation.map(|percent| percent.min(100)),
        metrics: request
            .metrics
            .into_iter()
            .map(|(name, value)| (name.chars().take(64).collect(), text(value)))
            .collect(),
        ..TaskReport::default()
    }
    .of_api()
}

/// A finished workload of a cluster as the store would have it.
fn finished_row(workload: &Workload) -> FinishedWorkload {
    FinishedWorkload {
        id: WorkloadId(workload.id),
        name: workload.name.clone(),
        project: berth_types::ProjectId(0),
        user: workload.user.clone(),
        kind: crate::platform::kind_text(workload.kind).into(),
        phase: workload.status.to_string(),
        hidden: false,
        submitted: workload.submitted_at.0,
        started: workload.started_at.map(|at| at.0),
        ended: workload.ended.as_ref().map_or(Time(0), |ended| ended.at.0),
        document: berth_store::Json::of(workload).expect("an answer of the API is JSON"),
    }
}
