//! What happened, as pages and as streams; numbers over time.

use super::{
    ApiError,
    guard::{LOOK_EVERY, still_known},
    state::{Answer, AppState, Caller, Query},
};
use crate::{
    feed::{self, Told},
    platform::{Act, PeopleChange, Person, Place, Sight},
};
use axum::{
    extract::State,
    http::HeaderMap,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event as SseEvent, KeepAlive},
    },
};
use berth_api::{
    ClusterTotals, Code, Event, EventList, EventQuery, NodeTotals, Problem, Samples, Series, SeriesList,
    SeriesPoint, SeriesQuery,
};
use berth_store::{Resolution, Store, StoreError};
use berth_types::{Time, WorkloadId};
use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Events looked at for one page, so that a filter that fits nothing does not read the whole log.
const LOOKED_AT_MAX: usize = 50_000;
/// Events that may wait for a slow reader of a stream.
const WAITING_MAX: usize = 256;
/// Totals are sent at most this often in a stream.
const TOTALS_EVERY: Duration = Duration::from_millis(250);
/// Points of a chart, about.
const POINTS_USUAL: u64 = 600;

/// List events
#[utoipa::path(get, path = "/api/v1/events", tag = "events", params(EventQuery),
    responses((status = 200, body = EventList), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(state): State<AppState>,
    Caller(person): Caller,
    Query(query): Query<EventQuery>,
) -> Result<Response, ApiError> {
    let seen = Seen::of(&state, &person);
    let limit = query.limit.or(query.last).unwrap_or(100).clamp(1, berth_api::PAGE_MAX);
    let last = state.feed.last();
    let page = state.load(move |store| page(store, &seen, &query, limit, last)).await?;
    Ok(Answer(page).into_response())
}

fn page(
    store: &Store,
    seen: &Seen,
    query: &EventQuery,
    limit: usize,
    last: u64,
) -> Result<EventList, StoreError> {
    let newest_only = query.after.is_none();
    // Without a place to begin, the newest are meant.
    let mut after = query.after.unwrap_or_else(|| last.saturating_sub(LOOKED_AT_MAX as u64));
    let mut items = VecDeque::new();
    let mut looked_at = 0;
    while looked_at < LOOKED_AT_MAX {
        let events = store.load_events(after, berth_store::EVENTS_MAX)?;
        let Some(end) = events.last().map(|event| event.seq) else { break };
        looked_at += events.len();
        for event in events {
            let told: Told = event.body.read()?;
            let event = feed::event(event.seq, event.at, &event.kind, told.about);
            if !seen.event(&event) || !fits(query, &event) {
                continue;
            }
            if items.len() == limit {
                if !newest_only {
                    let cursor = items.back().map_or(after, |event: &Event| event.seq);
                    return Ok(EventList { items: items.into(), cursor });
                }
                items.pop_front();
            }
            items.push_back(event);
        }
        after = end;
    }
    Ok(EventList { items: items.into(), cursor: after })
}

/// What somebody sees of what happens.
struct Seen {
    sight: Sight,
    /// Users, roles and tokens are shown to those who rule over all of them.
    people: bool,
    user: String,
}

impl Seen {
    fn of(state: &AppState, person: &Person) -> Self {
        let platform = state.shared.read();
        Self {
            sight: platform.sight(person),
            people: platform.is_allowed(person, Act::Rule, Place::Everywhere),
            user: person.user.clone(),
        }
    }

    fn event(&self, event: &Event) -> bool {
        if PeopleChange::is_kind(&event.kind) {
            return self.people;
        }
        match &event.project {
            Some(project) => self.sight.project(project),
            None => self.sight.is_all() || event.node.is_some(),
        }
    }

    fn series(&self, name: &str) -> bool {
        match name.split_once('/') {
            Some(("gpus_allocated", project)) => self.sight.project(project),
            Some(("gpus_by_user", user)) => self.sight.is_all() || user == self.user,
            _ => true,
        }
    }

    fn samples(&self, samples: &Samples) -> Samples {
        let mut samples = samples.clone();
        samples.values.retain(|name, _| self.series(name));
        samples
    }
}

fn fits(query: &EventQuery, event: &Event) -> bool {
    let of_project = query.project.as_ref().is_none_or(|project| event.project.as_ref() == Some(project));
    let of_workload = query.workload.as_ref().is_none_or(|wanted| {
        let name = event.workload.as_deref().and_then(|name| name.split_once('/')).map(|(_, name)| name);
        name == Some(wanted) || event.workload_id.is_some_and(|id| id.to_string() == *wanted)
    });
    of_project && of_workload
}

/// Follow events as they happen (Server-Sent Events); resumes after `Last-Event-ID` or `after`
#[utoipa::path(get, path = "/api/v1/events/stream", tag = "events", params(EventQuery),
    responses((status = 200, content_type = "text/event-stream", body = Event), (status = "4XX", body = Problem)))]
