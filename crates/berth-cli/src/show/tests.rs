//! What people, scripts and other programs see of fixed answers.

use super::{
    Described, Finished,
    examples::{look, read, running, starting, waiting},
};
use crate::output::{Form, Look, Show, Spelling, render};
use berth_api::{
    Cluster, DepartmentList, EventList, Node, NodeList, Preview, Project, ProjectList, Status,
    SuggestedChange, VolumeList, Why, Workload, WorkloadList,
};
use serde_json::json;

fn text(look: &Look, what: &impl Show) -> String {
    render(Form::Table, look, what).expect("can be rendered")
}

fn runai() -> Look {
    Look { spelling: Spelling::Runai, ..look() }
}

fn workloads() -> WorkloadList {
    WorkloadList { items: vec![running(), waiting()], next: None }
}

fn projects() -> ProjectList {
    read(json!({"items": [
        {"name": "team-a", "settings": {"quota": 4, "department": "vision", "interactive_limit_secs": 7200,
            "train_nodes": {"type": ["dgx1", "dgx2"]}},
         "allocated": 8, "allocated_non_preemptible": 1, "fair_share": 6.5, "waiting": 2, "running_count": 3, "waiting_count": 1},
        {"name": "team-b", "settings": {"quota": 2, "weight": 0, "limit": 4}, "allocated": 0, "allocated_non_preemptible": 0,
         "fair_share": 2, "waiting": 0, "running_count": 0, "waiting_count": 0}
    ]}))
}

#[test]
fn workloads_as_a_table() {
    assert_eq!(
        text(&look(), &workloads()),
        "\
NAME    STATUS   KIND         PROJECT  USER  GPUS  NODE   AGE  PROGRESS
hyper1  Running  train        team-a   ada   2     dgx-1  5m   40%, 7m left
b-4-gg  Pending  interactive  team-b   bob   0.5          2h
"
    );
}

#[test]
fn workloads_as_a_wide_table() {
    assert_eq!(
        text(&Look { wide: true, headers: false, ..look() }, &workloads()),
        "\
hyper1  Running  train        team-a  ada  2    dgx-1  5m  40%, 7m left  50   yes  1    quickstart
b-4-gg  Pending  interactive  team-b  bob  0.5         2h                100  no   2    jupyter/base-notebook  http://127.0.0.1:8888/  waits for 2 GPUs
"
    );
}

#[test]
fn workloads_as_names_json_and_yaml() {
    let look = look();
    assert_eq!(render(Form::Name, &look, &workloads()).expect("is text"), "team-a/hyper1\nteam-b/b-4-gg\n");
    let json = render(Form::Json, &look, &workloads()).expect("is JSON");
    assert!(json.starts_with("{\n  \"items\": [\n    {\n      \"id\": 7,\n"), "{json}");
    assert_eq!(serde_json::from_str::<WorkloadList>(&json).expect("is read again"), workloads());
    let yaml = render(Form::Yaml, &look, &workloads()).expect("is YAML");
    assert!(yaml.starts_with("items:\n"), "{yaml}");
    assert!(yaml.contains("submitted_at: \"2026-11-17T08:00:00.000Z\"\n"), "{yaml}");
    assert_eq!(serde_saphyr::from_str::<WorkloadList>(&yaml).expect("is read again"), workloads());
}

#[test]
fn workloads_in_the_words_of_the_report() {
    let list = WorkloadList { items: vec![starting(), waiting()], next: None };
    assert_eq!(
        text(&runai(), &list),
        "\
NAME    STATUS             AGE  NODE   IMAGE                  TYPE         PROJECT  USER  GPUs  CREATED BY CLI  SERVICE URL(S)
hyper1  ContainerCreating  5m   dgx-1  quickstart             Train        team-a   ada   2     true
b-4-gg  Pending            2h          jupyter/base-notebook  Interactive  team-b   bob   0.5   false           http://127.0.0.1:8888/
"
    );
}

#[test]
fn only_terminals_see_colours() {
    let coloured = text(&Look { colour: true, ..look() }, &workloads());
    assert!(
        coloured.contains("\x1b[32mRunning\x1b[0m") && coloured.contains("\x1b[33mPending\x1b[0m"),
        "{coloured:?}"
    );
    assert!(!text(&look(), &workloads()).contains('\x1b'));
}

