//! Puts the built dashboard into the binary: every file below `ui/dist` becomes a row of a table.
//!
//! Without one the table is empty, and the server shows a page that says what to run.

use std::{
    env,
    fmt::Write,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
};

fn main() -> io::Result<()> {
    let root = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../ui/dist");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut hasher = DefaultHasher::new();
    let mut rows = String::new();
    for file in &files {
        let name = file.strip_prefix(&root).map_err(io::Error::other)?;
        let name = name.to_str().ok_or_else(|| io::Error::other("a file whose name is not text"))?;
        (name, fs::read(file)?).hash(&mut hasher);
        let zipped = PathBuf::from(format!("{}.gz", file.display()));
        let zipped = match zipped.exists() {
            true => format!("Some(include_bytes!({:?}))", zipped.canonicalize()?),
            false => "None".into(),
        };
        let whole = file.canonicalize()?;
        writeln!(rows, "File {{ name: {name:?}, whole: include_bytes!({whole:?}), zipped: {zipped} }},")
            .map_err(io::Error::other)?;
    }
    let build = format!("{:016x}", hasher.finish());
    let table = format!("const BUILD: &str = {build:?};\nstatic FILES: &[File] = &[{rows}];\n");
    fs::write(Path::new(&variable("OUT_DIR")).join("dashboard.rs"), table)
}

fn variable(name: &str) -> String {
    env::var(name).expect("cargo sets it")
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        if path.is_dir() {
            collect(&path, files)?;
        } else if !is_hidden && path.extension().is_none_or(|ending| ending != "gz") {
            files.push(path);
        }
    }
    Ok(())
}
