//! Every route of the API, and what it needs.

use super::{
    audit, cluster, events,
    guard::{
        Needs::{Everywhere, Itself, Person, Project, Token, Work, WorkOrWorker},
        Routes,
    },
    logs, nodes, openapi, owners, people, proxy, sessions, shell, volumes, workloads,
};
use crate::platform::Act::{Rule, See, Settings};
use axum::routing::MethodFilter;

const GET: MethodFilter = MethodFilter::GET;
const POST: MethodFilter = MethodFilter::POST;
const PATCH: MethodFilter = MethodFilter::PATCH;
const DELETE: MethodFilter = MethodFilter::DELETE;

/// What only those with a token reach; everything that is no route here is a port of a workload, or nothing.
pub(super) fn routes<R: Routes>(routes: R) -> R {
    routes
        .add(GET, "/openapi.json", Token, openapi::serve)
        .add(GET, "/metrics", Everywhere(See), cluster::metrics)
        .add(POST, "/api/v1/report", Itself, workloads::report)
        .add(POST, "/api/v1/checkpoint", Itself, workloads::checkpoint)
        .add(GET, "/api/v1/world", Itself, workloads::world)
        .add(GET, "/api/v1/cluster", Person, cluster::show)
        .add(GET, "/api/v1/manifest", Person, cluster::manifest)
        .add(POST, "/api/v1/backup", Everywhere(Rule), cluster::backup)
        .add(POST, "/api/v1/shutdown", Everywhere(Rule), cluster::shutdown)
        .add(POST, "/api/v1/ping", Everywhere(Rule), cluster::ping)
        .add(GET, "/api/v1/projects", Person, owners::list_projects)
        .add(POST, "/api/v1/projects", Person, owners::create_project)
        .add(GET, "/api/v1/projects/{name}", Project(See), owners::show_project)
        .add(PATCH, "/api/v1/projects/{name}", Project(Settings), owners::update_project)
        .add(DELETE, "/api/v1/projects/{name}", Project(Settings), owners::delete_project)
        .add(GET, "/api/v1/departments", Person, owners::list_departments)
        .add(POST, "/api/v1/departments", Person, owners::create_department)
        .add(GET, "/api/v1/departments/{name}", Person, owners::show_department)
        .add(PATCH, "/api/v1/departments/{name}", Person, owners::update_department)
        .add(DELETE, "/api/v1/departments/{name}", Person, owners::delete_department)
        .add(GET, "/api/v1/nodes", Person, nodes::list)
        .add(GET, "/api/v1/nodes/{name}", Person, nodes::show)
        .add(PATCH, "/api/v1/nodes/{name}", Everywhere(Rule), nodes::label)
        .add(POST, "/api/v1/nodes/{name}/{action}", Everywhere(Rule), nodes::act)
        .add(GET, "/api/v1/workloads", Person, workloads::list)
        .add(POST, "/api/v1/workloads", Person, workloads::submit)
        .add(GET, "/api/v1/workloads/{id}", Person, workloads::show_id)
        .add(GET, "/api/v1/workloads/{project}/{name}", Project(See), workloads::show)
        .add(DELETE, "/api/v1/workloads/{project}/{name}", Work, workloads::delete)
        .add(POST, "/api/v1/workloads/{project}/{name}/suspend", Work, workloads::suspend)
        .add(POST, "/api/v1/workloads/{project}/{name}/resume", Work, workloads::resume)
        .add(GET, "/api/v1/workloads/{project}/{name}/why", Project(See), workloads::why)
        .add(GET, "/api/v1/workloads/{project}/{name}/logs", Project(See), logs::read)
        .add(GET, "/api/v1/workloads/{project}/{name}/exec", WorkOrWorker, shell::exec)
        .add(GET, "/api/v1/workloads/{project}/{name}/attach", Work, shell::attach)
        .add(GET, "/api/v1/workloads/{project}/{name}/connect", Work, shell::connect)
        .add(POST, "/api/v1/workloads/{project}/{name}/link", Work, proxy::link)
        .add(GET, "/api/v1/events", Person, events::list)
        .add(GET, "/api/v1/events/stream", Person, events::stream)
        .add(GET, "/api/v1/series", Person, events::series_names)
        .add(GET, "/api/v1/series/points", Person, events::series_points)
        .add(GET, "/api/v1/session", Person, sessions::show)
        .add(DELETE, "/api/v1/session", Person, sessions::sign_out)
        .add(POST, "/api/v1/session/links", Person, sessions::link)
        .add(GET, "/api/v1/volumes", Person, volumes::list)
        .add(POST, "/api/v1/volumes", Person, volumes::create)
        .add(DELETE, "/api/v1/volumes/{name}", Person, volumes::delete)
        .add(GET, "/api/v1/whoami", Person, people::who_am_i)
        .add(GET, "/api/v1/users", Person, people::list_users)
        .add(POST, "/api/v1/users", Everywhere(Rule), people::create_user)
        .add(PATCH, "/api/v1/users/{name}", Everywhere(Rule), people::update_user)
        .add(DELETE, "/api/v1/users/{name}", Everywhere(Rule), people::delete_user)
        .add(GET, "/api/v1/roles", Person, people::list_roles)
        .add(POST, "/api/v1/roles", Person, people::grant_role)
        .add(POST, "/api/v1/roles/revoke", Person, people::revoke_role)
        .add(GET, "/api/v1/tokens", Person, people::list_tokens)
        .add(POST, "/api/v1/tokens", Person, people::create_token)
        .add(DELETE, "/api/v1/tokens/{id}", Person, people::revoke_token)
        .add(GET, "/api/v1/audit", Person, audit::list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{guard::Needs, state::AppState};
    use axum::handler::Handler;
    use std::collections::BTreeSet;

    #[derive(Default)]
    struct Noted(BTreeSet<(String, String)>);

    impl Routes for Noted {
        fn add<H: Handler<T, AppState>, T: 'static>(
            mut self,
            method: MethodFilter,
            path: &'static str,
            _: Needs,
            _: H,
        ) -> Self {
            let names = [(GET, "get"), (POST, "post"), (PATCH, "patch"), (DELETE, "delete")];
            let name = names.iter().find(|(known, _)| *known == method).expect("a method").1;
            assert!(self.0.insert((name.into(), path.into())), "{name} {path} is there twice");
            self
        }
    }

    #[test]
    fn every_route_is_described_and_every_description_is_a_route() {
        let document: serde_json::Value = serde_json::from_str(&crate::http::openapi()).expect("is JSON");
        let mut described = BTreeSet::new();
        for (path, item) in document["paths"].as_object().expect("paths") {
            for method in item.as_object().expect("methods").keys() {
                described.insert((method.clone(), path.clone()));
            }
        }
        // The description does not describe itself.
        described.insert(("get".into(), "/openapi.json".into()));
        let mut served = routes(Noted::default()).0;
        // Those that need nothing, and are listed where they are served.
        let open = [
            ("get", "/healthz"),
            ("get", "/readyz"),
            ("post", "/api/v1/session"),
            ("get", "/api/v1/oidc"),
            ("get", "/api/v1/oidc/start"),
            ("get", "/api/v1/oidc/callback"),
            ("post", "/api/v1/oidc/token"),
        ];
        for (method, path) in open {
            assert!(served.insert((method.into(), path.into())), "{path} is open, and has a guard");
        }
        assert_eq!(served, described);
    }
}
