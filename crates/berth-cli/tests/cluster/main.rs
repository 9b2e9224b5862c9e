//! The report's own scenario, typed as in the report, against Berth on a real Kubernetes API server.

mod berth;
mod beside;
mod distributed;
#[path = "../support/mod.rs"]
mod support;

use berth::Berth;
use berth_testbed::{Image, NodeSpec};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    process::Stdio,
    thread,
};
use support::{
    Home,
    live::{until, until_or_tell},
    typed::{SECTION_4_8, SECTION_4_9, SECTION_4_10},
};

/// The report's figures.
impl Berth {
    /// GPUs over quota of every team and who is pending, by Berth's lists.
    fn standing(&self) -> Vec<String> {
        let projects = self.json("berth project list");
        let workloads = self.json("berth list -A");
        let workloads = workloads["items"].as_array().expect("workloads");
        let row = |project: &Value| {
            let pending = workloads
                .iter()
                .filter(|one| one["project"] == project["name"] && one["status"] == "Pending");
            let pending: Vec<&str> = pending.filter_map(|one| one["name"].as_str()).collect();
            let name = project["name"].as_str().expect("a name");
            format!(
                "{name} {}/{} [{}]",
                project["allocated"],
                project["settings"]["quota"],
                pending.join(" ")
            )
        };
        projects["items"].as_array().expect("projects").iter().map(row).collect()
    }

    /// The same by kubectl, without the quotas it does not show. The group is named because newer clusters have Workloads of
    /// their own.
    fn pending_by_kubectl(&self) -> Vec<String> {
        let list = self.kubectl("get workloads.berth.dev -A --no-headers");
        let rows = list.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let mut pending: Vec<String> =
            rows.filter(|row| row[2] == "Pending").map(|row| row[1].to_owned()).collect();
        pending.sort();
        pending
    }

    fn expect(&self, expected: [&str; 4], running: usize) {
        let mut last = Vec::new();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            last.clone_from(&self.standing());
            let list = self.run("runai list -A");
            let settled =
                list.lines().skip(1).all(|row| row.contains(" Running ") || row.contains(" Pending "));
            let count = list.lines().filter(|row| row.contains(" Running ")).count();
            if settled && last == expected && count == running {
                break;
            }
            assert!(
                std::time::Instant::now() < end,
                "expected {expected:?} with {running} running, found {last:?}\n{list}"
            );
            thread::sleep(std::time::Duration::from_millis(50));
        }
        let names = |row: &&str| -> Vec<String> {
            let inside = row.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']')).unwrap_or_default();
            inside.split_whitespace().map(str::to_owned).collect()
        };
        let mut pending: Vec<String> = expected.iter().flat_map(names).collect();
        pending.sort();
        until("kubectl shows the same", || self.pending_by_kubectl() == pending);
    }
}

