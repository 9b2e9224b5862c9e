//! What a machine needs for `berth up`.

use super::{on_path, verdict::Check};
use crate::{server::is_alive, settings::Settings, show::size};
use berth_server::Folder;
use berth_types::Bytes;
use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

/// Below this the server cannot be trusted to write.
const DISK_NEEDED: Bytes = Bytes::gib(1);
/// Below this logs and volumes fill the disk soon.
const DISK_WANTED: Bytes = Bytes::gib(10);
/// An engine that has not answered by then does not.
const ENGINE_WITHIN: Duration = Duration::from_secs(2);
/// No clock of a machine that runs this release shows an earlier or a later time: 2025 and 2100.
const CLOCK_SECS: std::ops::Range<u64> = 1_735_689_600..4_102_444_800;

/// What is known of a machine.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// Models of GPUs as the driver's library reports them, or why there are none.
    pub(super) gpus: Result<Vec<String>, String>,
    /// NVIDIA devices on the bus, whether or not a driver is loaded.
    pub(super) nvidia_on_bus: usize,
    pub(super) runc: Option<String>,
    /// Addresses of container engines, with what they answered.
    pub(super) engines: Vec<(String, Result<(), String>)>,
    /// Limits that would not hold.
    pub(super) cgroups: Option<String>,
    /// Why tasks cannot run under accounts of their users.
    pub(super) accounts: Result<(), String>,
    pub(super) folder: PathBuf,
    /// Whether the folder can be written, or why not.
    pub(super) writable: Result<(), String>,
    pub(super) disk_free: Option<Bytes>,
    /// Why settings of the folder cannot be read.
    pub(super) broken_settings: Option<String>,
    pub(super) listen: String,
    pub(super) port: Port,
    pub(super) clock_secs: u64,
    /// Whether the clock is synchronised, if the machine says.
    pub(super) synchronised: Option<bool>,
    /// Whether files of the folder can be cloned without a copy of their bytes.
    pub(super) reflink: Result<bool, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Port {
    Free,
    /// Berth itself listens there.
    Own,
    Taken(String),
}

pub(super) fn gather(folder: &Folder, settings: &Settings, broken_settings: Option<String>) -> Facts {
    let probe = berth_agent::probe();
    let gpus = match probe.devices.gpus.is_empty() {
        false => Ok(probe.devices.gpus.iter().map(|gpu| gpu.model.clone()).collect()),
        true => Err(probe.devices.reason.unwrap_or_else(|| "no GPU was found".into())),
    };
    let answered = |address: String| {
        let answer = ask_engine(&address);
        (address, answer)
    };
    let listen = settings.listen();
    // A folder that is not there yet will be made in the first one above it that is.
    let there = folder.path().ancestors().find(|path| path.exists()).unwrap_or(Path::new("/")).to_owned();
    let scratch = Scratch::in_folder(&there);
    Facts {
        gpus,
        nvidia_on_bus: nvidia_on_bus(),
        runc: probe.runc,
        engines: probe.engines.into_iter().map(answered).collect(),
        cgroups: probe.cgroups,
        accounts: berth_agent::can_run_as_others(settings.accounts_from()),
        folder: folder.path().to_owned(),
        writable: scratch.as_ref().map(|_| ()).map_err(Clone::clone),
        disk_free: rustix::fs::statvfs(&there)
            .ok()
            .map(|disk| Bytes(disk.f_bavail.saturating_mul(disk.f_frsize))),
        broken_settings,
        port: port(folder, listen),
        listen: listen.to_string(),
        clock_secs: SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        synchronised: synchronised(),
        reflink: scratch.and_then(|scratch| scratch.can_clone()),
    }
}

fn nvidia_on_bus() -> usize {
    let devices = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    let is_nvidia = |path: &Path| {
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
        read("vendor").trim() == "0x10de" && read("class").starts_with("0x03")
    };
    devices.filter(|device| is_nvidia(&device.path())).count()
}

