//! Archives of images, as `docker save`, `podman save` and OCI tools write them.

use super::{ImageConfig, layer};
use crate::ImageEntry;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufReader, Read},
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

/// Larger texts are no manifests.
const TEXT_BYTES_MAX: u64 = 8 << 20;
const LINKS_MAX: usize = 8;

/// The folder with the image's files, and what it says about itself. An archive is unpacked the first time.
pub(crate) fn unpacked(image: &ImageEntry, images: &Path) -> Result<(PathBuf, ImageConfig), String> {
    let archive = match image {
        ImageEntry::Root(root) if root.is_dir() => return Ok((root.clone(), ImageConfig::default())),
        ImageEntry::Root(root) => return Err(format!("the folder {} does not exist", root.display())),
        ImageEntry::Archive(archive) => archive,
        ImageEntry::Program(_) => return Err("a program is no image".into()),
    };
    let failed = |error: io::Error| format!("the image {} could not be unpacked: {error}", archive.display());
    let found = fs::metadata(archive).map_err(failed)?;
    // An archive that was replaced is another image.
    let key = format!(
        "{:x}-{:x}-{:x}-{:x}",
        found.dev(),
        found.ino(),
        found.size(),
        found.mtime_nsec() ^ found.mtime()
    );
    let place = images.join(&key);
    fs::create_dir_all(images).map_err(failed)?;
    let lock = File::create(images.join(format!("{key}.lock"))).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let config = place.join("config.json");
    if !config.is_file() {
        let _ = fs::remove_dir_all(&place);
        let read = unpack(archive, &place).map_err(failed)?;
        // The last file to appear says that all others are whole.
        fs::write(&config, serde_json::to_vec(&read).map_err(|error| failed(error.into()))?)
            .map_err(failed)?;
    }
    let config = fs::read(&config).map_err(failed)?;
    let config = serde_json::from_slice(&config).map_err(|error| failed(error.into()))?;
    Ok((place.join("root"), config))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    layers: Vec<String>,
}

#[derive(Deserialize)]
struct OciIndex {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct OciManifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
}

#[derive(Deserialize)]
struct ConfigFile {
    #[serde(default)]
    config: Option<ImageConfig>,
}

fn unpack(archive: &Path, place: &Path) -> io::Result<ImageConfig> {
    let blobs = place.join("blobs");
    fs::create_dir_all(&blobs)?;
    let files = Blobs::read(archive, &blobs)?;
    let (config, layers) = if let Some(manifest) = files.text("manifest.json")? {
        let manifests: Vec<DockerManifest> = serde_json::from_str(&manifest)?;
        let first =
            manifests.into_iter().next().ok_or_else(|| io::Error::other("manifest.json names no image"))?;
        (first.config, first.layers)
    } else if let Some(index) = files.text("index.json")? {
        let index: OciIndex = serde_json::from_str(&index)?;
        let first = index.manifests.first().ok_or_else(|| io::Error::other("index.json names no image"))?;
        let manifest: OciManifest = serde_json::from_str(&files.needed_text(&blob_name(&first.digest)?)?)?;
        let layers =
            manifest.layers.iter().map(|layer| blob_name(&layer.digest)).collect::<io::Result<_>>()?;
        (blob_name(&manifest.config.digest)?, layers)
    } else {
        return Err(io::Error::other(
            "it has neither manifest.json nor index.json, so it is no image archive",
        ));
    };
    let config: ConfigFile = serde_json::from_str(&files.needed_text(&config)?)?;
    let root = place.join("root");
    fs::create_dir_all(&root)?;
    for name in &layers {
        layer::apply(BufReader::new(files.open(name)?), &root)?;
    }
    fs::remove_dir_all(&blobs)?;
    Ok(config.config.unwrap_or_default())
}

fn blob_name(digest: &str) -> io::Result<String> {
    match digest.split_once(':') {
        Some(("sha256", hex)) if hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Ok(format!("blobs/sha256/{hex}"))
        }
        _ => Err(io::Error::other(format!("`{digest}` is not a SHA-256 digest"))),
    }
}

/// The files inside of an archive, under numbers: no name of the archive becomes a path of this machine.
struct Blobs {
    folder: PathBuf,
    files: BTreeMap<PathBuf, usize>,
    links: BTreeMap<PathBuf, PathBuf>,
}

impl Blobs {
    fn read(archive: &Path, folder: &Path) -> io::Result<Self> {
        let mut blobs = Self { folder: folder.to_owned(), files: BTreeMap::new(), links: BTreeMap::new() };
        let mut tar = tar::Archive::new(BufReader::new(File::open(archive)?));
        for entry in tar.entries()? {
            let mut entry = entry?;
            let name = plain(Path::new(""), &entry.path()?)?;
            let kind = entry.header().entry_type();
            if kind.is_symlink() || kind.is_hard_link() {
                // Old versions of `docker save` write equal layers once and link to them.
                let target = entry.link_name()?.ok_or_else(|| io::Error::other("a link to nowhere"))?;
                let from =
                    if kind.is_symlink() { name.parent().unwrap_or(Path::new("")) } else { Path::new("") };
                let target = plain(from, &target)?;
                blobs.links.insert(name, target);
            } else if kind.is_file() {
                let number = blobs.files.len();
                io::copy(&mut entry, &mut File::create(folder.join(number.to_string()))?)?;
                blobs.files.insert(name, number);
            }
        }
        Ok(blobs)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        let mut name = plain(Path::new(""), Path::new(name))?;
        for _ in 0..LINKS_MAX {
            if let Some(number) = self.files.get(&name) {
                return File::open(self.folder.join(number.to_string()));
            }
            match self.links.get(&name) {
                Some(target) => name.clone_from(target),
                None => break,
            }
        }
        Err(io::Error::other(format!("`{}` is missing in the archive", name.display())))
    }

    fn text(&self, name: &str) -> io::Result<Option<String>> {
        if self.files.contains_key(Path::new(name)) { self.needed_text(name).map(Some) } else { Ok(None) }
    }

    fn needed_text(&self, name: &str) -> io::Result<String> {
        let mut text = String::new();
        self.open(name)?.take(TEXT_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// A path inside of the archive, without steps up that leave it.
fn plain(from: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut whole = from.to_owned();
    for part in path.components() {
        match part {
            Component::Normal(part) => whole.push(part),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir if whole.pop() => {}
            _ => return Err(io::Error::other(format!("`{}` leads out of the archive", path.display()))),
        }
    }
    Ok(whole)
}
