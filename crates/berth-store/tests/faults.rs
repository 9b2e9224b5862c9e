//! Every single write, sync and truncation of the store goes wrong once, in every way.
#![allow(missing_docs)]

mod support;

use berth_store::{Answer, Json, Sample, Settings, Store, StoreError};
use berth_types::{Time, WorkloadId};
use std::{fs, path::Path};
use support::{
    Mark, Temp, all_events, batch, check_file,
    disk::{Fault, Remains},
    finished,
    seeds::for_each_seed,
    vfs::Vfs,
    witness::Witness,
};

/// Small limits, so that a short script meets all of them.
fn settings(vfs: &Vfs) -> Settings {
    Settings {
        history_bytes_max: 1_600,
        snapshot_part_bytes: 2_000,
        vfs: Some(vfs.name()),
        ..Settings::default()
    }
}

/// Appends of every sort, snapshots in several parts, compaction, samples, a checkpoint. Ends early at a word that not
/// everything went well, if that is asked for.
fn play(store: &Store, witness: &mut Witness, until_refused: bool) -> Result<(), String> {
    for number in 0..14 {
        if until_refused && witness.is_refused {
            return Ok(());
        }
        let mut batch = batch(number, 1 + number % 3);
        if number % 4 == 1 {
            batch.finished = vec![finished(number, 1_000 * number), finished(number + 1, 1_000 * number)];
        }
        if number % 4 == 3 {
            batch.forgotten = vec![WorkloadId(number - 1)];
        }
        if number % 3 == 2 {
            let body = Json::of(&number).expect("JSON");
            let (key, request, expires) = (format!("key-{number}"), vec![1, 2], Time(9_000));
            batch.answer = Some(Answer { key, request, body, expires });
        }
        if number % 2 == 1 {
            let series = (0..5).map(|series| Sample::new(format!("series-{series}"), 7));
            batch.samples = series.collect();
            batch.at = Time(400_000 * number);
        }
        witness.append(store, batch)?;
        if number % 4 == 3 {
            witness.snapshot(store, 5_000)?;
        }
        if number == 8 {
            // It may fail like everything else; what matters is what is there afterwards.
            let _ = store.compact().wait();
        }
    }
    Ok(())
}

/// Plays the script with a fault, and looks at what is left.
fn check(at: u64, fault: Fault) -> Result<(), String> {
    let (temp, vfs) = (Temp::new(), Vfs::new());
    let (live, after) = (temp.join("live"), temp.join("after"));
    vfs.disk().inject(at, fault);
    let mut witness = Witness::default();
    match Store::open(&live, &settings(&vfs)) {
        Ok((store, _)) => play(&store, &mut witness, false)?,
        Err(StoreError::Unreadable { .. }) => {}
        Err(error) => return Err(format!("open: {error:?}")),
    }
    match fault {
        Fault::Crash(_) if vfs.disk().is_crashed() => {
            vfs.disk().write_remains(&after);
            witness.check(&after, &settings(&vfs))
        }
        _ => witness.check(&live, &settings(&vfs)),
    }
}

/// Plays the script until an operation fails, and kills the process then: only what it told the system is left.
fn check_killed_after_failure(at: u64) -> Result<(), String> {
    let (temp, vfs) = (Temp::new(), Vfs::new());
    let (live, after) = (temp.join("live"), temp.join("after"));
    vfs.disk().inject(at, Fault::Fails);
    let mut witness = Witness::default();
    let Ok((store, _)) = Store::open(&live, &settings(&vfs)) else { return Ok(()) };
    play(&store, &mut witness, true)?;
    copy_database(&live, &after);
    drop(store);
    witness.check(&after, &settings(&vfs))
}

/// Copies a database and its write-ahead log as they are.
fn copy_database(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for name in ["berth.db", "berth.db-wal"] {
        fs::copy(from.join(name), to.join(name)).expect("a copy");
    }
}

/// Writes, syncs and truncations of the script when nothing goes wrong.
fn operations() -> u64 {
    let (temp, vfs) = (Temp::new(), Vfs::new());
    let mut witness = Witness::default();
    let (store, _) = Store::open(&temp.join("live"), &settings(&vfs)).expect("it opens");
    play(&store, &mut witness, false).expect("nothing goes wrong");
    assert_eq!(witness.last_seq(), 27, "everything was acknowledged");
    assert!(store.load_sizes().expect("sizes").first_seq > 1, "the script drops events");
    drop(store);
    witness.check(&temp.join("live"), &settings(&vfs)).expect("everything is there");
    let operations = vfs.disk().operations();
    assert!(operations > 200, "the script writes: {operations}");
    operations
}

