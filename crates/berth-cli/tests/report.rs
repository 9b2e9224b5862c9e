//! The report's own scenario, typed as in the report, against the running product with real processes.

mod support;

use support::{
    live::{Server, until},
    typed::{SECTION_4_8, SECTION_4_9, SECTION_4_10},
};

/// GPUs over quota of every team, and who is pending, from what the two lists print.
fn standing(server: &Server) -> Vec<String> {
    let projects = server.json("berth project list");
    let list = server.run("runai list -A");
    let pending = |team: &str| {
        let rows = list.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let rows = rows.filter(|row| row.get(1) == Some(&"Pending") && row.contains(&team));
        rows.map(|row| row[0].to_owned()).collect::<Vec<_>>().join(" ")
    };
    let projects = projects["items"].as_array().expect("projects");
    let row = |project: &serde_json::Value| {
        let name = project["name"].as_str().expect("a name");
        format!("{name} {}/{} [{}]", project["allocated"], project["settings"]["quota"], pending(name))
    };
    projects.iter().map(row).collect()
}

/// Waits until nothing is on its way any more, then compares.
fn expect(server: &Server, expected: [&str; 4], running: usize) {
    until("everything is running or pending", || {
        let list = server.run("runai list -A");
        let settled = |row: &str| row.contains(" Running ") || row.contains(" Pending ");
        list.lines().skip(1).all(settled) && standing(server) == expected
    });
    let list = server.run("runai list -A");
    assert_eq!(list.lines().filter(|row| row.contains(" Running ")).count(), running, "{list}");
    // Each running workload is a process of this machine.
    let workloads = server.json("berth list -A");
    for workload in workloads["items"].as_array().expect("workloads") {
        for task in workload["tasks"].as_array().expect("tasks") {
            let pid = task["pid"].as_u64().expect("a process");
            assert!(std::path::Path::new(&format!("/proc/{pid}")).exists(), "{workload}");
        }
    }
}

/// Waits until the trainers have reported what they do; a busy machine gives them less for a while.
fn expect_utilisation(server: &Server, from: f64, to: f64) {
    until(&format!("utilisation is {from} to {to} %"), || {
        let totals = server.json("berth status")["totals"].clone();
        assert_ne!(totals["utilisation_source"], "measured", "declared devices are not measured: {totals}");
        totals["utilisation"].as_f64().is_some_and(|busy| (from..=to).contains(&busy))
    });
}

#[test]
fn the_sequences_of_the_report_reach_its_four_states_with_real_processes() {
    let jupyter = support::live::jupyter();
    let server = Server::of_the_report();
    for (position, line) in SECTION_4_8.iter().enumerate() {
        if position == 0 && !jupyter {
            // The notebook's place is taken by a shell, so that the numbers hold.
            server.run("runai submit a-1-1-jupyter -i bash -g 1 --interactive --command sleep --args infinity -p team-a");
            continue;
        }
        let said = server.run(line);
        assert!(said.contains("has been submitted successfully"), "{line}: {said}");
        if position == 2 {
            expect_utilisation(&server, 17.0, 19.0);
        }
    }
    expect(&server, ["team-a 4/4 []", "team-b 4/2 []", "team-c 4/2 []", "team-d 4/8 []"], 13);
    expect_utilisation(&server, 90.0, 94.0);
    let shared = |name: &str| server.workload(name)["tasks"][0].clone();
    assert_eq!(shared("team-b/b-1-g06")["devices"], shared("team-b/b-2-g04")["devices"]);
    assert_eq!(shared("team-c/c-1-g05")["devices"], shared("team-c/c-3-g02")["devices"]);
    assert_eq!(
        shared("team-c/c-1-g05")["gpu_memory"],
        16_255u64 << 20,
        "half of a device is what the report shows"
    );

    SECTION_4_9.iter().for_each(|line| drop(server.run(line)));
    expect(&server, ["team-a 4/4 []", "team-b 2/2 [b-4-gg]", "team-c 2/2 [c-4-gg]", "team-d 8/8 []"], 13);
    // Who was paused was asked, and saved its state.
    for paused in ["team-b/b-4-gg", "team-c/c-4-gg"] {
        let log = server.run(&format!("runai logs {paused}"));
        assert!(log.contains("asked to stop in epoch") && log.contains("checkpoint is written"), "{log}");
        let why = server.json(&format!("berth why {paused}"));
        assert_eq!(why["rule"], "no-capacity", "{why}");
        assert_eq!(why["preempted"]["rule"], "quota-reclaim", "{why}");
        assert_eq!(why["accounts"][0]["used"], 2, "{why}");
    }

    let readme =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).expect("is there");
    let shown =
        readme.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a transcript");
    for part in shown.split("$ ").filter(|part| !part.is_empty()) {
        let (line, printed) = part.split_once('\n').expect("a command and what it prints");
        let real = server.run(line);
        assert!(
            ageless(&real).starts_with(&ageless(printed)),
            "the README shows\n{printed}\nand {line} prints\n{real}"
        );
    }

    SECTION_4_10.iter().for_each(|line| drop(server.run(line)));
    let queued = [
        "team-a 4/4 [a-3-gg a-4-gg]",
        "team-b 2/2 [b-4-gg b-5-gg]",
        "team-c 2/2 [c-4-gg c-6-gg]",
        "team-d 8/8 []",
    ];
    expect(&server, queued, 13);

    server.run("runai delete -p team-d d-1-gggg d-2-gg d-3-gg");
    expect(&server, ["team-a 8/4 []", "team-b 4/2 [b-5-gg]", "team-c 4/2 [c-6-gg]", "team-d 0/8 []"], 14);
    for resumed in ["team-b/b-4-gg", "team-c/c-4-gg"] {
        until("it continues from its checkpoint", || {
            server.run(&format!("runai logs {resumed}")).contains("resumed from epoch")
        });
        assert_eq!(server.workload(resumed)["runs"], 2);
    }
}

