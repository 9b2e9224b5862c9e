//! What is said over the wire: requests, answers, errors, and the document that describes them.
//!
//! These are not the engine's types: what people and programs write to stays the same while the engine changes. Amounts
//! are numbers people write (`0.5` GPUs, `16Gi`), times are RFC 3339, spans are whole seconds. This crate knows no socket.

mod amounts;
mod cluster;
mod events;
mod machine;
mod manifest;
mod names;
mod owners;
mod people;
mod problem;
mod running;
mod session;
mod shell;
mod submit;
mod totals;
mod why;
mod workload;

pub use amounts::{CoresAmount, GpuAmount, MemoryAmount, Percent, Timestamp};
pub use cluster::{
    Backup, BackupRequest, Cluster, DeviceUse, DeviceView, Node, NodeLabels, NodeList, NodeState, RunningOn,
    Volume, VolumeList, VolumeQuery, VolumeRequest,
};
pub use events::{
    Event, EventList, EventQuery, Level, Samples, Series, SeriesList, SeriesPoint, SeriesQuery,
};
pub use machine::machine_identity;
pub use manifest::{MANIFEST, MANIFEST_IMAGE, MANIFEST_NAMESPACE, ManifestQuery, manifest};
pub use names::{LABEL_RULE, NAME_RULE, is_label_key, is_label_value, is_name, nearest, quoted};
pub use owners::{
    Department, DepartmentList, DepartmentSettings, Project, ProjectList, ProjectSettings, Warned,
};
pub use people::{
    AuditEntry, AuditList, AuditQuery, Grant, GrantList, Role, Scope, Token, TokenList, TokenMade,
    TokenRequest, User, UserChange, UserList, UserRequest, WhoAmI,
};
pub use problem::{Code, Problem};
pub use running::{RunningServer, SERVER_FILE, TOKEN_FILE};
pub use session::{Session, SessionRequest, SignInLink, SignInProof, SingleSignOn};
pub use shell::{
    ConnectQuery, SHELL_MESSAGE_BYTES_MAX, SHELL_PROTOCOL, STREAM_STDERR, STREAM_STDIN, STREAM_STDOUT,
    ShellQuery, ShellRequest, ShellSays, ShellSize, ShellTells,
};
pub use submit::{
    CALLER_VARIABLES, CallerPlace, Framework, KindName, MountRequest, Preview, PriorityName, Restart,
    RuntimeName, ServiceType, Submitted, VolumeMount, WorkloadRequest,
};
pub use totals::{ClusterTotals, DeviceTotals, NodeTotals, UtilisationSource};
pub use why::{
    AccountNumbers, Blocked, Held, HeldByProject, QueueNumbers, Remedies, Requested, SuggestedChange,
    UsableNodes, Why,
};
pub use workload::{
    Ended, Eviction, IndexView, Link, LinkQuery, LogQuery, ProgressView, ReportRequest, Status, TaskView,
    Workload, WorkloadList, WorkloadQuery, World, WorldQuery,
};

/// The version of the API; part of every path.
pub const VERSION: &str = "v1";
/// The header in which client and server tell each other their release.
pub const RELEASE_HEADER: &str = "berth-version";
/// The header that makes a create safe to repeat.
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";
/// The header that names the person for whom a trusted caller acts.
pub const USER_HEADER: &str = "berth-user";
/// The header with which a page shows that a cookie was given to it, and not to somebody else on the same machine.
pub const PAGE_HEADER: &str = "berth-page";
/// The same for a socket: a name in `sec-websocket-protocol` that begins like this and ends in what the header would say.
pub const PAGE_PROTOCOL: &str = "berth.page.";
/// The header that tells a page which build of the dashboard the server has.
pub const DASHBOARD_HEADER: &str = "berth-dashboard";
/// The header of a list that tells the last event it includes.
pub const CURSOR_HEADER: &str = "berth-cursor";
/// The largest body of a request, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// The most rows of one page.
pub const PAGE_MAX: usize = 1_000;

/// This release.
pub fn release() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
