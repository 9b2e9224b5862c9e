//! What the store promises when nothing goes wrong below it.
#![allow(missing_docs)]

mod support;

use berth_store::{
    Answer, Appended, Batch, FinishedFilter, Json, Settings, Snapshot, Store, StoreError, TEXT_BYTES_MAX,
};
use berth_types::{ProjectId, Time, WorkloadId};
use std::{
    pin::Pin,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Wake, Waker},
};
use support::{Mark, Temp, all_events, batch, check_file, disk::Fault, finished, open, vfs::Vfs};

fn answer(key: &str, request: &[u8], body: &str, expires: u64) -> Option<Answer> {
    let body = Json::of(body).expect("JSON");
    Some(Answer { key: key.into(), request: request.to_vec(), body, expires: Time(expires) })
}

#[test]
fn events_are_there_after_a_restart_in_their_order() {
    let temp = Temp::new();
    let folder = temp.join("store");
    let store = open(&folder);
    for number in 0..5 {
        let written = store.append(batch(number, 2)).wait().expect("it is written");
        assert_eq!(written, Appended::Written { after: 2 * number, last: 2 * number + 2 });
    }
    let before = all_events(&store);
    drop(store);
    let (store, start) = Store::open(&folder, &Settings::default()).expect("it opens again");
    assert_eq!((start.last_seq, start.snapshot), (10, None));
    assert_eq!(all_events(&store), before);
    let seqs: Vec<u64> = before.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=10).collect::<Vec<_>>());
}

#[test]
fn appends_find_room_in_the_log_and_seldom_make_its_file_longer() {
    let temp = Temp::new();
    let folder = temp.join("store");
    let store = open(&folder);
    let log = folder.join("berth.db-wal");
    let (mut lengths, appends) = (std::collections::BTreeSet::new(), 400);
    for number in 0..appends {
        store.append(batch(number, 1)).wait().expect("it is written");
        lengths.insert(std::fs::metadata(&log).expect("a log").len());
    }
    // A sync of a file that grew costs twice as much.
    assert!(lengths.len() < 60, "{} of {appends} appends made the file longer", lengths.len());
    let events = all_events(&store);
    // As after a crash: what is on the disk, without the closing of the store.
    let copy = temp.join("copy");
    std::fs::create_dir(&copy).expect("a folder");
    for name in ["berth.db", "berth.db-wal"] {
        std::fs::copy(folder.join(name), copy.join(name)).expect("a file");
    }
    assert_eq!(all_events(&open(&copy)), events, "zeros behind the last frame end the log");
}