/// Asks an engine whether it answers; only sockets of this machine are asked.
fn ask_engine(address: &str) -> Result<(), String> {
    let Some(path) = address.strip_prefix("unix://") else { return Ok(()) };
    let asked = || {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ENGINE_WITHIN))?;
        stream.write_all(b"GET /_ping HTTP/1.0\r\nHost: berth\r\n\r\n")?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    match asked() {
        Ok(answer) if answer.starts_with(b"HTTP/1.") && answer.ends_with(b"200") => Ok(()),
        Ok(_) => Err("it does not answer as a container engine does".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn port(folder: &Folder, listen: std::net::SocketAddr) -> Port {
    match TcpListener::bind(listen) {
        Ok(_) => Port::Free,
        Err(error) => match berth_client::running(folder.path()) {
            Ok(Some(running)) if is_alive(running.pid) && listens_at(&running.address, listen) => Port::Own,
            _ => Port::Taken(error.to_string()),
        },
    }
}

/// Whether the address of a running server has this port.
fn listens_at(address: &str, listen: std::net::SocketAddr) -> bool {
    let port = address.trim_end_matches('/').rsplit(':').next();
    port.and_then(|port| port.parse().ok()) == Some(listen.port())
}

/// Whether the clock is synchronised, by what systemd or chrony say.
fn synchronised() -> Option<bool> {
    if Path::new("/run/systemd/timesync/synchronized").exists() {
        return Some(true);
    }
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(on_path(program)?).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    if let Some(text) = said("timedatectl", &["show", "--property=NTPSynchronized", "--value"]) {
        return Some(text.trim() == "yes");
    }
    said("chronyc", &["-n", "tracking"]).map(|text| !text.contains("Not synchronised"))
}

/// A folder for probes that is gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn in_folder(folder: &Path) -> Result<Self, String> {
        let path = folder.join(format!(".berth-doctor-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self(path))
    }

    /// Clones a file, which is the only way to know: names of file systems do not tell.
    fn can_clone(&self) -> Result<bool, String> {
        let cloned = || {
            let from = self.0.join("from");
            fs::write(&from, [1; 4096])?;
            let (from, to) = (fs::File::open(from)?, fs::File::create(self.0.join("to"))?);
            Ok::<_, std::io::Error>(
                rustix::fs::ioctl_ficlone(&to, &from).is_ok() && to.metadata()?.size() == 4096,
            )
        };
        cloned().map_err(|error| error.to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The verdict on each of the facts.
pub(super) fn check(facts: &Facts) -> Vec<Check> {
    vec![
        check_gpus(facts),
        check_containers(facts),
        check_cgroups(facts),
        check_accounts(facts),
        check_folder(facts),
        check_disk(facts),
        check_port(facts),
        check_clock(facts),
        check_snapshots(facts),
    ]
}

fn check_gpus(facts: &Facts) -> Check {
    const NAME: &str = "GPU driver";
    match (&facts.gpus, facts.nvidia_on_bus) {
        (Ok(models), _) => {
            let mut kinds = models.clone();
            kinds.sort();
            kinds.dedup();
            let count = |kind: &String| models.iter().filter(|model| *model == kind).count();
            let kinds: Vec<String> = kinds.iter().map(|kind| format!("{} x {kind}", count(kind))).collect();
            Check::ok(NAME, format!("NVML reports {}", kinds.join(", ")))
        }
        (Err(reason), 0) => Check::warning(
            NAME,
            format!("this machine has no NVIDIA GPU ({reason})"),
            "none is needed to try Berth: `berth up --change --nodes 2xdgx1` simulates GPUs; work without GPUs runs anyway",
        ),
        (Err(reason), count) => Check::failure(
            NAME,
            format!("{count} NVIDIA devices are on the bus, and NVML reports none: {reason}"),
            "install the NVIDIA driver of your distribution (with libnvidia-ml.so.1), load it with `modprobe nvidia`, and see that \
             `nvidia-smi` lists the GPUs",
        ),
    }
}

fn check_containers(facts: &Facts) -> Check {
    const NAME: &str = "Container runtime";
    let answers: Vec<&str> = facts
        .engines
        .iter()
        .filter(|(_, answer)| answer.is_ok())
        .map(|(address, _)| address.as_str())
        .collect();
    let found: Vec<&str> = facts.runc.as_deref().into_iter().chain(answers).collect();
    let refused = facts.engines.iter().find_map(|(address, answer)| Some((address, answer.as_ref().err()?)));
    match (found.is_empty(), refused) {
        (false, _) => Check::ok(NAME, found.join(", ")),
        (true, Some((address, error))) => Check::warning(
            NAME,
            format!("{address} does not answer: {error}"),
            "start Docker or `podman system service`, and add this account to the group of the socket; or install runc",
        ),
        (true, None) => Check::warning(
            NAME,
            "neither runc nor a socket of Docker or Podman was found: images run as programs of this machine only",
            "install runc with the system's package manager, or start Docker or Podman",
        ),
    }
}

fn check_cgroups(facts: &Facts) -> Check {
    const NAME: &str = "Control groups";
    match &facts.cgroups {
        None => Check::ok(NAME, "limits of CPU and memory hold"),
        Some(note) => Check::warning(
            NAME,
            note.clone(),
            "run berth as root, or as a service of systemd with Delegate=yes; in a container, mount /sys/fs/cgroup writable",
        ),
    }
}

fn check_accounts(facts: &Facts) -> Check {
    const NAME: &str = "Accounts";
    match &facts.accounts {
        Ok(()) => Check::ok(NAME, "tasks can run under accounts of their users"),
        Err(why) => Check::warning(
            NAME,
            format!("all tasks run under the server's account: {why}"),
            "run berth as root to keep users apart; for one user nothing is to be done (docs/security.md)",
        ),
    }
}

fn check_folder(facts: &Facts) -> Check {
    const NAME: &str = "Folder";
    match (&facts.writable, &facts.broken_settings) {
        (Err(error), _) => Check::failure(
            NAME,
            format!("cannot write {error}"),
            "name a folder you own with --folder DIR or BERTH_HOME",
        ),
        (Ok(()), Some(error)) => Check::failure(
            NAME,
            error.clone(),
            "correct the file, or delete it and start with all options again",
        ),
        (Ok(()), None) => Check::ok(NAME, facts.folder.display().to_string()),
    }
}

fn check_disk(facts: &Facts) -> Check {
    const NAME: &str = "Free disk";
    let fix = "free space, or name a folder on another disk with --folder DIR";
    match facts.disk_free {
        None => Check::warning(NAME, "the free space of the folder's disk is not known", "see `df`"),
        Some(free) if free < DISK_NEEDED => Check::failure(
            NAME,
            format!("{} free; at least {} are needed", size(free), size(DISK_NEEDED)),
            fix,
        ),
        Some(free) if free < DISK_WANTED => {
            Check::warning(NAME, format!("{} free; logs and volumes fill that soon", size(free)), fix)
        }
        Some(free) => Check::ok(NAME, format!("{} free", size(free))),
    }
}

fn check_port(facts: &Facts) -> Check {
    const NAME: &str = "Port";
    match &facts.port {
        Port::Free => Check::ok(NAME, format!("{} is free", facts.listen)),
        Port::Own => Check::ok(NAME, format!("berth runs in this folder and listens on {}", facts.listen)),
        Port::Taken(error) => Check::failure(
            NAME,
            format!("{} cannot be used: {error}", facts.listen),
            "end the program that listens there (`ss -ltnp` lists them), or choose another port: `berth up --change --listen 127.0.0.1:PORT`",
        ),
    }
}

fn check_clock(facts: &Facts) -> Check {
    const NAME: &str = "Clock";
    let fix = "set the clock and synchronise it: `timedatectl set-ntp true`, or install chrony";
    match (CLOCK_SECS.contains(&facts.clock_secs), facts.synchronised) {
        (false, _) => Check::failure(NAME, "the clock shows a time before 2025 or after 2100", fix),
        (true, Some(true)) => Check::ok(NAME, "synchronised"),
        (true, None) => Check::ok(NAME, "plausible; whether it is synchronised, this machine does not say"),
        (true, Some(false)) => {
            Check::warning(NAME, "not synchronised: times of events and of certificates may be wrong", fix)
        }
    }
}

fn check_snapshots(facts: &Facts) -> Check {
    const NAME: &str = "Snapshots";
    let fix = "put the folder on XFS with reflink=1, Btrfs, or OpenZFS 2.2 with block cloning, to clone volumes at once";
    match &facts.reflink {
        Ok(true) => Check::ok(NAME, "the folder's file system clones files without a copy (FICLONE)"),
        Ok(false) => Check::warning(NAME, "the folder's file system clones by copying every byte", fix),
        Err(error) => Check::warning(NAME, format!("cannot be tried: {error}"), fix),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::verdict::Verdict, *};

    fn sound() -> Facts {
        Facts {
            gpus: Ok(vec!["A100".into(), "A100".into(), "H100".into()]),
            nvidia_on_bus: 3,
            runc: Some("/usr/bin/runc".into()),
            engines: vec![("unix:///var/run/docker.sock".into(), Ok(()))],
            cgroups: None,
            accounts: Ok(()),
            folder: "/data/berth".into(),
            writable: Ok(()),
            disk_free: Some(Bytes::gib(100)),
            broken_settings: None,
            listen: "127.0.0.1:7370".into(),
            port: Port::Free,
            clock_secs: 1_800_000_000,
            synchronised: Some(true),
            reflink: Ok(true),
        }
    }

    #[test]
    fn a_sound_machine_passes_every_check() {
        for check in check(&sound()) {
            assert_eq!((check.verdict, &check.fix), (Verdict::Ok, &None), "{check:?}");
        }
        assert_eq!(check(&sound())[0].found, "NVML reports 2 x A100, 1 x H100");
    }

    /// Each broken fact changes exactly one verdict, and that one has a fix.
    #[test]
    fn each_fault_is_found_alone_and_has_a_fix() {
        type Break = fn(&mut Facts);
        let faults: [(&str, Verdict, &str, Break); 16] = [
            ("GPU driver", Verdict::Failure, "modprobe", |facts| facts.gpus = Err("not loaded".into())),
            ("GPU driver", Verdict::Warning, "--nodes 2xdgx1", |facts| {
                facts.gpus = Err("no library".into());
                facts.nvidia_on_bus = 0;
            }),
            ("Container runtime", Verdict::Warning, "install runc", |facts| {
                facts.runc = None;
                facts.engines.clear();
            }),
            ("Container runtime", Verdict::Warning, "group of the socket", |facts| {
                facts.runc = None;
                facts.engines[0].1 = Err("Permission denied".into());
            }),
            ("Control groups", Verdict::Warning, "Delegate=yes", |facts| facts.cgroups = Some("none".into())),
            ("Accounts", Verdict::Warning, "as root", |facts| facts.accounts = Err("not root".into())),
            ("Folder", Verdict::Failure, "--folder", |facts| facts.writable = Err("/data: read-only".into())),
            ("Folder", Verdict::Failure, "delete it", |facts| facts.broken_settings = Some("x".into())),
            ("Free disk", Verdict::Failure, "--folder", |facts| facts.disk_free = Some(Bytes::mib(100))),
            ("Free disk", Verdict::Warning, "--folder", |facts| facts.disk_free = Some(Bytes::gib(2))),
            ("Free disk", Verdict::Warning, "df", |facts| facts.disk_free = None),
            ("Port", Verdict::Failure, "--listen", |facts| facts.port = Port::Taken("in use".into())),
            ("Clock", Verdict::Failure, "set-ntp", |facts| facts.clock_secs = 86_400),
            ("Clock", Verdict::Warning, "set-ntp", |facts| facts.synchronised = Some(false)),
            ("Snapshots", Verdict::Warning, "XFS", |facts| facts.reflink = Ok(false)),
            ("Snapshots", Verdict::Warning, "XFS", |facts| facts.reflink = Err("full".into())),
        ];
        for (name, verdict, fix, fault) in faults {
            let mut facts = sound();
            fault(&mut facts);
            let found: Vec<Check> =
                check(&facts).into_iter().filter(|check| check.verdict != Verdict::Ok).collect();
            let [one] = &found[..] else { panic!("{name}: {found:?}") };
            assert_eq!((one.name, one.verdict), (name, verdict), "{one:?}");
            assert!(one.fix.as_deref().is_some_and(|text| text.contains(fix)), "{one:?}");
        }
    }

    #[test]
    fn what_is_not_known_or_ours_is_no_fault() {
        let facts = Facts { port: Port::Own, synchronised: None, engines: Vec::new(), ..sound() };
        assert!(check(&facts).iter().all(|check| check.verdict == Verdict::Ok));
    }

    #[test]
    fn probing_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let facts = gather(&Folder::at(folder.path().join("not/there/yet")), &Settings::default(), None);
        assert_eq!(facts.writable, Ok(()));
        assert!(facts.reflink.is_ok() && facts.disk_free.is_some(), "{facts:?}");
        assert_eq!(fs::read_dir(folder.path()).expect("is there").count(), 0);
    }
}
