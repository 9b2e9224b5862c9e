//! The mutants that `.ci/mutants` plants are patches, and patches rot when the code moves on. This looks, without building
//! anything, whether each still finds the lines it replaces.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn mutants() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutants");
    let entries = fs::read_dir(folder).expect("there is a folder of mutants");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    files
}

/// The files a patch changes, each with the lines it takes out.
fn replaced_lines(patch: &str) -> Vec<(String, Vec<String>)> {
    let mut files: Vec<(String, Vec<String>)> = Vec::new();
    for line in patch.lines() {
        if let Some(path) = line.strip_prefix("--- a/") {
            files.push((path.to_string(), Vec::new()));
        } else if let (Some(text), Some((_, lines))) = (line.strip_prefix('-'), files.last_mut()) {
            lines.push(text.to_string());
        }
    }
    files
}

#[test]
fn every_mutant_still_finds_the_lines_it_breaks() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut missing = Vec::new();
    for file in mutants() {
        let files = replaced_lines(&fs::read_to_string(&file).expect("a readable patch"));
        assert!(!files.is_empty(), "{} changes nothing", file.display());
        for (path, lines) in files {
            let text = fs::read_to_string(workspace.join(&path)).unwrap_or_default();
            let there: BTreeSet<&str> = text.lines().collect();
            let lost = lines.iter().filter(|line| !there.contains(line.as_str()));
            missing.extend(lost.map(|line| format!("{}: {path} has no line `{line}`", file.display())));
        }
    }
    assert!(missing.is_empty(), "write these mutants anew:\n{}", missing.join("\n"));
}

#[test]
fn at_least_a_dozen_rules_are_broken_on_purpose() {
    assert!(mutants().len() >= 12);
}
