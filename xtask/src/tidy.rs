//! House rules over the text of the repository.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

/// A broken rule: where, which, and why the rule exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) rule: String,
    pub(crate) reason: &'static str,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, rule, reason } = self;
        write!(f, "{}:{line}: {rule}: {reason}", file.display())
    }
}

/// Past this many lines there is a second noun inside.
const LINES_MAX: usize = 800;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 4] = ["utils", "common", "helpers", "misc"];

/// Folders that are not ours to judge, besides hidden ones.
const SKIPPED_FOLDERS: [&str; 4] = ["target", "node_modules", "dist", "test-results"];

/// Hidden folders that are ours.
const OWN_HIDDEN_FOLDERS: [&str; 2] = [".ci", ".github"];

/// Endings of the files whose text is read.
const TEXT_ENDINGS: [&str; 11] = ["rs", "toml", "md", "sh", "py", "yaml", "yml", "berth", "ts", "tsx", "css"];

/// Text that may not appear, and where.
struct Forbidden {
    text: &'static str,
    /// The rule speaks of files below one of these folders; of all files when there is none.
    below: &'static [&'static str],
    /// Only code counts: a comment may name what the code may not.
    code_only: bool,
    reason: &'static str,
}

const AMOUNTS: [&str; 2] = ["crates/berth-engine/src", "crates/berth-types/src"];
const PURE: [&str; 3] = ["crates/berth-engine/src", "crates/berth-types/src", "crates/berth-check/src"];
const UNFINISHED: &str = "a reader cannot tell what still works; finish it, or leave it out";
const NO_FLOATS: &str = "amounts are fixed-point integers; a float that decides gives another plan elsewhere";
const NO_CLOCK: &str = "time comes in as an argument, or a replay gives another plan";
const NO_DICE: &str = "randomness comes in as an argument, or a replay gives another plan";

// The words are written in two parts so that this file keeps its own rules.
const FORBIDDEN: [Forbidden; 11] = [
    everywhere(concat!("TO", "DO"), UNFINISHED),
    everywhere(concat!("FIX", "ME"), UNFINISHED),
    everywhere(concat!("X", "XX"), UNFINISHED),
    everywhere(concat!("to", "do!("), UNFINISHED),
    everywhere(concat!("#[ig", "nore"), "a test that does not run proves nothing; mend it or remove it"),
    in_code("f32", &AMOUNTS, NO_FLOATS),
    in_code("f64", &AMOUNTS, NO_FLOATS),
    in_code("std::time", &PURE, NO_CLOCK),
    in_code("SystemTime", &PURE, NO_CLOCK),
    in_code("Instant::now", &PURE, NO_CLOCK),
    in_code("rand::", &PURE, NO_DICE),
];

const fn everywhere(text: &'static str, reason: &'static str) -> Forbidden {
    Forbidden { text, below: &[], code_only: false, reason }
}

