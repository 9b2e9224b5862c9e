//! Every route of the API, by name.

use crate::{
    Client, ClientError, EventStream, Listed, LogStream,
    query::{path, with_query},
};
use berth_api::{
    AuditList, AuditQuery, Backup, BackupRequest, Cluster, Department, DepartmentList, DepartmentSettings,
    EventList, EventQuery, Grant, GrantList, Link, LogQuery, Node, NodeLabels, NodeList, Preview, Project,
    ProjectList, ProjectSettings, Series, SeriesList, SeriesQuery, SignInLink, SignInProof, SingleSignOn,
    Submitted, TokenList, TokenMade, TokenRequest, User, UserChange, UserList, UserRequest, Volume,
    VolumeList, VolumeQuery, VolumeRequest, Warned, WhoAmI, Why, Workload, WorkloadList, WorkloadQuery,
    WorkloadRequest,
};
use hyper::Method;
use serde_json::json;
use std::time::Duration;

const NOTHING: Option<&()> = None;
/// A backup copies everything that is kept, however much that is.
const BACKUP_WITHIN: Duration = Duration::from_secs(3600);

impl Client {
    /// The installation as a whole.
    pub async fn cluster(&self) -> Result<Cluster, ClientError> {
        self.get(&path(&["cluster"])).await
    }

    /// A link that signs in to the dashboard once.
    pub async fn sign_in_link(&self) -> Result<SignInLink, ClientError> {
        self.send(Method::POST, &path(&["session", "links"]), NOTHING).await
    }

    /// Whether there is single sign-on.
    pub async fn single_sign_on(&self) -> Result<SingleSignOn, ClientError> {
        self.get(&path(&["oidc"])).await
    }

    /// The token of a sign-in that this side began.
    pub async fn redeem(&self, proof: &SignInProof) -> Result<TokenMade, ClientError> {
        self.send(Method::POST, &path(&["oidc", "token"]), Some(proof)).await
    }

    /// Whether the server is up, and whether it takes requests.
    pub async fn ready(&self) -> Result<(), ClientError> {
        self.text("/readyz").await.map(|_| ())
    }

