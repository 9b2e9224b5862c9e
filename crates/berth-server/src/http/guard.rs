//! Who may use a route. A route is made together with what it needs, so that none can be open by omission.

use super::{
    ApiError,
    state::AppState,
    workloads::{Found, find},
};
use crate::{
    auth::Identity,
    platform::{Act, Person, Place},
};
use axum::{
    Router,
    extract::{RawPathParams, Request, State},
    handler::Handler,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{MethodFilter, on},
};
use berth_api::{Code, Problem};
use berth_types::WorkloadId;
use std::time::Duration;

/// How often whoever stays is looked at again: so long at most does a shell outlive the token that opened it.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a route asks of whoever calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Any token at all, also that of a workload.
    Token,
    /// A workload, about itself.
    Itself,
    /// A person; the route shows what that person may see, or asks when it has read what is wanted.
    Person,
    /// The right to do something in the whole installation.
    Everywhere(Act),
    /// The right to do something in the project of the path.
    Project(Act),
    /// The right to change or enter the workload of the path: one's own, or everybody's.
    Work,
    /// The same, or being a worker; the route asks whether of that workload.
    WorkOrWorker,
}

/// Where routes are put.
pub(super) trait Routes: Sized {
    /// Adds a route.
    fn add<H, T>(self, method: MethodFilter, path: &'static str, needs: Needs, handler: H) -> Self
    where
        H: Handler<T, AppState>,
        T: 'static;
}

/// Routes that are served, each behind its guard.
pub(super) struct Guarded {
    pub(super) router: Router<AppState>,
    pub(super) state: AppState,
}

impl Routes for Guarded {
    fn add<H, T>(self, method: MethodFilter, path: &'static str, needs: Needs, handler: H) -> Self
    where
        H: Handler<T, AppState>,
        T: 'static,
    {
        let guard = middleware::from_fn_with_state((self.state.clone(), needs), guard);
        let router = self.router.route(path, on(method, handler).route_layer(guard));
        Self { router, ..self }
    }
}

async fn guard(
    State((state, needs)): State<(AppState, Needs)>,
    parameters: RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let parameter = |name: &str| {
        let found = parameters.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    let identity = request.extensions().get::<Identity>().cloned();
    let person = match (identity, needs) {
        (Some(identity), Needs::Token)
        | (Some(identity @ Identity::Workload(_)), Needs::Itself | Needs::WorkOrWorker) => {
            return noted(&state, &identity, &parameters, request, next).await;
        }
        (Some(_), Needs::Itself) => {
            let problem = Problem::new(Code::Forbidden, "only a workload reports about itself")
                .hint("its token is in BERTH_REPORT_TOKEN");
            return ApiError(problem).into_response();
        }
        (Some(Identity::Person(person)), _) => person,
        _ => {
            let problem = Problem::new(Code::Forbidden, "a workload may only report about itself");
            return ApiError(problem).into_response();
        }
    };
    let project = || match parameter("project") {
        none if none.is_empty() => parameter("name"),
        project => project,
    };
    let allowed = match needs {
        Needs::Person | Needs::Token | Needs::Itself => Ok(()),
        Needs::Everywhere(action) => state.shared.read().may(&person, action, Place::Everywhere),
        Needs::Project(action) => state.shared.read().may(&person, action, Place::Project(&project())),
        Needs::Work | Needs::WorkOrWorker => may_work(&state, &person, &project(), &parameter("name")).await,
    };
    match allowed {
        Ok(()) => noted(&state, &Identity::Person(person), &parameters, request, next).await,
        Err(problem) => ApiError(problem).into_response(),
    }
}

/// Lets something be done that is noted first, where it is to be.
async fn noted(
    state: &AppState,
    identity: &Identity,
    parameters: &RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let begun = match super::audit::begin(state, identity, parameters, &request) {
        Ok(begun) => begun,
        Err(problem) => return ApiError(problem).into_response(),
    };
    let mut response = next.run(request).await;
    if let Some(begun) = begun {
        response.extensions_mut().insert(begun);
    }
    response
}

/// Whether somebody may change or enter a workload. One that is not there is left to whoever looks for it.
async fn may_work(state: &AppState, person: &Person, project: &str, name: &str) -> Result<(), Problem> {
    let place = Place::Project(project);
    {
        let platform = state.shared.read();
        platform.may(person, Act::See, place)?;
        if platform.is_allowed(person, Act::AnyWork, place) {
            return Ok(());
        }
        platform.may(person, Act::OwnWork, place)?;
    }
    let owner = match find(state, project, name).await {
        Ok(Found::Unfinished(id)) => state.shared.read().record(id).map(|record| record.user.clone()),
        Ok(Found::Finished(finished)) => Some(finished.user.clone()),
        Err(_) => None,
    };
    match owner {
        Some(owner) if owner != person.user => Err(not_own(person, project, name, &owner)),
        _ => Ok(()),
    }
}

/// Whether somebody may enter an unfinished workload, or reach its ports.
pub(super) fn may_enter(
    state: &AppState,
    person: &Person,
    project: &str,
    workload: WorkloadId,
) -> Result<(), Problem> {
    let platform = state.shared.read();
    let place = Place::Project(project);
    if platform.is_allowed(person, Act::AnyWork, place) {
        return Ok(());
    }
    platform.may(person, Act::OwnWork, place)?;
    match platform.record(workload) {
        Some(record) if record.user != person.user => {
            Err(not_own(person, project, &record.name, &record.user))
        }
        _ => Ok(()),
    }
}

/// Whether what let somebody in still counts.
pub(super) fn still_known(state: &AppState, person: &Person) -> Result<(), Problem> {
    let now = state.shared.now();
    state.shared.read().people().standing(person, now).map_err(super::refusal)
}

/// Waits until somebody may not be in a workload any more, and says why. Never ends for a workload itself.
pub(super) async fn shut_out(
    state: &AppState,
    identity: &Identity,
    project: &str,
    workload: WorkloadId,
) -> String {
    let (Identity::Person(person) | Identity::Visitor { person, .. }) = identity else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let may = still_known(state, person).and_then(|()| may_enter(state, person, project, workload));
        if let Err(problem) = may {
            return problem.detail;
        }
    }
}

fn not_own(person: &Person, project: &str, name: &str, owner: &str) -> Problem {
    let text = format!("{project}/{name} belongs to {owner}, and {} does not lead {project}", person.user);
    Problem::new(Code::Forbidden, text).hint("its owner may, and whoever leads the project")
}