pub(crate) async fn stream(
    State(state): State<AppState>,
    Caller(person): Caller,
    headers: HeaderMap,
    Query(query): Query<EventQuery>,
) -> Result<Response, ApiError> {
    let resumed = super::text_of(&headers, "last-event-id").and_then(|id| id.parse().ok());
    let last = state.feed.last();
    let after = resumed.or(query.after).unwrap_or(last);
    if after > last {
        let problem = Problem::new(Code::Gone, format!("the cursor {after} is after the last event, {last}"))
            .hint("list again and follow from there");
        return Err(ApiError(problem));
    }
    let first = state.load(|store| store.load_sizes()).await?.first_seq;
    if after + 1 < first {
        let problem = Problem::new(Code::Gone, format!("events before {first} are not kept any more"))
            .hint("list again and follow from there");
        return Err(ApiError(problem));
    }
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    tokio::spawn(follow(state, person, query, after, sender));
    let stream = Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default());
    Ok(stream.into_response())
}

/// Sends events until nobody listens or the server ends.
async fn follow(
    state: AppState,
    person: Person,
    query: EventQuery,
    mut after: u64,
    sender: mpsc::Sender<Result<SseEvent, Infallible>>,
) {
    let mut bell = state.feed.bell();
    let mut notes = state.feed.notes();
    // Whoever begins to follow need not wait for the next one.
    notes.mark_changed();
    let mut totals = query.totals.then(|| Totals { changed_nodes: query.changed_nodes, ..Totals::default() });
    loop {
        if let Some(totals) = &mut totals
            && let Some(changed) = totals.changed(&state).await
            && sender.send(Ok(changed)).await.is_err()
        {
            return;
        }
        let events = match state.feed.recent_after(after) {
            Some(events) => events,
            None => match load(&state, after).await {
                // Whoever is so far behind that what follows is nowhere any more has to look again.
                Ok(events) if events.is_empty() && state.feed.last() > after => return,
                Ok(events) => events,
                Err(_) => return,
            },
        };
        if still_known(&state, &person).is_err() {
            return;
        }
        let seen = Seen::of(&state, &person);
        for event in &events {
            after = event.seq;
            if !seen.event(event) || !fits(&query, event) {
                continue;
            }
            if sender.send(Ok(sse(&state, event, query.objects))).await.is_err() {
                return;
            }
        }
        if events.is_empty() {
            let is_noted = tokio::select! {
                changed = bell.wait_for(|durable| durable.seq > after) => {
                    if changed.is_err() {
                        return;
                    }
                    false
                }
                changed = notes.changed(), if query.samples => changed.is_ok(),
                // What is measured or reported changes without an event.
                () = tokio::time::sleep(TOTALS_EVERY), if totals.is_some() => false,
                // Whoever may not stay is sent away also when nothing happens; who comes back is told why.
                () = tokio::time::sleep(LOOK_EVERY) => false,
                () = sender.closed() => return,
                () = state.feed.closed() => return,
            };
            let noted = is_noted.then(|| notes.borrow_and_update().clone()).flatten();
            if let Some(noted) = noted
                && sender.send(Ok(samples(&seen.samples(&noted)))).await.is_err()
            {
                return;
            }
        }
    }
}

/// The totals that a stream has sent.
#[derive(Default)]
struct Totals {
    sent: Option<ClusterTotals>,
    at: Option<tokio::time::Instant>,
    /// A cluster of a thousand nodes is too much to send again for each change.
    changed_nodes: bool,
}

impl Totals {
    /// The totals, when they are others than those sent last. They are looked at four times in a second at most.
    async fn changed(&mut self, state: &AppState) -> Option<SseEvent> {
        let now = tokio::time::Instant::now();
        if self.at.is_some_and(|at| now.duration_since(at) < TOTALS_EVERY) {
            return None;
        }
        self.at = Some(now);
        let totals = state.totals().await;
        if self.sent.as_ref() == Some(&*totals) {
            return None;
        }
        let mut news = (*totals).clone();
        if let Some(sent) = self.sent.as_ref().filter(|_| self.changed_nodes) {
            leave_out_unchanged(&mut news, sent);
        }
        let data = serde_json::to_string(&news).expect("totals are JSON");
        self.sent = Some((*totals).clone());
        Some(SseEvent::default().event("totals").data(data))
    }
}

/// Removes the nodes that are as they were sent.
fn leave_out_unchanged(totals: &mut ClusterTotals, sent: &ClusterTotals) {
    let sent: BTreeMap<&str, &NodeTotals> =
        sent.by_node.iter().map(|node| (node.name.as_str(), node)).collect();
    totals.by_node.retain(|node| sent.get(node.name.as_str()) != Some(&node));
}

