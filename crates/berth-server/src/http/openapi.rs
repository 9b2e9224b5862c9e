//! The document that describes the API, made from what is sent.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        RefOr,
        security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Berth",
        description = "Shares GPUs fairly. Errors have one shape, Problem. Creates take the header idempotency-key.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        super::cluster::show,
        super::cluster::manifest,
        super::cluster::backup,
        super::cluster::shutdown,
        super::cluster::ping,
        super::cluster::metrics,
        super::cluster::health,
        super::cluster::ready,
        super::owners::list_projects,
        super::owners::create_project,
        super::owners::show_project,
        super::owners::update_project,
        super::owners::delete_project,
        super::owners::list_departments,
        super::owners::create_department,
        super::owners::show_department,
        super::owners::update_department,
        super::owners::delete_department,
        super::nodes::list,
        super::nodes::show,
        super::nodes::label,
        super::nodes::act,
        super::workloads::list,
        super::workloads::submit,
        super::workloads::show_id,
        super::workloads::show,
        super::workloads::delete,
        super::workloads::suspend,
        super::workloads::resume,
        super::workloads::why,
        super::workloads::report,
        super::workloads::checkpoint,
        super::workloads::world,
        super::logs::read,
        super::shell::exec,
        super::shell::attach,
        super::shell::connect,
        super::proxy::link,
        super::events::list,
        super::events::stream,
        super::events::series_names,
        super::events::series_points,
        super::oidc::offered,
        super::oidc::start,
        super::oidc::callback,
        super::oidc::redeem,
        super::sessions::link,
        super::sessions::sign_in,
        super::sessions::show,
        super::sessions::sign_out,
        super::volumes::list,
        super::volumes::create,
        super::volumes::delete,
        super::people::who_am_i,
        super::people::list_users,
        super::people::update_user,
        super::people::create_user,
        super::people::delete_user,
        super::people::list_roles,
        super::people::grant_role,
        super::people::revoke_role,
        super::people::list_tokens,
        super::people::create_token,
        super::people::revoke_token,
        super::audit::list,
    ),
    components(schemas(berth_api::Samples, berth_api::ClusterTotals)),
    modifiers(&Bearer, &Names, &Problems)
)]
struct Document;

/// Every request carries a token.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        document.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
    }
}

/// Handlers are named within their file; whoever makes code from the document needs names that are unique in it.
struct Names;

impl Modify for Names {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for item in document.paths.paths.values_mut() {
            let operations =
                [&mut item.get, &mut item.post, &mut item.patch, &mut item.delete].into_iter().flatten();
            for operation in operations {
                let tag = operation.tags.iter().flatten().next();
                let (Some(tag), Some(id)) = (tag, &operation.operation_id) else { continue };
                operation.operation_id = Some(format!("{tag}_{id}"));
            }
        }
    }
}

/// What is wrong is said in a type of its own.
struct Problems;

impl Modify for Problems {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for item in document.paths.paths.values_mut() {
            let operations =
                [&mut item.get, &mut item.post, &mut item.patch, &mut item.delete].into_iter().flatten();
            let answers = operations.flat_map(|operation| &mut operation.responses.responses);
            for (status, answer) in answers {
                if let RefOr::T(answer) = answer
                    && status.starts_with(['4', '5'])
                    && let Some(problem) = answer.content.shift_remove("application/json")
                {
                    answer.content.insert("application/problem+json".into(), problem);
                }
            }
        }
    }
}

/// The document as JSON text, as it is committed.
pub fn openapi() -> String {
    let mut text = serde_json::to_string_pretty(&Document::openapi()).expect("the document is JSON");
    text.push('\n');
    text
}

pub(crate) async fn serve() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], openapi()).into_response()
}