#[test]
fn the_sequences_of_the_report_reach_its_four_states_on_kubernetes() {
    let options = berth_testbed::Options { nodes: vec![NodeSpec::dgx1(2).with_dra()], ..Default::default() };
    let Some(berth) = Berth::start("the report on Kubernetes", options) else { return };
    for (team, quota) in [("team-a", 4), ("team-b", 2), ("team-c", 2), ("team-d", 8)] {
        berth.run(&format!("berth project create {team} --quota {quota}"));
    }
    let mut watching = Watching::start(&berth.home, "berth events -f -o json");
    for line in SECTION_4_8 {
        let said = berth.run(line);
        assert!(said.contains("has been submitted successfully"), "{line}: {said}");
    }
    berth.expect(["team-a 4/4 []", "team-b 4/2 []", "team-c 4/2 []", "team-d 4/8 []"], 13);
    let task = |name: &str| berth.json(&format!("berth get {name}"))["tasks"][0].clone();
    assert_eq!(task("team-b/b-1-g06")["devices"], task("team-b/b-2-g04")["devices"]);
    assert_eq!(task("team-c/c-1-g05")["devices"], task("team-c/c-3-g02")["devices"]);
    assert_eq!(
        task("team-c/c-1-g05")["gpu_memory"],
        16_255u64 << 20,
        "half of a device is what the report shows"
    );
    // The same in the words of Kubernetes: bound Pods, and claims with their devices.
    let claims = berth.kubectl("get resourceclaims -A -o json");
    let claims: Value = serde_json::from_str(&claims).expect("is JSON");
    let allocated = claims["items"]
        .as_array()
        .expect("claims")
        .iter()
        .filter(|claim| claim["status"]["allocation"].is_object());
    assert_eq!(allocated.count(), 13);
    let pods = berth.kubectl("get pods -A --field-selector spec.nodeName!= -o name -l berth.dev/workload");
    assert_eq!(pods.lines().count(), 13);

    SECTION_4_9.iter().for_each(|line| drop(berth.run(line)));
    berth.expect(["team-a 4/4 []", "team-b 2/2 [b-4-gg]", "team-c 2/2 [c-4-gg]", "team-d 8/8 []"], 13);
    let why = berth.json("berth why team-b/b-4-gg");
    assert_eq!(why["rule"], "no-capacity", "{why}");

    SECTION_4_10.iter().for_each(|line| drop(berth.run(line)));
    let queued = [
        "team-a 4/4 [a-3-gg a-4-gg]",
        "team-b 2/2 [b-4-gg b-5-gg]",
        "team-c 2/2 [c-4-gg c-6-gg]",
        "team-d 8/8 []",
    ];
    berth.expect(queued, 13);

    berth.run("runai delete -p team-d d-1-gggg d-2-gg d-3-gg");
    berth.expect(["team-a 8/4 []", "team-b 4/2 [b-5-gg]", "team-c 4/2 [c-6-gg]", "team-d 0/8 []"], 14);

    what_is_made_with_kubectl_is_shown_at_once(&berth);
    watching.until("team-b/b-4-gg", &["submitted", "started", "running", "evicted"]);
    watching.until("team-d/by-hand", &["submitted", "stopped", "resumed", "ended"]);
    // What was told before is remembered, and so is who had how much.
    let events = berth.run("berth events team-b/b-4-gg");
    assert!(events.contains("submitted by ") && events.contains("stopped for d-"), "{events}");
    until("who had how much is noted", || {
        let history = berth.home.run("berth history usage");
        history.code == Some(0) && history.stdout.contains("team-a")
    });
    a_request_that_is_sent_again_makes_one_workload(&berth);
    volumes_are_claims_of_their_project(&berth);
    labels_are_those_of_the_node(&berth);
    other_commands_of_the_report_work_as_printed(&berth);
    what_touches_the_node_needs_the_leave_of_its_project(&berth);
}

fn volumes_are_claims_of_their_project(berth: &Berth) {
    let ran = berth.home.run("berth volume create data");
    assert!(ran.code != Some(0) && ran.stderr.contains("belongs to a project"), "{ran:?}");
    for team in ["team-a", "team-b"] {
        berth.run(&format!("berth volume create data -p {team} --size 3Gi"));
    }
    let size = "get pvc data -n berth-team-a -o jsonpath={.spec.resources.requests.storage}";
    assert_eq!(berth.kubectl(size), (3u64 << 30).to_string());
    assert_eq!(berth.json("berth volume list")["items"].as_array().map(Vec::len), Some(2));
    berth.run("berth submit reads -p team-a -i berth/quickstart --pvc data:/data");
    let ran = berth.home.run("berth submit reads -p team-c -i berth/quickstart --pvc data:/data");
    assert!(
        ran.code != Some(0) && ran.stderr.contains("no volume \"data\" that project team-c can use"),
        "{ran:?}"
    );
    let ran = berth.home.run("berth volume delete data");
    assert!(ran.code != Some(0) && ran.stderr.contains("-p"), "several have one of that name: {ran:?}");
    let ran = berth.home.run("berth volume delete data -p team-a");
    assert!(ran.code != Some(0) && ran.stderr.contains("used by team-a/reads"), "{ran:?}");
    berth.run("berth volume delete data -p team-b");
    assert!(!berth.kubectl("get pvc -A -o name -n berth-team-b").is_empty());
    until("it is gone", || berth.json("berth volume list")["items"].as_array().map(Vec::len) == Some(1));
}

fn labels_are_those_of_the_node(berth: &Berth) {
    let nodes = berth.json("berth node list");
    let node = nodes["items"][0]["name"].as_str().expect("a node").to_owned();
    let by_kubectl = || berth.kubectl(&format!("get node {node} -o jsonpath={{.metadata.labels.rack}}"));
    let shown = || berth.json(&format!("berth node describe {node}"))["labels"]["rack"].clone();
    berth.run(&format!("berth node label {node} rack=r1"));
    assert_eq!(by_kubectl(), "r1");
    until("Berth shows the label", || shown() == "r1");
    let refused = berth.home.run(&format!("berth node label {node} rack=r2"));
    assert!(refused.code == Some(6) && refused.stderr.contains("--overwrite"), "{refused:?}");
    berth.run(&format!("berth node label {node} rack=r2 --overwrite"));
    assert_eq!(by_kubectl(), "r2");
    berth.run(&format!("berth node label {node} rack-"));
    assert_eq!(by_kubectl(), "");
    until("Berth shows no label", || shown().is_null());
}

