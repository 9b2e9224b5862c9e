//! Single sign-on against a real provider of OpenID Connect, which runs on loopback: at the dashboard, from the command line, and
//! with ID tokens; and everything that can be wrong with one.

mod support;

use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use support::{
    Home,
    live::{Server, cache, until},
};

/// What RFC 7636 gives as an example: a proof, and its hash.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const SECRET: &str = "the secret of berth: 100%";

/// A provider that is ended with the test.
struct Provider {
    child: Child,
    issuer: String,
    secret: tempfile::NamedTempFile,
}

impl Provider {
    /// Starts one at a port, or anywhere; nothing when it is not installed, which is said.
    fn start(port: &str, options: &[&str]) -> Option<Self> {
        let tools = cache().join("tools");
        let own = tools.join("node/node_modules/node/bin/node");
        let node = if own.exists() { own } else { PathBuf::from("node") };
        let folder = tools.join("oidc");
        if !folder.join("node_modules/oidc-provider").exists() {
            eprintln!(
                "SKIPPED: single sign-on is not tested, because no provider is installed (make test installs it)"
            );
            return None;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/oidc/provider.mjs");
        let mut child = Command::new(node)
            .arg(script)
            .arg(folder)
            .arg(port)
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("node starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let issuer = lines.find(|line| line.starts_with("http://")).expect("it says where it is");
        // What it prints later is read, so that it can go on printing.
        std::thread::spawn(move || lines.for_each(drop));
        let mut secret = tempfile::NamedTempFile::new().expect("a file");
        writeln!(secret, "{SECRET}").expect("is written");
        Some(Self { child, issuer, secret })
    }

    fn port(&self) -> String {
        self.issuer.rsplit_once(':').expect("a port").1.to_owned()
    }

    /// A server that trusts it.
    fn server(&self) -> Server {
        let secret = self.secret.path().display();
        Server::start(&format!(
            "--nodes 1xdgx1 --project team-a=4 --project team-b=2 --oidc-issuer {} --oidc-client-id berth \
             --oidc-client-secret-file {secret} --oidc-name Lab",
            self.issuer
        ))
    }

    /// An ID token of somebody, for a client: what a program would get for itself.
    fn id_token(&self, client: &str, login: &str) -> String {
        let back = "http://127.0.0.1:1/api/v1/oidc/callback";
        let url = format!(
            "{}/auth?response_type=code&client_id={client}&redirect_uri={back}&scope=openid%20email%20groups&nonce=n\
             &code_challenge={CHALLENGE}&code_challenge_method=S256",
            self.issuer
        );
        let ended = Browser::default().signs_in(&url, login);
        let (_, code) = ended.url.split_once("code=").unwrap_or_else(|| panic!("a code: {ended:?}"));
        let code = code.split('&').next().expect("a code");
        let form = format!(
            "grant_type=authorization_code&code={code}&redirect_uri={back}&client_id={client}&code_verifier={VERIFIER}"
        );
        // The secret of the client as RFC 6749 wants it: escaped, then in base64.
        let pair = format!("{client}:the%20secret%20of%20berth%3A%20100%25");
        let headers = [("authorization", format!("Basic {}", base64(pair.as_bytes())))];
        let answer = ask(&format!("{}/token", self.issuer), "POST", &headers, &form);
        let answer: Value = serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("JSON: {answer:?}"));
        answer["id_token"].as_str().unwrap_or_else(|| panic!("a token: {answer}")).to_owned()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |group: u32, at: u32| LETTERS[(group >> (18 - 6 * at) & 63) as usize] as char;
    let groups = bytes.chunks(3).map(|chunk| {
        let group = (0..3).fold(0, |sum, at| sum << 8 | u32::from(chunk.get(at).copied().unwrap_or(0)));
        (0..4).map(|at| if at as usize <= chunk.len() { letter(group, at) } else { '=' }).collect::<String>()
    });
    groups.collect()
}

/// An answer as it came.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    url: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

fn split(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("http://").expect("a plain address");
    rest.find('/').map_or((rest, "/"), |at| rest.split_at(at))
}

/// One request over a connection of its own.
fn ask(url: &str, method: &str, headers: &[(&str, String)], body: &str) -> Answer {
    let (authority, path) = split(url);
    let path = path.split('#').next().expect("a path");
    let mut stream = TcpStream::connect(authority).unwrap_or_else(|error| panic!("{url}: {error}"));
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        let kind =
            if body.starts_with('{') { "application/json" } else { "application/x-www-form-urlencoded" };
        request.push_str(&format!("content-type: {kind}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    stream.write_all(request.as_bytes()).expect("is sent");
    let mut read = Vec::new();
    let _ = stream.read_to_end(&mut read);
    let text = String::from_utf8_lossy(&read).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    Answer { status, headers, body: body.to_owned(), url: url.to_owned() }
}

/// A browser: keeps cookies by host and path, and goes where it is sent.
#[derive(Debug, Default)]
struct Browser {
    cookies: BTreeMap<(String, String, String), String>,
}

impl Browser {
    fn one(&mut self, url: &str, form: Option<&str>) -> Answer {
        let (authority, path) = split(url);
        let sent: Vec<String> = self
            .cookies
            .iter()
            .filter(|((host, below, _), _)| host == authority && path.starts_with(below))
            .map(|((_, _, name), value)| format!("{name}={value}"))
            .collect();
        let mut headers = vec![("accept", "text/html".to_owned())];
        headers.extend((!sent.is_empty()).then(|| ("cookie", sent.join("; "))));
        let method = if form.is_some() { "POST" } else { "GET" };
        let answer = ask(url, method, &headers, form.unwrap_or_default());
        for (_, set) in answer.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let mut parts = set.split(';').map(str::trim);
            let (name, value) = parts.next().and_then(|pair| pair.split_once('=')).expect("a cookie");
            let lower = set.to_ascii_lowercase();
            let path = parts.find_map(|part| part.strip_prefix("path=").or(part.strip_prefix("Path=")));
            let key = (authority.to_owned(), path.unwrap_or("/").to_owned(), name.to_owned());
            match lower.contains("01 jan 1970") || lower.contains("max-age=0") {
                true => drop(self.cookies.remove(&key)),
                false => drop(self.cookies.insert(key, value.to_owned())),
            }
        }
        answer
    }

    /// Goes to an address, and on until it is sent nowhere else, or to where nobody is.
    fn goes(&mut self, url: &str, form: Option<&str>) -> Answer {
        let mut answer = self.one(url, form);
        for _ in 0..20 {
            let Some(to) = answer.header("location").map(str::to_owned) else { return answer };
            let to = if to.starts_with('/') { format!("http://{}{to}", split(&answer.url).0) } else { to };
            if to.starts_with("http://127.0.0.1:1/") {
                return Answer { url: to, ..answer };
            }
            answer = Answer { url: to.clone(), ..self.one(&to, None) };
        }
        panic!("it is sent around: {answer:?}");
    }

    /// Begins somewhere, types a name at the provider, agrees, and ends wherever that leads.
    fn signs_in(&mut self, url: &str, login: &str) -> Answer {
        let mut page = self.goes(url, None);
        for _ in 0..3 {
            let Some((_, action)) = page.body.split_once("action=\"") else { return page };
            let action = action.split('"').next().expect("an address").to_owned();
            let action = if action.starts_with('/') {
                format!("http://{}{action}", split(&page.url).0)
            } else {
                action
            };
            let form = match page.body.contains("name=\"login\"") {
                true => format!("prompt=login&login={}&password=x", login.replace('+', "%2B")),
                false => "prompt=consent".to_owned(),
            };
            page = self.goes(&action, Some(&form));
        }
        page
    }
}

/// The dashboard of a browser that was sent there with a code.
fn session(server: &Server, ended: &Answer) -> Value {
    let (_, code) = ended.url.split_once("/#code=").unwrap_or_else(|| panic!("a code: {ended:?}"));
    let address = server.endpoint().0;
    let body = json!({ "code": code }).to_string();
    let signed_in = ask(&format!("{address}/api/v1/session"), "POST", &[], &body);
    assert_eq!(signed_in.status, 201, "{signed_in:?}");
    let session: Value = serde_json::from_str(&signed_in.body).expect("is JSON");
    let cookie = signed_in.header("set-cookie").and_then(|set| set.split(';').next()).expect("a cookie");
    let page = session["key"].as_str().expect("a key").to_owned();
    let headers = [("cookie", cookie.to_owned()), ("berth-page", page)];
    let me = ask(&format!("{address}/api/v1/whoami"), "GET", &headers, "");
    serde_json::from_str(&me.body).expect("is JSON")
}

#[test]
fn a_browser_signs_in_and_groups_have_roles() {
    let Some(provider) = Provider::start("0", &["RS256", "thin"]) else { return };
    let server = provider.server();
    let address = server.endpoint().0;
    let start = format!("{address}/api/v1/oidc/start");
    let offered = ask(&format!("{address}/api/v1/oidc"), "GET", &[], "");
    assert!(offered.body.contains(r#""name":"Lab""#), "{offered:?}");

    let unknown = Browser::default().signs_in(&start, "ada+lab");
    assert_eq!(unknown.status, 403, "{unknown:?}");
    assert!(unknown.body.contains("ada@example.org has signed in, and is no user here"), "{}", unknown.body);
    assert!(unknown.body.contains("<code>berth user create ada@example.org</code>"), "{}", unknown.body);
    server.run("berth role grant group:lab researcher project/team-a");
    let mut browser = Browser::default();
    let me = session(&server, &browser.signs_in(&start, "ada+lab+ml"));
    assert_eq!((&me["user"], &me["groups"]), (&json!("ada@example.org"), &json!(["lab", "ml"])), "{me}");
    assert_eq!(me["roles"][0]["scope"], "project/team-a", "{me}");
    assert_eq!(me["token"], "single sign-on");
    assert!(server.run("berth user list").contains("ada@example.org"), "the first sign-in makes a user");
    // The provider still knows the browser; the second time no name is typed.
    assert!(!browser.goes(&start, None).body.contains("name=\"login\""));
    let again = session(&server, &browser.signs_in(&start, "nobody"));
    assert_eq!(again["user"], "ada@example.org");
    server.run("berth user create bob@example.org");
    let me = session(&server, &Browser::default().signs_in(&start, "bob"));
    assert_eq!((&me["user"], &me["roles"]), (&json!("bob@example.org"), &json!([])), "{me}");
    let unsure = Browser::default().signs_in(&start, "unsure+lab");
    assert!(unsure.status == 403 && unsure.body.contains("has not verified the address"), "{unsure:?}");

    // What comes back belongs to the browser that began, once.
    let mut other = Browser::default();
    let login = other.goes(&start, None);
    let own = other.cookies.clone();
    other.cookies.retain(|(_, path, _), _| path != "/api/v1/oidc");
    let action =
        login.body.split_once("action=\"").expect("a form").1.split('"').next().expect("a form").to_owned();
    let consent = other.goes(&action, Some("prompt=login&login=bob&password=x"));
    let action =
        consent.body.split_once("action=\"").expect("a form").1.split('"').next().expect("a form").to_owned();
    let stolen = other.goes(&action, Some("prompt=consent"));
    assert!(stolen.status == 401 && stolen.body.contains("began in another browser"), "{stolen:?}");
    other.cookies.extend(own);
    let late = other.goes(&stolen.url, None);
    assert!(late.status == 401 && late.body.contains("is over"), "{late:?}");
    let audit = server.run("berth audit -n 200");
    assert!(audit.contains("ada@example.org from 127.0.0.1 signed in by single sign-on"), "{audit}");
}

#[test]
fn the_command_line_signs_in_with_a_browser() {
    let Some(provider) = Provider::start("0", &["ES256"]) else { return };
    let server = provider.server();
    server.run("berth role grant group:lab researcher project/team-a");
    let address = server.endpoint().0;
    let home = Home::new();
    let mut child = home
        .command(&["berth", "login", &address, "--oidc"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let url = lines.find(|line| line.trim().starts_with("http://")).expect("an address").trim().to_owned();
    let asked = Browser::default().signs_in(&url, "ada+lab");
    assert!(asked.body.contains("asks to act as <b>ada@example.org</b>"), "{asked:?}");
    let link =
        asked.body.split_once("href=\"").expect("a link").1.split('"').next().expect("a link").to_owned();
    assert!(ask(&link, "GET", &[], "").body.contains("Signed in"), "{link}");
    assert!(child.wait().expect("it was started").success(), "{:?}", lines.collect::<Vec<_>>());
    // Whoever sees the code has no proof; and it was used already.
    let code = link.split_once("code=").expect("a code").1;
    let proof = json!({ "code": code, "verifier": "x" }).to_string();
    assert_eq!(ask(&format!("{address}/api/v1/oidc/token"), "POST", &[], &proof).status, 401);

    let me = home.run("berth whoami");
    assert!(me.stdout.contains("ada@example.org") && me.stdout.contains("project/team-a"), "{me:?}");
    let submit = |project: &str| home.run(&format!("berth submit job -p {project} -g 1 -- sleep 1000"));
    assert_eq!(submit("team-a").code, Some(0));
    assert_eq!(submit("team-b").code, Some(6));
    let tokens = server.json("berth token list");
    let id = tokens["items"][0]["id"].as_u64().expect("a token");
    server.run(&format!("berth token revoke {id}"));
    let refused = home.run("berth whoami");
    assert!(refused.code == Some(6) && refused.stderr.contains("the token was revoked"), "{refused:?}");

    let plain = Server::start("--nodes 1xdgx1");
    let refused = Home::new().run(&format!("berth login {} --oidc", plain.endpoint().0));
    assert!(refused.code == Some(6) && refused.stderr.contains("has no single sign-on"), "{refused:?}");
}

#[test]
fn id_tokens_are_looked_at_closely() {
    let Some(provider) = Provider::start("0", &["RS256"]) else { return };
    let server = provider.server();
    server.run("berth role grant group:lab viewer all");
    let address = server.endpoint().0;
    let show = |token: &str| {
        let headers = [("authorization", format!("Bearer {token}"))];
        let answer = ask(&format!("{address}/api/v1/whoami"), "GET", &headers, "");
        (answer.status, answer.body)
    };
    let token = provider.id_token("berth", "ada+lab");
    for _ in 0..2 {
        let (status, body) = show(&token);
        assert!(status == 200 && body.contains("ada@example.org"), "{body}");
    }
    assert_eq!(
        server.json("berth token list")["items"].as_array().map(Vec::len),
        Some(1),
        "it is looked at once"
    );
    let (head, signature) = token.rsplit_once('.').expect("three parts");
    let (header, claims) = head.split_once('.').expect("three parts");
    let turned = format!("{}{}", if signature.starts_with('A') { "B" } else { "A" }, &signature[1..]);
    // {"alg":"none"} and {"alg":"HS256"}, in base64.
    let none = format!("eyJhbGciOiJub25lIn0.{claims}.");
    let symmetric = format!("eyJhbGciOiJIUzI1NiJ9.{claims}.{signature}");
    for (token, words) in [
        (provider.id_token("another", "ada+lab"), "is for another, and this server is berth"),
        (format!("{head}.{turned}"), "not signed by a key of"),
        (none, "RS256 and ES256 are"),
        (symmetric, "RS256 and ES256 are"),
        (format!("{header}.{header}x.{signature}"), "no ID token"),
        (provider.id_token("berth", "eve"), "is no user here"),
        (provider.id_token("berth", "unsure+lab"), "has not verified"),
    ] {
        let (status, body) = show(&token);
        assert!(matches!(status, 401 | 403) && body.contains(words), "{words}: {status} {body}");
    }
    // Revoked, it counts no more, though the provider would still sign for it.
    let id = server.json("berth token list")["items"][0]["id"].as_u64().expect("a token");
    server.run(&format!("berth token revoke {id}"));
    assert!(show(&token).1.contains("the token was revoked"));

    // The provider comes back with another key, and another way to sign.
    let port = provider.port();
    drop(provider);
    let provider = Provider::start(&port, &["ES256"]).expect("it was there before");
    let token = provider.id_token("berth", "ada+lab");
    until("the new key is found", || show(&token).0 == 200);
    for (ahead, words) in [("ahead=-7200", "has expired"), ("ahead=7200", "counts only in")] {
        let other = Provider::start("0", &["RS256", ahead]).expect("it was there before");
        let late = other.server();
        let headers = [("authorization", format!("Bearer {}", other.id_token("berth", "ada+lab")))];
        let answer = ask(&format!("{}/api/v1/whoami", late.endpoint().0), "GET", &headers, "");
        assert!(answer.status == 401 && answer.body.contains(words), "{answer:?}");
        assert!(answer.body.contains("clock"), "{answer:?}");
    }
}

#[test]
fn a_provider_that_is_away_keeps_nobody_out_who_has_a_token() {
    let Some(provider) = Provider::start("0", &["RS256"]) else { return };
    let token = provider.id_token("berth", "ada+lab");
    let server = provider.server();
    drop(provider);
    let address = server.endpoint().0;
    let page = Browser::default().goes(&format!("{address}/api/v1/oidc/start"), None);
    assert!(page.status == 502 && page.body.contains("does not answer"), "{page:?}");
    let headers = [("authorization", format!("Bearer {token}"))];
    let answer = ask(&format!("{address}/api/v1/whoami"), "GET", &headers, "");
    assert!(answer.status == 502 && answer.body.contains("does not answer"), "{answer:?}");
    server.run("berth project list");

    let home = Home::new();
    for (options, words) in [
        ("--oidc-issuer http://id.example --oidc-client-id x", "must begin with https://"),
        ("--oidc-issuer https://id.example", "--oidc-client-id"),
    ] {
        let refused = home.run(&format!("berth up --listen 127.0.0.1:0 {options}"));
        assert!(refused.code == Some(2) && refused.stderr.contains(words), "{refused:?}");
    }
}
