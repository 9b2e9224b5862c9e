//! `berth sim` as people meet it: what is printed where, and the exit code.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn berth(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that ends without reading its input closes the pipe, which is its right.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const HOLDS: &str = "node host gpus=2\nproject team-a quota=1\ntitle \"One\"\nsubmit a-1 -p team-a -g 1\nexpect a-1 running\n";

#[test]
fn a_scenario_that_holds_prints_its_story_and_exits_with_zero() {
    let output = berth(&["sim", "run", "-"], HOLDS);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        text(&output.stdout),
        "-\n\n== One ==\n      0s  submit a-1 (team-a): 1 GPU\n      0s  start a-1 (team-a) on host:0: within quota\n\n\
         PROJECT  GPUS/QUOTA  FAIR  RUNNING  QUEUED\nteam-a   1/1         1     1        -\n\
         1 of 2 GPUs given, 1 running, 0 queued\n\n1 of 1 expectations hold\n"
    );
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn an_unmet_expectation_exits_with_one_and_says_so_on_stderr() {
    let output = berth(&["sim", "run", "-q", "-"], &format!("{HOLDS}expect team-a 2/1\n"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "-:6: at 1s: expected team-a 2/1, found 1/1\n");
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn input_that_cannot_be_read_exits_with_two() {
    let output = berth(&["sim", "run", "-"], "bogus\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("-:1: unknown word `bogus`"), "{}", text(&output.stderr));
    let output = berth(&["sim", "run", "/nowhere/x.berth"], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cannot read /nowhere/x.berth"));
    let output = berth(&["sim", "run", "-", "--faults", "gremlins=5"], HOLDS);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("unknown fault `gremlins`"));
    let output = berth(&["sim", "run", "-", "-", "--svg", "x.svg"], HOLDS);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn json_is_one_document_with_every_state() {
    let output = berth(&["sim", "run", "--json", "-"], HOLDS);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let project = &document["runs"][0]["sections"][0]["state"]["projects"][0];
    assert_eq!(project["name"], "team-a");
    assert_eq!(project["gpus"], 1.0);
    assert_eq!(document["runs"][0]["holds"], true);
}

#[test]
fn a_chart_is_drawn_into_the_file() {
    let path = std::env::temp_dir().join(format!("berth-chart-{}.svg", std::process::id()));
    let output = berth(&["sim", "run", "-q", "-", "--svg", &path.to_string_lossy()], HOLDS);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let svg = std::fs::read_to_string(&path).expect("the chart was written");
    std::fs::remove_file(&path).expect("it can be removed");
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("team-a"));
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_picture_in_the_readme_is_what_the_report_s_scenario_gives() {
    let root = repository();
    let path = std::env::temp_dir().join(format!("berth-report-{}.svg", std::process::id()));
    let scenario = root.join("scenarios/tr4858.berth");
    let output = berth(&["sim", "run", &scenario.to_string_lossy(), "--svg", &path.to_string_lossy()], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let drawn = std::fs::read_to_string(&path).expect("the chart was written");
    std::fs::remove_file(&path).expect("it can be removed");
    let kept = std::fs::read_to_string(root.join("docs/tr4858.svg")).expect("the picture is there");
    assert!(drawn == kept, "draw it anew: berth sim run scenarios/tr4858.berth --svg docs/tr4858.svg");
}

#[test]
fn help_and_completions_are_answers() {
    for arguments in
        [&["--help"][..], &["sim", "run", "--help"], &["sim", "trace", "--help"], &["completions", "bash"]]
    {
        let output = berth(arguments, "");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{arguments:?}");
    }
    assert_eq!(berth(&["sim", "runn"], "").status.code(), Some(2));
}