fn other_commands_of_the_report_work_as_printed(berth: &Berth) {
    berth.run("berth project update team-d --allow-privileged");
    berth.run("runai project set team-d");
    berth.run("runai submit build1 -i python -g 1 --interactive --command sleep --args infinity");
    let netapp = "runai submit netapp1 -i netapp/tensorflow-tfl-py3:20.01.0 --local-image --large-shm -v /mnt:/mnt -v /tmp:/tmp \
                  --command python --args /netapp/scripts/run.py \
                  --args --dataset_dir=/mnt/mount_0/dataset/imagenet/imagenet_original/ --args --num_mounts=2 \
                  --args --dgx_version=dgx1 --args --num_devices=1 -g 1";
    until("the project may mount paths of the node", || berth.home.run(netapp).code == Some(0));
    for name in ["build1", "netapp1"] {
        until(&format!("{name} runs"), || {
            berth.json(&format!("berth get team-d/{name}"))["status"] == "Running"
        });
    }
    let list = berth.run("runai list");
    assert!(list.starts_with("Showing jobs for project team-d\n\nNAME "), "{list}");
    assert!(list.contains("build1") && list.contains("netapp1"), "{list}");
    berth.run("runai delete build1 netapp1");
    until("they are gone", || !berth.run("runai list").contains("netapp1"));
}

/// A command that prints as things happen.
struct Watching {
    child: std::process::Child,
    lines: std::sync::mpsc::Receiver<String>,
    seen: Vec<Value>,
}

