//! Signing in to the dashboard: by a link once, by a token, and by nothing less than both halves of a session.

mod support;

use support::{Answer, Server};

/// The cookie that an answer sets, as a browser sends it back.
fn cookie(answer: &Answer) -> String {
    let set = answer.headers.iter().find_map(|header| header.strip_prefix("set-cookie: ")).expect("a cookie");
    for word in ["; httponly", "; samesite=strict", "; path=/"] {
        assert!(set.contains(word), "{set}");
    }
    set.split(';').next().expect("it has a value").to_owned()
}

fn sign_in(server: &Server, body: &str) -> Answer {
    server.call_with("POST", "/api/v1/session", body, &[])
}

fn link(server: &Server) -> String {
    let link = server.call("POST", "/api/v1/session/links", "");
    assert_eq!(link.status, 201, "{}", link.body);
    let path = link.json()["path"].as_str().expect("a path").to_owned();
    path.strip_prefix("/#code=").expect("the code is behind the #").to_owned()
}

#[test]
fn a_link_signs_in_once() {
    let server = Server::start();
    let body = format!(r#"{{"code":"{}"}}"#, link(&server));
    let signed_in = sign_in(&server, &body);
    assert_eq!((signed_in.status, &signed_in.json()["user"]), (201, &"ada".into()), "{}", signed_in.body);
    let again = sign_in(&server, &body);
    assert_eq!((again.status, again.code()), (401, "unauthenticated".into()));
    assert!(again.body.contains("berth dashboard"), "it says what to do: {}", again.body);
}

#[test]
fn a_session_opens_with_both_halves_only() {
    let mut server = Server::start();
    let signed_in = sign_in(&server, &format!(r#"{{"token":"{}"}}"#, server.token()));
    let (cookie, key) = (cookie(&signed_in), signed_in.json()["key"].as_str().expect("a key").to_owned());
    let status = |server: &Server, headers: &[(&str, &str)]| {
        server.call_with("GET", "/api/v1/workloads", "", headers).status
    };
    let both = [("cookie", cookie.as_str()), ("berth-page", key.as_str())];
    assert_eq!(status(&server, &both), 200);
    assert_eq!(status(&server, &both[..1]), 401, "a cookie goes to every port of a machine");
    assert_eq!(status(&server, &both[1..]), 401);
    let wrong = [both[0], ("berth-page", "0123")];
    assert_eq!(status(&server, &wrong), 401);

    let own = server.call_with("GET", "/api/v1/session", "", &both);
    assert_eq!(own.json()["user"], "ada");
    assert!(own.json()["key"].is_null(), "{}", own.body);
    let made = server.call_with("POST", "/api/v1/projects", r#"{"name":"new","quota":1}"#, &both);
    assert_eq!(made.status, 201, "{}", made.body);

    server.down();
    server.up(|_| {});
    assert_eq!(status(&server, &both), 200, "a restart signs nobody out");

    let out = server.call_with("DELETE", "/api/v1/session", "", &both);
    assert_eq!(out.status, 204);
    assert!(out.headers.iter().any(|header| header.contains("max-age=0")), "{:?}", out.headers);
}

#[test]
fn a_page_opens_a_socket_with_both_halves_only() {
    let server = Server::start();
    let signed_in = sign_in(&server, &format!(r#"{{"token":"{}"}}"#, server.token()));
    let (cookie, key) = (cookie(&signed_in), signed_in.json()["key"].as_str().expect("a key").to_owned());
    let open = |cookie: &str, protocols: &str, more: &str| {
        let request = format!(
            "GET /api/v1/workloads/team-a/nothing/exec HTTP/1.1\r\nhost: berth\r\nconnection: upgrade\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             cookie: {cookie}\r\nsec-websocket-protocol: {protocols}\r\n{more}\r\n"
        );
        server.say(request.as_bytes()).status
    };
    let (socket, own) = ("upgrade: websocket\r\n", format!("berth.shell.v1, berth.page.{key}"));
    assert_eq!(open(&cookie, &own, socket), 404, "it is let in, and finds no such workload");
    assert_eq!(open(&cookie, &own, &format!("{socket}origin: http://berth\r\n")), 404);
    assert_eq!(open(&cookie, "berth.shell.v1", socket), 401, "a cookie goes to every port of a machine");
    assert_eq!(open("", &own, socket), 401);
    assert_eq!(open(&cookie, "berth.shell.v1, berth.page.0123", socket), 401);
    assert_eq!(open(&cookie, &own, &format!("{socket}origin: http://elsewhere\r\n")), 401);
    assert_eq!(open(&cookie, &own, ""), 401, "it is no socket, so it could have sent the header");
}

#[test]
fn what_is_no_sign_in_is_refused_with_a_reason() {
    let server = Server::start();
    let workload = berth_server::workload_token(&server.token(), 1);
    for (body, status, field) in [
        (r#"{"token":"wrong"}"#.to_owned(), 401, "token"),
        (format!(r#"{{"token":"{workload}"}}"#), 401, "token"),
        (r#"{"code":"a","token":"b"}"#.into(), 422, "code"),
        ("{}".into(), 422, "code"),
    ] {
        let answer = sign_in(&server, &body);
        assert_eq!(
            (answer.status, &answer.json()["field"]),
            (status, &field.into()),
            "{body}: {}",
            answer.body
        );
    }
    assert_eq!(sign_in(&server, "[]").status, 400);
}

#[test]
fn pages_are_for_everybody_and_let_nothing_in() {
    let server = Server::start();
    for path in ["/", "/workloads", "/workloads/7", "/projects", "/nodes", "/analytics", "/settings"] {
        let page = server.call_with("GET", path, "", &[]);
        assert_eq!(page.status, 200, "{path}");
        let policy =
            page.headers.iter().find(|header| header.starts_with("content-security-policy")).expect(path);
        assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");
        assert!(page.body.starts_with("<!doctype html>"), "{}", page.body);
    }
    assert_eq!(server.call_with("GET", "/assets/none.js", "", &[]).status, 404);
    assert_eq!(server.call_with("GET", "/assets/../../etc/passwd", "", &[]).status, 404);
}

#[test]
fn a_browser_with_a_session_gets_the_dashboard_at_an_unknown_address_and_nothing_else() {
    let server = Server::start();
    let html = ("accept", "text/html,application/xhtml+xml");
    let home = server.call_with("GET", "/", "", &[html]);
    let signed_in = sign_in(&server, &format!(r#"{{"token":"{}"}}"#, server.token()));
    let cookie = cookie(&signed_in);
    let browser = [html, ("cookie", cookie.as_str())];
    for path in ["/nothing", "/workloads/1/2/3", "/team-a/job"] {
        let answer = server.call_with("GET", path, "", &browser);
        assert_eq!((answer.status, &answer.body), (404, &home.body), "{path}");
        assert_eq!(server.call_with("POST", path, "", &browser).status, 401, "{path}");
        let wrong = server.call_with("GET", path, "", &[html, ("authorization", "Bearer wrong")]);
        assert_eq!(wrong.status, 401, "{path}");
        let stranger = server.call_with("GET", path, "", &[html]);
        assert_eq!(stranger.status, 401, "{path}");
        assert_ne!(stranger.body, home.body, "{path}");
    }
    for path in ["/api/v1/nothing", "/api/v1/cluster", "/metrics", "/openapi.json"] {
        let answer = server.call_with("GET", path, "", &browser);
        assert_eq!(answer.status, 401, "{path}");
        assert_ne!(answer.body, home.body, "{path}");
    }
}
