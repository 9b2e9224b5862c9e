//! What people read about a wait.

use super::*;
use berth_api::{KindName, Status, Why};

fn seen_by(projects: &[&str]) -> Sight {
    Sight::Projects(projects.iter().map(ToString::to_string).collect())
}

impl World {
    fn why(&self, name: &str) -> Why {
        self.why_seen(name, &Sight::All)
    }

    fn why_seen(&self, name: &str, sight: &Sight) -> Why {
        self.platform.why(self.id(name), sight, self.now).expect("is not over")
    }

    fn waits(&mut self, request: WorkloadRequest) -> Why {
        let name = request.name.clone().expect("a name");
        self.submit(request).expect("is accepted");
        self.why(&name)
    }

    fn in_project(&mut self, project: &str, name: &str, gpus: &str, kind: KindName) {
        let request = WorkloadRequest { project: project.into(), kind, ..train(name, gpus) };
        self.submit(request).expect("is accepted");
    }

    /// The report's sections 4.8 and 4.9: team-d takes back what was borrowed.
    fn preempted() -> Self {
        use KindName::{Interactive, Train};
        let mut world = Self::of_the_report();
        for (project, name, gpus, kind) in [
            ("team-a", "a-1-gggg", "4", Train),
            ("team-b", "b-1-g", "1", Interactive),
            ("team-b", "b-3-g", "1", Train),
            ("team-b", "b-4-gg", "2", Train),
            ("team-c", "c-1-gg", "2", Interactive),
            ("team-c", "c-4-gg", "2", Train),
            ("team-d", "d-1-gggg", "4", Train),
            ("team-d", "d-2-gg", "2", Train),
            ("team-d", "d-3-gg", "2", Train),
        ] {
            world.in_project(project, name, gpus, kind);
        }
        world.now = world.now + Span::secs(15);
        world
    }
}

fn options(why: &Why) -> Vec<&str> {
    why.changes.iter().map(|change| change.options.as_str()).collect()
}

fn causes(why: &Why) -> Vec<&str> {
    why.blocked_by.iter().map(|blocked| blocked.cause.as_str()).collect()
}

#[test]
fn a_preempted_job_is_told_its_numbers_and_who_preempted_it() {
    let world = World::preempted();
    let why = world.why("b-4-gg");
    assert_eq!(
        why.text,
        "Waiting for 2 GPUs; 0 free. team-b uses 2 of its quota of 2, so it cannot reclaim. Preempted 15s ago by team-d/d-3-gg."
    );
    assert_eq!((why.rule.as_str(), causes(&why)), ("no-capacity", vec!["gpus"]));
    assert_eq!(why.changes, [], "nothing of team-b would start while everything is in use");
    let remedy = why.remedy.as_ref().expect("others could");
    assert_eq!(remedy.text, "end team-c/c-1-gg and team-c/c-4-gg (team-c is within its quota)");
    let queue = why.queue.as_ref().expect("it waits");
    assert_eq!((queue.position, queue.waiting, queue.heads_ahead_count), (1, 1, 0), "{queue:?}");
    let account = &why.accounts[0];
    let numbers = [account.used, account.fair_share].map(|amount| amount.to_string());
    assert_eq!((account.kind.as_str(), account.name.as_str()), ("project", "team-b"));
    assert_eq!(numbers, ["2", "2"]);
    let usable = why.usable.as_ref().expect("nodes");
    assert_eq!(
        (usable.free.to_string(), usable.gpus.to_string(), usable.nodes),
        ("0".into(), "16".into(), 2)
    );
    assert_eq!(why.numbers["needed"], "1", "what older clients read is still there");
    let behind = world.why("c-4-gg").queue.expect("it waits");
    assert_eq!(behind.heads_ahead, ["team-b/b-4-gg"], "it is older");
}

