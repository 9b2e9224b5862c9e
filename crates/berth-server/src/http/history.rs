//! Workloads that are over: who sees them, also when their project is gone.

use super::{
    ApiError,
    state::AppState,
    workloads::{Found, PAGE_USUAL},
};
use crate::platform::Sight;
use berth_api::{Code, Problem, Workload};
use berth_store::{FinishedFilter, FinishedWorkload};

/// Whether somebody sees a workload that is over. A project that has the name of an earlier one does not have its history.
pub(super) fn sees_finished(
    state: &AppState,
    sight: &Sight,
    finished: &FinishedWorkload,
    project: &str,
) -> bool {
    sight.is_all()
        || (sight.project(project) && state.shared.read().project_id(project) == Some(finished.project))
}

/// The newest workload of a project that is gone. Only those who see everything get here: nobody else may see such a project.
pub(super) async fn find_gone(
    state: &AppState,
    project: &str,
    name: &str,
    problem: Problem,
) -> Result<Found, ApiError> {
    if state.mirror.is_some() || problem.code != Code::NotFound {
        return Err(ApiError(problem));
    }
    let (wanted, filter) =
        (project.to_owned(), FinishedFilter { name: Some(name.to_owned()), ..FinishedFilter::default() });
    let found = state
        .load(move |store| {
            let mut after = None;
            loop {
                let page = store.load_finished_page(&filter, after, PAGE_USUAL)?;
                for finished in page.workloads {
                    if finished.document.read::<Workload>()?.project == wanted {
                        return Ok(Some(finished));
                    }
                }
                match page.next {
                    Some(next) => after = Some(next),
                    None => return Ok(None),
                }
            }
        })
        .await?;
    found.map(|finished| Found::Finished(Box::new(finished))).ok_or(ApiError(problem))
}
