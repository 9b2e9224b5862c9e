//! Fixed things of the API, as tests show them.

use crate::output::{Look, Spelling, time::Clock};
use berth_api::Workload;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) fn look() -> Look {
    Look {
        wide: false,
        headers: true,
        colour: false,
        clock: Clock::fixed("2026-11-17T08:05:00Z"),
        spelling: Spelling::Berth,
        default_project: Some("team-a".into()),
    }
}

pub(crate) fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the example has the form of the API")
}

pub(crate) fn running() -> Workload {
    read(json!({
        "id": 7, "name": "hyper1", "project": "team-a", "user": "ada", "kind": "train", "status": "Running",
        "priority": 50, "preemptible": true,
        "submitted_at": "2026-11-17T08:00:00.000Z", "started_at": "2026-11-17T08:00:01.000Z",
        "running_since": "2026-11-17T08:00:01.000Z",
        "gpus_requested": 2, "gpus_allocated": 2, "workers_min": 1, "workers_max": 1,
        "tasks": [{"rank": 0, "node": "dgx-1", "devices": [0, 1], "gpus": 2, "status": "Running", "extra": false,
                   "pid": 4711, "started_at": "2026-11-17T08:00:01.000Z"}],
        "runs": 1, "failures": 0, "preemptions": 0,
        "progress": {"percent": 40, "loss": "0.31", "left_secs": 450},
        "request": {"project": "team-a", "image": "quickstart", "gpus": 2, "command": ["python"], "args": ["train.py"],
                    "volumes": [{"name": "test", "target": "/tmp/pvc1mount"}],
                    "command_line": "berth submit hyper1 -i quickstart -g 2"}
    }))
}

pub(crate) fn waiting() -> Workload {
    read(json!({
        "id": 8, "name": "b-4-gg", "project": "team-b", "user": "bob", "kind": "interactive", "status": "Pending",
        "message": "waits for 2 GPUs", "priority": 100, "preemptible": false,
        "submitted_at": "2026-11-17T06:00:00.000Z",
        "gpus_requested": 0.5, "gpus_allocated": 0, "workers_min": 1, "workers_max": 1,
        "tasks": [], "runs": 2, "failures": 0, "preemptions": 1,
        "evictions": [{"at": "2026-11-17T07:00:00.000Z", "rule": "quota-reclaim", "winner": "team-d/d-2-gg",
                       "lost_gpu_secs": 120}],
        "urls": ["http://127.0.0.1:8888/"],
        "request": {"project": "team-b", "image": "jupyter/base-notebook", "gpus": 0.5}
    }))
}

pub(crate) fn starting() -> Workload {
    Workload { status: berth_api::Status::Starting, ..running() }
}
