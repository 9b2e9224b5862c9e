//! A node of which nothing is simulated but GPUs. Without root, runc or the programs it says what is not tested, and
//! passes.

use berth_testbed::{Cluster, Image, Options, REAL_NODE, kubectl};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, LogParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(120);
const SHELL: &str = "localhost/busybox:1";

/// What kubelet and containerd would leave on the machine.
const PLACES: [&str; 5] =
    ["/var/lib/kubelet", "/var/lib/containerd", "/var/log/pods", "/var/log/containers", "/run/containerd"];
/// What kubelet and the network would set on the machine.
const SETTINGS: [&str; 5] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
];

/// Waits without being async, for what the kernel says.
fn wait(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

async fn connect(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig was written");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("the kubeconfig is understood")).expect("a client")
}

fn pod(name: &str, spec: Value) -> Pod {
    let mut pod = json!({"metadata": {"name": name}, "spec": spec});
    pod["spec"]["nodeName"] = REAL_NODE.into();
    serde_json::from_value(pod).expect("a pod")
}

async fn create(pods: &Api<Pod>, pod: &Pod) {
    pods.create(&PostParams::default(), pod).await.expect("the pod is created");
}

/// Waits until a Pod is as wanted; none stands for one that is gone.
async fn until(
    pods: &Api<Pod>,
    name: &str,
    what: &str,
    wanted: impl Fn(Option<&Pod>) -> bool,
) -> Option<Pod> {
    let end = Instant::now() + LIMIT;
    loop {
        let pod = pods.get_opt(name).await.expect("the API server answers");
        if wanted(pod.as_ref()) {
            return pod;
        }
        let status = pod.and_then(|pod| pod.status);
        assert!(Instant::now() < end, "{name}: {what}; its last status: {status:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn phase(pod: Option<&Pod>) -> &str {
    pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()).unwrap_or("gone")
}

async fn until_phase(pods: &Api<Pod>, name: &str, wanted: &str) -> Option<Pod> {
    until(pods, name, wanted, |pod| phase(pod) == wanted).await
}

async fn until_logged(pods: &Api<Pod>, name: &str, wanted: &str) {
    let end = Instant::now() + LIMIT;
    loop {
        let log = pods.logs(name, &LogParams::default()).await;
        if log.as_ref().is_ok_and(|log| log.lines().any(|line| line == wanted)) {
            return;
        }
        assert!(Instant::now() < end, "{name} did not say {wanted}: {log:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Groups of nodes that a process started, in every hierarchy.
fn groups_of(owner: u32) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let mounts = mounts.lines().filter(|line| line.contains(" - cgroup"));
    let hierarchies = mounts.filter_map(|line| line.split(' ').nth(4));
    let entries = hierarchies.flat_map(|path| fs::read_dir(path).into_iter().flatten().flatten());
    let name = format!("berth-testbed-{owner}-");
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&name));
    ours.map(|entry| entry.path()).collect()
}

/// A process and all that descend from it.
fn family(root: u32) -> BTreeSet<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").expect("processes").flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        parents.extend(pid.zip(parent));
    }
    let mut found = BTreeSet::from([root]);
    loop {
        let more: BTreeSet<u32> =
            parents.iter().filter(|(_, of)| found.contains(of)).map(|(pid, _)| *pid).collect();
        if more.is_subset(&found) {
            return found;
        }
        found.extend(more);
    }
}

