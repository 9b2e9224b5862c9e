//! What the client makes of answers, good and bad.

mod support;

use berth_api::{Code, EventQuery, LogQuery, ProjectSettings, WorkloadQuery};
use berth_client::{Client, ClientError, Endpoint, Limits};
use std::time::Duration;
use support::{Reply, event, json, limits, serve, sse};

const VOLUMES: &str = r#"{"items":[]}"#;

fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    let lines = request.lines().filter_map(|line| line.split_once(": "));
    lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[tokio::test]
async fn one_connection_carries_all_requests_and_says_who_asks() {
    let (client, asked) = serve(|_, _| Reply::Keep(json("200 OK", "", VOLUMES)));
    for _ in 0..3 {
        client.volumes().await.expect("an answer");
    }
    let asked = asked.all();
    assert_eq!(asked.len(), 3);
    assert!(asked[0].starts_with("GET /api/v1/volumes HTTP/1.1\r\n"), "{}", asked[0]);
    assert_eq!(header(&asked[0], "authorization"), Some("Bearer secret"));
    assert_eq!(header(&asked[0], "berth-user"), Some("ada"));
    assert_eq!(header(&asked[0], "berth-version"), Some(berth_api::release()));
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_is_opened_again_without_a_word() {
    let (client, asked) = serve(|_, _| Reply::Close(json("200 OK", "", VOLUMES)));
    for _ in 0..5 {
        client.volumes().await.expect("an answer");
    }
    assert!(asked.all().len() >= 5);
}

#[tokio::test]
async fn a_create_that_is_sent_twice_has_the_same_key() {
    let answer = r#"{"name":"v","path":"/v","created_at":"2026-11-17T08:00:00.000Z","workloads":[]}"#;
    // The second request is read and then dropped, as by a server that is killed.
    let (client, asked) = serve(move |count, _| match count {
        0 => Reply::Keep(json("200 OK", "", VOLUMES)),
        1 => Reply::Close(Vec::new()),
        _ => Reply::Keep(json("201 Created", "", answer)),
    });
    client.volumes().await.expect("an answer");
    let request = berth_api::VolumeRequest { name: "v".into(), project: None, size: None };
    assert_eq!(client.create_volume(&request).await.expect("is repeated").name, "v");
    let asked = asked.all();
    assert_eq!(asked.len(), 3);
    assert!(asked[1].ends_with(r#"{"name":"v"}"#), "{}", asked[1]);
    assert_eq!(header(&asked[1], "idempotency-key").map(str::len), Some(32));
    assert_eq!(header(&asked[1], "idempotency-key"), header(&asked[2], "idempotency-key"));
}

#[tokio::test]
async fn a_problem_is_given_as_it_was_said() {
    let body =
        r#"{"code":"exists","status":409,"detail":"team-a is there already","hint":"choose another name"}"#;
    let (client, _) = serve(move |_, _| Reply::Keep(json("409 Conflict", "", body)));
    let error = client.create_project(&ProjectSettings::default()).await.expect_err("is refused");
    let problem = error.problem().expect("a problem");
    assert_eq!((problem.code, problem.hint.as_deref()), (Code::Exists, Some("choose another name")));
    assert_eq!(error.to_string(), "team-a is there already");
}

#[tokio::test]
async fn a_code_that_is_not_known_yet_still_has_words() {
    let body = r#"{"code":"moon-phase","status":418,"detail":"not tonight"}"#;
    let (client, _) = serve(move |_, _| Reply::Keep(json("418 Teapot", "", body)));
    assert_eq!(client.nodes().await.expect_err("is refused").to_string(), "not tonight");
}

#[tokio::test]
async fn an_unknown_token_is_told_apart_in_the_words_of_the_server() {
    let body = r#"{"code":"unauthenticated","status":401,"detail":"the token was revoked"}"#;
    let (client, _) = serve(move |_, _| Reply::Keep(json("401 Unauthorized", "", body)));
    let error = client.nodes().await.expect_err("is refused");
    assert_eq!(error.problem().map(|problem| problem.code), Some(Code::Unauthenticated));
    assert_eq!(error.to_string(), "the token was revoked");
    let (client, _) = serve(move |_, _| Reply::Keep(json("401 Unauthorized", "", "no")));
    assert!(matches!(client.nodes().await, Err(ClientError::Unauthorised { .. })));
}

#[tokio::test]
async fn a_server_of_another_minor_release_is_refused_with_both_releases() {
    let answer = "HTTP/1.1 200 OK\r\nberth-version: 0.99.3\r\ncontent-length: 2\r\n\r\n{}";
    let (client, _) = serve(move |_, _| Reply::Keep(answer.into()));
    let error = client.nodes().await.expect_err("is refused");
    assert!(matches!(error, ClientError::Version { .. }));
    let text = error.to_string();
    assert!(text.contains("0.99.3") && text.contains(berth_api::release()), "{text}");
}

#[tokio::test]
async fn something_else_on_the_port_is_no_berth() {
    let (client, _) = serve(|_, _| Reply::Keep(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec()));
    assert!(matches!(client.nodes().await, Err(ClientError::Protocol { .. })));
    let (client, _) = serve(|_, _| Reply::Close(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()));
    assert!(matches!(client.nodes().await, Err(ClientError::Protocol { .. })));
    let (client, _) = serve(|_, _| Reply::Keep(json("200 OK", "", "<html>")));
    assert!(matches!(client.nodes().await, Err(ClientError::Protocol { .. })));
    let (client, _) = serve(|_, _| Reply::Keep(json("502 Bad Gateway", "", "<html>")));
    assert!(matches!(client.nodes().await, Err(ClientError::Protocol { .. })));
}

#[tokio::test]
async fn a_server_that_says_nothing_is_not_waited_for_for_ever() {
    let soon = || Limits { answer: Duration::from_millis(500), ..limits() };
    let (client, _) = serve(|_, _| Reply::Hang);
    let client = client.with_limits(soon());
    assert!(matches!(client.nodes().await, Err(ClientError::Timeout { .. })));
    let (client, _) =
        serve(|_, _| Reply::Keep(json("200 OK", "", VOLUMES).split_last().expect("bytes").1.to_vec()));
    let client = client.with_limits(soon());
    assert!(matches!(client.volumes().await, Err(ClientError::Timeout { .. })));
}

#[tokio::test]
async fn a_torn_answer_is_no_answer() {
    let answer = format!(
        "HTTP/1.1 200 OK\r\nberth-version: {}\r\ncontent-length: 500\r\n\r\n{VOLUMES}",
        berth_api::release()
    );
    let (client, _) = serve(move |_, _| Reply::Close(answer.clone().into_bytes()));
    assert!(matches!(client.volumes().await, Err(ClientError::Closed { .. })));
}

#[tokio::test]
async fn an_answer_above_the_limit_is_refused() {
    let (client, _) = serve(|_, _| Reply::Keep(json("200 OK", "", &" ".repeat(200_000))));
    let error = client.volumes().await.expect_err("is refused");
    assert!(error.to_string().contains("above 100000 bytes"), "{error}");
}

#[tokio::test]
async fn nobody_on_the_port_is_unreachable_and_an_empty_folder_names_nobody() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = format!("http://{}", port.expect("a port that is free again"));
    let endpoint = Endpoint::new(address.parse().expect("an address"), "").expect("no token is fine");
    let error = Client::new(endpoint, "ada").nodes().await.expect_err("nobody is there");
    assert!(matches!(error, ClientError::Unreachable { .. }));

    let folder = tempfile::tempdir().expect("a folder");
    let error = Endpoint::of_folder(folder.path()).expect_err("nobody is there");
    assert!(matches!(error, ClientError::NotRunning { .. }));
    let server = r#"{"address":"http://127.0.0.1:7370","pid":1,"version":"0.1.0"}"#;
    std::fs::write(folder.path().join("server.json"), server).expect("is written");
    let error = Endpoint::of_folder(folder.path()).expect_err("the token is missing");
    assert!(matches!(error, ClientError::Folder { .. }));
    std::fs::write(folder.path().join("token"), "abc\n").expect("is written");
    let endpoint = Endpoint::of_folder(folder.path()).expect("is complete");
    assert_eq!((endpoint.address.to_string().as_str(), endpoint.pid), ("http://127.0.0.1:7370", Some(1)));
    assert!(!format!("{endpoint:?}").contains("abc"), "a token is never printed");
}

#[tokio::test]
async fn pages_are_read_to_the_end_and_the_cursor_is_the_first_pages() {
    let (client, asked) = serve(|count, _| {
        let body = if count == 0 { r#"{"items":[],"next":"p2"}"# } else { r#"{"items":[]}"# };
        Reply::Keep(json("200 OK", &format!("berth-cursor: {}\r\n", 40 + count), body))
    });
    let listed = client.all_workloads(&WorkloadQuery::default()).await.expect("an answer");
    assert_eq!((listed.value.items.len(), listed.cursor), (0, Some(40)));
    assert!(asked.all()[1].starts_with("GET /api/v1/workloads?cursor=p2 "), "{:?}", asked.all());
}

#[tokio::test]
async fn a_stream_that_breaks_goes_on_after_the_last_event_and_repeats_none() {
    let (client, asked) = serve(|count, _| match count {
        0 => Reply::Close(sse(&format!(": hello\n\n{}{}id: 8\nda", event(6), event(7)))),
        1 => Reply::Close(Vec::new()),
        2 => Reply::Close(sse(&format!("{}{}", event(7), event(8)))),
        _ => Reply::Close(sse(&event(9))),
    });
    let query = EventQuery { after: Some(5), objects: true, ..EventQuery::default() };
    let mut stream = client.event_stream(&query);
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(stream.next().await.expect("an event").seq);
    }
    assert_eq!(seen, [6, 7, 8, 9]);
    let asked = asked.all();
    assert!(asked[0].starts_with("GET /api/v1/events/stream?after=5&objects=true "), "{}", asked[0]);
    assert_eq!(header(&asked[2], "last-event-id"), Some("7"));
}

#[tokio::test]
async fn a_stream_nobody_serves_any_more_ends_with_the_reason() {
    let (client, _) = serve(|_, _| Reply::Close(Vec::new()));
    let mut stream = client.event_stream(&EventQuery::default());
    assert!(matches!(stream.next().await, Err(ClientError::Closed { .. })));
    let body = r#"{"code":"gone","status":410,"detail":"too old"}"#;
    let (client, asked) = serve(move |_, _| Reply::Keep(json("410 Gone", "", body)));
    let mut stream = client.event_stream(&EventQuery { after: Some(1), ..EventQuery::default() });
    assert_eq!(stream.next().await.expect_err("is refused").to_string(), "too old");
    assert_eq!(asked.all().len(), 1, "asking again would not help");
}

#[tokio::test]
async fn a_log_is_given_as_it_comes() {
    let (client, asked) = serve(|_, _| {
        let head = format!("HTTP/1.1 200 OK\r\nberth-version: {}\r\n", berth_api::release());
        let body = "transfer-encoding: chunked\r\n\r\n4\r\nabc\n\r\n3\r\nde\n\r\n0\r\n\r\n";
        Reply::Keep(format!("{head}{body}").into_bytes())
    });
    let query = LogQuery { follow: true, tail: Some(2), ..LogQuery::default() };
    let mut log = client.logs("team-a", "hyper1", &query).await.expect("a log");
    let mut text = Vec::new();
    while let Some(part) = log.next().await.expect("is complete") {
        text.extend_from_slice(&part);
    }
    assert_eq!(text, b"abc\nde\n");
    assert!(asked.all()[0].starts_with("GET /api/v1/workloads/team-a/hyper1/logs?follow=true&tail=2 "));
}
