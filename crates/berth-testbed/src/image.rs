//! Images without a registry: files of this machine become an OCI archive with one layer.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Seek, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

/// Where the linker keeps what it knows about libraries outside of its standard folders.
const LINKER_CACHE: &str = "/etc/ld.so.cache";
const BUSYBOX: &str = "/bin/busybox";

/// An image under construction.
///
/// ```no_run
/// # fn main() -> anyhow::Result<()> {
/// # let cluster = berth_testbed::Cluster::start(berth_testbed::Options::default())?;
/// let image = berth_testbed::Image::new("localhost/trainer:1")
///     .shell()?
///     .program("target/debug/trainer".as_ref(), "/bin/trainer")?
///     .entrypoint(["/bin/trainer"]);
/// cluster.import_image(&image)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    /// By path, without the slash at its beginning.
    files: BTreeMap<String, Content>,
    entrypoint: Vec<String>,
    environment: Vec<String>,
}

#[derive(Debug, Clone)]
enum Content {
    Folder { mode: u32 },
    Copy { of: PathBuf },
    Text { text: String, mode: u32 },
    Link { to: String },
}

impl Image {
    /// An image without files. The name is whole: with a registry, whether there is one or not, and a tag. Kubelets ask
    /// the registry for one tagged `latest`, unless the Pod says `imagePullPolicy: IfNotPresent`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            files: BTreeMap::new(),
            entrypoint: Vec::new(),
            environment: vec!["PATH=/usr/local/bin:/usr/bin:/bin".into()],
        }
    }

    /// The name under which Pods ask for it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A file of this machine, with its mode. It is read when the image is written.
    #[must_use]
    pub fn file(self, from: &Path, to: &str) -> Self {
        self.with(to, Content::Copy { of: from.into() })
    }

    /// A file with this text.
    #[must_use]
    pub fn text(self, to: &str, text: &str, mode: u32) -> Self {
        self.with(to, Content::Text { text: text.into(), mode })
    }

    /// A symbolic link.
    #[must_use]
    pub fn link(self, at: &str, to: &str) -> Self {
        self.with(at, Content::Link { to: to.into() })
    }

    /// A program of this machine with every library it is linked with, and the linker that loads them.
    ///
    /// # Errors
    /// When it is not there, or one of its libraries is not.
    pub fn program(self, from: &Path, to: &str) -> Result<Self> {
        let libraries = libraries(from)?;
        let mut image = self.file(from, to);
        if !libraries.is_empty() && Path::new(LINKER_CACHE).exists() {
            image = image.file(LINKER_CACHE.as_ref(), LINKER_CACHE);
        }
        for path in libraries {
            let inside = path.to_str().with_context(|| format!("{} is not text", path.display()))?.to_owned();
            image = image.file(&path, &inside);
        }
        Ok(image)
    }

    /// busybox under each of its names (`sh`, `sleep`, `cat` and so on), a folder for temporary files, and a name for
    /// root.
    ///
    /// # Errors
    /// When this machine has no busybox.
    pub fn shell(self) -> Result<Self> {
        let list =
            Command::new(BUSYBOX).arg("--list").output().with_context(|| format!("asking {BUSYBOX}"))?;
        let mut image = self
            .program(BUSYBOX.as_ref(), BUSYBOX)?
            .text("/etc/passwd", "root:x:0:0:root:/:/bin/sh\n", 0o644)
            .text("/etc/group", "root:x:0:\n", 0o644)
            .with("/tmp", Content::Folder { mode: 0o1777 });
        for name in String::from_utf8_lossy(&list.stdout).lines().filter(|name| *name != "busybox") {
            image = image.link(&format!("/bin/{name}"), BUSYBOX);
        }
        Ok(image)
    }

    /// What runs when a Pod names no command.
    #[must_use]
    pub fn entrypoint<S: Into<String>>(self, words: impl IntoIterator<Item = S>) -> Self {
        Self { entrypoint: words.into_iter().map(Into::into).collect(), ..self }
    }

    /// A variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push(format!("{name}={value}"));
        self
    }

    /// Writes the archive. The same files give the same bytes.
    ///
    /// # Errors
    /// When a file is not there, or there is no room.
    pub fn write(&self, archive: &Path) -> Result<()> {
        let context = || format!("writing image {} to {}", self.name, archive.display());
        if !is_whole(&self.name) {
            bail!("the image {} needs a registry and a tag, as in localhost/trainer:1", self.name);
        }
        let folder = archive.parent().unwrap_or(Path::new("."));
        let (mut layer, layer_descriptor) = self.layer(folder).with_context(context)?;

        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {"Env": self.environment, "Entrypoint": self.entrypoint, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [layer_descriptor["digest"]]},
        })
        .to_string();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": describe("application/vnd.oci.image.config.v1+json", config.as_bytes()),
            "layers": [layer_descriptor],
        })
        .to_string();
        let mut descriptor = describe(MANIFEST, manifest.as_bytes());
        descriptor["annotations"] = json!({"io.containerd.image.name": self.name});
        let index = json!({"schemaVersion": 2, "manifests": [descriptor]}).to_string();

        let mut tar = tar::Builder::new(File::create(archive).with_context(context)?);
        append(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
        append(&mut tar, "index.json", index.as_bytes(), 0o644)?;
        append(&mut tar, &blob(&describe("", manifest.as_bytes())), manifest.as_bytes(), 0o644)?;
        append(&mut tar, &blob(&describe("", config.as_bytes())), config.as_bytes(), 0o644)?;
        let mut head = header(0o644, layer.metadata()?.len());
        tar.append_data(&mut head, blob(&layer_descriptor), &mut layer).with_context(context)?;
        tar.into_inner().and_then(|mut file| file.flush()).with_context(context)
    }

    /// The layer in a file without a name, ready to be read, and its descriptor.
    fn layer(&self, folder: &Path) -> Result<(File, Value)> {
        let mut tar = tar::Builder::new(Hashed { file: tempfile::tempfile_in(folder)?, sum: Sha256::new() });
        for (path, content) in self.with_parents() {
            match content {
                Content::Folder { mode } => {
                    let mut head = header(mode, 0);
                    head.set_entry_type(tar::EntryType::Directory);
                    tar.append_data(&mut head, format!("{path}/"), io::empty())?;
                }
                Content::Copy { of } => {
                    let file = File::open(&of).with_context(|| format!("opening {}", of.display()))?;
                    let data = file.metadata()?;
                    let mut head = header(data.permissions().mode() & 0o7777, data.len());
                    tar.append_data(&mut head, &path, file)
                        .with_context(|| format!("packing {}", of.display()))?;
                }
                Content::Text { text, mode } => append(&mut tar, &path, text.as_bytes(), mode)?,
                Content::Link { to } => {
                    let mut head = header(0o777, 0);
                    head.set_entry_type(tar::EntryType::Symlink);
                    tar.append_link(&mut head, &path, &to)?;
                }
            }
        }
        let Hashed { mut file, sum } = tar.into_inner()?;
        file.rewind()?;
        let size = file.metadata()?.len();
        let layer = json!({"mediaType": LAYER, "size": size, "digest": digest(sum)});
        Ok((file, layer))
    }

    /// Everything, and the folders it is in, which come first because their names are shorter.
    fn with_parents(&self) -> BTreeMap<String, Content> {
        let mut all = self.files.clone();
        for path in self.files.keys() {
            for (end, _) in path.match_indices('/') {
                all.entry(path[..end].into()).or_insert(Content::Folder { mode: 0o755 });
            }
        }
        all
    }

    fn with(mut self, path: &str, content: Content) -> Self {
        self.files.insert(path.trim_matches('/').into(), content);
        self
    }
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// Whether a name is the one under which a Pod that writes it so would look for it.
fn is_whole(name: &str) -> bool {
    let tagged = name.rsplit_once(':').is_some_and(|(_, tag)| !tag.is_empty() && !tag.contains('/'));
    let registry = name.split_once('/').map(|(registry, _)| registry);
    tagged && registry.is_some_and(|it| it == "localhost" || it.contains(['.', ':']))
}

