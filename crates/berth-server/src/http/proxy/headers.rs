//! What of a request reaches a workload, and what of its answer reaches a browser.
//!
//! The platform's own headers and cookies are not for workloads; and a workload shares its origin with others, so it may set
//! nothing that reaches beyond its own path.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// The cookie of a person who came by a link. Names of our cookies begin like this.
pub(crate) const COOKIE: &str = "berth-session";
const OWN: &str = "berth-";

/// Headers of one connection, not of what is carried.
const OF_CONNECTION: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// What a workload could say to take hold of the whole origin.
const OF_ORIGIN: [HeaderName; 3] = [
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("clear-site-data"),
    header::STRICT_TRANSPORT_SECURITY,
];
/// What is told anew, whatever the client claims.
const FORWARDED: [HeaderName; 6] = [
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-real-ip"),
];

/// A request's headers for a workload. `bears_token`: its authorisation is for the platform.
pub(super) fn for_workload(
    headers: &HeaderMap,
    bears_token: bool,
    prefix: Option<&str>,
    scheme: &'static str,
) -> HeaderMap {
    let mut passed = without(headers, &[]);
    for name in &FORWARDED {
        passed.remove(name);
    }
    if bears_token {
        passed.remove(header::AUTHORIZATION);
    }
    let own: Vec<HeaderName> = passed.keys().filter(|name| name.as_str().starts_with(OWN)).cloned().collect();
    own.iter().for_each(|name| drop(passed.remove(name)));
    let cookies: Vec<&str> = cookies(headers).filter(|cookie| !is_own(cookie)).collect();
    passed.remove(header::COOKIE);
    if let (false, Ok(value)) = (cookies.is_empty(), HeaderValue::from_str(&cookies.join("; "))) {
        passed.insert(header::COOKIE, value);
    }
    let mut tell = |name: &'static str, value: Option<HeaderValue>| {
        if let Some(value) = value {
            passed.insert(HeaderName::from_static(name), value);
        }
    };
    tell("x-forwarded-host", headers.get(header::HOST).cloned());
    tell("x-forwarded-proto", Some(HeaderValue::from_static(scheme)));
    tell("x-forwarded-prefix", prefix.and_then(|prefix| HeaderValue::from_str(prefix).ok()));
    passed
}

/// An answer's headers for a browser that knows the workload by `prefix`.
pub(super) fn for_browser(headers: &HeaderMap, prefix: &str, is_stripped: bool) -> HeaderMap {
    let mut passed = without(headers, &OF_ORIGIN);
    passed.remove(header::SET_COOKIE);
    for cookie in headers.get_all(header::SET_COOKIE) {
        if let Some(cookie) = cookie.to_str().ok().and_then(|cookie| confined(cookie, prefix))
            && let Ok(value) = HeaderValue::from_str(&cookie)
        {
            passed.append(header::SET_COOKIE, value);
        }
    }
    let location = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    if let Some(location) = location.filter(|location| is_stripped && location.starts_with('/'))
        && !location.starts_with("//")
        && !is_below(location, prefix)
        && let Ok(value) = HeaderValue::from_str(&format!("{prefix}{location}"))
    {
        passed.insert(header::LOCATION, value);
    }
    passed
}

/// Every value of our cookie. A workload's page may have set others of that name; the true one is among them.
pub(crate) fn sessions(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    cookies(headers).filter_map(|cookie| {
        let (name, value) = cookie.split_once('=')?;
        (name.trim() == COOKIE).then(|| value.trim())
    })
}

/// Whether a page of another origin asks. Browsers name the origin of whoever asks for more than to show a page.
pub(crate) fn is_cross_origin(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    headers.get(header::ORIGIN).is_some_and(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
        authority.is_empty() || !authority.eq_ignore_ascii_case(host)
    })
}

fn without(headers: &HeaderMap, more: &[HeaderName]) -> HeaderMap {
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<String> =
        named.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let stays = |name: &HeaderName| {
        !OF_CONNECTION.contains(name)
            && !more.contains(name)
            && !named.iter().any(|gone| gone == name.as_str())
    };
    headers.iter().filter(|(name, _)| stays(name)).map(|(name, value)| (name.clone(), value.clone())).fold(
        HeaderMap::new(),
        |mut passed, (name, value)| {
            passed.append(name, value);
            passed
        },
    )
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).map(str::trim).filter(|cookie| !cookie.is_empty())
}

