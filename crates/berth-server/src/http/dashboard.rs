//! The dashboard: files that were built into this binary, for whoever asks. There is nothing secret in them; what they
//! show is asked of the API, by somebody who is signed in.

use super::text_of;
use axum::{
    Router,
    extract::Path,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};

/// A file of the dashboard, and the same compressed.
struct File {
    name: &'static str,
    whole: &'static [u8],
    zipped: Option<&'static [u8]>,
}

include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// Addresses of its pages; each is the same file, which looks at its address.
const PAGES: [&str; 10] = [
    "/",
    "/workloads",
    "/workloads/{id}",
    "/projects",
    "/projects/{name}",
    "/nodes",
    "/nodes/{name}",
    "/analytics",
    "/people",
    "/settings",
];

/// Everything comes from this server, and nothing that is shown can become a script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Berth</title>\
    <h1>Berth runs, without its dashboard</h1>\
    <p>This binary was built before the dashboard was. In the repository, run</p>\
    <pre>.ci/ensure ui &amp;&amp; cargo build --release -p berth-cli</pre>\
    <p>or <code>make run</code>, which does both. The command line and the API work meanwhile.</p></html>";

pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let pages = PAGES.iter().fold(Router::new(), |router, path| router.route(path, get(page)));
    pages.route("/assets/{*name}", get(asset)).route("/theme.js", get(theme)).route("/icon.svg", get(icon))
}

/// Which build of the dashboard this server has.
pub(super) fn build() -> HeaderValue {
    HeaderValue::from_static(BUILD)
}

async fn page(headers: HeaderMap) -> Response {
    match find("index.html") {
        // It names the files of this very build, so it is asked for again each time.
        Some(file) => answer(file, &headers, "no-cache"),
        None => safe(
            (StatusCode::OK, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], NOT_BUILT).into_response(),
        ),
    }
}

async fn theme(headers: HeaderMap) -> Response {
    named("theme.js", &headers, "no-cache")
}

async fn icon(headers: HeaderMap) -> Response {
    named("icon.svg", &headers, "no-cache")
}

/// Names of these contain a hash of what is in them.
async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    named(&format!("assets/{name}"), &headers, "public, max-age=31536000, immutable")
}

fn named(name: &str, headers: &HeaderMap, keep: &'static str) -> Response {
    match find(name) {
        Some(file) => answer(file, headers, keep),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn find(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

fn answer(file: &'static File, headers: &HeaderMap, keep: &'static str) -> Response {
    let takes_zipped = text_of(headers, header::ACCEPT_ENCODING.as_str()).is_some_and(|codings| {
        codings.split(',').any(|coding| coding.split(';').next().map(str::trim) == Some("gzip"))
    });
    let plain = [
        (header::CONTENT_TYPE, content_type(file.name)),
        (header::CACHE_CONTROL, keep),
        (header::VARY, "accept-encoding"),
    ];
    let response = match file.zipped.filter(|_| takes_zipped) {
        Some(zipped) => (plain, [(header::CONTENT_ENCODING, "gzip")], zipped).into_response(),
        None => (plain, file.whole).into_response(),
    };
    safe(response)
}

fn safe(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}
