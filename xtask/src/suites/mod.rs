//! Every test, suite by suite: which one runs, how many there are, how long each took, and what this machine could not test.
//!
//! ```text
//! cargo test --no-run --> test programs by crate --> one after the other --> a table at the end
//!                         documentation tests, the dashboard in a browser
//! ```
//!
//! Everything is compiled in one step, as `cargo test --workspace` does, so that features of dependencies are the same for all.
//! A suite that fails does not keep the others from running. With `CI=true` a test that was skipped fails the run, unless
//! only a real GPU was missing: a build machine is expected to have everything else.

mod output;
mod programs;

use anyhow::{Context, Result, bail};
use output::{Said, Tally, run_watched, show};
use programs::Program;
use std::{
    path::Path,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

/// What is run under one name.
struct Suite {
    name: String,
    steps: Vec<Step>,
}

/// One program of a suite.
struct Step {
    /// What a reader calls it.
    title: String,
    command: Command,
    /// Whether the program is one of Rust's test harness, whose output has a known form.
    is_harness: bool,
    /// The command that runs only this.
    rerun: String,
}

/// How a suite ended.
struct Ended {
    name: String,
    tally: Tally,
    failed: Vec<String>,
    took: Duration,
}

/// Runs the suites with these names, or all of them.
pub(crate) fn run(root: &Path, names: &[&str]) -> Result<ExitCode> {
    let begin = Instant::now();
    let (ended, compiled) = run_all(root, names, show)?;
    print!("{}", summary(&ended, begin.elapsed(), compiled));
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let refusal = refusal(&ended, is_ci);
    if let Some(refusal) = &refusal {
        println!("error: {refusal}");
    }
    Ok(if refusal.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns how each suite ended, and how long it took to compile them.
fn run_all(root: &Path, names: &[&str], show: fn(&Said)) -> Result<(Vec<Ended>, Duration)> {
    let begin = Instant::now();
    println!("compiling every test in one step");
    let programs = programs::build(root)?;
    let compiled = begin.elapsed();
    let suites = chosen(suites(root, programs), names)?;
    let count = suites.len();
    println!("compiled in {}; {count} suites follow", seconds(compiled));
    let mut ended = Vec::new();
    for (index, suite) in suites.into_iter().enumerate() {
        ended.push(run_suite(suite, index + 1, count, show)?);
    }
    Ok((ended, compiled))
}

/// The suites in their order: crates by name, what documents say, the dashboard.
fn suites(root: &Path, programs: Vec<Program>) -> Vec<Suite> {
    let mut suites: Vec<Suite> = Vec::new();
    for program in programs {
        let name = program.package.clone();
        let step = program.into_step();
        match suites.last_mut() {
            Some(last) if last.name == name => last.steps.push(step),
            _ => suites.push(Suite { name, steps: vec![step] }),
        }
    }
    let mut documents = programs::cargo_command();
    documents.args(["test", "--workspace", "--locked", "--doc"]).current_dir(root);
    suites.push(Suite::of_one("documents", documents, "cargo test --doc"));
    suites.push(Suite::of_one("dashboard", Command::new(root.join(".ci/test-ui")), ".ci/test-ui"));
    suites
}

impl Suite {
    fn of_one(name: &str, command: Command, rerun: &str) -> Self {
        let step = Step { title: name.into(), command, is_harness: false, rerun: rerun.into() };
        Self { name: name.into(), steps: vec![step] }
    }
}

fn chosen(suites: Vec<Suite>, names: &[&str]) -> Result<Vec<Suite>> {
    if let Some(unknown) = names.iter().find(|name| !suites.iter().any(|suite| suite.name == **name)) {
        let known: Vec<&str> = suites.iter().map(|suite| suite.name.as_str()).collect();
        bail!("there is no suite `{unknown}`; there are {}", known.join(", "));
    }
    let is_chosen = |suite: &Suite| names.is_empty() || names.contains(&suite.name.as_str());
    Ok(suites.into_iter().filter(is_chosen).collect())
}

fn run_suite(suite: Suite, place: usize, count: usize, show: fn(&Said)) -> Result<Ended> {
    let Suite { name, steps } = suite;
    println!("\n=== suite {place} of {count}: {name}");
    let begin = Instant::now();
    let (mut tally, mut failed) = (Tally::default(), Vec::new());
    for mut step in steps {
        println!("     Running {}", step.title);
        if step.is_harness {
            // What a passing test printed is read for what it skipped, and not shown.
            step.command.arg("--show-output");
        }
        let context = || format!("running {}", step.title);
        let is_ok = run_watched(&mut step.command, &step.title, &mut tally, show).with_context(context)?;
        if !is_ok {
            println!("error: test failed; run it again with `{}`", step.rerun);
            failed.push(format!("{} ({})", step.title, step.rerun));
        }
    }
    let ended = Ended { name, tally, failed, took: begin.elapsed() };
    println!(
        "=== suite {place} of {count}: {}: {}, {} passed in {}",
        ended.name,
        ended.result(),
        ended.tally.passed,
        seconds(ended.took)
    );
    Ok(ended)
}

impl Ended {
    fn result(&self) -> &'static str {
        if self.failed.is_empty() { "ok" } else { "FAILED" }
    }
}

/// The table at the end, and what was not tested.
fn summary(ended: &[Ended], took: Duration, compiled: Duration) -> String {
    let count = ended.len();
    let mut text = format!(
        "\n{:>7}  {:<14} {:<7} {:>7} {:>7} {:>12}\n",
        "suite", "name", "result", "passed", "failed", "time"
    );
    for (index, suite) in ended.iter().enumerate() {
        let Tally { passed, failed, .. } = &suite.tally;
        let place = format!("{}/{count}", index + 1);
        let (name, result, took) = (&suite.name, suite.result(), seconds(suite.took));
        text += &format!("{place:>7}  {name:<14} {result:<7} {passed:>7} {failed:>7} {took:>12}\n");
    }
    let skips: Vec<String> = ended.iter().flat_map(|suite| suite.skips()).collect();
    if !skips.is_empty() {
        text += &format!("\nNOT TESTED on this machine:\n{}\n", skips.join("\n"));
    }
    for suite in ended.iter().filter(|suite| !suite.failed.is_empty()) {
        text += &format!("\n{} failed: {}\n", suite.name, suite.failed.join(", "));
    }
    let passed: u64 = ended.iter().map(|suite| suite.tally.passed).sum();
    text + &format!(
        "\n{count} suites, {passed} tests passed in {} (compiling: {})\n",
        seconds(took),
        seconds(compiled)
    )
}

impl Ended {
    fn skips(&self) -> impl Iterator<Item = String> {
        self.tally.skips.iter().map(|skip| format!("  {}: {skip}", self.name))
    }
}

/// Why the run fails, if it does.
fn refusal(ended: &[Ended], is_ci: bool) -> Option<String> {
    let failed: Vec<&str> =
        ended.iter().filter(|suite| !suite.failed.is_empty()).map(|suite| suite.name.as_str()).collect();
    if !failed.is_empty() {
        return Some(format!("{} of {} suites failed: {}", failed.len(), ended.len(), failed.join(", ")));
    }
    let skips =
        ended.iter().flat_map(|suite| &suite.tally.skips).filter(|skip| !skip.needs_a_real_gpu()).count();
    (is_ci && skips > 0)
        .then(|| format!("{skips} tests were skipped, and a build machine (CI=true) must run all of them; see the list above"))
}

fn seconds(time: Duration) -> String {
    match time.as_secs() {
        whole @ 60.. => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::{output::Skip, *};
    use std::{fs, os::unix::fs::PermissionsExt};

    fn ended(name: &str, failed: &[&str], skips: &[&str]) -> Ended {
        let skips = skips.iter().map(|text| Skip { test: "tests/a.rs a_test".into(), text: (*text).into() });
        Ended {
            name: name.into(),
            tally: Tally { passed: 3, failed: failed.len() as u64, skips: skips.collect() },
            failed: failed.iter().map(|failed| (*failed).into()).collect(),
            took: Duration::from_millis(65_400),
        }
    }

    #[test]
    fn the_summary_names_each_suite_its_place_and_its_time() {
        let suites =
            [ended("berth-agent", &[], &["SKIPPED: containers: no runc"]), ended("dashboard", &["it"], &[])];
        let text = summary(&suites, Duration::from_secs(200), Duration::from_secs(30));
        assert!(text.contains("    1/2  berth-agent    ok            3       0   1 min 05 s\n"), "{text}");
        assert!(text.contains("    2/2  dashboard      FAILED        3       1   1 min 05 s\n"), "{text}");
        assert!(text.contains("  berth-agent: tests/a.rs a_test: SKIPPED: containers: no runc\n"), "{text}");
        assert!(text.ends_with("2 suites, 6 tests passed in 3 min 20 s (compiling: 30.0 s)\n"), "{text}");
    }

    #[test]
    fn a_skipped_test_fails_the_run_on_a_build_machine_only() {
        let suites = [ended("berth-agent", &[], &["SKIPPED: containers: no runc"])];
        assert_eq!(refusal(&suites, false), None);
        let text = refusal(&suites, true).expect("a build machine must run it");
        assert!(text.starts_with("1 tests were skipped"), "{text}");
    }

    #[test]
    fn a_machine_without_real_gpus_is_no_failure_anywhere() {
        let suites = [ended("berth-agent", &[], &["NOT TESTED: NVML, because there is no real GPU"])];
        assert_eq!(refusal(&suites, true), None);
    }

    #[test]
    fn a_failed_suite_fails_the_run_and_is_named() {
        let suites =
            [ended("berth-agent", &[], &[]), ended("berth-cli", &["tests/live.rs (--test live)"], &[])];
        assert_eq!(refusal(&suites, false).expect("it failed"), "1 of 2 suites failed: berth-cli");
    }

    #[test]
    fn an_unknown_suite_is_refused_with_the_names_that_there_are() {
        let all = || vec![Suite { name: "berth-agent".into(), steps: Vec::new() }];
        assert_eq!(chosen(all(), &["berth-agent"]).expect("it is there").len(), 1);
        let error = chosen(all(), &["agent"]).err().expect("it is not there");
        assert_eq!(error.to_string(), "there is no suite `agent`; there are berth-agent");
    }

    /// Writes a small workspace, always into the same place, so that its build output does not pile up.
    fn write_workspace(root: &Path) {
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            // What did not change is not compiled again.
            if fs::read_to_string(&path).ok().as_deref() != Some(text) {
                fs::write(&path, text).expect("a file");
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        };
        let package =
            |name: &str| format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
        let locked = |name: &str| format!("\n[[package]]\nname = \"{name}\"\nversion = \"0.1.0\"\n");
        let skip = concat!("SKIP", "PED: a machine with more");
        write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n");
        write("Cargo.lock", &format!("version = 4\n{}{}", locked("alpha"), locked("beta")));
        write(
            "crates/alpha/Cargo.toml",
            &(package("alpha") + "\n[[test]]\nname = \"own\"\nharness = false\n"),
        );
        write(
            "crates/alpha/src/lib.rs",
            &format!(
                "/// ```\n/// assert_eq!(1 + 1, 2);\n/// ```\npub fn documented() {{}}\n\
                 #[test]\nfn it_is_skipped() {{ println!(\"{skip}\"); }}\n\
                 #[test]\nfn it_is_in_its_crate() {{ assert!(std::path::Path::new(\"src/lib.rs\").exists()); }}\n"
            ),
        );
        write("crates/alpha/tests/own.rs", "fn main() { assert_eq!(std::env::args().count(), 1); }\n");
        write("crates/beta/Cargo.toml", &package("beta"));
        write("crates/beta/src/lib.rs", "#[test]\nfn it_fails() { panic!(\"as it should\"); }\n");
        write(".ci/test-ui", "#!/bin/sh\necho '  2 passed (1.0s)'\n");
    }

    #[test]
    fn every_suite_of_a_workspace_runs_once_also_when_one_before_it_failed() {
        let root = crate::repository().join("target/xtask-suites");
        write_workspace(&root);
        // Shown to nobody: a run of all tests reads what this one prints.
        let (ended, _) = run_all(&root, &[], |_| {}).expect("it compiles");
        let told: Vec<_> = ended
            .iter()
            .map(|suite| (suite.name.as_str(), suite.tally.passed, suite.tally.failed, suite.result()))
            .collect();
        let expected = [
            ("alpha", 2, 0, "ok"),
            ("beta", 0, 1, "FAILED"),
            ("documents", 1, 0, "ok"),
            ("dashboard", 2, 0, "ok"),
        ];
        assert_eq!(told, expected);
        assert_eq!(ended[1].failed, ["unittests src/lib.rs (cargo test -p beta --lib)"]);
        let skips: Vec<&str> = ended[0].tally.skips.iter().map(|skip| skip.test.as_str()).collect();
        assert_eq!(skips, ["unittests src/lib.rs it_is_skipped"]);
    }
}
