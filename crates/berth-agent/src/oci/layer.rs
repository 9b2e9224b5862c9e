//! Applies a layer of an image to a folder.
//!
//! A layer comes from somewhere else and may be made to harm: names with `..`, links that lead out and files written through
//! them. Every folder is opened by the kernel as if the image's root were the root of the system, so nothing leads out, and the
//! last part of each name is never followed.

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fchmod, fchown, linkat, mkdirat,
    openat, openat2, statat, symlinkat, unlinkat,
};
use std::{
    ffi::OsStr,
    fs::File,
    io::{self, BufRead, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
};
use tar::{Entry, EntryType};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// No image has more.
const ENTRIES_MAX: usize = 5_000_000;

/// Applies a layer, compressed or not.
pub(super) fn apply(mut layer: impl BufRead, root: &Path) -> io::Result<()> {
    let start = layer.fill_buf()?;
    if start.starts_with(&[0x1f, 0x8b]) {
        apply_tar(flate2::bufread::MultiGzDecoder::new(layer), root)
    } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Err(io::Error::other(
            "a layer is compressed with zstd: save the image with gzip or without compression",
        ))
    } else {
        apply_tar(layer, root)
    }
}

fn apply_tar(layer: impl Read, root: &Path) -> io::Result<()> {
    let root = Root(openat(
        rustix::fs::CWD,
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?);
    let mut tar = tar::Archive::new(layer);
    for (index, entry) in tar.entries()?.enumerate() {
        if index >= ENTRIES_MAX {
            return Err(io::Error::other("a layer has too many files"));
        }
        let mut entry = entry?;
        let path = inside(&entry.path()?)?;
        let Some(name) = path.file_name().map(OsStr::to_owned) else { continue };
        let above = path.parent().unwrap_or(Path::new(""));
        let bytes = name.as_bytes();
        if bytes == OPAQUE {
            root.empty(above)?;
        } else if let Some(gone) = bytes.strip_prefix(WHITEOUT) {
            if let Ok(folder) = root.folder(above) {
                remove(&folder, OsStr::from_bytes(gone))?;
            }
        } else {
            let folder = root.folder_or_new(above)?;
            put(&root, &folder, &name, &mut entry)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        }
    }
    Ok(())
}

fn put(root: &Root, folder: &OwnedFd, name: &OsStr, entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
    let header = entry.header();
    let (uid, gid) = (header.uid()? as u32, header.gid()? as u32);
    let mode = Mode::from_raw_mode(header.mode()? & 0o7777);
    let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    let kind = header.entry_type();
    if kind == EntryType::Directory {
        let is_folder = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory);
        if !is_folder {
            remove(folder, name)?;
            mkdirat(folder, name, Mode::from_raw_mode(0o755))?;
        }
        let made =
            openat(folder, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        own(&made, owner)?;
        return Ok(fchmod(&made, mode)?);
    }
    remove(folder, name)?;
    match kind {
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(openat(folder, name, flags, Mode::from_raw_mode(0o600))?);
            io::copy(entry, &mut file)?;
            own(&file, owner)?;
            // After the owner, because a change of owner takes the bits for running as somebody else away.
            Ok(fchmod(&file, mode)?)
        }
        EntryType::Symlink => {
            let target = entry.link_name()?.ok_or_else(|| io::Error::other("a link to nowhere"))?;
            symlinkat(target.as_ref(), folder, name)?;
            if rustix::process::geteuid().is_root() {
                chownat(folder, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Ok(())
        }
        EntryType::Link => {
            let target = inside(&entry.link_name()?.ok_or_else(|| io::Error::other("a link to nowhere"))?)?;
            let from = root.folder(target.parent().unwrap_or(Path::new("")))?;
            let last = target.file_name().ok_or_else(|| io::Error::other("a link to the root"))?;
            Ok(linkat(&from, last, folder, name, AtFlags::empty())?)
        }
        // Devices, pipes and the like are made by the container runtime where they are needed.
        _ => Ok(()),
    }
}

fn own(file: &impl AsFd, owner: (Option<Uid>, Option<Gid>)) -> io::Result<()> {
    if rustix::process::geteuid().is_root() { Ok(fchown(file, owner.0, owner.1)?) } else { Ok(()) }
}

/// The root of an image that is being put together.
struct Root(OwnedFd);

impl Root {
    fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(&self.0, path, flags, Mode::empty(), resolve)?)
    }

    fn folder_or_new(&self, path: &Path) -> io::Result<OwnedFd> {
        match self.folder(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let above = self.folder_or_new(path.parent().unwrap_or(Path::new("")))?;
                let name = path.file_name().ok_or_else(|| io::Error::other("a folder without a name"))?;
                match mkdirat(&above, name, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => self.folder(path),
                    Err(error) => Err(error.into()),
                }
            }
            found => found,
        }
    }

    /// Takes away what lower layers put into a folder.
    fn empty(&self, path: &Path) -> io::Result<()> {
        let Ok(folder) = self.folder(path) else { return Ok(()) };
        for name in names(&folder)? {
            remove(&folder, &name)?;
        }
        Ok(())
    }
}

