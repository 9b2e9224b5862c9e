//! Kills a process that appends, again and again, and looks each time whether everything it acknowledged is there.
//!
//! `BERTH_KILLS` sets how often.
#![allow(missing_docs)]

mod support;

use berth_store::{Settings, Snapshot, Store};
use berth_types::Time;
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};
use support::{Mark, Temp, all_events, batch, check_file, random::Random};

const FOLDER: &str = "BERTH_STORE_KILLED_FOLDER";
const THREADS: u64 = 4;
const KILLS: u64 = 10;

fn main() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return append_until_killed(Path::new(&folder));
    }
    let count = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let kills = count("BERTH_KILLS").unwrap_or(KILLS);
    let seed = count("BERTH_SEED").unwrap_or(0);
    let (temp, mut random) = (Temp::new(), Random(seed));
    let folder = temp.join("store");
    let mut acknowledged = Vec::new();
    for kill in 0..kills {
        let known = acknowledged.len();
        acknowledged.extend(kill_after(&folder, kill, random.below(300)));
        println!("kill {kill}: {} batches acknowledged", acknowledged.len() - known);
        check(&folder, &acknowledged, seed);
    }
    println!("{kills} kills, {} batches acknowledged, none lost", acknowledged.len());
}

/// Appends from several threads, and prints the number of each batch once it is acknowledged.
fn append_until_killed(folder: &Path) {
    let settings = Settings { snapshot_part_bytes: 4_000, ..Settings::default() };
    let (store, _) = Store::open(folder, &settings).expect("the store opens");
    let first = std::env::args().nth(1).and_then(|text| text.parse().ok()).expect("the first number");
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        // Snapshots of several parts, so that some kills fall between two parts.
        scope.spawn(|| {
            loop {
                let seq = store.load_sizes().expect("sizes").last_seq;
                let body = vec![seq as u8; 40_000];
                store.snapshot(Snapshot { seq, at: Time(seq), body }).wait().expect("it is written");
            }
        });
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, SeqCst);
                    store.append(batch(number, 1 + number % 4)).wait().expect("it is written");
                    writeln!(std::io::stdout(), "{number}").expect("the parent listens");
                }
            });
        }
    });
}

/// Starts a process, and kills it when it has acknowledged so many batches. Gives those it acknowledged.
fn kill_after(folder: &Path, kill: u64, batches: u64) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .arg((kill * 1_000_000).to_string())
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
    let number = |line: std::io::Result<String>| line.ok()?.parse::<u64>().ok();
    let mut acknowledged: Vec<u64> = lines.by_ref().take(batches as usize).filter_map(number).collect();
    child.kill().expect("it runs");
    // What it said before it died counts too.
    acknowledged.extend(lines.filter_map(number));
    child.wait().expect("it is gone");
    assert!(acknowledged.len() as u64 >= batches, "it ended by itself");
    acknowledged
}

fn check(folder: &Path, acknowledged: &[u64], seed: u64) {
    let (store, start) = Store::open(folder, &Settings::default()).expect("the store opens");
    let events = all_events(&store);
    drop(store);
    assert!(start.damaged_snapshots.is_empty(), "seed {seed}");
    if let Some(snapshot) = start.snapshot {
        assert_eq!(snapshot.body, vec![snapshot.seq as u8; 40_000], "seed {seed}: not what was written");
    }
    check_file(folder).unwrap_or_else(|text| panic!("seed {seed}: {text}"));
    let mut found = std::collections::BTreeMap::<u64, Vec<Mark>>::new();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event.seq, index as u64 + 1, "seed {seed}: a gap");
        let mark: Mark = event.body.read().expect("a mark");
        found.entry(mark.batch).or_default().push(mark);
    }
    for (number, marks) in &found {
        let of = 1 + number % 4;
        let whole: Vec<Mark> = (0..of).map(|index| Mark { batch: *number, index, of }).collect();
        assert_eq!(*marks, whole, "seed {seed}: a batch is not there once and as a whole");
    }
    for number in acknowledged {
        assert!(found.contains_key(number), "seed {seed}: batch {number} was acknowledged and is lost");
    }
}