fn described(workload: Workload) -> Described {
    let events: EventList = read(json!({"cursor": 9, "items": [
        {"seq": 9, "at": "2026-11-17T08:00:01.000Z", "kind": "started", "level": "normal", "workload": "team-a/hyper1",
         "message": "started on dgx-1"}
    ]}));
    Described { workload, events: events.items }
}

#[test]
fn all_about_a_workload() {
    assert_eq!(
        text(&look(), &described(running())),
        "\
Name:          hyper1
Project:       team-a
User:          ada
Kind:          train
Status:        Running
Submitted:     2026-11-17 08:00:00 UTC (5m ago)
Started:       2026-11-17 08:00:01 UTC (4m ago)
Progress:      40%, 7m left
Metrics:       loss 0.31
GPUs:          2 requested, 2 allocated
Priority:      50, preemptible
Image:         quickstart
Command:       python train.py
Volume:        test at /tmp/pvc1mount
Submitted as:  berth submit hyper1 -i quickstart -g 2

Workers:
  RANK  STATUS   NODE   DEVICES  GPUS  GPU MEMORY  PID   AGE
  0     Running  dgx-1  0,1      2                 4711  4m

Events:
  AGE  KIND     ABOUT          MESSAGE
  4m   started  team-a/hyper1  started on dgx-1
"
    );
    let evicted = text(&look(), &Described { workload: waiting(), events: vec![] });
    assert!(evicted.contains("Runs:       2 (0 failed, 1 preempted)\n"), "{evicted}");
    assert!(evicted.contains(
        "  AGE  RULE           FOR            SINCE CHECKPOINT\n  1h   quota-reclaim  team-d/d-2-gg  120 GPU-seconds\n"
    ));
    let json = render(Form::Json, &look(), &described(running())).expect("is JSON");
    assert_eq!(serde_json::from_str::<Workload>(&json).expect("is a workload and nothing else"), running());
    let yaml = render(Form::Yaml, &look(), &described(running())).expect("is YAML");
    assert_eq!(serde_saphyr::from_str::<Workload>(&yaml).expect("is a workload and nothing else"), running());
}

#[test]
fn all_about_a_workload_in_the_words_of_the_report() {
    assert_eq!(
        text(&runai(), &described(running())),
        "\
NAME    TYPE   STATUS   NAMESPACE     PRIORITY  TRAINING DURATION
hyper1  Train  Running  runai-team-a  50        4m59s

Pods:
POD       STATUS   TRAINER  AGE  NODE
hyper1-0  Running  Train    4m   dgx-1

Volumes:
VOLUME  MOUNTED AT
test    /tmp/pvc1mount

Events:
SOURCE      TYPE    AGE  MESSAGE
job/hyper1  Normal  4m   [started] started on dgx-1
"
    );
}

#[test]
fn what_has_finished() {
    let ended = read(json!({"at": "2026-11-17T08:03:01.000Z", "exit_code": 1}));
    let workload = Workload { status: Status::Failed, ended: Some(ended), ..running() };
    // One that waited for most of the time, and one of a server that does not say how long it ran.
    let message = Some("deleted by bob".into());
    let waited = Workload { name: "waited".into(), ran_secs: Some(7), message, ..workload.clone() };
    assert_eq!(
        text(&look(), &Finished(WorkloadList { items: vec![waited, workload], next: None })),
        "\
NAME    STATUS  PROJECT  USER  GPUS  ENDED                    RAN  EXIT  RUNS  PREEMPTIONS  REASON
waited  Failed  team-a   ada   2     2026-11-17 08:03:01 UTC  7s   1     1     0            deleted by bob
hyper1  Failed  team-a   ada   2     2026-11-17 08:03:01 UTC  3m   1     1     0
"
    );
}

#[test]
fn the_indices_of_a_sweep_are_a_table() {
    let indices = read(json!([
        {"index": 0, "status": "Succeeded", "worker": 0, "run": 1, "attempts": 1, "exit_code": 0,
         "started_at": "2026-11-17T08:00:01.000Z", "ended_at": "2026-11-17T08:02:01.000Z"},
        {"index": 1, "status": "Failed", "worker": 1, "run": 3, "attempts": 2, "exit_code": 3,
         "started_at": "2026-11-17T08:00:01.000Z", "ended_at": "2026-11-17T08:02:01.000Z"},
        {"index": 2, "status": "Pending", "attempts": 0}
    ]));
    let workload = Workload { indices, ..running() };
    let page = text(&look(), &Described { workload, events: Vec::new() });
    let table: String =
        page.lines().skip_while(|line| *line != "Indices:").take(5).map(|line| format!("{line}\n")).collect();
    assert_eq!(
        table,
        "\
Indices:
  INDEX  STATUS     WORKER  ATTEMPTS  EXIT  STARTED                  ENDED
  0      Succeeded  0       1         0     2026-11-17 08:00:01 UTC  2026-11-17 08:02:01 UTC
  1      Failed     1       2         3     2026-11-17 08:00:01 UTC  2026-11-17 08:02:01 UTC
  2      Pending            0
"
    );
}