#[test]
fn a_page_lists_hidden_and_shown_workloads_in_one_order_over_all_pages() {
    let temp = Temp::new();
    let store = open(&temp.join("store"));
    let workloads = (0..30).map(|id| {
        let mut workload = finished(id, id / 3);
        workload.hidden = id % 4 == 0;
        workload
    });
    store.append(Batch { finished: workloads.collect(), ..batch(1, 1) }).wait().expect("it is written");
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = store.load_finished_page(&FinishedFilter::default(), after, 7).expect("a page");
        listed.extend(page.workloads.into_iter().map(|workload| (workload.ended, workload.id)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut expected = listed.clone();
    expected.sort();
    expected.reverse();
    assert_eq!(listed, expected);
    assert_eq!(listed.len(), 30);
}

#[test]
fn a_batch_decided_on_an_older_log_is_refused_and_writes_nothing() {
    let temp = Temp::new();
    let store = open(&temp.join("store"));
    store.append(Batch { expected: Some(0), ..batch(0, 2) }).wait().expect("the log is empty");
    let stale = Batch { expected: Some(0), finished: vec![finished(1, 1)], ..batch(1, 1) };
    let error = store.append(stale).wait().expect_err("it is stale");
    assert!(matches!(error, StoreError::Moved { expected: 0, actual: 2 }), "{error:?}");
    assert_eq!(store.load_finished(WorkloadId(1)).expect("a read"), None);
    store.append(Batch { expected: Some(2), ..batch(1, 1) }).wait().expect("it is up to date");
    assert_eq!(all_events(&store).len(), 3);
}

#[test]
fn a_repeated_request_is_answered_as_before_and_writes_nothing() {
    let temp = Temp::new();
    let folder = temp.join("store");
    let store = open(&folder);
    let first = Batch { answer: answer("k", b"request", "one", 9_000), ..batch(1, 2) };
    // The second is queued before the first is durable; it must not be answered from what could still be lost.
    let receipts = [store.append(first.clone()), store.append(first.clone())];
    let [one, two] = receipts.map(|receipt| receipt.wait().expect("an answer"));
    assert_eq!(one, Appended::Written { after: 0, last: 2 });
    let body = Json::of("one").expect("JSON");
    assert_eq!(two, Appended::Repeated { body: body.clone(), seq: 2 });
    drop(store);
    let store = open(&folder);
    let stale = Batch { expected: Some(0), ..first };
    let repeated = store.append(stale).wait().expect("its own write does not make it stale");
    assert_eq!(repeated, two);
    let known = store.load_answer("k", b"request", Time(8_999)).expect("a read").expect("it is known");
    assert_eq!((known.body, known.seq), (body, 2));
    assert_eq!(all_events(&store).len(), 2);
}

#[test]
fn a_key_belongs_to_one_request_until_it_expires() {
    let temp = Temp::new();
    let store = open(&temp.join("store"));
    let batch_at = |at: u64, request: &[u8], expires: u64| Batch {
        at: Time(at),
        answer: answer("k", request, "body", expires),
        ..batch(at, 1)
    };
    store.append(batch_at(1, b"one", 100)).wait().expect("the first");
    let error = store.append(batch_at(99, b"two", 200)).wait().expect_err("another request");
    assert!(matches!(&error, StoreError::KeyReused { key } if key == "k"), "{error:?}");
    store.load_answer("k", b"two", Time(99)).expect_err("another request");
    assert_eq!(store.load_answer("k", b"two", Time(100)).expect("a read"), None);
    store.append(batch_at(100, b"two", 200)).wait().expect("the key is free again");
    assert_eq!(all_events(&store).len(), 2);
}

#[test]
fn what_cannot_be_stored_is_refused_before_it_is_queued() {
    let temp = Temp::new();
    let store = open(&temp.join("store"));
    let mut long_kind = batch(0, 1);
    long_kind.events[0].kind = "k".repeat(TEXT_BYTES_MAX + 1);
    let late = Batch { at: Time(u64::MAX), ..batch(0, 1) };
    let odd_id = Batch { finished: vec![finished(u64::MAX, 1)], ..batch(0, 1) };
    for batch in [long_kind, late, odd_id] {
        let error = store.append(batch).wait().expect_err("it cannot be stored");
        assert!(matches!(error, StoreError::TooLarge { .. }), "{error:?}");
    }
    assert_eq!(all_events(&store), []);
}

#[test]
fn many_callers_share_a_sync() {
    const CALLERS: u64 = 64;
    const APPENDS: u64 = 20;
    let (temp, vfs) = (Temp::new(), Vfs::new());
    let settings = Settings { vfs: Some(vfs.name()), ..Settings::default() };
    let (store, _) = Store::open(&temp.join("store"), &settings).expect("it opens");
    let syncs_before = vfs.disk().syncs();
    // A sync takes as long as it takes until all who are still at it have asked for their next append.
    let (asked, answered, at_it) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(CALLERS)));
    let seen = [&asked, &answered, &at_it].map(Arc::clone);
    vfs.disk().before_sync(move || {
        while seen[0].load(SeqCst) - seen[1].load(SeqCst) < seen[2].load(SeqCst) {
            std::thread::yield_now();
        }
    });
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (store, asked, answered, at_it) = (&store, &asked, &answered, &at_it);
            scope.spawn(move || {
                for append in 0..APPENDS {
                    asked.fetch_add(1, SeqCst);
                    let receipt = store.append(batch(caller * APPENDS + append, 1));
                    receipt.wait().expect("it is written");
                    // The last one leaves before it counts as answered, or a sync would wait for it for ever.
                    if append + 1 == APPENDS {
                        at_it.fetch_sub(1, SeqCst);
                    }
                    answered.fetch_add(1, SeqCst);
                }
            });
        }
    });
    let syncs = vfs.disk().syncs() - syncs_before;
    println!("{} appends by {CALLERS} callers took {syncs} syncs", CALLERS * APPENDS);
    assert!(syncs * 5 < CALLERS * APPENDS, "{syncs} syncs");
    let mut numbers: Vec<u64> =
        all_events(&store).iter().map(|event| event.body.read::<Mark>().expect("a mark").batch).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..CALLERS * APPENDS).collect::<Vec<_>>());
}