/// A text without how long ago things happened.
fn ageless(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let is_age = |at: usize| words.get(at + 1).is_some_and(|next| *next == "ago");
    let ageless = words.iter().enumerate().map(|(at, word)| if is_age(at) { "AGE" } else { *word });
    ageless.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_other_commands_of_the_report_work_as_printed() {
    let server = Server::of_the_report();
    server.run("runai project set team-a");
    server.run("runai submit hyper1 -i gcr.io/run-ai-demo/quickstart -g 1");
    server.until_status("team-a/hyper1", "Running");
    let list = server.run("runai list");
    let table = list.strip_prefix("Showing jobs for project team-a\n\n").expect("the report's first line");
    assert_eq!(
        table
            .lines()
            .next()
            .expect("a header")
            .split("  ")
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>(),
        [
            "NAME",
            "STATUS",
            "AGE",
            "NODE",
            "IMAGE",
            "TYPE",
            "PROJECT",
            "USER",
            "GPUs",
            "CREATED BY CLI",
            "SERVICE URL(S)"
        ]
    );
    assert!(server.run("runai get hyper1").contains("hyper1"));
    until("it prints what the report says", || {
        let log = server.run("runai logs hyper1");
        ["Epoch", "ETA", "loss", "accuracy", "/step"].iter().all(|word| log.contains(word))
    });
    let typo = server.try_run("runai delte hyper1");
    assert_eq!(
        (typo.code, typo.stderr.lines().next()),
        (Some(2), Some("runai: unknown command \"delte\"; did you mean \"delete\"?"))
    );
    server.run("runai delete hyper1");
    until("it is gone", || !server.run("runai list").contains("hyper1"));

    server.run("runai submit build1 -i python -g 1 --interactive --command sleep --args infinity");
    server.until_status("team-a/build1", "Running");
    server.run("runai delete build1");

    server.run(
        "runai submit netapp1 -i netapp/tensorflow-tfl-py3:20.01.0 --local-image --large-shm -v /mnt:/mnt -v /tmp:/tmp \
         --command python --args /netapp/scripts/run.py \
         --args --dataset_dir=/mnt/mount_0/dataset/imagenet/imagenet_original/ --args --num_mounts=2 \
         --args --dgx_version=dgx1 --args --num_devices=1 -g 1",
    );
    server.until_status("team-a/netapp1", "Running");
    until("it prints its arguments", || server.run("runai logs netapp1").contains("--num_devices=1"));

    server.run("berth volume create test");
    server.run(
        "runai submit pvc-test -p team-a --pvc test:/tmp/pvc1mount -i gcr.io/run-ai-demo/quickstart -g 1",
    );
    server.until_status("team-a/pvc-test", "Running");
    let shown = server.run("runai get pvc-test -p team-a");
    assert!(shown.contains("/tmp/pvc1mount"), "{shown}");
}