#[test]
fn projects_as_a_table_and_in_the_words_of_the_report() {
    assert_eq!(
        text(&look(), &projects()),
        "\
NAME              DEPARTMENT  QUOTA  ALLOCATED  FAIR SHARE  RUNNING  WAITING
team-a (default)  vision      4      8          6.5         3        1
team-b                        2      0          2           0        0
"
    );
    assert_eq!(
        text(&runai(), &projects()),
        "\
NAME              DESERVED GPUs  INT LIMIT  INT AFFINITY  TRAIN AFFINITY
team-a (default)  4              2h                       type=dgx1,dgx2
team-b            2              -
"
    );
    let project: Project = projects().items.remove(0);
    assert_eq!(
        text(&look(), &project),
        "\
Name:              team-a (default)
Department:        vision
Quota:             4 GPUs
Training on:       type=dgx1,dgx2
Interactive ends:  2h
Allocated:         8 GPUs
Non-preemptible:   1 GPUs
Fair share:        6.5 GPUs
Running:           3 workloads
Waiting:           1 workloads for 2 GPUs
"
    );
}

#[test]
fn departments_as_a_table() {
    let list: DepartmentList = read(json!({"items": [
        {"name": "vision", "settings": {"quota": 12}, "projects": ["team-a", "team-b"], "allocated": 8,
         "projects_quota": 6, "fair_share": 12}
    ]}));
    assert_eq!(
        text(&look(), &list),
        "\
NAME    PARENT  QUOTA  PROJECTS' QUOTA  ALLOCATED  FAIR SHARE  PROJECTS
vision          12     6                8          12          team-a,team-b
"
    );
}

fn node() -> Node {
    read(json!({
        "name": "dgx-1", "state": "Cordoned", "pool": "default", "labels": {"type": "dgx1"},
        "devices": [
            {"index": 0, "model": "V100", "memory": 34_089_205_760u64, "allocated": 0.9,
             "workloads": [{"workload": "team-b/b", "share": 0.5}, {"workload": "team-c/c", "share": 0.4}],
             "usage": {"utilisation": 97, "memory_used": 17_179_869_184u64, "source": "nvml"}},
            {"index": 1, "model": "V100", "memory": 34_089_205_760u64, "allocated": 0, "workloads": []}
        ],
        "gpus_allocated": 0.9, "cpu": 80, "cpu_allocated": 4.5, "memory": 540_000_000_000u64, "memory_allocated": 1_073_741_824u64,
        "workloads": ["team-b/b", "team-c/c"]
    }))
}

#[test]
fn nodes_and_their_devices() {
    assert_eq!(
        text(&look(), &NodeList { items: vec![node()] }),
        "\
NAME   STATE     POOL     GPUS  ALLOCATED  MODEL  WORKLOADS
dgx-1  Cordoned  default  2     0.9        V100   2
"
    );
    assert_eq!(
        text(&look(), &node()),
        "\
Name:    dgx-1
State:   Cordoned
Pool:    default
Labels:  type=dgx1
GPUs:    0.9 of 2 allocated
CPU:     4.5 of 80 allocated
Memory:  1 GiB of 502.9 GiB allocated

Devices:
  GPU  MODEL  MEMORY     ALLOCATED  BUSY  MEMORY USED  WORKLOADS
  0    V100   32510 MiB  0.9        97%   16 GiB       team-b/b (0.5), team-c/c (0.4)
  1    V100   32510 MiB  0
"
    );
}

