//! Tasks as containers, made from local archives and folders by an OCI runtime.
//!
//! ```text
//! archive --unpack, once--> images/<key>/root --overlay, per task--> rootfs --runc run--> workload
//! ```
//!
//! The agent decides what is to be run; the shim unpacks, mounts and starts it, so that a large image keeps nobody else waiting.
//! The container shares the network of the machine. Mounts are made in the shim's own namespace and are gone with it.

mod archive;
mod bundle;
mod device_nodes;
mod layer;

pub(crate) use archive::unpacked;
pub(crate) use bundle::write_bundle;

use crate::{
    ImageEntry, Mount, RuntimeKind, TaskSpec,
    environment::{self, MARK},
    images::Runs,
    process::Context,
    task_folder::Launch,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Where a container finds what Berth gives it.
const INSIDE: &str = "/berth";
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the shim needs to make a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Container {
    pub(crate) image: ImageEntry,
    /// Where unpacked images are.
    pub(crate) images: PathBuf,
    /// The folder of this container.
    pub(crate) bundle: PathBuf,
    /// What the workload finds in its environment; wins over the image's own.
    pub(crate) environment: BTreeMap<String, String>,
    /// What it sees of this machine.
    pub(crate) mounts: Vec<Mount>,
    /// Of that, what is lent to it by Berth and belongs to whoever it runs as.
    #[serde(default)]
    pub(crate) lent: Vec<PathBuf>,
    /// Whether the image is a path that a person wrote, and not what an administrator keeps a line for.
    #[serde(default)]
    pub(crate) by_path: bool,
}

/// What an image says about how it wants to be run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ImageConfig {
    pub(crate) env: Option<Vec<String>>,
    pub(crate) entrypoint: Option<Vec<String>>,
    pub(crate) cmd: Option<Vec<String>>,
    pub(crate) working_dir: Option<String>,
    pub(crate) user: Option<String>,
}

/// What to execute for a task as a container. The text says why it cannot run, and what to do about it.
pub(crate) fn resolve(
    spec: &TaskSpec,
    runs: Result<Runs, String>,
    context: &mut Context<'_>,
) -> Result<Launch, String> {
    let by_path = !is_kept(&runs);
    let image = entry(&spec.image, runs)?;
    let runtime = runtime().ok_or(
        "there is no container runtime on this machine: install `runc` with the system's package manager, or use the runtime \
         `process`",
    )?;
    if !rustix::process::geteuid().is_root() {
        return Err("containers are made by root: run Berth as root, or use Podman".into());
    }
    let Inside { environment, mounts, ports } = inside(spec, context)?;
    let folder = context.folder;
    let mark = folder.mark(spec.id);
    let bundle = folder.task(spec.id).path().join("bundle");
    let container = Container {
        image,
        images: folder.root().join("images"),
        bundle: bundle.clone(),
        environment,
        mounts,
        lent: vec![folder.checkpoints(spec.id.workload), folder.signals(spec.id)],
        by_path,
    };
    let name = format!("berth-{}-{}", folder.id(), spec.id);
    let state = folder.root().join("containers");
    let runtime = |words: &[&str]| -> Vec<String> {
        let state = state.display().to_string();
        [runtime.as_str(), "--root", &state].iter().chain(words).map(|word| (*word).to_owned()).collect()
    };
    let bundle_text = bundle.display().to_string();
    let own = [("PATH", USUAL_PATH), (MARK, mark.as_str())];
    Ok(Launch {
        argv: runtime(&["run", "--bundle", &bundle_text, &name]),
        environment: own.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        working_dir: folder.root().to_owned(),
        ports,
        cleanup: vec![
            runtime(&["delete", "--force", &name]),
            vec!["rm".into(), "-rf".into(), "--one-file-system".into(), "--".into(), bundle_text],
        ],
        container: Some(container),
        ..Launch::default()
    })
}