    /// Numbers for Prometheus.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        self.text("/metrics").await
    }

    /// The description of the API.
    pub async fn openapi(&self) -> Result<String, ClientError> {
        self.text("/openapi.json").await
    }

    /// All projects, with what they have in a pool.
    pub async fn projects(&self, pool: Option<&str>) -> Result<ProjectList, ClientError> {
        self.get(&with_query(path(&["projects"]), &json!({ "pool": pool }))).await
    }

    /// One project.
    pub async fn project(&self, name: &str, pool: Option<&str>) -> Result<Project, ClientError> {
        self.get(&with_query(path(&["projects", name]), &json!({ "pool": pool }))).await
    }

    /// Makes a project.
    pub async fn create_project(&self, settings: &ProjectSettings) -> Result<Warned<Project>, ClientError> {
        self.send(Method::POST, &path(&["projects"]), Some(settings)).await
    }

    /// Changes what is set of a project.
    pub async fn update_project(
        &self,
        name: &str,
        settings: &ProjectSettings,
    ) -> Result<Warned<Project>, ClientError> {
        self.send(Method::PATCH, &path(&["projects", name]), Some(settings)).await
    }

    /// Deletes a project that nothing depends on.
    pub async fn delete_project(&self, name: &str) -> Result<(), ClientError> {
        self.send_for_nothing(Method::DELETE, &path(&["projects", name]), NOTHING).await
    }

    /// All departments, with what they have in a pool.
    pub async fn departments(&self, pool: Option<&str>) -> Result<DepartmentList, ClientError> {
        self.get(&with_query(path(&["departments"]), &json!({ "pool": pool }))).await
    }

    /// One department.
    pub async fn department(&self, name: &str, pool: Option<&str>) -> Result<Department, ClientError> {
        self.get(&with_query(path(&["departments", name]), &json!({ "pool": pool }))).await
    }

    /// Makes a department.
    pub async fn create_department(
        &self,
        settings: &DepartmentSettings,
    ) -> Result<Warned<Department>, ClientError> {
        self.send(Method::POST, &path(&["departments"]), Some(settings)).await
    }

    /// Changes what is set of a department.
    pub async fn update_department(
        &self,
        name: &str,
        settings: &DepartmentSettings,
    ) -> Result<Warned<Department>, ClientError> {
        self.send(Method::PATCH, &path(&["departments", name]), Some(settings)).await
    }

    /// Deletes a department that nothing depends on.
    pub async fn delete_department(&self, name: &str) -> Result<(), ClientError> {
        self.send_for_nothing(Method::DELETE, &path(&["departments", name]), NOTHING).await
    }

    /// All nodes.
    pub async fn nodes(&self) -> Result<NodeList, ClientError> {
        self.get(&path(&["nodes"])).await
    }

    /// One node.
    pub async fn node(&self, name: &str) -> Result<Node, ClientError> {
        self.get(&path(&["nodes", name])).await
    }

    /// Cordons, uncordons or drains a node, by the verb of the route.
    pub async fn node_action(&self, name: &str, verb: &str) -> Result<Node, ClientError> {
        self.send(Method::POST, &path(&["nodes", name, verb]), NOTHING).await
    }

    /// Changes the labels of a node.
    pub async fn label_node(&self, name: &str, labels: &NodeLabels) -> Result<Node, ClientError> {
        self.send(Method::PATCH, &path(&["nodes", name]), Some(labels)).await
    }

    /// Submits a workload. It is on the disk of the server when this returns.
    pub async fn submit(&self, request: &WorkloadRequest) -> Result<Submitted, ClientError> {
        self.send(Method::POST, &path(&["workloads"]), Some(request)).await
    }

    /// What a submission would do.
    pub async fn preview(&self, request: &WorkloadRequest) -> Result<Preview, ClientError> {
        let path = with_query(path(&["workloads"]), &json!({ "dry_run": true }));
        self.send(Method::POST, &path, Some(request)).await
    }

    /// A page of workloads.
    pub async fn workloads(&self, query: &WorkloadQuery) -> Result<Listed<WorkloadList>, ClientError> {
        self.listed(&with_query(path(&["workloads"]), query)).await
    }

    /// All workloads of a query, page by page, and the last event that the first page includes.
    pub async fn all_workloads(&self, query: &WorkloadQuery) -> Result<Listed<WorkloadList>, ClientError> {
        self.some_workloads(query, usize::MAX).await
    }

    /// The first so many workloads of a query or a few more; `next` tells whether there are others.
    pub async fn some_workloads(
        &self,
        query: &WorkloadQuery,
        count: usize,
    ) -> Result<Listed<WorkloadList>, ClientError> {
        let mut all = self.workloads(query).await?;
        while all.value.items.len() < count
            && let Some(next) = all.value.next.take()
        {
            let query = WorkloadQuery { cursor: Some(next.clone()), ..query.clone() };
            let page = self.workloads(&query).await?.value;
            // A server that sends the same page for ever must not keep us for ever.
            if page.items.is_empty() || page.next.as_ref() == Some(&next) {
                break;
            }
            all.value.items.extend(page.items);
            all.value.next = page.next;
        }
        Ok(all)
    }

    /// One workload: the unfinished one of that name, or the newest finished one.
    pub async fn workload(&self, project: &str, name: &str) -> Result<Workload, ClientError> {
        self.get(&path(&["workloads", project, name])).await
    }

    /// One workload by its identity, finished or not.
    pub async fn workload_by_id(&self, id: u64) -> Result<Workload, ClientError> {
        self.get(&path(&["workloads", &id.to_string()])).await
    }

    /// Ends a workload for good.
    pub async fn delete_workload(&self, project: &str, name: &str) -> Result<Workload, ClientError> {
        self.send(Method::DELETE, &path(&["workloads", project, name]), NOTHING).await
    }

    /// Suspends or resumes a workload, by the verb of the route.
    pub async fn workload_action(
        &self,
        project: &str,
        name: &str,
        verb: &str,
    ) -> Result<Workload, ClientError> {
        self.send(Method::POST, &path(&["workloads", project, name, verb]), NOTHING).await
    }

    /// Why a workload waits.
    pub async fn why(&self, project: &str, name: &str) -> Result<Why, ClientError> {
        self.get(&path(&["workloads", project, name, "why"])).await
    }

    /// A link to a workload's port that is good once.
    pub async fn link(&self, project: &str, name: &str) -> Result<Link, ClientError> {
        self.send(Method::POST, &path(&["workloads", project, name, "link"]), NOTHING).await
    }

    /// What a workload printed.
    pub async fn logs(
        &self,
        project: &str,
        name: &str,
        query: &LogQuery,
    ) -> Result<LogStream<'_>, ClientError> {
        LogStream::open(self, with_query(path(&["workloads", project, name, "logs"]), query)).await
    }

    /// A page of events.
    pub async fn events(&self, query: &EventQuery) -> Result<EventList, ClientError> {
        self.get(&with_query(path(&["events"]), query)).await
    }

    /// Events as they happen. The stream is opened again by itself, after the last event that was seen.
    pub fn event_stream(&self, query: &EventQuery) -> EventStream<'_> {
        EventStream::new(self, query)
    }

    /// The names of all series.
    pub async fn series(&self) -> Result<SeriesList, ClientError> {
        self.get(&path(&["series"])).await
    }

    /// A part of a series.
    pub async fn series_points(&self, query: &SeriesQuery) -> Result<Series, ClientError> {
        self.get(&with_query(path(&["series", "points"]), query)).await
    }

    /// All volumes.
    pub async fn volumes(&self) -> Result<VolumeList, ClientError> {
        self.get(&path(&["volumes"])).await
    }

    /// Makes a volume.
    pub async fn create_volume(&self, request: &VolumeRequest) -> Result<Volume, ClientError> {
        self.send(Method::POST, &path(&["volumes"]), Some(request)).await
    }

    /// Deletes a volume that nothing uses.
    pub async fn delete_volume(&self, name: &str, query: &VolumeQuery) -> Result<(), ClientError> {
        let path = with_query(path(&["volumes", name]), query);
        self.send_for_nothing(Method::DELETE, &path, NOTHING).await
    }

    /// Writes a backup on the server's machine.
    pub async fn backup(&self, request: &BackupRequest) -> Result<Backup, ClientError> {
        self.send_slow(&path(&["backup"]), request, BACKUP_WITHIN).await
    }

    /// Asks the server to end. It answers before it has.
    pub async fn shutdown(&self, keep_workloads: bool) -> Result<(), ClientError> {
        let path = with_query(path(&["shutdown"]), &json!({ "keep_workloads": keep_workloads }));
        self.send_for_nothing(Method::POST, &path, NOTHING).await
    }

    /// Who the server takes the caller for.
    pub async fn who_am_i(&self) -> Result<WhoAmI, ClientError> {
        self.get(&path(&["whoami"])).await
    }

    /// Users.
    pub async fn users(&self) -> Result<UserList, ClientError> {
        self.get(&path(&["users"])).await
    }

    /// Makes a user.
    pub async fn create_user(&self, request: &UserRequest) -> Result<User, ClientError> {
        self.send(Method::POST, &path(&["users"]), Some(request)).await
    }

    /// Changes under which account the work of a user runs.
    pub async fn update_user(&self, name: &str, change: &UserChange) -> Result<User, ClientError> {
        self.send(Method::PATCH, &path(&["users", name]), Some(change)).await
    }

    /// Deletes a user, with all roles and tokens.
    pub async fn delete_user(&self, name: &str) -> Result<(), ClientError> {
        self.send_for_nothing(Method::DELETE, &path(&["users", name]), NOTHING).await
    }

    /// Roles that people have.
    pub async fn roles(&self) -> Result<GrantList, ClientError> {
        self.get(&path(&["roles"])).await
    }

    /// Grants a role.
    pub async fn grant(&self, grant: &Grant) -> Result<Grant, ClientError> {
        self.send(Method::POST, &path(&["roles"]), Some(grant)).await
    }

    /// Takes a role back.
    pub async fn revoke_role(&self, grant: &Grant) -> Result<Grant, ClientError> {
        self.send(Method::POST, &path(&["roles", "revoke"]), Some(grant)).await
    }

    /// Tokens, without their secrets.
    pub async fn tokens(&self) -> Result<TokenList, ClientError> {
        self.get(&path(&["tokens"])).await
    }

    /// Makes a token; its secret is in the answer, and nowhere else ever after.
    pub async fn create_token(&self, request: &TokenRequest) -> Result<TokenMade, ClientError> {
        self.send(Method::POST, &path(&["tokens"]), Some(request)).await
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, id: u64) -> Result<(), ClientError> {
        self.send_for_nothing(Method::DELETE, &path(&["tokens", &id.to_string()]), NOTHING).await
    }

    /// What people did, and what was refused.
    pub async fn audit(&self, query: &AuditQuery) -> Result<AuditList, ClientError> {
        self.get(&with_query(path(&["audit"]), query)).await
    }
}
