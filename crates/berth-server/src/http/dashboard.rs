//! The dashboard: files that were built into this binary, or that it reads when it starts, for whoever asks. There is nothing secret in them; what they
//! show is asked of the API, by somebody who is signed in.

mod files;

use super::text_of;
use axum::{
    Router,
    extract::{Path, Request},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use std::{fs, io, path::Path as FilePath, sync::LazyLock};

/// A file of the dashboard, and the same compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct File {
    name: &'static str,
    whole: &'static [u8],
    zipped: Option<&'static [u8]>,
}

include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// The dashboard of this process.
static DASHBOARD: LazyLock<Dashboard> = LazyLock::new(|| match FOLDER {
    Some(folder) => Dashboard::read(FilePath::new(folder)).unwrap_or_else(|error| {
        tracing::warn!(%error, folder, "the dashboard cannot be read");
        Dashboard { build: EMBEDDED_BUILD, files: &[] }
    }),
    None => Dashboard { build: EMBEDDED_BUILD, files: EMBEDDED },
});

/// Holds the files of one build. They live as long as the process.
struct Dashboard {
    build: &'static str,
    files: &'static [File],
}

impl Dashboard {
    fn read(folder: &FilePath) -> io::Result<Self> {
        let listed = files::list(folder)?;
        let build = files::build(&listed)?.leak();
        let files = listed.into_iter().map(|(name, path)| {
            let zipped = match fs::read(files::zipped(&path)) {
                Ok(zipped) => Some(&*zipped.leak()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            Ok(File { name: name.leak(), whole: fs::read(path)?.leak(), zipped })
        });
        Ok(Self { build, files: files.collect::<io::Result<Vec<_>>>()?.leak() })
    }
}

/// Addresses of its pages; each is the same file, which looks at its address.
const PAGES: [&str; 12] = [
    "/",
    "/workloads",
    "/workloads/{id}",
    "/workload/{id}",
    "/projects",
    "/projects/{name}",
    "/nodes",
    "/nodes/{name}",
    "/analytics",
    "/people",
    "/activity",
    "/settings",
];

/// Everything comes from this server, and nothing that is shown can become a script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Berth</title>\
    <h1>Berth runs, without its dashboard</h1>\
    <p>This program was built without the dashboard, or the folder that it was built in is gone. In the repository, run</p>\
    <pre>make run</pre>\
    <p>which builds both. The command line and the API work meanwhile.</p></html>";

pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    // Read before the first request, so that one server shows one build.
    LazyLock::force(&DASHBOARD);
    let pages = PAGES.iter().fold(Router::new(), |router, path| router.route(path, get(page)));
    pages.route("/assets/{*name}", get(asset)).route("/theme.js", get(theme)).route("/icon.svg", get(icon))
}

/// Which build of the dashboard this server has.
pub(super) fn build() -> HeaderValue {
    HeaderValue::from_static(DASHBOARD.build)
}

async fn page(headers: HeaderMap) -> Response {
    shell(&headers)
}

/// The one file of all pages.
fn shell(headers: &HeaderMap) -> Response {
    match find("index.html") {
        // It names the files of this very build, so it is asked for again each time.
        Some(file) => answer(file, headers, "no-cache"),
        None => safe(
            (StatusCode::OK, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], NOT_BUILT).into_response(),
        ),
    }
}

/// Whether a request is a person who opens an address in a browser, without a token.
pub(super) fn is_visit(request: &Request) -> bool {
    let headers = request.headers();
    let accepts = text_of(headers, header::ACCEPT.as_str()).unwrap_or_default();
    request.method() == Method::GET
        && accepts.contains("text/html")
        && !headers.contains_key(header::AUTHORIZATION)
        && !headers.contains_key(berth_api::PAGE_HEADER)
}

/// Returns the dashboard for an address that does not exist; the page shows "Page not found".
pub(super) fn not_found(headers: &HeaderMap) -> Response {
    let mut response = shell(headers);
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
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
    DASHBOARD.files.iter().find(|file| file.name == name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dashboard_read_from_its_folder_has_every_file_and_a_build_of_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        write("index.html", "page");
        write("assets/app.js", "script");
        write("assets/app.js.gz", "zipped");
        write(".sources", "a sum");
        let first = Dashboard::read(folder.path()).expect("it is readable");
        let app = File { name: "assets/app.js", whole: b"script", zipped: Some(b"zipped") };
        let index = File { name: "index.html", whole: b"page", zipped: None };
        assert_eq!(first.files, [app, index]);
        write("index.html", "another page");
        let second = Dashboard::read(folder.path()).expect("it is readable");
        assert_ne!(first.build, second.build, "a changed dashboard is another build");
    }

    #[test]
    fn a_dashboard_without_a_folder_is_empty_and_no_error() {
        let none = Dashboard::read(FilePath::new("/nowhere/dist")).expect("a server runs without one");
        assert_eq!(none.files, []);
    }
}
