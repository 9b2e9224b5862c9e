//! Gangs, replicas and completions as real processes of a running server.

mod support;

use std::{fs, io::Write, net::TcpStream, path::Path, process::Command};
use support::live::{Server, signal, until};

fn server() -> Server {
    Server::start("--nodes 2xdgx1 --project team-a=16 --project team-b=8")
}

fn submit(server: &Server, line: &str, words: &[&str]) {
    let mut all: Vec<&str> = line.split_whitespace().collect();
    all.push("--");
    all.extend(words);
    let ran = server.home.run_words(&all);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

fn log(server: &Server, place: &str, rank: u32) -> String {
    server.try_run(&format!("berth logs {place} --rank {rank}")).stdout
}

#[test]
fn every_worker_knows_its_place_in_the_names_that_frameworks_read() {
    let server = server();
    submit(&server, "berth submit gang -p team-a -g 8 --workers 2", &["sh", "-c", "env | sort"]);
    server.until_status("team-a/gang", "Succeeded");
    let logs = [0, 1].map(|rank| log(&server, "team-a/gang", rank));
    for (rank, text) in logs.iter().enumerate() {
        for line in [
            format!("RANK={rank}"),
            "WORLD_SIZE=2".into(),
            "LOCAL_RANK=0".into(),
            "LOCAL_WORLD_SIZE=1".into(),
            format!("NODE_RANK={rank}"),
            "MASTER_ADDR=127.0.0.1".into(),
            format!("HOROVOD_RANK={rank}"),
            "HOROVOD_SIZE=2".into(),
            "HOROVOD_LOCAL_SIZE=1".into(),
            format!("HOROVOD_CROSS_RANK={rank}"),
            "HOROVOD_CROSS_SIZE=2".into(),
            format!("JAX_PROCESS_ID={rank}"),
            "JAX_NUM_PROCESSES=2".into(),
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is missing: {text}");
        }
        assert!(text.contains(&format!(r#""task":{{"index":{rank},"type":"worker"}}"#)), "{text}");
    }
    let of = |name: &str| {
        let value = |text: &String| {
            let line = text.lines().find(|line| line.starts_with(name)).expect("is set");
            line.trim_start_matches(name).to_owned()
        };
        [value(&logs[0]), value(&logs[1])]
    };
    let [port, same] = of("MASTER_PORT=");
    assert_eq!(port, same, "they meet at one port");
    let port: u16 = port.parse().expect("a port");
    let worker = |rank: u16| format!("127.0.0.1:{}", port + 1 + rank);
    assert!(logs[0].contains(&format!(r#""worker":["{}","{}"]"#, worker(0), worker(1))), "{}", logs[0]);
}

#[test]
fn a_dead_worker_restarts_itself_or_the_gang_as_it_was_asked_for() {
    let server = server();
    let folder = server.home.shared().display().to_string();
    let script = |name: &str| {
        format!(
            "echo $$ >> {folder}/{name}-$RANK; if [ $RANK = 1 ] && ! [ -e {folder}/{name}-once ]; then touch {folder}/{name}-once; \
             exit 3; fi; sleep 1000"
        )
    };
    let starts = |name: &str, rank: u32| {
        fs::read_to_string(Path::new(&folder).join(format!("{name}-{rank}")))
            .unwrap_or_default()
            .lines()
            .count()
    };
    submit(
        &server,
        "berth submit alone -p team-a -g 1 --workers 2 --restart worker",
        &["sh", "-c", &script("alone")],
    );
    until("it starts again alone", || starts("alone", 1) == 2);
    let shown = server.until_status("team-a/alone", "Running");
    assert_eq!((starts("alone", 0), shown["failures"].as_u64()), (1, Some(1)), "{shown}");
    assert_eq!(shown["message"], "worker 1 exited with code 3; it is started again");
    submit(
        &server,
        "berth submit all -p team-a -g 1 --workers 2 --restart gang",
        &["sh", "-c", &script("all")],
    );
    until("the gang starts again", || starts("all", 1) == 2 && starts("all", 0) == 2);
    server.run("berth delete alone all -p team-a");
    until("nothing is left", || server.task_processes().is_empty());
}

#[test]
fn completions_are_worked_at_together_each_with_its_own_index() {
    let server = server();
    let folder = server.home.shared().display().to_string();
    // The fourth fails at its first attempt.
    let script = format!(
        "echo $BERTH_INDEX of $BERTH_COMPLETIONS >> {folder}/seen; \
         if [ $JOB_COMPLETION_INDEX = 3 ] && ! [ -e {folder}/once ]; then touch {folder}/once; exit 1; fi; sleep 0.1"
    );
    submit(
        &server,
        "berth submit sweep -p team-a -g 1 --completions 6 --parallelism 2",
        &["sh", "-c", &script],
    );
    let shown = server.until_status("team-a/sweep", "Succeeded|Failed");
    assert_eq!(shown["status"], "Succeeded", "{shown}");
    let seen = fs::read_to_string(Path::new(&folder).join("seen")).expect("they ran");
    let mut seen: Vec<&str> = seen.lines().collect();
    seen.sort_unstable();
    assert_eq!(seen, ["0 of 6", "1 of 6", "2 of 6", "3 of 6", "3 of 6", "4 of 6", "5 of 6"]);
    for (line, words) in [
        ("berth submit x -p team-a -i bash --parallelism 2", "none are asked for"),
        ("berth submit x -p team-a -i bash --completions 0", "0 completions"),
        ("berth submit x -p team-a -i bash --completions 4 --interactive", "has no completions"),
        ("berth submit x -p team-a -i bash --completions 4 --workers 2", "--parallelism"),
        ("berth submit x -p team-a -i bash --framework mpi", "none is named"),
        ("berth submit x -p team-a -i bash --framework pvm", "possible values"),
        ("berth submit x -p team-a -i bash --workers 3 --min-workers 4", "4 of 3 workers"),
    ] {
        let ran = server.try_run(line);
        assert!(ran.code == Some(2) && ran.stderr.contains(words), "{line}: {ran:?}");
    }
}

#[test]
fn more_workers_than_could_ever_fit_are_told_by_how_much() {
    let server = server();
    submit(&server, "berth submit huge -p team-a -g 8 --workers 3", &["true"]);
    let why = server.run("berth why huge -p team-a");
    assert!(why.contains("its nodes hold 2 of its 3 workers"), "{why}");
}

/// Answers with its rank.
const SERVE: &str = "import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'from ' + os.environ['RANK'].encode())
    def log_message(self, *words): pass
http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), Handler).serve_forever()";

fn get(server: &Server, path: &str) -> String {
    use std::io::Read;
    let (address, token) = server.endpoint();
    let authority = address.trim_start_matches("http://");
    let mut stream = TcpStream::connect(authority).expect("the server listens");
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\nauthorization: Bearer {}\r\n\r\n",
        token.trim()
    );
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn replicas_serve_at_one_address_and_one_that_died_comes_back_by_itself() {
    let server = server();
    submit(
        &server,
        "berth submit model -p team-a -g 1 --inference --replicas 2 --port 9444",
        &["python3", "-c", SERVE],
    );
    server.until_status("team-a/model", "Running");
    let answers = |wanted: &str| get(&server, "/team-a/model/").contains(wanted);
    for replica in ["from 0", "from 1"] {
        until(replica, || answers(replica));
    }
    let before = server.workload("team-a/model");
    let pid = before["tasks"][1]["pid"].as_u64().expect("a process");
    signal(pid as u32, "KILL");
    until("it came back", || {
        let task = &server.workload("team-a/model")["tasks"][1];
        task["pid"].as_u64().is_some_and(|now| now != pid) && task["status"] == "Running"
    });
    until("both serve", || answers("from 1"));
    let after = server.workload("team-a/model");
    assert_eq!(after["tasks"][0]["pid"], before["tasks"][0]["pid"], "the other one was not disturbed");
}

/// Asks who is there, again and again, and says so when that changed.
const WATCH: &str = "import json, os, time, urllib.request
known = ''
while True:
    url = os.environ['BERTH_REPORT_URL'] + '/world?unlike=' + known
    request = urllib.request.Request(url, headers={'Authorization': 'Bearer ' + os.environ['BERTH_REPORT_TOKEN']})
    world = json.load(urllib.request.urlopen(request, timeout=60))
    now = ','.join(map(str, world['ranks']))
    if now != known: print('there are', world['size'], 'of', world['max'], flush=True)
    known = now";

#[test]
fn elastic_workers_join_and_leave_and_the_others_hear_of_it() {
    let server = server();
    submit(
        &server,
        "berth submit elastic -p team-a -g 4 --workers 4 --min-workers 2 --grace 1s",
        &["python3", "-c", WATCH],
    );
    until("all have joined", || log(&server, "team-a/elastic", 0).contains("there are 4 of 4"));
    submit(&server, "berth submit other -p team-b -g 8", &["sleep", "1000"]);
    until("extras have left", || log(&server, "team-a/elastic", 0).contains("there are 2 of 4"));
    server.until_status("team-b/other", "Running");
    server.run("berth delete other -p team-b");
    until("they join again", || log(&server, "team-a/elastic", 0).matches("there are 4 of 4").count() == 2);
}

#[test]
fn torchrun_is_started_on_every_worker_with_what_it_needs() {
    let server = server();
    let folder = server.home.shared().join("bin");
    fs::create_dir(&folder).expect("a folder");
    let program = folder.join("torchrun");
    fs::write(&program, "#!/bin/sh\necho $RANK \"$@\"\n").expect("is written");
    let made = Command::new("chmod").arg("755").arg(&program).status().expect("chmod");
    assert!(made.success());
    let path = format!("PATH={}:/usr/bin:/bin", folder.display());
    let mut words = "berth submit torch -p team-a -g 2 --workers 2 --framework torchrun -e"
        .split(' ')
        .collect::<Vec<_>>();
    words.extend([path.as_str(), "--", "python3", "train.py", "--lr", "0.1"]);
    let ran = server.home.run_words(&words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    server.until_status("team-a/torch", "Succeeded");
    let logs = [0, 1].map(|rank| log(&server, "team-a/torch", rank));
    for (rank, text) in logs.iter().enumerate() {
        assert!(
            text.starts_with(&format!("{rank} --nnodes=2 --nproc-per-node=2 --rdzv-id=berth-")),
            "{text}"
        );
        assert!(
            text.contains("--rdzv-endpoint=127.0.0.1:") && text.ends_with("train.py --lr 0.1\n"),
            "{text}"
        );
    }
    assert_eq!(logs[0][2..], logs[1][2..], "they meet at one place");
}

/// Each process adds its rank; the first prints the sum and where the others were.
const SUM: &str = "import os
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.Get_rank())
workers = world.gather(os.environ['BERTH_RANK'] + ' on ' + os.environ['BERTH_NODE'])
if world.Get_rank() == 0: print('sum', total, 'of', world.Get_size(), sorted(workers), flush=True)";

#[test]
fn mpirun_starts_a_process_in_every_worker() {
    let has_mpi = Command::new("/usr/bin/python3").args(["-c", "import mpi4py"]).output();
    if !Path::new("/usr/bin/mpirun").exists() || !has_mpi.is_ok_and(|ran| ran.status.success()) {
        println!("SKIPPED: MPI is not tested, because Open MPI and mpi4py are not installed");
        return;
    }
    let server = server();
    submit(&server, "runai submit-mpi mpi -p team-a -g 4 --processes 4", &["/usr/bin/python3", "-c", SUM]);
    let shown = server.until_status("team-a/mpi", "Succeeded|Failed|BackOff");
    let text = log(&server, "team-a/mpi", 0);
    assert_eq!(shown["status"], "Succeeded", "{shown} {text}");
    assert!(
        text.contains("sum 6 of 4 ['0 on node1', '1 on node1', '2 on node2', '3 on node2']"),
        "each in its own worker: {text}"
    );
    until("nothing is left", || server.task_processes().is_empty());
}
