//! Charts, roll-ups, and limits that hold.
#![allow(missing_docs)]

mod support;

use berth_store::{Batch, Json, Point, Resolution, Sample, Settings, Snapshot, Store};
use berth_types::{Span, Time};
use std::{collections::BTreeMap, path::Path};
use support::{Temp, batch, check_file, open, random::Random};

const END: Time = Time(i64::MAX as u64);

fn sample(series: &str, value: i64) -> Sample {
    Sample::new(series, value)
}

fn append_samples(store: &Store, at: u64, samples: Vec<Sample>) {
    store.append(Batch { at: Time(at), samples, ..Batch::default() }).wait().expect("it is written");
}

#[test]
fn roll_ups_are_exact_at_any_time() {
    let temp = Temp::new();
    let store = open(&temp.join("store"));
    let mut random = Random(7);
    let mut all: BTreeMap<(&str, u64), i64> = BTreeMap::new();
    for _ in 0..60 {
        let mut samples = Vec::new();
        // Not in the order of time: some come late.
        let at = random.below(4 * 3_600_000);
        for name in ["gpus/team-a", "gpus/team-b"] {
            let value = random.below(1_000_000) as i64 - 500_000;
            samples.push(sample(name, value));
            all.entry((name, at)).or_insert(value);
        }
        append_samples(&store, at, samples);
    }
    assert_eq!(store.load_series_names().expect("names"), ["gpus/team-a", "gpus/team-b"]);
    for name in ["gpus/team-a", "gpus/team-b"] {
        for resolution in [Resolution::Raw, Resolution::FiveMinutes, Resolution::Hours] {
            let width = resolution.width().0.max(1);
            let mut expected: BTreeMap<u64, Point> = BTreeMap::new();
            for ((_, at), value) in all.iter().filter(|((series, _), _)| *series == name) {
                let start = at / width * width;
                let new = Point { at: Time(start), count: 0, sum: 0, min: i64::MAX, max: i64::MIN };
                let point = expected.entry(start).or_insert(new);
                point.count += 1;
                point.sum += value;
                point.min = point.min.min(*value);
                point.max = point.max.max(*value);
            }
            let to = Time(4 * 3_600_000);
            let found = store.load_series(name, resolution, Time(0), to).expect("points");
            assert_eq!(found, expected.into_values().collect::<Vec<_>>(), "{name} {resolution:?}");
        }
    }
    let hour = store.load_series("gpus/team-a", Resolution::Hours, Time(3_600_000), Time(7_200_000));
    assert_eq!(hour.expect("points").len(), 1, "the window is half open");
    assert_eq!(store.load_series("nobody", Resolution::Hours, Time(0), END).expect("points"), []);
    let always = store.load_series("gpus/team-a", Resolution::FiveMinutes, Time(0), Time(u64::MAX));
    assert_eq!(
        always.expect("points").iter().map(|point| point.count).sum::<u64>(),
        60,
        "any window is answered"
    );
}

#[test]
fn a_second_sample_of_one_time_and_a_sum_out_of_range_do_no_harm() {
    let temp = Temp::new();
    let store = open(&temp.join("store"));
    for (at, value) in [(1, 5), (1, 7), (2, i64::MAX), (3, i64::MAX)] {
        append_samples(&store, at, vec![sample("s", value)]);
    }
    let points = store.load_series("s", Resolution::Hours, Time(0), Time(3_600_000)).expect("points");
    assert_eq!(points, [Point { at: Time(0), count: 3, sum: i64::MAX, min: 5, max: i64::MAX }]);
}

#[test]
fn samples_go_when_they_are_old_and_their_roll_ups_stay() {
    let temp = Temp::new();
    let keep = Span::secs(3_600);
    let settings = Settings { raw_keep: keep, five_minutes_keep: Span::secs(7_200), ..Settings::default() };
    let (store, _) = Store::open(&temp.join("store"), &settings).expect("it opens");
    for minute in 0..=300 {
        append_samples(&store, minute * 60_000, vec![sample("s", 1)]);
    }
    let count = |resolution: Resolution| {
        let points = store.load_series("s", resolution, Time(0), Time(400 * 60_000)).expect("points");
        (points[0].at.0 / 60_000, points.iter().map(|point| point.count).sum::<u64>())
    };
    assert_eq!(count(Resolution::Raw), (240, 61), "an hour and its end");
    assert_eq!(count(Resolution::FiveMinutes), (180, 121), "two hours and their end");
    assert_eq!(count(Resolution::Hours), (0, 301), "everything");
}

