//! What happened, and numbers over time.

use crate::{ProgressView, Timestamp, Workload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// How much attention an event wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// All is as it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its place in the log, from one. The cursor of a stream.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// What, as a short name: `submitted`, `started`, `evicted`, ...
    pub kind: String,
    /// How much attention it wants.
    pub level: Level,
    /// The workload it is about, as `project/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// The identity of that workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_id: Option<u64>,
    /// The project it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The node it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// One sentence for people.
    pub message: String,
    /// How far the workload was, when the event is about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Box<ProgressView>>,
    /// The workload as it stands now; in streams that ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Box<Workload>>,
}

/// Events, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// The events.
    pub items: Vec<Event>,
    /// The last event looked at: the next page begins after it.
    pub cursor: u64,
}

/// Which events: those for which everything that is set holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// Events after this one; in a stream, those from now on when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Only the last so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<usize>,
    /// Of this project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Of this workload, by name (with `project`) or identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Rows of a page; 1000 at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Whether events of a stream carry the workload as it stands.
    pub objects: bool,
    /// Whether a stream also carries what is noted for charts, as it is noted: events `samples` without a place in the log.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub samples: bool,
    /// Whether a stream also carries the totals of the cluster: an event `totals` when it begins and after each change, without a place
    /// in the log. At most four in a second.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub totals: bool,
    /// With `totals`: after the first, `by_node` has only the nodes that changed since the last.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub changed_nodes: bool,
}

/// Numbers over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Series {
    /// What is measured, as `gpus_allocated/team-a`.
    pub name: String,
    /// The unit of the values once they are divided by `scale`: `gpus`, `percent`, `workloads` or `bytes`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// `mean`, `min` and `max` are integers; divided by this they are in the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<u64>,
    /// The points, oldest first.
    pub points: Vec<SeriesPoint>,
}

/// A point: of a moment, or of the span that begins there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SeriesPoint {
    /// When.
    pub at: Timestamp,
    /// The value at that moment, or the mean over the span. Divide it by the `scale` of the series.
    pub mean: i64,
    /// The smallest value since the point before, or in the span.
    pub min: i64,
    /// The largest value since the point before, or in the span.
    pub max: i64,
}

/// One point of every series, as it is noted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Samples {
    /// When.
    pub at: Timestamp,
    /// The value of each series, in millionths.
    pub values: BTreeMap<String, i64>,
}

/// The names of all series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SeriesList {
    /// The names.
    pub items: Vec<String>,
}

/// Which part of a series.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SeriesQuery {
    /// Its name.
    pub name: String,
    /// From this time on; a day ago when absent.
    #[param(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Before this time; now when absent.
    #[param(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
}