#[test]
fn after_a_failed_sync_the_store_reads_and_says_why_it_does_not_write() {
    let (temp, vfs) = (Temp::new(), Vfs::new());
    let settings = Settings { vfs: Some(vfs.name()), ..Settings::default() };
    let (store, _) = Store::open(&temp.join("store"), &settings).expect("it opens");
    store.append(batch(0, 1)).wait().expect("it is written");
    // Find the sync of the next append: it is its last operation.
    let before = vfs.disk().operations();
    store.append(batch(1, 1)).wait().expect("it is written");
    let per_append = vfs.disk().operations() - before;
    vfs.disk().inject(vfs.disk().operations() + per_append - 1, Fault::Fails);
    let error = store.append(batch(2, 1)).wait().expect_err("its sync fails");
    assert!(matches!(error, StoreError::InDoubt { .. }), "{error:?}");
    vfs.disk().mend();
    let error = store.append(batch(3, 1)).wait().expect_err("the store only reads");
    let text = error.to_string();
    assert!(text.starts_with("the store only reads since appending failed"), "{text}");
    assert!(store.read_only().is_some());
    store.snapshot(Snapshot { seq: 2, at: Time(0), body: vec![] }).wait().expect_err("it only reads");
    store.compact().wait().expect_err("it only reads");
    assert_eq!(all_events(&store).len(), 2, "it reads what was acknowledged");
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let (temp, vfs) = (Temp::new(), Vfs::new());
    let settings = Settings { vfs: Some(vfs.name()), ..Settings::default() };
    let (store, _) = Store::open(&temp.join("store"), &settings).expect("it opens");
    store.append(batch(0, 1)).wait().expect("it is written");
    vfs.disk().inject(vfs.disk().operations(), Fault::Full);
    let error = store.append(batch(1, 1)).wait().expect_err("there is no room");
    assert!(matches!(error, StoreError::DiskFull), "{error:?}");
    vfs.disk().mend();
    assert_eq!(
        store.append(batch(2, 1)).wait().expect("there is room"),
        Appended::Written { after: 1, last: 2 }
    );
    assert_eq!(store.read_only(), None);
}

/// Every page of a list.
fn list(store: &Store, filter: &FinishedFilter, page: usize) -> Vec<u64> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let found = store.load_finished_page(filter, after, page).expect("a page");
        assert!(found.workloads.len() <= page);
        ids.extend(found.workloads.iter().map(|workload| workload.id.0));
        after = found.next;
        if after.is_none() {
            return ids;
        }
    }
}

fn with_finished(store: &Store, ids: impl Iterator<Item = u64>) {
    // Three end at a time, so that the order needs more than the time.
    let finished: Vec<_> = ids.map(|id| finished(id, 1_000 + id / 3)).collect();
    store.append(Batch { finished, ..Batch::default() }).wait().expect("it is written");
}

#[test]
fn finished_workloads_are_listed_latest_first_page_by_page() {
    let temp = Temp::new();
    let folder = temp.join("store");
    let store = open(&folder);
    with_finished(&store, 0..100);
    drop(store);
    let store = open(&folder);
    let latest_first: Vec<u64> = (0..100).rev().collect();
    for page in [1, 7, 50, 100, 1_000] {
        assert_eq!(list(&store, &FinishedFilter::default(), page), latest_first, "pages of {page}");
    }
    assert_eq!(store.load_finished(WorkloadId(7)).expect("a read"), Some(finished(7, 1_002)));
    let forgotten = vec![WorkloadId(7), WorkloadId(8)];
    store.append(Batch { forgotten, ..Batch::default() }).wait().expect("it is written");
    assert_eq!(store.load_finished(WorkloadId(7)).expect("a read"), None);
    assert_eq!(list(&store, &FinishedFilter::default(), 9).len(), 98);
}

#[test]
fn every_filter_lists_what_it_says_and_nothing_else() {
    let temp = Temp::new();
    let store = open(&temp.join("store"));
    with_finished(&store, 0..200);
    let any = FinishedFilter::default;
    type Case = (FinishedFilter, fn(u64) -> bool);
    let cases: [Case; 8] = [
        (FinishedFilter { project: Some(ProjectId(1)), ..any() }, |id| id % 3 == 1),
        (FinishedFilter { user: Some("user-2".into()), ..any() }, |id| id % 5 == 2),
        (FinishedFilter { name: Some("job-17".into()), ..any() }, |id| id == 17),
        (FinishedFilter { kind: Some("train".into()), ..any() }, |id| id % 2 == 0),
        (FinishedFilter { phase: Some("failed".into()), ..any() }, |id| id % 7 == 0),
        (FinishedFilter { ended_from: Some(Time(1_020)), ended_before: Some(Time(1_030)), ..any() }, |id| {
            (60..90).contains(&id)
        }),
        (FinishedFilter { project: Some(ProjectId(2)), kind: Some("train".into()), ..any() }, |id| {
            id % 6 == 2
        }),
        (FinishedFilter { user: Some("nobody".into()), ..any() }, |_| false),
    ];
    for (filter, is_listed) in cases {
        let expected: Vec<u64> = (0..200).rev().filter(|id| is_listed(*id)).collect();
        assert_eq!(list(&store, &filter, 7), expected, "{filter:?}");
    }
}