fn check_every_operation(name: &str, fault: impl Fn(u64) -> Fault + Sync) {
    let count = operations();
    for_each_seed(name, count, |at| check(at, fault(at)));
    println!("{name}: {count} operations");
}

#[test]
fn each_operation_may_fail_once() {
    check_every_operation("each operation fails", |_| Fault::Fails);
}

#[test]
fn what_was_answered_as_not_kept_is_not_there_after_a_kill_right_then() {
    for_each_seed("killed after a failure", operations(), check_killed_after_failure);
}

#[test]
fn the_disk_may_be_full_at_each_write() {
    check_every_operation("the disk is full", |_| Fault::Full);
}

#[test]
fn the_power_may_go_at_each_operation_with_nothing_kept_that_was_not_synced() {
    check_every_operation("nothing remains", |_| Fault::Crash(Remains::Nothing));
}

#[test]
fn the_power_may_go_in_the_middle_of_each_write() {
    check_every_operation("half a write remains", |_| Fault::Crash(Remains::AllAndHalf));
}

#[test]
fn the_power_may_go_at_each_operation_with_any_sectors_kept() {
    check_every_operation("any sectors remain", |at| Fault::Crash(Remains::AnySectors(at)));
}

/// Appends some batches, and copies the database while its write-ahead log is not empty. Gives the bytes of the log
/// up to its last frame: what follows are zeros.
fn copy_with_log(temp: &Temp) -> u64 {
    let live = temp.join("live");
    let store = support::open(&live);
    for number in 0..20 {
        store.append(batch(number, 3)).wait().expect("it is written");
    }
    copy_database(&live, &temp.join("copy"));
    let log = fs::read(temp.join("copy/berth.db-wal")).expect("a log");
    const HEADER_BYTES: usize = 32;
    const FRAME_BYTES: usize = 4_096 + 24;
    // A frame begins with the number of its page, which is not 0.
    let frames = log[HEADER_BYTES..].chunks(FRAME_BYTES).take_while(|frame| frame[..4] != [0; 4]);
    (HEADER_BYTES + frames.count() * FRAME_BYTES) as u64
}

/// Opens a damaged copy: what is left is a beginning of the log, of whole batches. Gives how many events.
fn check_beginning(folder: &Path) -> u64 {
    let store = support::open(folder);
    let marks: Vec<Mark> =
        all_events(&store).iter().map(|event| event.body.read().expect("a mark")).collect();
    let batches = marks.len() as u64 / 3;
    let whole = (0..batches).flat_map(|batch| (0..3).map(move |index| Mark { batch, index, of: 3 }));
    assert_eq!(marks, whole.collect::<Vec<_>>());
    store.append(batch(batches, 1)).wait().expect("it takes writes");
    drop(store);
    check_file(folder).expect("the file is sound");
    batches * 3
}

#[test]
fn a_log_that_is_cut_off_is_read_up_to_its_last_whole_batch() {
    let temp = Temp::new();
    let bytes = copy_with_log(&temp);
    let mut lefts = Vec::new();
    for cut in (0..=bytes).rev().step_by(5_003) {
        let folder = temp.join(&format!("cut-{cut}"));
        copy_database(&temp.join("copy"), &folder);
        let log = fs::File::options().write(true).open(folder.join("berth.db-wal")).expect("a log");
        log.set_len(cut).expect("it is cut");
        lefts.push(check_beginning(&folder));
    }
    assert_eq!(lefts[0], 60, "nothing was cut off");
    assert!(lefts.is_sorted_by(|more, less| more >= less) && lefts.last() == Some(&0), "{lefts:?}");
}

#[test]
fn a_log_whose_last_page_is_torn_is_read_up_to_the_batch_before() {
    let temp = Temp::new();
    let bytes = copy_with_log(&temp);
    for torn in [1, 100, 512, 2_048, 4_096, 4_119] {
        let folder = temp.join(&format!("torn-{torn}"));
        copy_database(&temp.join("copy"), &folder);
        let path = folder.join("berth.db-wal");
        let mut log = fs::read(&path).expect("a log");
        let end = bytes as usize;
        log[end - torn..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
        fs::write(&path, log).expect("it is torn");
        assert_eq!(check_beginning(&folder), 57, "{torn} bytes torn");
    }
}
