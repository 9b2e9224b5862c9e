//! The half of a session that the browser keeps.

use super::{proxy, state::AppState, text_of};
use crate::platform::Person;
use axum::http::{HeaderMap, header};
use berth_types::Time;

/// Who is signed in, and until when: by the cookie, together with the key that the page sends.
pub(super) fn session(state: &AppState, headers: &HeaderMap) -> Option<(Person, Time)> {
    let key = text_of(headers, berth_api::PAGE_HEADER).or_else(|| key_of_socket(headers))?;
    let sessions = state.door.sessions();
    let cookie = value(headers, &sessions.cookie_name())?;
    let now = state.shared.now();
    let (person, until) = sessions.check(cookie, key, now)?;
    // Whoever signed in with a token is signed in for as long as that counts.
    state.shared.read().people().standing(&person, now).ok()?;
    Some((person, until))
}

/// The end of our cookies: over TLS, that they are for nothing less.
pub(super) fn secure(state: &AppState) -> &'static str {
    if state.speaks_tls { "; Secure" } else { "" }
}

/// The key of a page that opens a socket. A page cannot send headers with one, except for the ways of speaking it offers; so it
/// offers one that is named after its key, and that nobody chooses.
fn key_of_socket(headers: &HeaderMap) -> Option<&str> {
    let is_socket = text_of(headers, header::UPGRADE.as_str())?.eq_ignore_ascii_case("websocket");
    if !is_socket || proxy::is_cross_origin(headers) {
        return None;
    }
    let offered =
        headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|offer| offer.to_str().ok());
    let mut names = offered.flat_map(|offer| offer.split(',')).map(str::trim);
    names.find_map(|name| name.strip_prefix(berth_api::PAGE_PROTOCOL))
}

pub(super) fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}
