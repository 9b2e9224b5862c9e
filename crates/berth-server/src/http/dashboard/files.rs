//! The built files of the dashboard in a folder. The build script reads them to embed them; a server that was built without them
//! reads them when it starts.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
};

/// Every file of the dashboard below a folder, by name, without hidden and compressed ones; none when there is no such folder.
pub(crate) fn list(root: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut paths = Vec::new();
    collect(root, &mut paths)?;
    let named = paths.into_iter().map(|path| {
        let name = path.strip_prefix(root).map_err(io::Error::other)?;
        let name = name.to_str().ok_or_else(|| io::Error::other("a file whose name is not text"))?;
        Ok((name.to_owned(), path.clone()))
    });
    let mut files = named.collect::<io::Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

/// The same file, compressed.
pub(crate) fn zipped(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.gz", path.display()))
}

/// A number that differs between two builds of the dashboard.
pub(crate) fn build(files: &[(String, PathBuf)]) -> io::Result<String> {
    let mut hasher = DefaultHasher::new();
    for (name, path) in files {
        (name, fs::read(path)?).hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let is_hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        // A link could lead out of the folder, and a pipe would hold up the start.
        if kind.is_dir() {
            collect(&path, paths)?;
        } else if kind.is_file() && !is_hidden && path.extension().is_none_or(|ending| ending != "gz") {
            paths.push(path);
        }
    }
    Ok(())
}
