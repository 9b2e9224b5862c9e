//! One real node: kubelet, containerd and runc in mount and process namespaces of their own, so that the machine stays
//! as it was and the end of one process is the end of all.

use crate::{Image, binaries, certificates as files, cgroups::ControlGroup, processes::Process};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::{
    fs,
    net::{Ipv4Addr, UdpSocket},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// The name of the real node. The API server calls its kubelet by it, so it must mean this machine everywhere.
pub const REAL_NODE: &str = "localhost";

/// The image of what holds a Pod's namespaces, made here as every other.
const PAUSE: &str = "localhost/pause:1";
const SOCKET: &str = "run/containerd/containerd.sock";
/// What is mounted over; a folder in there would not be seen by the node.
const COVERED: [&str; 3] = ["/var/lib", "/var/log", "/run"];
const NODE: &str = "node";
const SUBNET_TRIES: u32 = 100;
const SUBNET_PORT: u16 = 19_818;
/// Thirty years, as an argument of sleep.
const FOREVER_SECS: &str = "1000000000";

/// Says what is missing for a real node, and what to do about it.
pub(crate) fn check() -> Result<(), String> {
    use binaries::{CONTAINERD, CTR, HOST_LOCAL, KUBELET, LOOPBACK, PTP, SHIM};
    if !rustix::process::geteuid().is_root() {
        return Err("a real node needs root".into());
    }
    binaries::check(&[KUBELET, CONTAINERD, SHIM, CTR, PTP, HOST_LOCAL, LOOPBACK])?;
    runc().ok_or("runc missing: install runc")?;
    if !Path::new("/bin/busybox").exists() {
        return Err("/bin/busybox missing: install busybox-static".into());
    }
    if let Some(tool) = ["unshare", "mount", "ldd"].into_iter().find(|tool| binaries::find(tool).is_none()) {
        return Err(format!("{tool} missing: install util-linux and libc-bin"));
    }
    let kinds = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !kinds.split_whitespace().any(|kind| kind == "overlay") {
        return Err("this kernel has no overlay file system: load its module".into());
    }
    Ok(())
}

fn runc() -> Option<PathBuf> {
    // Where Debian has it, which is not on everybody's path.
    binaries::find("runc").or_else(|| Some(PathBuf::from("/usr/sbin/runc")).filter(|path| path.exists()))
}

/// Ends with everything that runs on it when it is dropped.
#[derive(Debug)]
pub(crate) struct RealNode {
    process: Process,
    folder: PathBuf,
    /// After the process: a group can be removed when nobody is in it.
    _group: ControlGroup,
    _subnet: Subnet,
}

impl RealNode {
    /// Starts containerd and kubelet. The folder is the cluster's, in which the certificates are.
    pub(crate) fn start(
        cluster: &Path,
        server: &str,
        port: u16,
        stream_idle: Option<Duration>,
    ) -> Result<Self> {
        if let Some(place) = COVERED.iter().find(|place| cluster.starts_with(place)) {
            bail!("a cluster with a real node cannot live below {place}: name another folder");
        }
        let folder = cluster.join(NODE);
        clear(cluster)?;
        fs::create_dir_all(folder.join("cni"))?;
        let group = ControlGroup::create(&files::token()?[..8])?;
        let programs = binaries::folder().canonicalize()?;
        let subnet = Subnet::free()?;
        fs::write(folder.join("cni/10-testbed.conflist"), network(&subnet))?;
        fs::write(folder.join("containerd.toml"), containerd(&folder, &programs, stream_idle)?)?;
        fs::write(folder.join("kubelet.json"), kubelet(cluster, &folder, port, &group.path()))?;
        files::write_secret(&folder.join("kubeconfig"), &kubeconfig(cluster, server))?;
        fs::write(folder.join("node.sh"), include_str!("node.sh"))?;

        let mut arguments =
            ["--mount", "--propagation=private", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
                .map(String::from)
                .to_vec();
        arguments.extend(["sh".into(), "node.sh".into(), programs.display().to_string()]);
        let unshare = binaries::find("unshare").context("unshare is not on the path")?;
        let process = Process::start(NODE, &unshare, &arguments, &[], &folder, cluster)?;
        Ok(Self { process, folder, _group: group, _subnet: subnet })
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// An error with the end of the logs, if containerd or kubelet has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.process.check().with_context(|| self.tails())
    }

    /// The ends of the logs.
    pub(crate) fn tails(&self) -> String {
        let cluster = self.folder.parent().unwrap_or(&self.folder);
        ["containerd.log", "kubelet.log"].map(|log| crate::processes::tail(&cluster.join(log))).join("\n")
    }

    /// Whether containerd can be asked.
    pub(crate) fn is_listening(&self) -> bool {
        self.socket().exists()
    }

    /// Packs the image, and gives it to containerd.
    pub(crate) fn import(&self, image: &Image) -> Result<()> {
        let archive = tempfile::Builder::new().suffix(".tar").tempfile_in(&self.folder)?;
        image.write(archive.path())?;
        let output = Command::new(binaries::folder().join(binaries::CTR))
            .arg("--address")
            .arg(self.socket())
            .args(["--namespace", "k8s.io", "images", "import"])
            .arg(archive.path())
            .output()
            .context("starting ctr")?;
        if !output.status.success() {
            bail!("importing image {}: {}", image.name(), String::from_utf8_lossy(&output.stderr).trim_end());
        }
        Ok(())
    }

    /// Gives containerd the image without which no Pod starts.
    pub(crate) fn import_pause(&self) -> Result<()> {
        self.import(&Image::new(PAUSE).shell()?.entrypoint(["/bin/sleep", FOREVER_SECS]))
    }

    /// As seen from outside: the first process, which makes the namespaces, enters the one of mounts itself.
    fn socket(&self) -> PathBuf {
        format!("/proc/{}/root/{SOCKET}", self.process.pid()).into()
    }
}

impl Drop for RealNode {
    fn drop(&mut self) {
        // The kernel ends every process of the namespace with its first, and only then is that one gone.
        self.process.kill_children();
    }
}

/// Removes what a node left that lived in this folder before.
pub(crate) fn clear(cluster: &Path) -> Result<()> {
    match fs::remove_dir_all(cluster.join(NODE)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context("removing an old node")
        }
        _ => Ok(()),
    }
}

/// Addresses of one node's Pods: 256 of 198.18.0.0/15, which is meant for benchmarks, so that no route of the machine
/// leads there. A socket of the same number on loopback keeps them from other clusters of the machine; nothing is sent.
#[derive(Debug)]
struct Subnet {
    second: u8,
    third: u8,
    _held: UdpSocket,
}

impl Subnet {
    fn free() -> Result<Self> {
        for _ in 0..SUBNET_TRIES {
            let mut dice = [0; 2];
            getrandom::fill(&mut dice).context("random numbers for a network")?;
            let (second, third) = (18 + dice[0] % 2, dice[1]);
            if let Ok(held) = UdpSocket::bind((Ipv4Addr::new(127, 198, second, third), SUBNET_PORT)) {
                return Ok(Self { second, third, _held: held });
            }
        }
        bail!("no free addresses for Pods after {SUBNET_TRIES} tries")
    }
}

fn network(Subnet { second, third, .. }: &Subnet) -> String {
    json!({
        "cniVersion": "1.0.0",
        "name": "testbed",
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": format!("198.{second}.{third}.0/24")}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
    .to_string()
}

fn containerd(folder: &Path, programs: &Path, stream_idle: Option<Duration>) -> Result<String> {
    let streams = stream_idle.map_or(String::new(), |idle| {
        format!("[plugins.\"io.containerd.grpc.v1.cri\"]\nstream_idle_timeout = \"{}s\"\n", idle.as_secs())
    });
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    let runc = runc().context("runc is missing")?;
    Ok(format!(
        "version = 3
root = {root}
state = \"/run/containerd\"
oom_score = 0
disabled_plugins = [\"io.containerd.nri.v1.nri\"]

[grpc]
address = \"/{SOCKET}\"

[plugins.\"io.containerd.internal.v1.opt\"]
path = {opt}

[plugins.\"io.containerd.cri.v1.images\".pinned_images]
sandbox = \"{PAUSE}\"

[plugins.\"io.containerd.cri.v1.runtime\"]
# Lowering it takes a capability that not every root has.
restrict_oom_score_adj = true

[plugins.\"io.containerd.cri.v1.runtime\".cni]
bin_dirs = [{programs}]
conf_dir = {cni}

[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc]
runtime_type = \"io.containerd.runc.v2\"

[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc.options]
BinaryName = {runc}
SystemdCgroup = false

{streams}",
        root = quoted(&folder.join("containerd")),
        opt = quoted(&folder.join("opt")),
        programs = quoted(programs),
        cni = quoted(&folder.join("cni")),
        runc = quoted(&runc),
    ))
}

fn kubelet(cluster: &Path, folder: &Path, port: u16, group: &str) -> String {
    let none = "0%";
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "tlsCertFile": cluster.join(files::KUBELET_SERVER),
        "tlsPrivateKeyFile": cluster.join(files::KUBELET_SERVER_KEY),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": cluster.join(files::AUTHORITY)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": format!("unix:///{SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": group,
        "failCgroupV1": false,
        "failSwapOn": false,
        // Lowering it takes a capability that not every root has.
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": false,
        "volumePluginDir": folder.join("volume-plugins"),
        // The disk is the machine's, and may be full for reasons of its own; imported images must stay.
        "evictionHard": {"memory.available": none, "nodefs.available": none, "nodefs.inodesFree": none,
            "imagefs.available": none, "imagefs.inodesFree": none},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    })
    .to_string()
}

fn kubeconfig(cluster: &Path, server: &str) -> String {
    let in_cluster = |name: &str| cluster.join(name);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed",
            "cluster": {"server": server, "certificate-authority": in_cluster(files::AUTHORITY)}}],
        "users": [{"name": "kubelet", "user": {
            "client-certificate": in_cluster(files::KUBELET_CLIENT),
            "client-key": in_cluster(files::KUBELET_CLIENT_KEY),
        }}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "kubelet"}}],
        "current-context": "testbed",
    })
    .to_string()
}