/// What this kind of processor is called in images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn describe(media_type: &str, bytes: &[u8]) -> Value {
    let sum = Sha256::new_with_prefix(bytes);
    json!({"mediaType": media_type, "size": bytes.len(), "digest": digest(sum)})
}

fn digest(sum: Sha256) -> String {
    let hex: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn blob(descriptor: &Value) -> String {
    format!("blobs/{}", descriptor["digest"].as_str().unwrap_or_default().replace(':', "/"))
}

/// Root's, and of no time, so that the same files make the same image.
fn header(mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(size);
    header
}

fn append(tar: &mut tar::Builder<impl Write>, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
    Ok(tar.append_data(&mut header(mode, bytes.len() as u64), path, bytes)?)
}

/// A file that knows the sum of what was written.
struct Hashed {
    file: File,
    sum: Sha256,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.sum.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// What the linker would load for a program, the linker included; nothing for a static one.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    fs::metadata(program).with_context(|| format!("finding {}", program.display()))?;
    let output = Command::new("ldd").arg(program).env("LC_ALL", "C").output().context("asking ldd")?;
    let said = [output.stdout, output.stderr].concat();
    parse_ldd(&String::from_utf8_lossy(&said))
        .with_context(|| format!("finding the libraries of {}", program.display()))
}

fn parse_ldd(said: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    if said.contains("not a dynamic executable") || said.contains("statically linked") {
        return Ok(paths);
    }
    for line in said.lines() {
        let (name, path) = line.split_once(" => ").unwrap_or((line, line));
        let path = path.trim();
        if path == "not found" {
            bail!("{} is not found on this machine", name.trim());
        }
        // What has no path is part of the kernel.
        if path.starts_with('/') {
            paths.push(path.split(" (").next().unwrap_or(path).into());
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn libraries_are_read_from_what_ldd_says() {
        let said = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let wanted: [PathBuf; 2] =
            ["/lib/x86_64-linux-gnu/libc.so.6".into(), "/lib64/ld-linux-x86-64.so.2".into()];
        assert_eq!(parse_ldd(said).expect("is understood"), wanted);
        assert_eq!(parse_ldd("\tnot a dynamic executable\n").expect("is understood").len(), 0);
        let error = parse_ldd("\tlibcuda.so.1 => not found\n").expect_err("is missing").to_string();
        assert!(error.contains("libcuda.so.1"), "{error}");
    }

    #[test]
    fn an_archive_names_what_it_holds_by_its_sum() {
        let folder = tempfile::tempdir().expect("a folder");
        let myself = std::env::current_exe().expect("a program");
        let image = Image::new("localhost/test:1")
            .program(&myself, "/usr/bin/test")
            .expect("its libraries are there")
            .text("/etc/hello", "hello\n", 0o640)
            .link("/bin/test", "/usr/bin/test")
            .env("COLOUR", "blue")
            .entrypoint(["/bin/test", "--list"]);
        let archive = folder.path().join("image.tar");
        image.write(&archive).expect("is written");
        let again = folder.path().join("again.tar");
        image.write(&again).expect("is written");
        assert!(fs::read(&archive).expect("bytes") == fs::read(again).expect("bytes"), "the same each time");

        let mut blobs = BTreeMap::new();
        for entry in tar::Archive::new(File::open(archive).expect("a file")).entries().expect("a tar") {
            let mut entry = entry.expect("an entry");
            let path = entry.path().expect("a path").display().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("bytes");
            if path.starts_with("blobs/") {
                assert_eq!(path, blob(&describe("", &bytes)));
            }
            blobs.insert(path, bytes);
        }
        let read = |path: &str| serde_json::from_slice::<Value>(&blobs[path]).expect("JSON");
        let index = read("index.json");
        let descriptor = &index["manifests"][0];
        assert_eq!(descriptor["annotations"]["io.containerd.image.name"], "localhost/test:1");
        let manifest = read(&blob(descriptor));
        let config = read(&blob(&manifest["config"]));
        assert_eq!(config["config"]["Entrypoint"], json!(["/bin/test", "--list"]));
        assert_eq!(config["config"]["Env"][1], "COLOUR=blue");
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);

        let layer = &blobs[&blob(&manifest["layers"][0])];
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(&layer[..]).entries().expect("a tar") {
            let entry = entry.expect("an entry");
            let head = entry.header();
            let path = entry.path().expect("a path").display().to_string();
            found.insert(path, (head.entry_type(), head.mode().expect("a mode")));
        }
        assert_eq!(found["etc/hello"], (tar::EntryType::Regular, 0o640));
        assert_eq!(found["bin/test"].0, tar::EntryType::Symlink);
        assert_eq!(found["usr/bin/"], (tar::EntryType::Directory, 0o755));
        assert_eq!(found["usr/bin/test"].1 & 0o111, 0o111);
        assert!(found.keys().any(|path| path.contains("libc.so")), "{:?}", found.keys());
    }

    #[test]
    fn a_name_that_means_another_image_is_refused() {
        for name in ["localhost/test", "test:1", "berth/test:1", "localhost:5000/test", "localhost/test:"] {
            let error = Image::new(name).write("/nowhere".as_ref()).expect_err("is refused").to_string();
            assert!(error.contains("a registry and a tag"), "{error}");
        }
        assert!(is_whole("gcr.io/run-ai-demo/quickstart:latest") && is_whole("localhost:5000/test:1"));
    }
}