/// Without an id: whoever resumes does so after an event of the log.
fn samples(samples: &Samples) -> SseEvent {
    let data = serde_json::to_string(samples).expect("samples are JSON");
    SseEvent::default().event("samples").data(data)
}

async fn load(state: &AppState, after: u64) -> Result<Vec<Arc<Event>>, ApiError> {
    state
        .load(move |store| {
            let events = store.load_events(after, 1_000)?;
            let shown = events.into_iter().map(|event| {
                let told: Told = event.body.read()?;
                Ok(Arc::new(feed::event(event.seq, event.at, &event.kind, told.about)))
            });
            shown.collect::<Result<Vec<_>, StoreError>>()
        })
        .await
}

fn sse(state: &AppState, event: &Event, objects: bool) -> SseEvent {
    let sse = SseEvent::default().id(event.seq.to_string()).event(event.kind.clone());
    let data = match (objects, event.workload_id) {
        (true, Some(id)) => {
            let unfinished = state.shared.read().workload_view(WorkloadId(id), false);
            let now = unfinished.or_else(|| finished(state, WorkloadId(id))).map(Box::new);
            serde_json::to_string(&Event { now, ..event.clone() })
        }
        _ => serde_json::to_string(event),
    };
    sse.data(data.expect("events are JSON"))
}

/// A workload that is over, as it was kept, or as a cluster still shows it.
fn finished(state: &AppState, id: WorkloadId) -> Option<berth_api::Workload> {
    if state.mirror.is_some() {
        return state.shared.read().over(id).cloned();
    }
    state.store.load_finished(id).ok()??.document.read().ok()
}

/// List the names of all series
#[utoipa::path(get, path = "/api/v1/series", tag = "events",
    responses((status = 200, body = SeriesList), (status = "4XX", body = Problem)))]
pub(crate) async fn series_names(
    State(state): State<AppState>,
    Caller(person): Caller,
) -> Result<Response, ApiError> {
    let seen = Seen::of(&state, &person);
    let mut items = state.load(|store| store.load_series_names()).await?;
    items.retain(|name| seen.series(name));
    Ok(Answer(SeriesList { items }).into_response())
}

/// Read the points of a series
#[utoipa::path(get, path = "/api/v1/series/points", tag = "events", params(SeriesQuery),
    responses((status = 200, body = Series), (status = "4XX", body = Problem)))]
pub(crate) async fn series_points(
    State(state): State<AppState>,
    Caller(person): Caller,
    Query(query): Query<SeriesQuery>,
) -> Result<Response, ApiError> {
    if !Seen::of(&state, &person).series(&query.name) {
        let text = format!("{} may not see the series {}", person.user, crate::names::shown(&query.name));
        return Err(ApiError(Problem::new(Code::Forbidden, text)));
    }
    let now = state.shared.now();
    let to = query.to.map_or(Time(now.0 + 1), |to| to.0);
    let from = query.from.map_or(Time(to.0.saturating_sub(86_400_000)), |from| from.0);
    if from >= to {
        return Err(ApiError(Problem::invalid("from", "the beginning is not before the end")));
    }
    let span = to.since(from);
    let resolution = match span.0 / POINTS_USUAL {
        0..30_000 => Resolution::Raw,
        30_000..900_000 => Resolution::FiveMinutes,
        _ => Resolution::Hours,
    };
    let name = query.name.clone();
    let points = state.load(move |store| store.load_series(&name, resolution, from, to)).await?;
    let points = points.into_iter().map(|point| SeriesPoint {
        at: point.at.into(),
        mean: point.sum / point.count.max(1) as i64,
        min: point.min,
        max: point.max,
    });
    let (unit, scale) = crate::samples::unit(&query.name);
    let (unit, scale) = (unit.to_owned(), Some(scale));
    Ok(Answer(Series { name: query.name, unit, scale, points: points.collect() }).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::{GpuAmount, NodeState, UtilisationSource};
    use berth_types::Gpus;

    #[test]
    fn later_totals_have_only_the_nodes_that_changed() {
        let node = |name: &str, allocated: u64| NodeTotals {
            name: name.into(),
            state: NodeState::Ready,
            gpus: GpuAmount(Gpus::whole(8)),
            gpus_allocated: GpuAmount(Gpus::whole(allocated)),
            utilisation: None,
            utilisation_source: UtilisationSource::default(),
            devices: Vec::new(),
        };
        let sent = ClusterTotals { by_node: vec![node("a", 1), node("b", 2)], ..ClusterTotals::default() };
        let mut totals = ClusterTotals {
            by_node: vec![node("a", 1), node("b", 3), node("c", 0)],
            ..ClusterTotals::default()
        };
        leave_out_unchanged(&mut totals, &sent);
        assert_eq!(totals.by_node, [node("b", 3), node("c", 0)]);
    }
}
