//! Whatever is in a file, reading it ends in a scenario or in a list of problems.

use berth_sim::{random::SplitMix64, scenario::Scenario};
use std::path::Path;

const CASES: u64 = 5_000;
/// Words that are likely to reach deep into the parser.
const WORDS: [&str; 24] = [
    "=",
    "-",
    "-g",
    "0",
    "-1",
    "99999999999999999999",
    "0.000001",
    "\"",
    "#",
    "none",
    "expect",
    "set",
    "x",
    "node",
    "quota=",
    "=4",
    "--",
    "--topology",
    "required:",
    ":",
    ",",
    "\u{0}",
    "\u{1f6a2}",
    "until",
];

fn scenarios() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "berth"))
        .collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).expect("readable")).collect()
}

fn mutate(text: &str, random: &mut SplitMix64) -> String {
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    for _ in 0..=random.below(4) {
        if lines.is_empty() {
            break;
        }
        let at = random.below(lines.len() as u64) as usize;
        match random.below(6) {
            0 => {
                lines.remove(at);
            }
            1 => {
                let other = random.below(lines.len() as u64) as usize;
                lines.swap(at, other);
            }
            2 => {
                let copy = lines[at].clone();
                lines.insert(at, copy);
            }
            3 => {
                let mut bytes = lines[at].clone().into_bytes();
                if !bytes.is_empty() {
                    let position = random.below(bytes.len() as u64) as usize;
                    bytes[position] = random.below(256) as u8;
                }
                lines[at] = String::from_utf8_lossy(&bytes).into_owned();
            }
            4 => {
                let mut words: Vec<&str> = lines[at].split(' ').collect();
                let position = random.below(words.len() as u64) as usize;
                words[position] = WORDS[random.below(WORDS.len() as u64) as usize];
                lines[at] = words.join(" ");
            }
            _ => {
                let mut words: Vec<&str> = lines[at].split(' ').collect();
                words.truncate(1 + random.below(words.len() as u64) as usize);
                lines[at] = words.join(" ");
            }
        }
    }
    lines.join("\n")
}

#[test]
fn no_text_makes_the_parser_panic() {
    let texts = scenarios();
    let mut refused = 0;
    for seed in 0..CASES {
        let mut random = SplitMix64::new(seed);
        let text = mutate(&texts[random.below(texts.len() as u64) as usize], &mut random);
        let outcome = std::panic::catch_unwind(|| Scenario::parse("fuzz.berth", &text));
        match outcome {
            Ok(Ok(_)) => {}
            Ok(Err(problems)) => {
                refused += 1;
                assert!(!problems.to_string().is_empty());
            }
            Err(_) => panic!("seed {seed} makes the parser panic on:\n{text}"),
        }
    }
    // A fuzzer that breaks nothing, or everything, tests nothing.
    assert!((CASES / 10..CASES * 99 / 100).contains(&refused), "{refused} of {CASES} were refused");
}