#[test]
fn why_of_an_earlier_server_has_the_numbers_of_the_rule() {
    let why: Why = read(json!({
        "workload": "team-b/b-4-gg", "waits": true, "rule": "no-capacity",
        "text": "needs 2 GPUs, and 1 is free on nodes it may use", "numbers": {"free_gpus": "1"},
        "until": "2026-11-17T09:00:00.000Z", "held_by": [{"workload": "team-a/hyper1", "gpus": 2}],
        "remedy": {"text": "end team-a/hyper1", "end": ["team-a/hyper1"], "lift_limits": [], "raise_quotas": {}}
    }));
    assert_eq!(
        text(&look(), &why),
        "\
team-b/b-4-gg: needs 2 GPUs, and 1 is free on nodes it may use

Rule:             no-capacity
free gpus:        1
Earliest change:  2026-11-17 09:00:00 UTC
Others could:     end team-a/hyper1

Held by:
  WORKLOAD       GPUS
  team-a/hyper1  2
"
    );
    let why =
        Why { waits: false, numbers: Default::default(), until: None, held_by: vec![], remedy: None, ..why };
    assert_eq!(text(&look(), &why), "team-b/b-4-gg: needs 2 GPUs, and 1 is free on nodes it may use\n");
}

#[test]
fn why_in_numbers() {
    let why: Why = read(json!({
        "workload": "team-b/b-4-gg", "waits": true, "rule": "no-capacity",
        "text": "Waiting for 2 GPUs; 0 free.", "numbers": {"fits": "0", "needed": "1"},
        "held_by": [{"workload": "team-b/hyper1", "gpus": 2}],
        "held_by_projects": [{"project": "team-d", "workloads": 2, "gpus": 6}],
        "remedy": {"text": "end a workload of team-d", "end": [], "lift_limits": [], "raise_quotas": {}, "end_others": {"team-d": 1}},
        "requested": {"gpus": 2, "workers": 1, "cpu": 4, "memory": 17179869184u64},
        "usable": {"nodes": 2, "gpus": 16, "free": 0},
        "accounts": [
            {"kind": "project", "name": "team-b", "quota": 2, "used": 2, "used_non_preemptible": 1, "fair_share": 2, "limit": 4},
            {"kind": "department", "name": "vision", "used": 8, "used_non_preemptible": 1, "fair_share": 8, "limit": 12}
        ],
        "blocked_by": [{"cause": "gpus", "text": "at most 0 GPUs are free on one node", "asked": "2", "most": "0"}],
        "preempted": {"at": "2026-11-17T08:04:45.000Z", "rule": "quota-reclaim", "winner": "team-d", "lost_gpu_secs": 0},
        "queue": {"position": 3, "waiting": 4, "ahead": ["team-b/b-1", "team-b/b-2"], "heads_ahead_count": 2, "projects_ahead": ["team-a", "team-c"]},
        "changes": [
            {"kind": "gpus", "options": "-g 1", "text": "`-g 1` would start now"},
            {"kind": "node-pool", "options": "--node-pool big", "text": "`--node-pool big` would start now"}
        ]
    }));
    assert_eq!(
        text(&look(), &why),
        "\
team-b/b-4-gg: Waiting for 2 GPUs; 0 free.

Rule:               no-capacity
Requested:          2 GPUs, 4 CPU cores, 16 GiB of memory
Free:               0 of 16 GPUs on 2 nodes it may use
Project team-b:     2 of quota 2 used, fair share 2, limit 4
Department vision:  8 used, fair share 8, limit 12
Blocked by:         gpus: at most 0 GPUs are free on one node
Queue:              3 of 4 in its project, after team-b/b-1, team-b/b-2; 2 other projects come first: team-a, team-c
Preempted:          15s ago by team-d (quota-reclaim)
You can change:     `-g 1` would start now
or:                 `--node-pool big` would start now
Others could:       end a workload of team-d

Held by:
  WORKLOAD               GPUS
  team-b/hyper1          2
  2 workloads of team-d  6
"
    );
    let none = Why { changes: vec![], ..why };
    assert!(text(&look(), &none).contains("You can change:     nothing that would start it now was found\n"));
}

