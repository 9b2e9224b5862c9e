//! What a browser shows when there is nothing else to show.

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use berth_api::{Code, Problem};

/// After so many seconds a browser asks again for what did not answer.
const LOOK_AGAIN: HeaderValue = HeaderValue::from_static("2");

/// A problem: a page for a browser, JSON for a program.
pub(crate) fn problem(headers: &HeaderMap, problem: Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match wants_page(headers) {
        false => super::super::ApiError(problem).into_response(),
        true => {
            let hint =
                problem.hint.as_deref().map(|hint| format!("<p>{}</p>", code(hint))).unwrap_or_default();
            let mut response = page(&format!("<p>{}</p>{hint}", escaped(&problem.detail)));
            *response.status_mut() = status;
            response
        }
    }
}

/// What is wrong with a port: one that does not answer may still be starting, so that a browser looks again by itself.
pub(super) fn of_port(headers: &HeaderMap, wrong: Problem) -> Response {
    let is_away = wrong.code == Code::Unreachable;
    let mut response = problem(headers, wrong);
    if is_away && wants_page(headers) {
        response.headers_mut().insert(header::REFRESH, LOOK_AGAIN);
    }
    response
}

/// A page that says something and loads nothing; what it says is markup already.
pub(crate) fn page(body: &str) -> Response {
    let page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Berth</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>:root{{color-scheme:light dark}}\
         body{{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:4em auto;padding:0 1em}}\
         code{{background:#8882;padding:.1em .3em}}</style></head>\
         <body><h1>Berth</h1>{body}<p><a href=\"/\">Open the dashboard</a></p></body></html>\n"
    );
    let headers = [
        (header::CACHE_CONTROL, "no-store"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, Html(page)).into_response()
}

fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// What stands between backticks, as a command.
fn code(text: &str) -> String {
    let parts = escaped(text);
    let parts = parts.split('`').enumerate();
    parts.map(|(at, part)| if at % 2 == 1 { format!("<code>{part}</code>") } else { part.into() }).collect()
}

/// A text as markup that shows it.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
