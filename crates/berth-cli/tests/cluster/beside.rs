//! Shells, terminals and ports of workers in Pods, through the API server of a real node, as a person and as a script meet them.

use crate::{
    berth::Berth,
    support::{live::until, terminal::Person},
};
use berth_testbed::{Image, NodeSpec, Options};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
    time::Duration,
};

const SIZE: (u16, u16) = (93, 31);
const IMAGE: &str = "localhost/shell:1";
/// Shorter than the silence of the test, and longer than what the API server itself waits between two signs of life.
const STREAM_IDLE: Duration = Duration::from_secs(7);
const SILENCE: Duration = Duration::from_secs(10);
/// Stays until it is told to end, and ends at once then.
const PATIENT: &str = "trap 'exit 1' TERM; sleep 1000 & wait";

/// Where an image of Jupyter has its own; answers with what it was asked and with the token it would ask for.
const NOTEBOOK: &str = "#!/bin/sh\nexec nc -ll -p 8888 -e /bin/answer\n";
const ANSWER: &str = r#"#!/bin/sh
said=
while read -r line && [ "$line" != "$(printf '\r')" ]; do said="$said$line
"; done
printf 'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n%sit asks for %s\n' "$said" "$JUPYTER_TOKEN"
"#;

#[test]
fn workers_on_a_real_node_are_entered_joined_and_reached() {
    let options = Options {
        real_node: true,
        real_gpus: 2,
        kwok: false,
        stream_idle: Some(STREAM_IDLE),
        ..Options::default()
    };
    let Some(berth) = Berth::start("shells and ports on a real node of Kubernetes", options) else { return };
    // Answers a line after a silence longer than the runtime of the node allows.
    let talk = format!("#!/bin/sh\nread line; sleep {}; echo \"you said $line\"\n", SILENCE.as_secs());
    let image = Image::new(IMAGE).shell().expect("busybox").text("/bin/talk", &talk, 0o755);
    let image = image.text("/www/index.html", "from the Pod\n", 0o644);
    let image = image.text("/bin/start-notebook.sh", NOTEBOOK, 0o755).text("/bin/answer", ANSWER, 0o755);
    berth.cluster.import_image(&image).expect("it is imported");
    berth.run("berth project create lender --quota 2");
    berth.run("berth project create borrower --quota 0");
    submit(&berth, "build -p lender --interactive -e GREETING=hello", PATIENT);
    submit(&berth, "web -p lender --interactive --port 8080", "httpd -p 8080 -h /www; sleep 1000 & wait");
    running(&berth, "lender/build");
    a_person_has_a_real_terminal_in_the_pod(&berth);
    a_command_keeps_its_streams_apart_and_its_code(&berth);
    what_cannot_be_entered_says_why(&berth);
    whoever_goes_away_leaves_nothing_behind(&berth);
    running(&berth, "lender/web");
    a_declared_port_is_reached_through_the_server(&berth);
    a_notebook_is_opened_with_the_token_it_asks_for(&berth);
    any_port_is_forwarded(&berth);
    a_terminal_of_its_own_is_joined_left_and_joined_again(&berth);
    a_shell_says_that_its_job_was_preempted(&berth);
    a_shell_says_that_its_job_is_over(&berth);
}

#[test]
fn a_worker_on_a_simulated_node_says_that_it_cannot_be_entered() {
    let options = Options { nodes: vec![NodeSpec::dgx1(1)], ..Options::default() };
    let Some(berth) = Berth::start("shells on a simulated node of Kubernetes", options) else { return };
    berth.run("berth project create lender --quota 2");
    submit(&berth, "build -p lender --interactive --tty -g 1", PATIENT);
    running(&berth, "lender/build");
    for line in ["berth exec lender/build -- true", "berth bash lender/build", "berth attach lender/build"] {
        let ran = berth.home.run(line);
        assert_eq!(ran.code, Some(6), "{line}: {ran:?}");
        let words = "worker 0 of lender/build cannot be entered: node";
        assert!(ran.stderr.contains(words) && ran.stderr.contains("does not answer"), "{line}: {ran:?}");
    }
    what_a_cluster_does_not_do_is_refused(&berth);
    what_is_asked_for_is_in_the_pod(&berth);
    what_the_operator_refuses_waits(&berth);
}

fn submit(berth: &Berth, line: &str, script: &str) {
    let mut words = vec!["berth", "submit"];
    words.extend(line.split_whitespace());
    words.extend(["-i", IMAGE, "--local-image", "--", "sh", "-c", script]);
    until("the project is ready", || berth.home.run_words(&words).code == Some(0));
}