#[test]
fn whoever_may_not_list_a_workload_reads_its_project_only() {
    let world = World::preempted();
    let why = world.why_seen("b-4-gg", &seen_by(&["team-b"]));
    assert!(why.text.ends_with("Preempted 15s ago by team-d."), "{}", why.text);
    let written = serde_json::to_string(&why).expect("is JSON");
    for name in ["a-1-gggg", "c-1-gg", "c-4-gg", "d-1-gggg", "d-2-gg", "d-3-gg"] {
        assert!(!written.contains(name), "{name} is not theirs to list: {written}");
    }
    let mut own: Vec<&str> = why.held_by.iter().map(|held| held.workload.as_str()).collect();
    own.sort_unstable();
    assert_eq!(own, ["team-b/b-1-g", "team-b/b-3-g"]);
    let others: Vec<(&str, u64)> =
        why.held_by_projects.iter().map(|held| (held.project.as_str(), held.workloads)).collect();
    assert_eq!(others, [("team-d", 3), ("team-a", 1), ("team-c", 1)]);
    let remedy = why.remedy.expect("others could");
    assert_eq!((remedy.end.len(), remedy.end_others), (0, [("team-c".to_owned(), 2)].into()));
    assert_eq!(remedy.text, "end 2 workloads of team-c (team-c is within its quota)");
    let behind = world.why_seen("c-4-gg", &seen_by(&["team-c"])).queue.expect("it waits");
    assert_eq!((behind.heads_ahead.len(), behind.projects_ahead), (0, vec!["team-b".to_owned()]));
}

#[test]
fn a_dry_run_names_only_what_its_caller_may_list() {
    let mut world = World::of_the_report();
    let borrower = WorkloadRequest { project: "team-b".into(), workers: Some(2), ..train("borrower", "8") };
    world.submit(borrower).expect("is accepted");
    // What was started at an instant is not evicted at it.
    world.wait(1);
    let request = train("mine", "4");
    let preview = |sight: &Sight| {
        world.platform.preview(request.clone(), None, "ada", sight, world.now).expect("can be submitted")
    };
    let seen = preview(&Sight::All);
    assert_eq!(
        (seen.evicts.as_slice(), seen.evicts_others.len()),
        (["team-b/borrower".into()].as_slice(), 0)
    );
    let hidden = preview(&seen_by(&["team-a"]));
    assert!(hidden.starts && hidden.evicts.is_empty());
    assert_eq!(hidden.evicts_others, [("team-b".to_owned(), 1)].into());
}

#[test]
fn an_eviction_before_the_last_run_is_not_why_it_waits() {
    let mut world = World::preempted();
    let (back, taker) = (world.id("b-4-gg"), world.id("d-2-gg"));
    world.act(|platform, now| platform.delete(taker, "ada", now)).expect("can be deleted");
    world.settle();
    world.wait(7200);
    assert_eq!(world.status("b-4-gg"), Status::Running);
    world.act(|platform, now| platform.suspend(back, "ada", now)).expect("can be suspended");
    world.settle();
    world.in_project("team-d", "d-4-gg", "2", KindName::Train);
    world.act(|platform, now| platform.resume(back, "ada", now)).expect("can be resumed");
    let why = world.why("b-4-gg");
    assert!(why.waits && !why.text.contains("Preempted") && why.preempted.is_none(), "{}", why.text);
}

#[test]
fn a_dry_run_names_those_who_would_shrink() {
    let mut world = World::of_the_report();
    let elastic = WorkloadRequest {
        project: "team-b".into(),
        kind: KindName::Distributed,
        workers: Some(16),
        min_workers: Some(2),
        ..train("elastic", "1")
    };
    world.submit(elastic).expect("is accepted");
    world.wait(1);
    assert_eq!(world.view("elastic").gpus_allocated.to_string(), "16");
    let preview = world.platform.preview(train("mine", "4"), None, "ada", &Sight::All, world.now);
    let preview = preview.expect("can be submitted");
    assert!(preview.starts);
    assert_eq!(preview.evicts, ["team-b/elastic"]);
}

#[test]
fn a_dry_run_says_the_same_as_the_wait_it_foresees() {
    let mut world = World::preempted();
    let request = WorkloadRequest { project: "team-b".into(), ..train("later", "9") };
    let preview = world
        .platform
        .preview(request.clone(), None, "ada", &Sight::All, world.now)
        .expect("can be submitted");
    let why = world.waits(request);
    assert_eq!(preview.waits.as_deref(), Some(why.text.as_str()));
    assert_eq!(preview.changes, why.changes);
}

#[test]
fn a_job_larger_than_every_node_is_told_to_spread_itself() {
    let mut world = World::of_the_report();
    let why = world.waits(train("wide", "9"));
    assert_eq!(
        why.text,
        "Cannot start: needs 9 GPUs on one node; the largest node has 8. Use --workers to spread it over nodes."
    );
    assert_eq!(options(&why), ["--workers 3 -g 3", "-g 8"]);
    assert_eq!(why.changes[1].text, "`-g 8` would start now");
    assert!(why.queue.is_none(), "it has no turn");
    let why = world.waits(train("wider", "24"));
    assert_eq!(why.text, "Cannot start: needs 24 GPUs on one node; the largest node has 8.");
    assert_eq!(options(&why), ["-g 8"], "all nodes together have 16");
}

