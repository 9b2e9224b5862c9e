//! The mutants that `.ci/mutants` plants are patches, and patches rot when the code moves on. This looks, without building
//! anything, whether each can still be planted, and in one place only; and plants a few, which the tests must notice.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn mutants() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutants");
    let entries = fs::read_dir(folder).expect("there is a folder of mutants");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    files
}

/// One replacement in one file: the lines that must be there, one after the other, and those that take their place.
#[derive(Debug, Default, PartialEq)]
struct Hunk {
    path: String,
    before: Vec<String>,
    after: Vec<String>,
}

/// The hunks of a patch, or what is wrong with it.
fn hunks(patch: &str) -> Result<Vec<Hunk>, String> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut path = None;
    let mut lines = patch.lines();
    while let Some(line) = lines.next() {
        if let Some(of) = line.strip_prefix("--- a/") {
            path = Some(of.to_string());
        } else if line.starts_with("@@ ") {
            let path = path.clone().ok_or("a hunk comes before the name of its file")?;
            let mut hunk = Hunk { path, ..Hunk::default() };
            let (before, after) = lengths(line).ok_or_else(|| format!("`{line}` does not begin a hunk"))?;
            while hunk.before.len() < before || hunk.after.len() < after {
                let line = lines.next().ok_or("a hunk is shorter than it says")?;
                let (kind, text) = line.split_at_checked(1).unwrap_or((" ", ""));
                if kind != "+" {
                    hunk.before.push(text.to_string());
                }
                if kind != "-" {
                    hunk.after.push(text.to_string());
                }
                if ![" ", "+", "-"].contains(&kind) {
                    return Err(format!("`{line}` is no line of a hunk"));
                }
            }
            if (hunk.before.len(), hunk.after.len()) != (before, after) {
                return Err("a hunk is longer than it says".to_string());
            }
            hunks.push(hunk);
        } else if !hunks.is_empty() && line.starts_with(['+', '-', ' ']) && !line.starts_with("+++ b/") {
            return Err(format!("`{line}` belongs to no hunk"));
        }
    }
    Ok(hunks)
}

/// How many lines a hunk takes out and puts in, context included, by its first line: `@@ -36,5 +36,5 @@`.
fn lengths(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split(' ').skip(1);
    let mut length = |sign: char| {
        let range = words.next()?.strip_prefix(sign)?;
        range.split_once(',').map_or(Some(1), |(_, length)| length.parse().ok())
    };
    Some((length('-')?, length('+')?))
}

/// Plants a hunk in a text, from a line on; returns the line after it, or why it cannot be planted.
fn plant(hunk: &Hunk, text: &mut Vec<String>, from: usize) -> Result<usize, String> {
    let places: Vec<usize> = (from..text.len()).filter(|at| text[*at..].starts_with(&hunk.before)).collect();
    let [at] = places[..] else {
        let lines = hunk.before.join("\n");
        return Err(format!("{} has {} places with the lines\n{lines}", hunk.path, places.len()));
    };
    text.splice(at..at + hunk.before.len(), hunk.after.iter().cloned());
    Ok(at + hunk.after.len())
}

/// Plants a patch into files, given by how their text is read.
fn plant_all(patch: &str, read: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    let hunks = hunks(patch)?;
    if hunks.iter().all(|hunk| hunk.before == hunk.after) {
        return Err("it changes nothing".to_string());
    }
    for of_file in hunks.chunk_by(|one, other| one.path == other.path) {
        let path = &of_file[0].path;
        let text = read(path).ok_or_else(|| format!("there is no {path}"))?;
        let mut text: Vec<String> = text.lines().map(str::to_string).collect();
        let mut from = 0;
        for hunk in of_file {
            from = plant(hunk, &mut text, from)?;
        }
    }
    Ok(())
}

#[test]
fn every_mutant_can_still_be_planted() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut rotten = Vec::new();
    for file in mutants() {
        let patch = fs::read_to_string(&file).expect("a readable patch");
        if let Err(why) = plant_all(&patch, |path| fs::read_to_string(workspace.join(path)).ok()) {
            rotten.push(format!("{}: {why}", file.display()));
        }
    }
    assert!(rotten.is_empty(), "write these mutants anew:\n{}", rotten.join("\n"));
}

/// Mutants that every run of the tests plants; `make mutants` plants all.
const SAMPLE: [&str; 2] = ["33-", "40-"];

#[test]
fn a_sample_of_mutants_is_noticed() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(workspace.join(".ci/mutants"))
        .args(SAMPLE)
        // The oracle of small worlds is quick and finds each of these soon. Without a mutant it has run beside this.
        .env("MUTANT_TESTS", "worlds")
        .env("MUTANT_WORLDS", "1000")
        .env("MUTANT_ONLY", "1")
        .output()
        .expect("the script can be run");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(&format!("{0} of {0} caught", SAMPLE.len())), "{text}");
}

#[test]
fn a_patch_whose_lines_are_there_but_not_together_is_refused() {
    const PATCH: &str = "Why.\n\n--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n";
    let plant = |text: &'static str| plant_all(PATCH, |path| (path == "f").then(|| text.to_string()));
    assert_eq!(plant("zero\none\ntwo\nthree\n"), Ok(()));
    assert!(plant("one\nand\ntwo\nthree\n").is_err(), "the lines are apart");
    assert!(plant("two\none\nthree\n").is_err(), "the lines are in another order");
    assert!(plant("one\ntwo\nthree\none\ntwo\nthree\n").is_err(), "there are two places");
    assert!(plant_all(PATCH, |_| None).is_err(), "there is no file");
    let longer = PATCH.replace("-1,3", "-1,4");
    assert!(plant_all(&longer, |_| Some("one\ntwo\nthree\n".to_string())).is_err(), "the lengths are wrong");
}

#[test]
fn at_least_a_dozen_rules_are_broken_on_purpose() {
    assert!(mutants().len() >= 12);
}