fn is_own(cookie: &str) -> bool {
    let name = cookie.split('=').next().unwrap_or_default().trim();
    // Browsers read a cookie without a name as one whose name is its value, and prefixes in any case.
    let name = name.to_ascii_lowercase();
    name.is_empty()
        || name.starts_with(OWN)
        || name.starts_with("__host-berth")
        || name.starts_with("__secure-berth")
}

/// A workload's cookie within its own path; none if it has a name of ours.
fn confined(cookie: &str, prefix: &str) -> Option<String> {
    let mut parts = cookie.split(';').map(str::trim);
    let pair = parts.next().filter(|pair| !is_own(pair))?;
    let mut kept = vec![pair.to_owned()];
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            // The whole host, and hosts beside it, belong to others as well.
            "domain" => {}
            "path" if is_below(value.trim(), prefix) => kept.push(part.to_owned()),
            "path" => kept.push(format!("Path={prefix}")),
            _ => kept.push(part.to_owned()),
        }
    }
    Some(kept.join("; "))
}

fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                HeaderValue::from_str(value).expect("a value"),
            );
        }
        map
    }

    fn text(map: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<String> =
            map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("text"))).collect();
        lines.sort();
        lines
    }

    #[test]
    fn nothing_of_the_platform_reaches_a_workload() {
        let asked = map(&[
            ("host", "berth:7370"),
            ("authorization", "Bearer secret"),
            ("berth-user", "root"),
            ("berth-version", "0.1.0"),
            ("cookie", "a=1; berth-session=secret; Berth-Session=x; =berth-session; b=2"),
            ("connection", "keep-alive, X-Hop"),
            ("x-hop", "gone"),
            ("transfer-encoding", "chunked"),
            ("x-forwarded-for", "1.2.3.4"),
            ("accept", "*/*"),
        ]);
        let passed = for_workload(&asked, true, Some("/team-a/nb"), "http");
        assert_eq!(
            text(&passed),
            [
                "accept: */*",
                "cookie: a=1; b=2",
                "host: berth:7370",
                "x-forwarded-host: berth:7370",
                "x-forwarded-prefix: /team-a/nb",
                "x-forwarded-proto: http",
            ]
        );
        let own = map(&[("authorization", "token of-the-notebook")]);
        assert!(
            for_workload(&own, false, None, "https").contains_key("authorization"),
            "it is the workload's own"
        );
    }

    #[test]
    fn a_workload_sets_nothing_beyond_its_own_path() {
        let answered = map(&[
            ("set-cookie", "berth-session=evil; Path=/team-b"),
            ("set-cookie", "BERTH-x=evil"),
            ("set-cookie", "user=1; Path=/; Domain=example.com; HttpOnly"),
            ("set-cookie", "deep=1; Path=/team-a/nb/x"),
            ("set-cookie", "near=1; Path=/team-a/nbx"),
            ("service-worker-allowed", "/"),
            ("clear-site-data", "\"*\""),
            ("location", "/login?next=/"),
            ("content-type", "text/html"),
        ]);
        let passed = for_browser(&answered, "/team-a/nb", true);
        assert_eq!(
            text(&passed),
            [
                "content-type: text/html",
                "location: /team-a/nb/login?next=/",
                "set-cookie: deep=1; Path=/team-a/nb/x",
                "set-cookie: near=1; Path=/team-a/nb",
                "set-cookie: user=1; Path=/team-a/nb; HttpOnly",
            ]
        );
        for (location, stays) in
            [("//elsewhere/x", true), ("https://x/", true), ("/team-a/nb/y", true), ("/y", false)]
        {
            let passed = for_browser(&map(&[("location", location)]), "/team-a/nb", true);
            assert_eq!(passed["location"] == location, stays, "{location}");
        }
        assert_eq!(for_browser(&map(&[("location", "/y")]), "/team-a/nb", false)["location"], "/y");
    }

    #[test]
    fn another_origin_is_told_apart() {
        let from = |origin: &str| is_cross_origin(&map(&[("host", "127.0.0.1:7370"), ("origin", origin)]));
        assert!(!from("http://127.0.0.1:7370"));
        assert!(from("http://127.0.0.1:9999") && from("null") && from("https://evil.example"));
        assert!(!is_cross_origin(&map(&[("host", "127.0.0.1:7370")])));
    }

    #[test]
    fn a_shadowed_cookie_is_still_found() {
        let asked = map(&[("cookie", "berth-session=shadow; x=1"), ("cookie", "berth-session=true")]);
        assert_eq!(sessions(&asked).collect::<Vec<_>>(), ["shadow", "true"]);
    }
}
