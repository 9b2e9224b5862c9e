//! Sixteen workers that really train together, are preempted together, and go on where they were.

mod support;

use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use support::live::{Server, cache, until};

const WORKERS: usize = 16;
/// Longer than a step takes, or all processes to meet, on a busy machine.
const STANDSTILL: Duration = Duration::from_secs(60);
const RESULT: &str = "weights 3.000 -2.000 0.500 1.000 after";

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    path.canonicalize().expect("is there").display().to_string()
}

fn log(server: &Server, rank: usize) -> String {
    server.try_run(&format!("berth logs team-a/fit --rank {rank}")).stdout
}

/// The losses that were printed, in their order.
fn losses(log: &str) -> Vec<f64> {
    let loss = |line: &str| line.split_once(", loss ")?.1.trim().parse().ok();
    log.lines().filter_map(loss).collect()
}

/// One at a time: they are large.
static TURN: Mutex<()> = Mutex::new(());

/// Trains for a while, gives the GPUs to somebody else, gets them back and trains to the end.
fn train(words: &[&str], what: &str) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // The program lies in the clone, which may be closed to accounts of users.
    let server = Server::start("--nodes 2xdgx1 --project team-a=8 --project team-b=8 --tasks-run-as server");
    let ran = server.home.run_words(words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // How many workers each run had when it was first seen; at the end they leave one by one.
        let watcher = scope.spawn(|| {
            let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
            while !is_over.load(Ordering::Relaxed) {
                let seen = server.workload("team-a/fit");
                if seen["status"] == "Starting" || seen["status"] == "Running" {
                    let size = seen["tasks"].as_array().map_or(0, Vec::len);
                    sizes.entry(seen["runs"].as_u64().unwrap_or(0)).or_insert(size);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            sizes
        });
        let story = scope.spawn(|| {
            until("it learns", || log(&server, 0).contains("step 60 of"));
            server.run("berth submit other -p team-b -g 8 -- sleep 1000");
            server.until_status("team-b/other", "Running");
            let waiting = server.until_status("team-a/fit", "Preempted|Pending");
            assert_eq!(waiting["preemptions"], 1, "{waiting}");
            let first: Vec<String> = (0..WORKERS).map(|rank| log(&server, rank)).collect();
            server.run("berth delete other -p team-b");
            let ended = until_over(&server);
            assert_eq!(ended["status"], "Succeeded", "{ended} {}", log(&server, 0));
            assert_eq!((&ended["runs"], &ended["failures"]), (&2.into(), &0.into()), "{ended}");
            first
        });
        let first = story.join();
        is_over.store(true, Ordering::Relaxed);
        let sizes = watcher.join().expect("it watches");
        assert!(sizes.values().all(|size| *size == WORKERS), "half a gang: {sizes:?}");
        check(&server, &first.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), what);
    });
    until("nothing is left", || server.task_processes().is_empty());
}

/// Waits for the end for as long as it gets on; a training that stands still is shown.
fn until_over(server: &Server) -> Value {
    let (mut seen, mut since) = (String::new(), Instant::now());
    loop {
        let workload = server.workload("team-a/fit");
        if ["Succeeded", "Failed", "BackOff"].iter().any(|status| workload["status"] == *status) {
            return workload;
        }
        let now = log(server, 0);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        assert!(since.elapsed() < STANDSTILL, "it stands still: {workload} {seen}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn check(server: &Server, first: &[String], what: &str) {
    let of = |rank| server.run(&format!("berth logs team-a/fit --rank {rank}"));
    let second: Vec<String> = (0..WORKERS).map(of).collect();
    let (begun, ended) = (first.concat(), second.concat());
    // What processes of `mpirun` print at the same time may come in one line.
    let starts = |text: &str| -> Vec<u32> {
        let step = |rest: &str| rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok();
        text.split(" goes on from step ").skip(1).filter_map(step).collect()
    };
    assert_eq!(starts(&begun), [0; WORKERS], "all began together: {begun}");
    let resumed = starts(&ended);
    assert_eq!(resumed.len(), WORKERS, "all went on together: {ended}");
    assert!(resumed[0] >= 60 && resumed.iter().all(|step| *step == resumed[0]), "{resumed:?}");
    let (before, after) = (losses(&begun), losses(&ended));
    let falls = |losses: &[f64]| losses.is_sorted_by(|one, next| next <= one);
    assert!(falls(&before) && falls(&after) && after[0] <= before[before.len() - 1], "{before:?} {after:?}");
    assert!(before[before.len() - 1] < before[0] / 2.0, "it learnt: {before:?}");
    assert!(ended.contains(RESULT), "{ended}");
    println!(
        "{WORKERS} {what} trained together, preempted after a loss of {:.4}, went on from step {}, ended at {:.6}",
        before[before.len() - 1],
        resumed[0],
        after[after.len() - 1]
    );
}

#[test]
fn sixteen_workers_train_with_the_collectives_of_jax() {
    let python: PathBuf = cache().join("jax/bin/python");
    if !cache().join("jax/bin/.whole").exists() {
        eprintln!(
            "SKIPPED: training with JAX is not tested, because it is not installed (make test installs it)"
        );
        return;
    }
    let (python, program) = (python.display().to_string(), example("train_jax.py"));
    let submit = "berth submit fit -p team-a -g 1 --workers 16 --grace 60s --";
    let mut words: Vec<&str> = submit.split(' ').collect();
    words.extend([python.as_str(), program.as_str(), "--steps", "400"]);
    train(&words, "workers of JAX");
}

#[test]
fn sixteen_workers_train_with_mpi() {
    let has_mpi = Command::new("/usr/bin/python3").args(["-c", "import mpi4py"]).output();
    if !Path::new("/usr/bin/mpirun").exists() || !has_mpi.is_ok_and(|ran| ran.status.success()) {
        eprintln!("SKIPPED: training with MPI is not tested, because Open MPI and mpi4py are not installed");
        return;
    }
    let program = example("train_mpi.py");
    let submit =
        "runai submit-mpi fit -p team-a -g 1 --processes 16 --grace 30s -e OMPI_MCA_mpi_yield_when_idle=1 --";
    let mut words: Vec<&str> = submit.split(' ').collect();
    words.extend(["/usr/bin/python3", program.as_str(), "--steps", "400"]);
    train(&words, "processes of MPI");
}
