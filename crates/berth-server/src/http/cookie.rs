//! The half of a session that the browser keeps, and where it may be used.
//!
//! Pages of workloads come from this server too, and a browser tells pages apart by their address alone: one that shared its
//! address with the dashboard could read the dashboard's key. So on the machine itself each has a name of its own: workloads
//! are at `127.0.0.1`, as all their links say, and the dashboard is at `localhost`.

use super::{state::AppState, text_of};
use axum::http::{HeaderMap, header};
use berth_types::Time;
use std::net::IpAddr;

/// The name of this machine by which the dashboard is called on it.
const DASHBOARD: &str = "localhost";

/// Who is signed in, and until when: by the cookie, together with the key that the page sends.
pub(super) fn session(state: &AppState, headers: &HeaderMap) -> Option<(String, Time)> {
    if is_for_workloads(headers) {
        return None;
    }
    let key = text_of(headers, berth_api::PAGE_HEADER)?;
    let sessions = state.door.sessions();
    let cookie = value(headers, &sessions.cookie_name())?;
    sessions.check(cookie, key, state.shared.now())
}

/// Whether this address is that of workloads' pages.
pub(super) fn is_for_workloads(headers: &HeaderMap) -> bool {
    let (host, _) = host(headers);
    host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether this address is that of the dashboard, and of nothing that workloads say.
pub(super) fn is_for_dashboard(headers: &HeaderMap) -> bool {
    host(headers).0.eq_ignore_ascii_case(DASHBOARD)
}

/// The dashboard's own address, for whoever came to the other one.
pub(super) fn dashboard_address(headers: &HeaderMap) -> String {
    format!("http://{DASHBOARD}{}", host(headers).1)
}

/// The name by which the server was called, and the port with its colon.
fn host(headers: &HeaderMap) -> (&str, &str) {
    let authority = text_of(headers, header::HOST.as_str()).unwrap_or_default();
    match authority.rfind(':') {
        Some(colon) if !authority[colon..].contains(']') => authority.split_at(colon),
        _ => (authority, ""),
    }
}

fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}