fn names_of(pids: &BTreeSet<u32>) -> Vec<String> {
    let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    pids.iter().map(|pid| name(pid).trim().to_owned()).collect()
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// What of the machine a node must not change.
fn machine() -> Vec<String> {
    let places = PLACES.map(|place| format!("{place} {}", Path::new(place).exists()));
    let value = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    let settings = SETTINGS.map(|name| format!("{name} {}", value(name).trim()));
    places.into_iter().chain(settings).collect()
}

fn mounts_of_testbed() -> usize {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    mounts.lines().filter(|line| line.contains("berth-testbed-")).count()
}

/// Counts its starts in a folder that lives as long as the Pod, fails the first time, and saves its work in a folder of
/// the machine when it is asked to end.
const TRAINER: &str = "
echo start >> /scratch/starts
[ $(wc -l < /scratch/starts) = 1 ] && exit 1
trap 'echo told to end; sleep 1; echo done > /machine/checkpoint; exit 0' TERM
echo training
while true; do sleep 0.1; done
";

#[test]
fn a_real_node_runs_pods_and_leaves_nothing() {
    if let Err(reason) = Cluster::real_node_available() {
        return eprintln!("NOT TESTED: a real node: {reason}");
    }
    let before = machine();
    let started = Instant::now();
    let options = Options { real_node: true, real_gpus: 2, ..Options::default() };
    let cluster = Cluster::start(options).expect("the cluster starts");
    eprintln!("a cluster with a real node is ready after {:.1} s", started.elapsed().as_secs_f64());

    cluster.import_image(&Image::new(SHELL).shell().expect("busybox")).expect("is imported");
    let program = Path::new(env!("CARGO_BIN_EXE_berth-testbed"));
    let image = Image::new("localhost/testbed:1")
        .program(program, "/usr/bin/berth-testbed")
        .expect("its libraries are there")
        .env("BERTH_KUBE_FOLDER", "/made/for/this")
        .entrypoint(["/usr/bin/berth-testbed"]);
    let packed = Instant::now();
    cluster.import_image(&image).expect("is imported");
    eprintln!("an image of a program is imported within {:.1} s", packed.elapsed().as_secs_f64());
    let folder = tempfile::tempdir().expect("a folder of the machine");

    let address = run(async {
        let client = connect(cluster.kubeconfig()).await;
        let node = Api::<Node>::all(client.clone()).get(REAL_NODE).await.expect("the node");
        assert_eq!(node.metadata.labels.expect("labels")["nvidia.com/gpu.product"], "V100");
        let pods = Api::<Pod>::default_namespaced(client.clone());

        let gpus = |count: &str| json!({"limits": {"nvidia.com/gpu": count}});
        let trainer = json!({
            "terminationGracePeriodSeconds": 60,
            "containers": [{"name": "main", "image": SHELL, "command": ["sh", "-c", TRAINER], "resources": gpus("1"),
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"},
                    {"name": "machine", "mountPath": "/machine"}]}],
            "volumes": [{"name": "scratch", "emptyDir": {}},
                {"name": "machine", "hostPath": {"path": folder.path()}}],
        });
        create(&pods, &pod("trainer", trainer)).await;
        let once = json!({"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "localhost/testbed:1", "args": ["up", "--help"]}]});
        create(&pods, &pod("once", once)).await;

        until_phase(&pods, "once", "Succeeded").await;
        let log = pods.logs("once", &LogParams::default()).await.expect("a log");
        assert!(log.contains("Start it in the background") && log.contains("/made/for/this"), "{log}");

        until_logged(&pods, "trainer", "training").await;
        let found = until(&pods, "trainer", "has been restarted", |pod| {
            let status = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref()?.first());
            status.is_some_and(|status| status.restart_count == 1 && status.ready)
        });
        let address = found.await.and_then(|pod| pod.status?.pod_ip).expect("an address");

        // One GPU is left, so kubelet itself refuses whoever wants two.
        let greedy = json!({"containers": [{"name": "main", "image": SHELL, "resources": gpus("2")}]});
        create(&pods, &pod("greedy", greedy)).await;
        let refused = until_phase(&pods, "greedy", "Failed").await.and_then(|pod| pod.status?.reason);
        assert_eq!(refused.as_deref(), Some("OutOfnvidia.com/gpu"));
        address
    });

    match kubectl() {
        None => eprintln!("NOT TESTED: exec on a real node: there is no kubectl"),
        Some(kubectl) => {
            let mut command = Command::new(kubectl);
            command.arg("--kubeconfig").arg(cluster.kubeconfig()).env("KUBECACHEDIR", cluster.folder());
            let output = command.args(["exec", "trainer", "--", "cat", "/scratch/starts"]).output();
            let output = output.expect("kubectl starts");
            let said = [output.stdout, output.stderr].concat();
            assert_eq!(String::from_utf8_lossy(&said), "start\nstart\n");
        }
    }

    run(async {
        let pods = Api::<Pod>::default_namespaced(connect(cluster.kubeconfig()).await);
        let asked = Instant::now();
        pods.delete("trainer", &DeleteParams::default()).await.expect("is deleted");
        until_logged(&pods, "trainer", "told to end").await;
        until(&pods, "trainer", "is gone", |pod| pod.is_none()).await;
        let took = asked.elapsed();
        assert!((Duration::from_secs(1)..Duration::from_secs(50)).contains(&took), "gone after {took:?}");
        let forever =
            json!({"containers": [{"name": "main", "image": SHELL, "command": ["sleep", "100000"]}]});
        create(&pods, &pod("forever", forever)).await;
        until_phase(&pods, "forever", "Running").await;
    });
    assert_eq!(fs::read_to_string(folder.path().join("checkpoint")).expect("a checkpoint"), "done\n");

    let node = cluster.pids().into_iter().find(|(name, _)| name == "node").expect("the node has a process").1;
    let pids = family(node);
    let names = names_of(&pids);
    for wanted in ["kubelet", "containerd", "containerd-shim", "sleep"] {
        assert!(names.iter().any(|name| name == wanted), "{names:?}");
    }
    assert!(!groups_of(std::process::id()).is_empty());
    let (files, ending) = (cluster.folder().to_owned(), Instant::now());
    drop(cluster);
    eprintln!("a real node with a Pod is gone after {:.1} s", ending.elapsed().as_secs_f64());
    let left: Vec<_> = pids.iter().filter(|pid| is_alive(**pid)).collect();
    assert!(left.is_empty(), "{left:?} of {names:?}");
    assert_eq!(groups_of(std::process::id()), Vec::<PathBuf>::new());
    assert!(!files.exists());
    assert_eq!(machine(), before);
    assert_eq!(mounts_of_testbed(), 0);
    // The kernel takes network devices away a moment after the last process that used them.
    let routes = || fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    wait("the route to the Pod is left", || !routes().contains(&address));
}

#[test]
fn an_owner_that_is_killed_takes_its_real_node_along() {
    if let Err(reason) = Cluster::real_node_available() {
        return eprintln!("NOT TESTED: a killed owner of a real node: {reason}");
    }
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("kube");
    let call = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth-testbed"));
        let output =
            command.args(arguments).arg("--folder").arg(&folder).output().expect("the program starts");
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    };
    let up = ["up", "--nodes", "1xdgx1", "--real-node", "--program", env!("CARGO_BIN_EXE_berth-testbed")];
    call(&up);
    let owner = fs::read_to_string(folder.join("owner")).expect("the owner is written down");
    let owner: u32 = owner.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    run(async {
        let pods = Api::<Pod>::default_namespaced(connect(&folder.join("kubeconfig")).await);
        let command = ["sh", "-c", "berth-testbed --version; sleep 100000"];
        let image = "localhost/berth-testbed:1";
        let forever = json!({"containers": [{"name": "main", "image": image, "command": command}]});
        create(&pods, &pod("forever", forever)).await;
        until_logged(&pods, "forever", concat!("berth-testbed ", env!("CARGO_PKG_VERSION"))).await;
    });
    let pids = family(owner);
    assert!(names_of(&pids).iter().any(|name| name == "sleep"), "{:?}", names_of(&pids));

    let pid = Pid::from_raw(i32::try_from(owner).expect("a number")).expect("not zero");
    kill_process(pid, Signal::KILL).expect("it runs");
    wait("processes are left", || !pids.iter().any(|pid| is_alive(*pid)));
    call(&up);
    assert_eq!(groups_of(owner), Vec::<PathBuf>::new(), "the next node clears up");
    call(&["down"]);
    assert!(!folder.exists());
}