fn running(berth: &Berth, place: &str) {
    until(&format!("{place} runs"), || berth.json(&format!("berth get {place}"))["status"] == "Running");
}

fn a_person_has_a_real_terminal_in_the_pod(berth: &Berth) {
    let mut person = Person::sits_at(&berth.home, SIZE, "berth bash lender/build");
    person.types("PS1='ready''> '\n");
    person.sees("ready> ");
    person.types("echo $TERM $GREETING $BERTH_WORKLOAD\n");
    person.sees("xterm-256color hello build\r\n");
    for (columns, rows) in [SIZE, (120, 50)] {
        person.resizes((columns, rows));
        let line =
            format!("until [ \"$(stty size)\" = '{rows} {columns}' ]; do sleep 0.05; done; echo si''zed\n");
        person.types(&line);
        person.sees("sized\r\n");
    }
    person.types("sh -c 'echo begin; exec sleep 1000'\n");
    person.sees("begin\r\n");
    person.types("\x03");
    person.sees("ready> ");
    person.types("echo code $?\n");
    person.sees("code 130\r\n");
    // The runtime of the node ends what is silent for so long; so does the server, much sooner.
    std::thread::sleep(SILENCE);
    person.types("echo still he''re; exit 42\n");
    person.sees("still here\r\n");
    let (seen, code) = person.sees_the_end();
    assert_eq!(code, Some(42), "{seen:?}");
}

fn a_command_keeps_its_streams_apart_and_its_code(berth: &Berth) {
    let script = "cat; echo $GREETING; echo trouble >&2; test -t 1 || echo no terminal; exit 7";
    let mut child = berth
        .home
        .command(&["berth", "exec", "-p", "lender", "build", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // More than any buffer on the way holds.
    let typed = "x".repeat(300_000) + "\n";
    let mut stdin = child.stdin.take().expect("a pipe");
    let text = typed.clone();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()).expect("it is read"));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it was written");
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == format!("{typed}hello\nno terminal\n").into_bytes(), "{}", output.stdout.len());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "trouble\n");
    for (words, code) in [
        (["berth", "exec", "lender/build", "-t", "--", "sh", "-c", "test -t 1"], 0),
        (["berth", "exec", "lender/build", "-T", "--", "sh", "-c", "kill -TERM $$"], 143),
        (["berth", "exec", "lender/build", "-T", "--", "sh", "-c", "kill -KILL $$"], 137),
    ] {
        let ran = berth.home.run_words(&words);
        assert_eq!(ran.code, Some(code), "{words:?}: {ran:?}");
    }
    let ran = berth.home.run("runai bash build -p lender");
    assert_eq!(ran.code, Some(0), "its stdin is empty, so the shell ends at once: {ran:?}");
}

fn what_cannot_be_entered_says_why(berth: &Berth) {
    submit(berth, "waits -p lender -g 8", "true");
    submit(berth, "over -p lender", "true");
    until("it is over", || berth.json("berth get lender/over")["status"] == "Succeeded");
    for (line, code, words) in [
        ("berth bash lender/waits", 6, "lender/waits does not run: it is Pending"),
        ("berth bash lender/over", 6, "lender/over is over: it is Succeeded"),
        ("berth bash lender/biuld", 5, "did you mean build?"),
        ("berth bash lender/build --rank 3", 6, "lender/build has no worker 3 that runs"),
        ("berth exec lender/build -- no-such-program", 127, "no-such-program"),
        ("berth attach lender/waits", 6, "does not run"),
    ] {
        let ran = berth.home.run(line);
        assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
        assert!(ran.stderr.contains(words), "{line}: {ran:?}");
    }
    berth.run("berth delete waits -p lender");
}

fn whoever_goes_away_leaves_nothing_behind(berth: &Berth) {
    let processes = || {
        let ran = berth.home.run("berth exec lender/build -T -- ps -o args");
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.stdout
    };
    let mut person = Person::sits_at(&berth.home, SIZE, "berth bash lender/build");
    person.types("sleep 4242 & (trap '' HUP; exec sleep 4343) & sh -c 'echo beg''un; exec sleep 4444'\n");
    person.sees("begun\r\n");
    assert!(["4242", "4343", "4444"].iter().all(|word| processes().contains(word)));
    drop(person);
    until("nothing is left", || !["4242", "4343", "4444"].iter().any(|word| processes().contains(word)));
    assert!(processes().contains("sleep 1000"), "the worker itself goes on");
}