const fn in_code(text: &'static str, below: &'static [&'static str], reason: &'static str) -> Forbidden {
    Forbidden { text, below, code_only: true, reason }
}

/// Reads every file of the repository and lists the broken rules by path.
pub(crate) fn check_tree(root: &Path) -> io::Result<Vec<Broken>> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    let mut broken = Vec::new();
    for path in files {
        let text = match fs::read(&path) {
            Ok(text) => text,
            // Other tools come and go in the same folders; what is gone when it is read is not part of the tree.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        };
        let name = path.strip_prefix(root).unwrap_or(&path);
        broken.extend(check_file(name, &String::from_utf8_lossy(&text)));
    }
    Ok(broken)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            if is_ours(&entry.file_name().to_string_lossy()) {
                collect(&path, files)?;
            }
        } else if kind.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

fn is_ours(folder: &str) -> bool {
    if folder.starts_with('.') {
        OWN_HIDDEN_FOLDERS.contains(&folder)
    } else {
        !SKIPPED_FOLDERS.contains(&folder)
    }
}

/// Every rule one file breaks.
fn check_file(file: &Path, text: &str) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut add = |line: usize, rule: String, reason: &'static str| {
        broken.push(Broken { file: file.to_path_buf(), line, rule, reason });
    };
    if let Some(name) = empty_name(file) {
        add(
            1,
            format!("`{name}` is not a name"),
            "a name says what is inside; everything is a helper of something",
        );
    }
    if !is_text(file) {
        return broken;
    }
    let lines = text.lines().count();
    if file.starts_with("crates") && lines > LINES_MAX {
        add(
            LINES_MAX + 1,
            format!("{lines} lines, above {LINES_MAX}"),
            "there is a second noun inside: find it",
        );
    }
    if is_crate_root(file) && !text.starts_with("//!") {
        add(
            1,
            "a crate's first line starts with `//!`".into(),
            "a newcomer learns there what the crate owns and what it must never know",
        );
    }
    let is_rust = file.extension().is_some_and(|ending| ending == "rs");
    for (index, line) in text.lines().enumerate() {
        for rule in &FORBIDDEN {
            let applies = rule.below.is_empty() || rule.below.iter().any(|folder| file.starts_with(folder));
            let line = if rule.code_only && is_rust { without_comment(line) } else { line };
            if applies && contains_word(line, rule.text) {
                add(index + 1, format!("`{}` is not allowed here", rule.text), rule.reason);
            }
        }
    }
    broken
}

/// The part of a path that names a file or folder by an empty word.
fn empty_name(file: &Path) -> Option<&str> {
    file.iter()
        .filter_map(|part| part.to_str())
        .find(|part| EMPTY_NAMES.contains(&part.split('.').next().unwrap_or(part)))
}

/// Files without an ending are scripts, the Makefile and the licence.
fn is_text(file: &Path) -> bool {
    match file.extension() {
        None => true,
        Some(ending) => TEXT_ENDINGS.iter().any(|known| ending == *known),
    }
}

fn is_crate_root(file: &Path) -> bool {
    let parts: Vec<&str> = file.iter().filter_map(|part| part.to_str()).collect();
    matches!(parts[..], ["crates", _, "src", "lib.rs" | "main.rs"] | ["xtask", "src", "main.rs"])
}

/// Up to the comment. `//` inside a string also ends the code, which can only hide what follows it on that line.
fn without_comment(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}