/// What runs a command in a container that runs already. The container's own environment, user and folder are those of its
/// description.
pub(crate) fn beside(
    launch: &Launch,
    words: &[String],
    environment: &BTreeMap<String, String>,
    terminal: bool,
) -> Vec<String> {
    // `runc --root STATE run --bundle FOLDER NAME` is what was launched.
    let mut argv: Vec<String> = launch.argv.iter().take(3).cloned().collect();
    argv.push("exec".into());
    if terminal {
        argv.push("--tty".into());
    }
    for (name, value) in environment {
        argv.extend(["--env".into(), format!("{name}={value}")]);
    }
    argv.extend(launch.argv.last().cloned());
    argv.extend_from_slice(words);
    argv
}

/// What a container of this image is made from. The text says that there is nothing.
pub(crate) fn entry(image: &str, runs: Result<Runs, String>) -> Result<ImageEntry, String> {
    match runs {
        Ok(Runs::Entry(entry @ (ImageEntry::Root(_) | ImageEntry::Archive(_)))) => Ok(entry),
        _ => by_path(image),
    }
}

/// What every container gets, whoever makes it.
pub(crate) struct Inside {
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) ports: Vec<(u16, u16)>,
}

/// Looks at the mounts of a container, and adds those of Berth.
pub(crate) fn inside(spec: &TaskSpec, context: &mut Context<'_>) -> Result<Inside, String> {
    let theirs = context.look_at_mounts(spec)?;
    let folder = context.folder;
    let gang = (spec.workers > 1).then(|| context.ports.of_gang(folder, spec)).transpose()?;
    // An engine's container may be running already, with the ports that it has.
    let ports = match spec.runtime {
        RuntimeKind::Docker => spec.ports.iter().map(|port| (*port, *port)).collect(),
        _ => context.ports.for_all(&spec.ports)?,
    };
    let place = |name: &str| Path::new(INSIDE).join(name);
    let mut environment = environment::of_berth(spec, &ports, gang);
    let mut put =
        |name: &str, value: PathBuf| environment.insert(name.to_owned(), value.display().to_string());
    put("BERTH_CHECKPOINT_DIR", place("checkpoint"));
    put("BERTH_CHECKPOINT_FILE", place("signals/checkpoint"));
    put("PYTHONPATH", place("python"));
    environment.insert("PYTHONUNBUFFERED".into(), "1".into());
    environment.extend(spec.environment.clone());
    environment.insert(MARK.into(), folder.mark(spec.id));
    let mount = |source: PathBuf, name: &str, read_only: bool| Mount {
        source,
        target: place(name),
        read_only,
        lent: true,
    };
    let mut mounts = vec![
        mount(folder.checkpoints(spec.id.workload), "checkpoint", false),
        mount(folder.signals(spec.id), "signals", false),
        mount(folder.root().join("python"), "python", true),
    ];
    mounts.extend(theirs);
    Ok(Inside { environment, mounts, ports })
}

/// An image may be named by the path of its archive or folder.
fn by_path(image: &str) -> Result<ImageEntry, String> {
    let path = Path::new(image);
    match path.metadata() {
        Ok(found) if path.is_absolute() && found.is_dir() => Ok(ImageEntry::Root(path.into())),
        Ok(found) if path.is_absolute() && found.is_file() => Ok(ImageEntry::Archive(path.into())),
        _ => Err(format!(
            "the image `{image}` is not on this machine: save it with `docker save -o /path/of/image.tar {image}`, then say so \
             with a line in images.toml, `\"{image}\" = {{ archive = \"/path/of/image.tar\" }}`"
        )),
    }
}

/// Whether this task is a container of ours.
pub(crate) fn is_container(spec: &TaskSpec, runs: &Result<Runs, String>) -> bool {
    spec.runtime == RuntimeKind::Oci || (spec.runtime == RuntimeKind::Process && is_kept(runs))
}

/// Whether an administrator says which files the image is made of.
fn is_kept(runs: &Result<Runs, String>) -> bool {
    matches!(runs, Ok(Runs::Entry(ImageEntry::Root(_) | ImageEntry::Archive(_))))
}

pub(crate) fn runtime() -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(USUAL_PATH.split(':'));
    let found = folders.map(|folder| Path::new(folder).join("runc")).find(|file| file.is_file());
    found.map(|file| file.display().to_string())
}
