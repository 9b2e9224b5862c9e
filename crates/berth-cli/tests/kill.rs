//! The server is killed at random moments under a stream of submissions and completions.
//!
//! Every acknowledged submission is there afterwards and ran exactly once, no process is left, the log is readable and the
//! state keeps the rules. BERTH_KILLS sets how often; `make soak` runs 300.

mod support;

use berth_api::{GpuAmount, Status, WorkloadQuery, WorkloadRequest};
use berth_client::{Client, Endpoint};
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use support::live::{Server, until};

/// Submissions are made by this many at a time.
const SUBMITTERS: usize = 3;
/// Workloads that are not over, at most: enough that some wait, few enough that all end soon.
const UNFINISHED_MAX: usize = 60;

fn client(address: &str, token: &str) -> Client {
    let address = address.parse().expect("an address");
    Client::new(Endpoint::new(address, token.trim()).expect("an endpoint"), "ada")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

/// Appends a line for every start, lives for a moment, and ends well.
fn request(name: &str, marks: &Path, random: u64) -> WorkloadRequest {
    let script = format!("echo $BERTH_RUN >> {}/{name}; sleep 0.{:02}", marks.display(), random % 30);
    WorkloadRequest {
        name: Some(name.into()),
        project: "team-a".into(),
        image: "bash".into(),
        command: vec!["sh".into(), "-c".into(), script],
        gpus: Some(["1", "2", "0.5"][random as usize % 3].parse::<GpuAmount>().expect("an amount")),
        ..WorkloadRequest::default()
    }
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn nothing_acknowledged_is_lost_or_run_twice_whenever_the_server_dies() {
    let kills: u64 = std::env::var("BERTH_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(10);
    let mut seed = std::env::var("BERTH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed_u64);
    eprintln!("{kills} kills, BERTH_SEED={seed}");
    let mut server = Server::start("--nodes 1xdgx1 --project team-a=8");
    let marks = server.home.shared();
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let tried = Arc::new(Mutex::new(0u64));
    for kill in 0..kills {
        let stop = Arc::new(AtomicBool::new(false));
        let submitters: Vec<_> = (0..SUBMITTERS as u64)
            .map(|lane| {
                let (address, token) = server.endpoint();
                let (stop, acknowledged, tried, marks) =
                    (stop.clone(), acknowledged.clone(), tried.clone(), marks.clone());
                let mut seed = random(&mut seed) ^ lane | 1;
                std::thread::spawn(move || {
                    block_on(async {
                        let client = client(&address, &token);
                        for count in 0.. {
                            if stop.load(Ordering::Relaxed) {
                                return;
                            }
                            let name = format!("k{kill}-{lane}-{count}");
                            *tried.lock().expect("no panic") += 1;
                            let request = request(&name, &marks, random(&mut seed));
                            match client.submit(&request).await {
                                Ok(_) => drop(acknowledged.lock().expect("no panic").insert(name)),
                                // The server is gone, or going.
                                Err(_) if stop.load(Ordering::Relaxed) => return,
                                Err(_) => {}
                            }
                            let query = WorkloadQuery {
                                finished: Some(false),
                                limit: Some(1_000),
                                ..WorkloadQuery::default()
                            };
                            while client
                                .workloads(&query)
                                .await
                                .is_ok_and(|list| list.value.items.len() > UNFINISHED_MAX)
                            {
                                tokio::time::sleep(Duration::from_millis(10)).await;
                            }
                        }
                    });
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(random(&mut seed) % 400));
        server.signal("KILL");
        stop.store(true, Ordering::Relaxed);
        submitters.into_iter().for_each(|submitter| submitter.join().expect("a submitter does not panic"));
        if kill % 25 == 0 {
            let checked = server.try_run("berth check");
            assert_eq!(checked.code, Some(0), "{checked:?}");
        }
        server.up();
    }
    let acknowledged = acknowledged.lock().expect("no panic").clone();
    let (address, token) = server.endpoint();
    let unfinished = || {
        let query = WorkloadQuery { finished: Some(false), limit: Some(1_000), ..WorkloadQuery::default() };
        block_on(async { client(&address, &token).workloads(&query).await }).expect("it answers").value.items
    };
    until("everything that was submitted is over", || unfinished().is_empty());

    let finished = block_on(async {
        client(&address, &token)
            .all_workloads(&WorkloadQuery { finished: Some(true), ..WorkloadQuery::default() })
            .await
    });
    let finished = finished.expect("it answers").value.items;
    let known: BTreeSet<String> = finished.iter().map(|workload| workload.name.clone()).collect();
    let lost: Vec<_> = acknowledged.difference(&known).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    for workload in &finished {
        assert_eq!(workload.status, Status::Succeeded, "{workload:?}");
        let starts = fs::read_to_string(marks.join(&workload.name)).unwrap_or_default();
        assert_eq!(starts, "1\n", "{} ran so often", workload.name);
    }
    let strangers = fs::read_dir(&marks).expect("is there").flatten();
    let strangers =
        strangers.filter(|file| !known.contains(&file.file_name().to_string_lossy().into_owned()));
    assert_eq!(strangers.count(), 0, "something ran that nobody knows");
    until("no process is left", || server.task_processes().is_empty());
    server.signal("TERM");
    let checked = server.try_run("berth check");
    assert_eq!(checked.code, Some(0), "{checked:?}");
    eprintln!(
        "{kills} kills; {} tried, {} acknowledged, {} known; none lost, none run twice, no process left; {}",
        tried.lock().expect("no panic"),
        acknowledged.len(),
        finished.len(),
        checked.stdout.trim()
    );
}
