//! Folders that earlier versions wrote keep loading.

mod support;

use serde_json::Value;
use std::{collections::BTreeMap, fs::File, path::Path};
use support::Server;

/// A server of the present version in the folder of an earlier one.
fn start_in(archive: &str) -> Server {
    let server = Server::stopped();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(archive);
    let archive = flate2::read::GzDecoder::new(File::open(path).expect("the archive is committed"));
    tar::Archive::new(archive).unpack(server.folder.path()).expect("the archive is whole");
    server
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("a list");
    items.iter().map(|item| item["name"].as_str().expect("a name")).collect()
}

#[test]
fn a_folder_of_version_0_1_0_loads_with_everything_that_was_acknowledged() {
    let mut server = start_in("folder-0.1.0.tar.gz");
    server.up(|config| config.projects.clear());
    let get = |path: &str| {
        let answer = server.call("GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    };
    assert_eq!(names(&get("/api/v1/projects")), ["team-a", "team-b", "team-c", "team-d", "vision"]);
    assert_eq!(names(&get("/api/v1/departments")), ["science"]);
    assert_eq!(names(&get("/api/v1/users")), ["bob", "eve"]);
    assert_eq!(names(&get("/api/v1/volumes")), ["data"]);

    let workloads = get("/api/v1/workloads");
    let by_name: BTreeMap<&str, &Value> = workloads["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|workload| (workload["name"].as_str().expect("a name"), workload))
        .collect();
    for (name, status) in [
        ("ok", "Succeeded"),
        ("sweep", "Succeeded"),
        ("bad", "Failed"),
        ("parked", "Suspended"),
        ("c-4", "Pending"),
    ] {
        assert_eq!(by_name[name]["status"], status, "{name}: {}", by_name[name]);
    }
    for (name, project) in
        [("b-borrow", "team-b"), ("c-run", "team-c"), ("nb", "vision"), ("d-8", "team-d"), ("gang", "team-a")]
    {
        assert_eq!(by_name[name]["project"], project, "{name}: {}", by_name[name]);
    }
    assert_eq!(by_name["c-4"]["preemptions"], 1, "{}", by_name["c-4"]);
    assert_eq!(by_name["b-borrow"]["preemptions"], 1, "{}", by_name["b-borrow"]);
}