#[test]
fn a_label_that_no_node_has_is_told_as_such() {
    let mut world = World::of_the_report();
    let labelled =
        WorkloadRequest { node_selector: [("rck".to_owned(), "r1".into())].into(), ..train("typo", "1") };
    assert!(world.waits(labelled).text.starts_with("Cannot start: no node has the label rck=r1"));
}

#[test]
fn too_much_memory_is_told_the_largest_node() {
    let mut world = World::of_the_report();
    let memory = Some("4000Gi".parse().expect("an amount"));
    let why = world.waits(WorkloadRequest { memory, ..train("huge", "1") });
    assert_eq!(why.text, "Cannot start: needs 4000 GiB of memory on one node; the largest node has 512 GiB.");
    assert_eq!(options(&why), ["--memory 512Gi"]);
    assert_eq!(causes(&why), ["node-memory"]);
}

#[test]
fn an_unknown_model_is_told_those_there() {
    let mut world = World::of_the_report();
    let why = world.waits(WorkloadRequest { gpu_models: vec!["H100".into()], ..train("new", "1") });
    assert_eq!(why.text, "Cannot start: no node has GPU model H100; nodes have V100.");
    assert_eq!(options(&why), ["--gpu-models V100"]);
}

#[test]
fn cordoned_nodes_are_named_and_an_admin_is_told_the_command() {
    let mut world = World::of_the_report();
    for node in ["node1", "node2"] {
        world
            .act(|platform, now| {
                platform.set_condition(node, berth_types::NodeCondition::Cordoned, false, now)
            })
            .expect("can be cordoned");
    }
    let why = world.waits(train("a", "1"));
    assert_eq!(why.text, "Cannot start: node1 and node2 are cordoned.");
    assert_eq!(why.blocked_by[0].nodes, ["node1", "node2"]);
    let remedy = why.remedy.expect("others could");
    assert_eq!(remedy.text, "uncordon node1 and node2 (`berth node uncordon NODE`)");
}

#[test]
fn a_limit_is_told_with_what_still_fits_it() {
    let mut world = World::of_the_report();
    let limited =
        ProjectSettings { limit: Some("3".parse().expect("an amount")), ..ProjectSettings::default() };
    world.act(|platform, now| platform.update_project("team-b", &limited, now)).expect("can be set");
    world.in_project("team-b", "b", "2", KindName::Train);
    let why = world.waits(WorkloadRequest { project: "team-b".into(), ..train("more", "4") });
    assert_eq!(
        why.text,
        "Waiting for 4 GPUs; 14 free. team-b uses 2 of its limit of 3, and 4 more would pass it."
    );
    assert_eq!((why.rule.as_str(), options(&why)), ("limit", vec!["-g 1"]));
    assert_eq!(why.accounts[0].limit.map(|limit| limit.to_string()).as_deref(), Some("3"));
}

#[test]
fn a_session_past_its_quota_is_offered_to_be_preemptible() {
    let mut world = World::of_the_report();
    world.in_project("team-b", "b", "2", KindName::Interactive);
    let request =
        WorkloadRequest { project: "team-b".into(), kind: KindName::Interactive, ..train("more", "1") };
    let why = world.waits(request);
    assert_eq!(
        why.text,
        "Waiting for 1 GPU; 14 free. Non-preemptible work must stay within quota: that of team-b uses 2 of 2 GPUs, and this \
         asks for 1."
    );
    assert_eq!(options(&why), ["--preemptible"]);
}

#[test]
fn a_suspended_job_is_told_the_whole_command() {
    let mut world = World::of_the_report();
    let id = world.run("a", "1");
    world.act(|platform, now| platform.suspend(id, "ada", now)).expect("can be suspended");
    world.settle();
    assert_eq!(world.why("a").text, "Suspended. `berth resume team-a/a` returns it to the queue.");
}

#[test]
fn what_runs_is_not_explained_in_numbers() {
    let mut world = World::of_the_report();
    world.run("a", "1");
    let why = world.why("a");
    assert_eq!((why.waits, why.text.as_str()), (false, "Not waiting: it is Running."));
    assert!(why.requested.is_none() && why.queue.is_none() && why.changes.is_empty());
}