#[test]
fn what_a_submission_would_do() {
    let preview: Preview = read(json!({"starts": true, "nodes": ["dgx-1"], "evicts": []}));
    assert_eq!(text(&look(), &preview), "It would start at once on dgx-1.\n");
    let evicting = Preview { evicts: vec!["b/x".into()], ..preview.clone() };
    assert_eq!(text(&look(), &evicting), "It would start on dgx-1, once these have left: b/x.\n");
    let waits = Preview { starts: false, waits: Some("its project is at its limit".into()), ..preview };
    assert_eq!(text(&look(), &waits), "It would wait: its project is at its limit\n");
    let change: SuggestedChange =
        read(json!({"kind": "gpus", "options": "-g 1", "text": "`-g 1` would start now"}));
    let helped = Preview { changes: vec![change], ..waits };
    assert_eq!(
        text(&look(), &helped),
        "It would wait: its project is at its limit\n`-g 1` would start now.\n"
    );
    let hidden: Preview =
        read(json!({"starts": true, "nodes": ["dgx-1"], "evicts": [], "evicts_others": {"b": 2}}));
    assert_eq!(text(&look(), &hidden), "It would start on dgx-1, once these have left: 2 workloads of b.\n");
}

#[test]
fn the_cluster_and_its_volumes() {
    let cluster: Cluster = read(json!({
        "version": "0.1.0", "mode": "embedded", "started_at": "2026-11-17T07:00:00.000Z", "folder": "/data", "nodes": 2,
        "nodes_ready": 1, "gpus": 16, "gpus_allocated": 3.5, "running_count": 4, "waiting_count": 1, "projects": 2,
        "cursor": 77, "declared": true
    }));
    assert_eq!(
        text(&look(), &cluster),
        "\
Version:    0.1.0
Mode:       embedded
Folder:     /data
Since:      2026-11-17 07:00:00 UTC (1h ago)
Nodes:      1 of 2 ready
GPUs:       3.5 of 16 allocated, simulated
Workloads:  4 running, 1 waiting
Projects:   2
"
    );
    let volumes: VolumeList = read(json!({"items": [
        {"name": "test", "path": "/data/volumes/test", "created_at": "2026-11-17T07:00:00.000Z", "workloads": ["a/b"]}
    ]}));
    assert_eq!(
        text(&look(), &volumes),
        "NAME  PROJECT  AGE  USED BY  PATH\ntest  (all)    1h   a/b      /data/volumes/test\n"
    );
}

#[test]
fn reported_numbers_have_four_significant_digits() {
    for (reported, shown) in [
        ("0.013888888888888888", "0.01389"),
        ("0.31", "0.31"),
        ("1.99999", "2"),
        ("99.99951", "100"),
        ("-0.00012345", "-0.0001235"),
        ("123456.789", "123457"),
        ("12", "12"),
        ("0.0", "0"),
        ("1e-7", "1e-7"),
        ("nan", "nan"),
        ("", ""),
        (".5", ".5"),
    ] {
        assert_eq!(super::workloads::rounded(reported), shown, "{reported}");
    }
}

#[test]
fn a_command_without_an_image_shows_none() {
    let mut workload = running();
    workload.request.image = "bash".into();
    assert!(!text(&look(), &described(workload.clone())).contains("Image:"));
    workload.request.command.clear();
    assert!(text(&look(), &described(workload)).contains("Image:         bash"));
}

#[test]
fn the_audit_log_says_what_was_done_in_words() {
    let entry = |action: &str, target: &str, status: u16, problem: Option<&str>| -> berth_api::AuditEntry {
        read(
            json!({"seq": 1, "at": "2026-11-17T08:00:00.000Z", "user": "ada", "from": "127.0.0.1", "action": action,
            "target": target, "status": status, "problem": problem}),
        )
    };
    let api = "/api/v1";
    for (action, target, status, problem, words) in [
        ("POST /api/v1/projects", "vision".to_owned(), 201, None, "created project vision"),
        (
            "DELETE /api/v1/projects/{name}",
            format!("{api}/projects/vision"),
            204,
            None,
            "deleted project vision",
        ),
        (
            "POST /api/v1/nodes/{name}/{action}",
            format!("{api}/nodes/node1/drain"),
            200,
            None,
            "drained node node1",
        ),
        (
            "DELETE /api/v1/workloads/{project}/{name}",
            format!("{api}/workloads/team-a/x"),
            403,
            Some("bob may not"),
            "tried to delete workload team-a/x: refused: bob may not",
        ),
        (
            "POST /api/v1/shutdown",
            format!("{api}/shutdown"),
            0,
            None,
            "tried to stop the server: outcome unknown",
        ),
        ("PUT /api/v1/later", format!("{api}/later"), 200, None, "called PUT /api/v1/later"),
    ] {
        let line = super::audit_line(&entry(action, &target, status, problem), &look());
        assert_eq!(line, format!("2026-11-17 08:00:00 UTC  ada from 127.0.0.1 {words}\n"), "{action}");
    }
}