fn get(address: &str, path: &str, token: Option<&str>) -> String {
    let authority = address.trim_start_matches("http://");
    let mut stream = TcpStream::connect(authority).expect("it listens");
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    answer
}

fn a_declared_port_is_reached_through_the_server(berth: &Berth) {
    let url = berth.json("berth get lender/web")["urls"][0].as_str().expect("an address").to_owned();
    let end = url["http://".len()..].find('/').expect("a path") + "http://".len();
    let (address, path) = url.split_at(end);
    let token = std::fs::read_to_string(berth.home.server_folder().join("token")).expect("a token");
    for _ in 0..3 {
        let answer = get(address, path, Some(token.trim()));
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("from the Pod\n"), "{answer}");
    }
    let answer = get(address, path, None);
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    submit(berth, "deaf -p lender --interactive --port 8081", PATIENT);
    running(berth, "lender/deaf");
    let answer = get(address, "/lender/deaf/", Some(token.trim()));
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(answer.contains("nobody listens on port 8081 of worker 0 of lender/deaf"), "{answer}");
    berth.run("berth delete deaf -p lender");
}

fn a_notebook_is_opened_with_the_token_it_asks_for(berth: &Berth) {
    let words = ["berth", "submit", "nb", "-p", "lender", "--jupyter", "-i", IMAGE, "--local-image"];
    let ran = berth.home.run_words(&words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    running(berth, "lender/nb");
    let url = berth.json("berth get lender/nb")["urls"][0].as_str().expect("an address").to_owned();
    let end = url["http://".len()..].find('/').expect("a path") + "http://".len();
    let (address, path) = url.split_at(end);
    let token = std::fs::read_to_string(berth.home.server_folder().join("token")).expect("a token");
    let mut answer = String::new();
    until("the notebook answers", || {
        answer = get(address, path, Some(token.trim()));
        answer.starts_with("HTTP/1.1 200")
    });
    let asked = answer.lines().find_map(|line| line.strip_prefix("it asks for ")).expect("a token").trim();
    assert!(asked.len() >= 32, "{answer}");
    let shown = answer.to_ascii_lowercase();
    assert!(shown.contains(&format!("authorization: token {asked}")), "{answer}");
    assert!(!answer.contains(token.trim()), "that of the caller stays with the server: {answer}");
    assert_eq!(berth.json("berth get lender/nb")["request"]["notebook"], true, "it is known as what it is");
    for line in ["berth get lender/nb --json", "berth list --json", "berth events lender/nb --json"] {
        let told = berth.run(line);
        assert!(told.contains("nb") && !told.contains(asked), "{line} tells it: {told}");
    }
    berth.run("berth delete nb -p lender");
}

/// A forwarded port, until it is dropped.
struct Forward(Child);

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn any_port_is_forwarded(berth: &Berth) {
    submit(berth, "talks -p lender --interactive", "nc -ll -p 7000 -e /bin/talk");
    running(berth, "lender/talks");
    let mut command = berth.home.command(&["berth", "port-forward", "lender/talks", "0:7000"]);
    let mut forward = Forward(command.stderr(Stdio::piped()).spawn().expect("it starts"));
    let mut lines = BufReader::new(forward.0.stderr.take().expect("a pipe")).lines();
    let first = lines.next().expect("it says where").expect("a line");
    let local = first.split(' ').nth(1).expect("an address").trim_start_matches("http://").to_owned();
    // It runs before it listens; who comes in between is sent away.
    until("it answers", || {
        let mut stream = TcpStream::connect(&local).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        let mut answer = String::new();
        let asked = stream.write_all(b"hello\n").and_then(|()| BufReader::new(stream).read_line(&mut answer));
        asked.is_ok() && answer == "you said hello\n"
    });
    drop(forward);
    berth.run("berth delete talks -p lender");
}

fn a_terminal_of_its_own_is_joined_left_and_joined_again(berth: &Berth) {
    let line = format!("berth submit mine -p lender --interactive --attach -i {IMAGE} --local-image -- sh");
    let mut person = Person::sits_at(&berth.home, SIZE, &line);
    person.sees("this is the terminal of lender/mine");
    person.types("until [ \"$(stty size)\" = '31 93' ]; do sleep 0.05; done; X=kept; echo re''ady\n");
    person.sees("ready\r\n");
    person.types("\x10\x11");
    let (seen, code) = person.sees_the_end();
    assert_eq!(code, Some(0), "{seen:?}");
    assert!(seen.contains("left lender/mine; it goes on"), "{seen:?}");
    assert_eq!(berth.json("berth get lender/mine")["status"], "Running");
    let mut person = Person::sits_at(&berth.home, SIZE, "berth attach lender/mine");
    // What it printed before is shown to who joins it.
    person.sees("ready\r\n");
    person.types("echo $X; exit 3\n");
    person.sees("kept\r\n");
    let (seen, code) = person.sees_the_end();
    assert_eq!(code, Some(3), "{seen:?}");
    assert!(seen.contains("lender/mine is over: it is Failed; it exited with code 3"), "{seen:?}");
}

fn a_shell_says_that_its_job_was_preempted(berth: &Berth) {
    // It takes its time to save its state, and whoever sits there hears of it.
    submit(berth, "borrows -p borrower -g 2", "trap 'sleep 2; exit 1' TERM; sleep 1000 & wait");
    running(berth, "borrower/borrows");
    let mut person = Person::sits_at(&berth.home, SIZE, "berth bash borrower/borrows");
    person.types("echo re''ady\n");
    person.sees("ready\r\n");
    submit(berth, "owns -p lender -g 2", "sleep 1000");
    let (seen, code) = person.sees_the_end();
    assert_eq!(code, Some(255), "{seen:?}");
    assert!(seen.contains("berth: borrower/borrows was told to stop"), "{seen:?}");
    assert!(
        seen.contains("berth: borrower/borrows ended here: stopped for owns (quota-reclaim)"),
        "{seen:?}"
    );
}

fn a_shell_says_that_its_job_is_over(berth: &Berth) {
    let script = "until [ -e /tmp/mark ]; do sleep 0.05; done; exit 3";
    submit(berth, "short -p lender --backoff-limit 0", script);
    running(berth, "lender/short");
    let mut person = Person::sits_at(&berth.home, SIZE, "berth bash lender/short");
    person.types("touch /tmp/mark\n");
    let (seen, code) = person.sees_the_end();
    assert_eq!(code, Some(255), "{seen:?}");
    assert!(seen.contains("lender/short is over: it is Failed; it exited with code 3"), "{seen:?}");
}

fn what_a_cluster_does_not_do_is_refused(berth: &Berth) {
    for (line, words) in [
        ("berth submit many -p lender -i any --completions 3 --min-workers 1", "leave out --min-workers"),
        (
            "berth submit ranks -p lender -i any --workers 2 --min-workers 1 --framework mpi -- train",
            "leave out --min-workers",
        ),
    ] {
        let ran = berth.home.run(line);
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert!(ran.stderr.contains(words), "{line}: {ran:?}");
    }
}

fn what_is_asked_for_is_in_the_pod(berth: &Berth) {
    let of_pod = |name: &str, path: &str| {
        let line = format!("get pods -n berth-lender -l berth.dev/workload={name} -o jsonpath={path}");
        berth.kubectl(&line)
    };
    let main = "{.items[0].spec.containers[0]";
    let terminal = of_pod("build", &format!("{main}.tty}}{main}.stdin}}{{.items[0].spec.restartPolicy}}"));
    assert_eq!(terminal, "truetrueNever");
    berth.run("berth submit serves -p lender -i any --inference --port 80");
    berth.run(
        "berth submit alone -p lender -i any --workers 2 --restart worker --framework torchrun -- train.py",
    );
    for name in ["serves", "alone"] {
        running(berth, &format!("lender/{name}"));
    }
    assert_eq!(of_pod("serves", "{.items[0].spec.restartPolicy}"), "Always");
    assert_eq!(of_pod("alone", "{.items[0].spec.restartPolicy}"), "OnFailure");
    let args = of_pod("alone", &format!("{main}.args}}"));
    assert!(args.contains("exec torchrun --nnodes=2 --nproc-per-node=1"), "{args}");
    let shown = berth.json("berth get lender/alone");
    assert_eq!(shown["request"]["restart"], "worker", "{shown}");
}

fn what_the_operator_refuses_waits(berth: &Berth) {
    let file = berth.home.path().join("refused.yaml");
    let text = "apiVersion: berth.dev/v1alpha1\nkind: Workload\nmetadata: {name: wild, namespace: berth-lender}\n\
                spec: {image: any, hostNetwork: true}\n";
    std::fs::write(&file, text).expect("a file");
    berth.kubectl(&format!("apply -f {}", file.display()));
    until("it waits", || {
        let ran = berth.home.run("berth why lender/wild");
        ran.code == Some(0) && ran.stdout.contains("hostNetwork is not allowed")
    });
    assert_eq!(berth.json("berth get lender/wild")["status"], "Pending");
}