/// Bytes of the pages that history takes in the file.
fn page_bytes(folder: &Path, tables: &str) -> u64 {
    let connection = rusqlite::Connection::open(folder.join("berth.db")).expect("the file");
    let sql = format!("SELECT ifnull(sum(pgsize), 0) FROM dbstat WHERE name IN ({tables})");
    connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).expect("bytes") as u64
}

#[test]
fn history_stays_below_its_limit_in_pages_of_the_file() {
    const LIMIT: u64 = 2 << 20;
    let temp = Temp::new();
    let folder = temp.join("store");
    let settings = Settings {
        history_bytes_max: LIMIT,
        raw_keep: Span::secs(1 << 40),
        five_minutes_keep: Span::secs(1 << 40),
        ..Settings::default()
    };
    let (store, _) = Store::open(&folder, &settings).expect("it opens");
    let mut random = Random(3);
    for number in 0..300 {
        let mut batch = batch(number, 100);
        batch.at = Time(number * 301_000);
        // Bodies of many sizes: a few to a page, one to a page, several pages.
        for event in batch.events.iter_mut().step_by(10) {
            event.body = Json::of(&"x".repeat(random.below(6_000) as usize)).expect("JSON");
        }
        batch.samples = (0..100).map(|series| sample(&format!("s{series}"), random.next() as i64)).collect();
        store.append(batch).wait().expect("it is written");
        if number % 20 == 19 {
            let seq = (number + 1) * 100;
            store.snapshot(Snapshot { seq, at: Time(0), body: vec![1; 1_000] }).wait().expect("a snapshot");
            store.compact().wait().expect("it is compacted");
            let sizes = store.load_sizes().expect("sizes");
            assert!(sizes.history_bytes <= LIMIT, "{sizes:?}");
        }
    }
    let sizes = store.load_sizes().expect("sizes");
    drop(store);
    check_file(&folder).expect("the file is sound");
    assert!(sizes.first_seq > 1 && sizes.first_seq <= 28_001, "old events went, needed ones stay: {sizes:?}");
    let samples = page_bytes(&folder, "'sample', 'rollup'");
    let events = page_bytes(&folder, "'event'");
    println!("limit {LIMIT}; samples and roll-ups {samples}, events {events}; {sizes:?}");
    assert!(samples <= LIMIT / 2, "{samples} bytes of samples");
    assert!(events <= LIMIT / 2 + sizes.needed_bytes, "{events} bytes of events");
    // Most of what is allowed is used: a limit that throws everything away would hold too.
    assert!(sizes.history_bytes > LIMIT * 3 / 4 && samples + events > LIMIT / 2, "{sizes:?}");
}

#[test]
fn a_lower_limit_holds_from_the_next_start_on() {
    let temp = Temp::new();
    let folder = temp.join("store");
    let store = open(&folder);
    for number in 0..50 {
        let samples = (0..100).map(|series| sample(&format!("s{series}"), 1)).collect();
        append_samples(&store, number * 400_000, samples);
    }
    assert!(store.load_sizes().expect("sizes").history_bytes > 200_000);
    drop(store);
    let settings = Settings { history_bytes_max: 100_000, ..Settings::default() };
    let (store, _) = Store::open(&folder, &settings).expect("it opens");
    assert!(store.load_sizes().expect("sizes").history_bytes <= 50_000);
    drop(store);
    check_file(&folder).expect("the file is sound");
}

#[test]
fn events_that_a_start_needs_are_kept_whatever_the_limit() {
    let temp = Temp::new();
    let folder = temp.join("store");
    let settings = Settings { history_bytes_max: 0, ..Settings::default() };
    let (store, _) = Store::open(&folder, &settings).expect("it opens");
    let snapshot_at = |seq: u64| {
        store.snapshot(Snapshot { seq, at: Time(0), body: vec![7] }).wait().expect("a snapshot");
        store.compact().wait().expect("it is compacted");
        store.load_sizes().expect("sizes").first_seq
    };
    store.append(batch(0, 50)).wait().expect("it is written");
    assert_eq!(snapshot_at(30), 1, "one snapshot may turn out to be damaged");
    assert_eq!(snapshot_at(40), 31);
    store.append(batch(1, 50)).wait().expect("it is written");
    assert_eq!(snapshot_at(90), 41);
    drop(store);
    let (_, start) = Store::open(&folder, &settings).expect("it opens");
    assert_eq!((start.snapshot.expect("a snapshot").seq, start.last_seq), (90, 100));
}