#[test]
fn pages_neither_repeat_nor_skip_while_workloads_end_and_are_forgotten() {
    let temp = Temp::new();
    let store = open(&temp.join("store"));
    with_finished(&store, 0..90);
    let (mut seen, mut after, mut next_id) = (Vec::new(), None, 90);
    loop {
        let page = store.load_finished_page(&FinishedFilter::default(), after, 10).expect("a page");
        seen.extend(page.workloads.iter().map(|workload| workload.id.0));
        // Some end meanwhile, and the last one that was seen is forgotten.
        with_finished(&store, next_id..next_id + 9);
        next_id += 9;
        let forgotten = page.workloads.last().map(|workload| workload.id).into_iter().collect();
        store.append(Batch { forgotten, ..Batch::default() }).wait().expect("it is written");
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, (0..90).rev().collect::<Vec<_>>());
}

#[test]
fn a_start_uses_the_newest_snapshot_that_is_whole() {
    let temp = Temp::new();
    let folder = temp.join("store");
    let settings = Settings { snapshot_part_bytes: 1_000, ..Settings::default() };
    let (store, _) = Store::open(&folder, &settings).expect("it opens");
    for number in 0..3 {
        store.append(batch(number, 1)).wait().expect("it is written");
        let body = vec![number as u8; 4_500];
        store.snapshot(Snapshot { seq: number + 1, at: Time(number), body }).wait().expect("it is written");
    }
    let error = store.snapshot(Snapshot { seq: 4, at: Time(0), body: vec![] }).wait().expect_err("too new");
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error:?}");
    drop(store);

    let damage = |seq: u64| {
        let connection = rusqlite::Connection::open(folder.join("berth.db")).expect("the file");
        let sql = "UPDATE snapshot_part SET body = zeroblob(1000) WHERE seq = ?1 AND part = 2";
        assert_eq!(connection.execute(sql, [seq as i64]).expect("a change"), 1);
    };
    let start = || Store::open(&folder, &settings).map(|(_, start)| start);
    assert_eq!(start().expect("it opens").snapshot.expect("a snapshot").body, vec![2; 4_500]);
    damage(3);
    let fallen_back = start().expect("it opens");
    assert_eq!(fallen_back.damaged_snapshots, [3]);
    assert_eq!(fallen_back.snapshot.expect("the one before").body, vec![1; 4_500]);
    damage(2);
    let without = start().expect("all events are still there");
    assert_eq!((without.damaged_snapshots, without.snapshot, without.last_seq), (vec![2], None, 3));
    check_file(&folder).expect("the file is sound");
}

/// Notes how many syncs there were when it is woken, which the writer does as it answers.
struct SyncsAtAnswer {
    syncs: Arc<AtomicU64>,
    noted: AtomicU64,
}

impl Wake for SyncsAtAnswer {
    fn wake(self: Arc<Self>) {
        self.noted.store(self.syncs.load(SeqCst), SeqCst);
    }
}

#[test]
fn an_append_waits_for_one_part_of_a_snapshot_and_not_for_all() {
    let (temp, vfs) = (Temp::new(), Vfs::new());
    let settings = Settings { vfs: Some(vfs.name()), snapshot_part_bytes: 1_000, ..Settings::default() };
    let (store, _) = Store::open(&temp.join("store"), &settings).expect("it opens");
    store.append(batch(0, 1)).wait().expect("it is written");
    let (reached, release) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let gates = (Arc::clone(&reached), Arc::clone(&release));
    let syncs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&syncs);
    vfs.disk().before_sync(move || {
        if counted.fetch_add(1, SeqCst) == 0 {
            gates.0.wait();
            gates.1.wait();
        }
    });
    let snapshot = store.snapshot(Snapshot { seq: 1, at: Time(0), body: vec![7; 20_000] });
    reached.wait();
    // The writer stands in the sync of the first of twenty parts now.
    let mut append = store.append(batch(1, 1));
    let answered = Arc::new(SyncsAtAnswer { syncs: Arc::clone(&syncs), noted: AtomicU64::new(0) });
    let waker = Waker::from(Arc::clone(&answered));
    assert!(Pin::new(&mut append).poll(&mut Context::from_waker(&waker)).is_pending());
    release.wait();
    append.wait().expect("it is written");
    snapshot.wait().expect("it is written");
    assert_eq!(answered.noted.load(SeqCst), 2, "the part's sync, and its own");
    assert!(syncs.load(SeqCst) > 20, "each part has a sync of its own");
}

