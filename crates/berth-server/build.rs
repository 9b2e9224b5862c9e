//! Puts the built dashboard into the binary: every file below `ui/dist` becomes a row of a table.
//!
//! Without one the table is empty, and the server shows a page that says what to run. With `BERTH_DASHBOARD=folder` the table
//! is empty too, and the server reads `ui/dist` when it starts: then the program and the dashboard are built side by side, and
//! a changed dashboard compiles nothing. `make run` builds like that; a program that leaves the repository must not.

#[path = "src/http/dashboard/files.rs"]
mod files;

use std::{env, fmt::Write, fs, io, path::Path};

fn main() -> io::Result<()> {
    let root = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../ui/dist");
    println!("cargo::rerun-if-env-changed=BERTH_DASHBOARD");
    let is_read_at_start = env::var_os("BERTH_DASHBOARD").is_some_and(|from| from == "folder");
    let (folder, listed) = match is_read_at_start {
        true => {
            println!("cargo::rerun-if-changed=build.rs");
            (Some(root), Vec::new())
        }
        false => {
            println!("cargo::rerun-if-changed={}", root.display());
            (None, files::list(&root)?)
        }
    };
    let mut rows = String::new();
    for (name, path) in &listed {
        let zipped = files::zipped(path);
        let zipped = match zipped.exists() {
            true => format!("Some(include_bytes!({:?}))", zipped.canonicalize()?),
            false => "None".into(),
        };
        let whole = path.canonicalize()?;
        writeln!(rows, "File {{ name: {name:?}, whole: include_bytes!({whole:?}), zipped: {zipped} }},")
            .map_err(io::Error::other)?;
    }
    let build = files::build(&listed)?;
    let table = format!(
        "const EMBEDDED_BUILD: &str = {build:?};\n\
         const FOLDER: Option<&str> = {folder:?};\n\
         static EMBEDDED: &[File] = &[{rows}];\n"
    );
    fs::write(Path::new(&variable("OUT_DIR")).join("dashboard.rs"), table)
}

fn variable(name: &str) -> String {
    env::var(name).expect("cargo sets it")
}
