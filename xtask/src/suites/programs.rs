//! The test programs that cargo built.

use super::Step;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A test program of a crate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Program {
    /// The crate, as its folder is called.
    pub(super) package: String,
    kind: Kind,
    /// The name of the target.
    name: String,
    /// Its source, relative to the folder of the crate.
    source: PathBuf,
    /// The folder of the crate.
    folder: PathBuf,
    executable: PathBuf,
    is_harness: bool,
}

/// What is tested, in the order of running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Library,
    Program,
    Example,
    Integration,
}

/// The cargo that this was started by.
fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// A command of cargo without the variables that describe this program's own package. Build scripts of dependencies look at
/// them: with the variables set, cargo would compile those dependencies again, and again without.
pub(super) fn cargo_command() -> Command {
    let mut command = Command::new(cargo());
    let describes_package = |name: &str| {
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"]
            .iter()
            .any(|beginning| name.starts_with(beginning))
    };
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(describes_package) {
            command.env_remove(name);
        }
    }
    command
}

/// Compiles every test of the workspace and returns the programs by crate.
pub(super) fn build(root: &Path) -> Result<Vec<Program>> {
    let mut compiler = cargo_command()
        .args(["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"])
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .context("starting cargo test")?;
    let messages = BufReader::new(compiler.stdout.take().expect("stdout is a pipe"));
    let mut programs = Vec::new();
    for line in messages.lines() {
        programs.extend(parse(&serde_json::from_str(&line?).context("a message of cargo")?)?);
    }
    if !compiler.wait()?.success() {
        bail!("the tests do not compile; see above");
    }
    programs.sort();
    Ok(programs)
}

/// The test program that a message of cargo is about, if it is about one.
fn parse(message: &Value) -> Result<Option<Program>> {
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let Some(executable) = message["executable"].as_str().filter(|_| is_test) else { return Ok(None) };
    let manifest = Path::new(message["manifest_path"].as_str().context("an artifact without a manifest")?);
    let folder = manifest.parent().context("a manifest without a folder")?;
    let package = folder.file_name().context("a crate in a folder")?.to_string_lossy().into_owned();
    let target = &message["target"];
    let name = target["name"].as_str().context("a target without a name")?.to_owned();
    let kind = match target["kind"][0].as_str() {
        Some("test") => Kind::Integration,
        Some("bin") => Kind::Program,
        Some("example") => Kind::Example,
        _ => Kind::Library,
    };
    let source = Path::new(target["src_path"].as_str().context("a target without a source")?);
    let source = source.strip_prefix(folder).unwrap_or(source).to_owned();
    let manifest = fs::read_to_string(manifest).with_context(|| format!("reading {}", manifest.display()))?;
    let is_harness = !has_no_harness(&manifest, &name);
    Ok(Some(Program {
        package,
        kind,
        name,
        source,
        folder: folder.to_owned(),
        executable: executable.into(),
        is_harness,
    }))
}

/// Whether a manifest says that a test is a program of its own, without Rust's harness.
fn has_no_harness(manifest: &str, name: &str) -> bool {
    manifest.split("\n[").any(|table| {
        let says = |line: &str| table.lines().any(|found| found.trim() == line);
        table.starts_with("[test]]") && says(&format!("name = \"{name}\"")) && says("harness = false")
    })
}

impl Program {
    /// How cargo would run it: in the folder of its crate, with its variables.
    pub(super) fn into_step(self) -> Step {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder);
        command
            .env("CARGO", cargo())
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("CARGO_PKG_NAME", &self.package);
        let target = match self.kind {
            Kind::Library => "--lib".to_owned(),
            Kind::Program => format!("--bin {}", self.name),
            Kind::Example => format!("--example {}", self.name),
            Kind::Integration => format!("--test {}", self.name),
        };
        let source = self.source.display();
        let title = match self.kind {
            Kind::Integration => source.to_string(),
            _ => format!("unittests {source}"),
        };
        let rerun = format!("cargo test -p {} {target}", self.package);
        Step { title, command, is_harness: self.is_harness, rerun }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(kind: &str, name: &str, source: &str) -> Value {
        let folder = env!("CARGO_MANIFEST_DIR");
        json!({
            "reason": "compiler-artifact",
            "manifest_path": format!("{folder}/Cargo.toml"),
            "target": {"kind": [kind], "name": name, "src_path": format!("{folder}/{source}")},
            "profile": {"test": true},
            "executable": "/target/debug/deps/it",
        })
    }

    #[test]
    fn a_message_about_a_test_program_says_how_to_run_it_again() {
        let program =
            parse(&message("test", "live", "tests/live.rs")).expect("a message").expect("a program");
        assert_eq!((program.package.as_str(), program.is_harness), ("xtask", true));
        let step = program.into_step();
        assert_eq!(
            (step.title.as_str(), step.rerun.as_str()),
            ("tests/live.rs", "cargo test -p xtask --test live")
        );
        let program = parse(&message("bin", "xtask", "src/main.rs")).expect("a message").expect("a program");
        assert_eq!(program.into_step().title, "unittests src/main.rs");
    }

    #[test]
    fn other_messages_are_passed_over() {
        assert_eq!(parse(&json!({"reason": "build-finished"})).expect("a message"), None);
        let mut library = message("lib", "xtask", "src/lib.rs");
        library["profile"]["test"] = json!(false);
        assert_eq!(parse(&library).expect("a message"), None);
    }

    #[test]
    fn a_test_without_the_harness_is_known_from_its_manifest() {
        let manifest = "[package]\nname = \"kill\"\n\n[[test]]\nname = \"kill\"\nharness = false\n\n[lints]\nworkspace = true\n";
        assert!(has_no_harness(manifest, "kill"));
        assert!(!has_no_harness(manifest, "live"));
        assert!(!has_no_harness("[package]\nname = \"kill\"\n", "kill"));
    }
}
