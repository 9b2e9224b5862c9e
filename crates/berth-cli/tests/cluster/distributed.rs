//! Completions, and gangs that `mpirun` starts, in Pods of a real node.

use crate::{berth::Berth, support::live::until};
use berth_testbed::{Image, Options};
use serde_json::Value;
use std::{fs, path::Path, process::Command};

const IMAGE: &str = "localhost/many:1";
/// Of this machine, what Open MPI and Python need of it.
const MACHINE: [&str; 5] = [
    "/usr:/usr:ro",
    "/usr/lib:/lib:ro",
    "/usr/lib64:/lib64:ro",
    "/etc/openmpi:/etc/openmpi:ro",
    "/etc/alternatives:/etc/alternatives:ro",
];
/// The Pods of a real node reach each other by the machine itself.
const BY_LOOPBACK: [&str; 3] =
    ["OMPI_MCA_btl_tcp_if_include=lo", "OMPI_MCA_oob_tcp_if_include=lo", "OMPI_MCA_mpi_yield_when_idle=1"];

/// Each process adds its rank; the first prints the sum and where the others were.
const SUM: &str = "import os
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.Get_rank())
workers = world.gather(os.environ['BERTH_RANK'])
if world.Get_rank() == 0: print('sum', total, 'of', world.Get_size(), sorted(workers), flush=True)";

fn start(test: &str) -> Option<Berth> {
    let options = Options { real_node: true, real_gpus: 2, kwok: false, ..Options::default() };
    let berth = Berth::start(test, options)?;
    berth.cluster.import_image(&Image::new(IMAGE).shell().expect("busybox")).expect("it is imported");
    berth.run("berth project create lab --quota 2");
    berth.run("berth project update lab --allow-host-network --allow-privileged");
    Some(berth)
}

fn submit(berth: &Berth, line: &str, words: &[&str]) {
    let mut all: Vec<&str> = line.split_whitespace().collect();
    all.extend(["-p", "lab", "-i", IMAGE, "--local-image", "--"]);
    all.extend(words);
    until("the project is ready", || berth.home.run_words(&all).code == Some(0));
}

fn until_over(berth: &Berth, name: &str) -> Value {
    let mut shown = Value::Null;
    until(&format!("{name} is over"), || {
        shown = berth.json(&format!("berth get lab/{name}"));
        ["Succeeded", "Failed"].iter().any(|status| shown["status"] == *status)
    });
    shown
}

#[test]
fn completions_are_worked_at_together_in_pods_each_with_its_own_index() {
    let Some(berth) = start("completions on a real node of Kubernetes") else { return };
    let folder = berth.home.shared().display().to_string();
    // The fourth fails at its first attempt.
    let script = "echo $BERTH_INDEX of $BERTH_COMPLETIONS by $WORLD_SIZE | tee -a /out/seen; \
                  if [ $JOB_COMPLETION_INDEX = 3 ] && ! [ -e /out/once ]; then touch /out/once; exit 1; fi";
    let line = format!("berth submit sweep -g 1 --completions 6 --parallelism 2 -v {folder}:/out");
    submit(&berth, &line, &["sh", "-c", script]);
    let shown = until_over(&berth, "sweep");
    assert_eq!(shown["status"], "Succeeded", "{shown}");
    let seen = fs::read_to_string(Path::new(&folder).join("seen")).expect("they ran");
    let mut seen: Vec<&str> = seen.lines().collect();
    seen.sort_unstable();
    let once = |index: u32| format!("{index} of 6 by 1");
    assert_eq!(seen, [0, 1, 2, 3, 3, 4, 5].map(once));
    // As on one machine.
    assert_eq!((&shown["progress"]["step"], &shown["progress"]["steps"]), (&6.into(), &6.into()), "{shown}");
    assert_eq!((&shown["progress"]["percent"], &shown["failures"]), (&100.into(), &1.into()), "{shown}");
    assert_eq!((&shown["workers_min"], &shown["kind"]), (&2.into(), &"train".into()), "{shown}");
    let request = &shown["request"];
    assert_eq!((&request["completions"], &request["parallelism"]), (&6.into(), &2.into()), "{request}");
    assert_eq!((&request["workers"], &request["restart"]), (&2.into(), &"worker".into()), "{request}");
    let log = berth.run("berth logs lab/sweep --rank 1");
    assert!(log.contains(" of 6 by 1"), "what the last Pod of the second worker printed: {log}");
    let events = berth.run("berth events lab/sweep");
    assert!(events.contains("of 6 completions are done"), "{events}");
    let ran = berth.home.run("berth submit x -p lab -i any --completions 4 --parallelism 2 --min-workers 1");
    assert!(ran.code == Some(2) && ran.stderr.contains("--min-workers"), "{ran:?}");
}

#[test]
fn mpirun_starts_a_process_in_every_pod() {
    let has_mpi = Command::new("/usr/bin/python3").args(["-c", "import mpi4py"]).output();
    if !Path::new("/usr/bin/mpirun").exists() || !has_mpi.is_ok_and(|ran| ran.status.success()) {
        println!("SKIPPED: MPI is not tested, because Open MPI and mpi4py are not installed");
        return;
    }
    let Some(berth) = start("MPI on a real node of Kubernetes") else { return };
    let mounts: String = MACHINE.iter().map(|mount| format!(" -v {mount}")).collect();
    let variables: String = BY_LOOPBACK.iter().map(|variable| format!(" -e {variable}")).collect();
    let rest = format!("--host-network --backoff-limit 0{mounts}{variables}");
    submit(&berth, &format!("runai submit-mpi adds --processes 3 {rest}"), &["/usr/bin/python3", "-c", SUM]);
    let shown = until_over(&berth, "adds");
    let log = || berth.home.run("berth logs lab/adds");
    assert_eq!(shown["status"], "Succeeded", "{shown} {:?}", log());
    let request = &shown["request"];
    assert_eq!((&request["framework"], &request["command"][2]), (&"mpi".into(), &SUM.into()), "{request}");
    let text = log().stdout;
    assert!(text.contains("sum 3 of 3 ['0', '1', '2']"), "each in its own Pod: {text}");
    // What fails in one fails all, with the code of the command.
    submit(&berth, &format!("runai submit-mpi fails --processes 2 {rest}"), &["sh", "-c", "exit 3"]);
    let shown = until_over(&berth, "fails");
    assert_eq!((&shown["status"], &shown["ended"]["exit_code"]), (&"Failed".into(), &3.into()), "{shown}");
}