fn names(folder: &OwnedFd) -> io::Result<Vec<std::ffi::OsString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

/// Removes whatever has this name, without following a link.
fn remove(folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let inner = openat(folder, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    for name in names(&inner)? {
        remove(&inner, &name)?;
    }
    Ok(unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}

/// A path below the root. One that steps up is refused, wherever it would lead.
fn inside(path: &Path) -> io::Result<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => plain.push(part),
            Component::CurDir | Component::RootDir => {}
            _ => return Err(io::Error::other(format!("`{}` leads out of the image", path.display()))),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;

    struct Layer(tar::Builder<Vec<u8>>);

    impl Layer {
        fn new() -> Self {
            Self(tar::Builder::new(Vec::new()))
        }

        fn entry(mut self, path: &str, kind: EntryType, link: &str, content: &[u8]) -> Self {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(if kind == EntryType::Directory { 0o755 } else { 0o644 });
            header.set_size(content.len() as u64);
            // Written by hand, because the builder refuses what an attacker writes.
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
            let own = rustix::process::geteuid().as_raw();
            header.set_uid(own.into());
            header.set_gid(rustix::process::getegid().as_raw().into());
            header.set_cksum();
            self.0.append(&header, content).unwrap();
            self
        }

        fn file(self, path: &str, content: &str) -> Self {
            self.entry(path, EntryType::Regular, "", content.as_bytes())
        }

        fn apply(self, root: &Path) -> io::Result<()> {
            apply(&self.0.into_inner().unwrap()[..], root)
        }
    }

    fn read(path: PathBuf) -> String {
        fs::read_to_string(&path).unwrap_or_else(|error| format!("{error}"))
    }

    #[test]
    fn layers_add_replace_and_take_away() {
        let scratch = Scratch::new();
        let root = scratch.path();
        Layer::new()
            .file("etc/a", "1")
            .file("etc/b", "1")
            .file("var/deep/c", "1")
            .file("opt/d", "1")
            .apply(root)
            .unwrap();
        Layer::new()
            .file("./etc/a", "2")
            .file("etc/.wh.b", "")
            .file("opt/.wh..wh..opq", "")
            .file("opt/e", "2")
            .file(".wh.var", "")
            .apply(root)
            .unwrap();
        assert_eq!(read(root.join("etc/a")), "2");
        assert_eq!(read(root.join("opt/e")), "2");
        for gone in ["etc/b", "opt/d", "var"] {
            assert!(!root.join(gone).exists(), "{gone}");
        }
    }

    #[test]
    fn links_are_kept_and_lead_nowhere_outside() {
        let scratch = Scratch::new();
        let (root, outside) = (scratch.path().join("root"), scratch.path().join("outside"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        Layer::new()
            .entry("out", EntryType::Symlink, outside.to_str().unwrap(), b"")
            .entry("up", EntryType::Symlink, "../outside", b"")
            .file("a", "a")
            .entry("b", EntryType::Link, "a", b"")
            .apply(&root)
            .unwrap();
        assert_eq!(read(root.join("b")), "a");
        assert!(fs::symlink_metadata(root.join("out")).unwrap().is_symlink());
        // Through the links, with `..`, and by a hard link: none of them reaches the folder beside the root.
        let _ = Layer::new().file("out/planted", "x").apply(&root);
        let _ = Layer::new().file("up/planted", "x").apply(&root);
        assert!(Layer::new().file("../outside/planted", "x").apply(&root).is_err());
        let stolen = Layer::new().entry("stolen", EntryType::Link, "up/secret", b"").apply(&root);
        assert!(stolen.is_err(), "{stolen:?}");
        let _ = Layer::new().file("out/.wh.secret", "").apply(&root);
        assert_eq!(read(outside.join("secret")), "secret");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn a_file_takes_the_place_of_a_link_and_is_not_written_through_it() {
        let scratch = Scratch::new();
        let (root, victim) = (scratch.path().join("root"), scratch.path().join("victim"));
        fs::create_dir(&root).unwrap();
        fs::write(&victim, "unharmed").unwrap();
        Layer::new().entry("file", EntryType::Symlink, victim.to_str().unwrap(), b"").apply(&root).unwrap();
        Layer::new().file("file", "new").apply(&root).unwrap();
        assert_eq!((read(root.join("file")), read(victim)), ("new".into(), "unharmed".into()));
    }
}
