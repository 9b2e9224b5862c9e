//! Where paths lead.

use super::*;
use crate::platform::Routed;
use berth_api::WorkloadRequest;

fn world(jobs: &[(&str, &str, &[u16], &[&str])]) -> World {
    let mut world = World::of_the_report();
    for (project, name, ports, args) in jobs {
        let request = WorkloadRequest {
            name: Some((*name).into()),
            project: (*project).into(),
            image: "bash".into(),
            ports: ports.to_vec(),
            args: args.iter().map(|arg| (*arg).into()).collect(),
            ..WorkloadRequest::default()
        };
        world.act(|platform, now| platform.submit(request, None, "ada", now)).expect("it is taken");
    }
    world
}

/// `project/name:port prefix base`, or what else became of the path.
fn led(world: &World, path: &str) -> String {
    match world.platform.route(path) {
        Routed::To(target) => {
            let base = target.base.unwrap_or_default();
            let text = format!("{}/{}:{} {} {base}", target.project, target.name, target.port, target.prefix);
            text.trim_end().into()
        }
        Routed::Ambiguous(names) => format!("one of {}", names.join(", ")),
        Routed::Nowhere => "nowhere".into(),
    }
}

#[test]
fn a_port_has_one_path_that_always_leads_there_and_short_ones_while_they_are_clear() {
    let world = world(&[("team-a", "nb", &[8888, 6006], &[]), ("team-b", "nb", &[8888], &[])]);
    assert_eq!(led(&world, "/team-a/nb"), "team-a/nb:8888 /team-a/nb");
    assert_eq!(led(&world, "/team-a/nb/lab/tree"), "team-a/nb:8888 /team-a/nb");
    assert_eq!(led(&world, "/team-a/nb-6006/x"), "team-a/nb:6006 /team-a/nb-6006");
    assert_eq!(led(&world, "/team-b-nb/x"), "team-b/nb:8888 /team-b-nb");
    assert_eq!(led(&world, "/nb-6006/"), "team-a/nb:6006 /nb-6006");
    assert_eq!(led(&world, "/nb-8888/"), "one of team-a/nb, team-b/nb");
    for path in ["/", "", "/nb", "/team-a", "/team-a/other", "/team-a/nb-7/", "/nb-", "/api/v1/nodes", "//"] {
        assert_eq!(led(&world, path), "nowhere", "{path}");
    }
}

#[test]
fn a_path_that_a_notebook_was_told_leads_there_as_it_is() {
    let world = world(&[
        ("team-a", "nb", &[8888], &["--NotebookApp.base_url=team-a-test-ingress"]),
        ("team-a", "own", &[8888], &["--ServerApp.base_url", "/team-a/own/"]),
        ("team-b", "sly", &[1], &["--ServerApp.base_url=/api/v1"]),
        ("team-b", "sly2", &[1], &["--ServerApp.base_url=/../x"]),
        ("team-b", "sly3", &[1], &["--ServerApp.base_url=/team-a/own"]),
    ]);
    let base = "/team-a-test-ingress";
    assert_eq!(led(&world, "/team-a-test-ingress/tree"), format!("team-a/nb:8888 {base} {base}"));
    assert_eq!(led(&world, "/team-a-test-ingressx"), "nowhere");
    assert_eq!(led(&world, "/team-a/nb/tree"), format!("team-a/nb:8888 /team-a/nb {base}"));
    assert_eq!(led(&world, "/team-a/own/lab"), "team-a/own:8888 /team-a/own /team-a/own", "whose name it is");
    assert_eq!(led(&world, "/api/v1/nodes"), "nowhere");
    assert_eq!(led(&world, "/../x"), "nowhere");
}