#[test]
fn a_decision_keeps_the_version_of_its_inputs() {
    let temp = Temp::new();
    let folder = temp.join("store");
    let store = open(&folder);
    store.append(batch(0, 3)).wait().expect("it is written");
    let mut decided = batch(1, 2);
    decided.events[1].inputs = Some(3);
    decided.events[1].kind = "decided".into();
    decided.events[1].version = u32::MAX;
    store.append(decided).wait().expect("it is written");
    drop(store);
    let events = open(&folder).load_events(4, 10).expect("events");
    assert_eq!((events.len(), events[0].seq, events[0].at), (1, 5, Time(1_000)));
    assert_eq!(
        (events[0].kind.as_str(), events[0].version, events[0].inputs),
        ("decided", u32::MAX, Some(3))
    );
}

#[test]
fn a_log_without_the_events_a_start_needs_is_refused() {
    let temp = Temp::new();
    let folder = temp.join("store");
    let store = open(&folder);
    store.append(batch(0, 5)).wait().expect("it is written");
    drop(store);
    let connection = rusqlite::Connection::open(folder.join("berth.db")).expect("the file");
    connection.execute("DELETE FROM event WHERE seq <= 2", []).expect("a change");
    drop(connection);
    let error = Store::open(&folder, &Settings::default()).expect_err("events are missing");
    let text = error.to_string();
    assert!(text.contains("events 1 to 2 are missing") && text.ends_with("into an empty folder"), "{text}");
}

#[test]
fn a_list_does_not_wait_for_the_writer() {
    let (temp, vfs) = (Temp::new(), Vfs::new());
    let settings = Settings { vfs: Some(vfs.name()), readers: 1, ..Settings::default() };
    let (store, _) = Store::open(&temp.join("store"), &settings).expect("it opens");
    store.append(batch(0, 1)).wait().expect("it is written");
    let (reached, release) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let gates = (Arc::clone(&reached), Arc::clone(&release));
    let is_first = AtomicBool::new(true);
    vfs.disk().before_sync(move || {
        if is_first.swap(false, SeqCst) {
            gates.0.wait();
            gates.1.wait();
        }
    });
    let receipt = store.append(batch(1, 1));
    reached.wait();
    // The writer stands in the middle of its sync now.
    assert_eq!(all_events(&store).len(), 1);
    release.wait();
    receipt.wait().expect("it is written");
    assert_eq!(all_events(&store).len(), 2);
}

#[test]
fn what_does_not_fit_into_the_queue_is_refused_at_once_and_the_rest_is_written() {
    let (temp, vfs) = (Temp::new(), Vfs::new());
    let settings = Settings { vfs: Some(vfs.name()), ..Settings::default() };
    let (store, _) = Store::open(&temp.join("store"), &settings).expect("it opens");
    let (reached, release) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let gates = (Arc::clone(&reached), Arc::clone(&release));
    let is_first = AtomicBool::new(true);
    vfs.disk().before_sync(move || {
        if is_first.swap(false, SeqCst) {
            gates.0.wait();
            gates.1.wait();
        }
    });
    let mut receipts = vec![store.append(batch(0, 1))];
    reached.wait();
    receipts.extend((1..10_000).map(|number| store.append(batch(number, 1))));
    release.wait();
    let answers: Vec<_> = receipts.into_iter().map(|receipt| receipt.wait()).collect();
    let written = answers.iter().take_while(|answer| answer.is_ok()).count();
    assert!((1_000..10_000).contains(&written), "{written} were written");
    for answer in &answers[written..] {
        assert!(matches!(answer, Err(StoreError::Overloaded { .. })), "{answer:?}");
    }
    assert_eq!(all_events(&store).len(), written);
}

#[test]
fn more_readers_than_connections_take_turns() {
    let temp = Temp::new();
    let settings = Settings { readers: 2, ..Settings::default() };
    let (store, _) = Store::open(&temp.join("store"), &settings).expect("it opens");
    with_finished(&store, 0..50);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(list(&store, &FinishedFilter::default(), 20).len(), 50);
                }
            });
        }
    });
}