/// Whether `text` stands in `line` with no letter, digit or underscore touching its own.
fn contains_word(line: &str, text: &str) -> bool {
    let is_word = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let (first, last) = (text.bytes().next(), text.bytes().last());
    line.match_indices(text).any(|(start, _)| {
        let before = line[..start].bytes().last();
        let after = line[start + text.len()..].bytes().next();
        let is_part_of_a_word = (is_word(first) && is_word(before)) || (is_word(last) && is_word(after));
        !is_part_of_a_word
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Vec<String> {
        check_file(Path::new(file), text).iter().map(ToString::to_string).collect()
    }

    fn passes(file: &str, text: &str) {
        assert_eq!(found(file, text), Vec::<String>::new());
    }

    fn fails(file: &str, text: &str, start: &str) {
        let found = found(file, text);
        assert!(found.len() == 1 && found[0].starts_with(start), "expected `{start}`, found {found:?}");
    }

    #[test]
    fn a_long_file_is_found_under_crates_only() {
        let line = "let berth = 1;\n";
        passes("crates/berth-engine/src/plan.rs", &line.repeat(LINES_MAX));
        let long = line.repeat(LINES_MAX + 1);
        fails("crates/berth-engine/src/plan.rs", &long, "crates/berth-engine/src/plan.rs:801: 801 lines");
        passes("docs/long.md", &long);
    }

    #[test]
    fn an_empty_name_is_found_in_files_and_folders() {
        for name in EMPTY_NAMES {
            fails(&format!("crates/berth-sim/src/{name}.rs"), "", "crates/berth-sim");
            fails(&format!("crates/berth-sim/src/{name}/mod.rs"), "", "crates/berth-sim");
        }
        passes("crates/berth-sim/src/commonality.rs", "");
    }

    #[test]
    fn unfinished_work_is_found_everywhere() {
        for word in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")] {
            let text = format!("fine\n// {word}: later\n");
            fails("docs/scheduling.md", &text, "docs/scheduling.md:2: ");
            fails("Makefile", &text, "Makefile:2: ");
        }
        let call = concat!("    to", "do!()\n");
        fails("crates/berth-cli/src/args.rs", call, "crates/berth-cli/src/args.rs:1: ");
        passes("crates/berth-cli/src/args.rs", "let TODOS = 1;\n");
    }

    #[test]
    fn a_test_that_does_not_run_is_found() {
        let text = concat!("#[test]\n#[ig", "nore = \"slow\"]\nfn f() {}\n");
        fails("crates/berth-cli/tests/cli.rs", text, "crates/berth-cli/tests/cli.rs:2: ");
    }

    #[test]
    fn a_crate_without_an_opening_comment_is_found() {
        fails("crates/berth-sim/src/lib.rs", "mod clock;\n", "crates/berth-sim/src/lib.rs:1: ");
        fails("crates/berth-cli/src/main.rs", "fn main() {}\n", "crates/berth-cli/src/main.rs:1: ");
        passes("crates/berth-sim/src/lib.rs", "//! The simulator.\nmod clock;\n");
        passes("crates/berth-sim/src/clock.rs", "struct Clock;\n");
    }

    #[test]
    fn a_float_is_found_where_amounts_are_decided() {
        for kind in ["f32", "f64"] {
            let text = format!("fn share() {{}}\nlet share = amount as {kind};\n");
            let engine = "crates/berth-engine/src/share.rs";
            fails(engine, &text, "crates/berth-engine/src/share.rs:2: ");
            fails("crates/berth-types/src/amount.rs", &text, "crates/berth-types/src/amount.rs:2: ");
            passes("crates/berth-bench/src/report.rs", &text);
            passes(engine, &format!("// No {kind} decides anything.\n"));
            passes(engine, &format!("let a{kind} = 1;\n"));
        }
    }

    #[test]
    fn a_clock_or_dice_in_a_pure_crate_is_found() {
        for text in [
            "use std::time::Duration;\n",
            "let now = Instant::now();\n",
            "let now: SystemTime = now();\n",
            "let die = rand::random();\n",
        ] {
            for name in ["berth-engine", "berth-types", "berth-check"] {
                let file = format!("crates/{name}/src/plan.rs");
                fails(&file, text, &format!("{file}:1: "));
            }
            passes("crates/berth-bench/src/measure.rs", text);
        }
        passes("crates/berth-engine/src/plan.rs", "let errand = grand::total();\n");
    }

    #[test]
    fn a_broken_rule_names_its_reason() {
        let found = found("crates/berth-engine/src/share.rs", "f64\n");
        assert!(found[0].ends_with(NO_FLOATS), "{found:?}");
    }

    #[test]
    fn a_tree_is_read_in_order_without_what_is_not_ours() {
        let root = std::env::temp_dir().join(format!("berth-tidy-{}", std::process::id()));
        let unfinished = concat!("TO", "DO\n");
        for file in ["docs/b.md", ".ci/a", "target/c.md", ".cache/d.md", "docs/deep/e.md"] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, unfinished).unwrap();
        }
        let broken = check_tree(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();
        let files: Vec<&str> = broken.iter().filter_map(|broken| broken.file.to_str()).collect();
        assert_eq!(files, [".ci/a", "docs/b.md", "docs/deep/e.md"]);
    }

    #[test]
    fn files_that_are_not_text_are_not_read() {
        passes("docs/picture.png", concat!("TO", "DO"));
    }
}