impl Watching {
    fn start(home: &Home, line: &str) -> Self {
        let mut child = home
            .command(&line.split_whitespace().collect::<Vec<_>>())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdout = child.stdout.take().expect("it is piped");
        let (sender, lines) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let read = BufReader::new(stdout).lines().map_while(Result::ok);
            read.take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
        });
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits until all of these were told of a workload.
    fn until(&mut self, workload: &str, kinds: &[&str]) {
        until(&format!("{kinds:?} of {workload} are told"), || {
            self.seen.extend(self.lines.try_iter().filter_map(|line| serde_json::from_str(&line).ok()));
            let told = |kind: &&str| {
                self.seen.iter().any(|event| event["workload"] == workload && event["kind"] == **kind)
            };
            kinds.iter().all(told)
        });
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn a_request_that_is_sent_again_makes_one_workload(berth: &Berth) {
    let file =
        std::fs::read_to_string(berth.home.server_folder().join("server.json")).expect("it says where it is");
    let server: Value = serde_json::from_str(&file).expect("is JSON");
    let token = std::fs::read_to_string(berth.home.server_folder().join("token")).expect("a token");
    let address = server["address"].as_str().expect("an address").trim_start_matches("http://").to_owned();
    let post = |body: &str| {
        let mut stream = std::net::TcpStream::connect(&address).expect("it answers");
        let head = format!(
            "POST /api/v1/workloads HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\nidempotency-key: once\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            token.trim(),
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is answered");
        answer
    };
    let body = r#"{"project":"team-d","image":"berth/quickstart","gpus":"1"}"#;
    let name = |answer: &str| {
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        let body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
        body["workload"]["name"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let (first, second) = (name(&post(body)), name(&post(body)));
    assert_eq!(first, second);
    let there = berth.kubectl("get workloads.berth.dev -n berth-team-d -o name");
    assert_eq!(there.lines().count(), 1, "{there}");
    let other = post(&body.replace("\"1\"", "\"2\""));
    assert!(other.starts_with("HTTP/1.1 4") && other.contains("key"), "{other}");
}

fn what_touches_the_node_needs_the_leave_of_its_project(berth: &Berth) {
    let submit = "berth submit net -i berth/quickstart -p team-d --host-network --privileged";
    let refused = berth.home.run(submit);
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("--host-network is not allowed in project team-d"), "{}", refused.stderr);
    berth.run("berth project update team-d --allow-host-network --allow-privileged");
    until("the project allows it", || berth.home.run(submit).code == Some(0));
    until("its Pod is the node's", || {
        let path = "{.items[*].spec.hostNetwork}-{.items[*].spec.containers[0].securityContext.privileged}";
        let line = format!("get pods -n berth-team-d -l berth.dev/workload=net -o jsonpath={path}");
        berth.kubectl(&line) == "true-true"
    });
    berth.run("berth project update team-d --allow-host-network=false");
    until("it is taken back", || {
        let refused = berth.home.run("berth submit other -i berth/quickstart -p team-d --host-network");
        refused.stderr.contains("--host-network is not allowed")
    });
    berth.run("berth delete net -p team-d");
}

fn what_is_made_with_kubectl_is_shown_at_once(berth: &Berth) {
    let file = berth.home.path().join("workload.yaml");
    let text = "apiVersion: berth.dev/v1alpha1\nkind: Workload\nmetadata: {name: by-hand, namespace: berth-team-d}\n\
                spec: {image: berth/quickstart, gpus: 1, user: bob}\n";
    std::fs::write(&file, text).expect("a file");
    berth.kubectl(&format!("apply -f {}", file.display()));
    until("it is listed", || berth.run("berth list -p team-d").contains("by-hand"));
    berth.run("berth suspend by-hand -p team-d");
    let spec = berth.kubectl("get workloads.berth.dev by-hand -n berth-team-d -o jsonpath={.spec.suspend}");
    assert_eq!(spec, "true");
    until("it is suspended", || berth.json("berth get team-d/by-hand")["status"] == "Suspended");
    berth.run("berth resume by-hand -p team-d");
    berth.run("berth delete by-hand -p team-d");
    until("it is gone", || {
        !berth.kubectl("get workloads.berth.dev -n berth-team-d -o name").contains("by-hand")
    });
}

#[test]
fn a_trainer_on_a_real_node_is_reclaimed_saves_its_state_and_goes_on() {
    let options = berth_testbed::Options { real_node: true, real_gpus: 2, kwok: false, ..Default::default() };
    let Some(berth) = Berth::start("a trainer on a real node of Kubernetes", options) else { return };
    let image = Image::new("localhost/quickstart:1").shell().expect("busybox");
    let image = image.program(env!("CARGO_BIN_EXE_berth").as_ref(), "/bin/berth").expect("our own binary");
    berth.cluster.import_image(&image.entrypoint(["/bin/berth", "quickstart"])).expect("it is imported");
    berth.run("berth project create lender --quota 2");
    berth.run("berth project create borrower --quota 0");
    berth.run("berth project update borrower --allow-privileged");
    let saved = berth.home.path().join("saved");
    std::fs::create_dir(&saved).expect("a folder");
    let submit = format!(
        "runai submit trains -i localhost/quickstart:1 -g 2 -p borrower --local-image -v {0}:{0} \
         -e BERTH_CHECKPOINT_DIR={0} --args=--epochs=60 --args=--steps=5",
        saved.display(),
    );
    until("the project is allowed to", || berth.home.run(&submit).code == Some(0));
    let log = || berth.home.run("runai logs trains -p borrower").stdout;
    until("it trains", || log().contains("Epoch 3/"));
    until("it is seen how far it is", || {
        let shown = berth.json("berth get borrower/trains");
        shown["progress"]["epochs"] == 60
            && shown["progress"]["percent"].as_u64().is_some_and(|percent| percent > 0)
    });
    let list = berth.run("berth list -p borrower");
    assert!(list.contains('%'), "{list}");
    let wide = berth.kubectl("get workloads.berth.dev trains -n berth-borrower -o wide");
    assert!(wide.contains("epoch"), "{wide}");

    berth.run("runai submit owns -i localhost/quickstart:1 -g 2 -p lender --local-image --args=--epochs=5 --args=--steps=5");
    until("the borrower steps aside", || berth.json("berth get borrower/trains")["status"] == "Pending");
    assert!(saved.join("quickstart-0.json").exists(), "it saved its state when it was asked to stop");
    until("the owner is done", || berth.json("berth get lender/owns")["status"] == "Succeeded");
    until("it goes on from where it was", || log().contains("resumed from epoch"));
    let trains = berth.json("berth get borrower/trains");
    assert_eq!((trains["runs"].as_u64(), trains["preemptions"].as_u64()), (Some(2), Some(1)), "{trains}");
    until("it ends", || berth.json("berth get borrower/trains")["status"] == "Succeeded");
    let is_shown = || berth.json("berth get borrower/trains")["progress"]["percent"] == 100;
    let what_there_is = || {
        let workload =
            berth.kubectl("get workloads.berth.dev trains -n berth-borrower -o jsonpath={.status}");
        let pods = berth.kubectl("get pods -n berth-borrower -o wide");
        let printed =
            berth.kubectl("logs -n berth-borrower -l berth.dev/workload=trains --tail=30 --timestamps");
        format!("status {workload}\nPods\n{pods}\nlast lines\n{printed}")
    };
    until_or_tell("it is shown that nothing is left", is_shown, what_there_is);
}
