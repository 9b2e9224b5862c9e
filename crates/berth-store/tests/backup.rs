//! Backups, restores, and who may open a folder.
#![allow(missing_docs)]

mod support;

use berth_store::{Manifest, Settings, Store, StoreError, read_manifest, restore};
use sha2::{Digest, Sha256};
use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};
use support::{Mark, Temp, all_events, batch, check_file, finished, open};

fn with_backup(temp: &Temp) -> std::path::PathBuf {
    let store = open(&temp.join("store"));
    for number in 0..10 {
        let mut batch = batch(number, 3);
        batch.finished = vec![finished(number, number)];
        store.append(batch).wait().expect("it is written");
    }
    let path = temp.join("backup");
    let manifest = store.backup(&path).expect("a backup");
    assert_eq!((manifest.last_seq, manifest.schema), (30, 2));
    assert_eq!(read_manifest(&path).expect("a manifest"), manifest);
    path
}

/// Tries to restore, and makes sure that nothing came of it. Gives the error's text.
fn refused(temp: &Temp, backup: &Path) -> String {
    let folder = temp.join("refused");
    let error = restore(backup, &folder).expect_err("it is not a whole backup");
    assert!(!folder.exists(), "nothing is half done");
    error.to_string()
}

#[test]
fn a_backup_restores_to_the_same_store() {
    let temp = Temp::new();
    let backup = with_backup(&temp);
    let restored = temp.join("restored");
    assert_eq!(restore(&backup, &restored).expect("it is whole").last_seq, 30);
    let (first, second) = (open(&temp.join("store")), open(&restored));
    assert_eq!(all_events(&first), all_events(&second));
    let list = |store: &Store| store.load_finished_page(&Default::default(), None, 100).expect("a page");
    assert_eq!(list(&first), list(&second));
    second.append(batch(10, 1)).wait().expect("it takes writes");
    drop(second);
    check_file(&restored).expect("the file is sound");
    let plain = rusqlite::Connection::open(&backup).expect("any tool can open it");
    let count: i64 = plain.query_row("SELECT count(*) FROM event", [], |row| row.get(0)).expect("a count");
    assert_eq!(count, 30);
}

#[test]
fn a_backup_under_load_is_a_beginning_of_the_log_in_whole_batches() {
    let temp = Temp::new();
    let store = open(&temp.join("store"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(SeqCst) {
                store.append(batch(number, 3)).wait().expect("it is written");
                number += 1;
            }
            number
        });
        let mut last = 0;
        for copy in 0..5 {
            // Each backup comes after more appends than the last.
            while store.load_sizes().expect("sizes").last_seq <= last {
                std::thread::yield_now();
            }
            let (backup, folder) = (temp.join(&format!("b{copy}")), temp.join(&format!("r{copy}")));
            let manifest = store.backup(&backup).expect("a backup");
            assert!(manifest.last_seq > last);
            last = manifest.last_seq;
            restore(&backup, &folder).expect("it is whole");
            let restored = open(&folder);
            let marks: Vec<Mark> =
                all_events(&restored).iter().map(|event| event.body.read().expect("a mark")).collect();
            let whole = (0..last / 3).flat_map(|batch| (0..3).map(move |index| Mark { batch, index, of: 3 }));
            assert_eq!(marks, whole.collect::<Vec<_>>());
        }
        is_over.store(true, SeqCst);
        assert!(appending.join().expect("it does not panic") * 3 >= last);
    });
}

#[test]
fn a_backup_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let temp = Temp::new();
    let backup = with_backup(&temp);
    assert_eq!(fs::metadata(&backup).expect("a backup").permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_backup_overwrites_nothing_and_neither_does_a_restore() {
    let temp = Temp::new();
    let backup = with_backup(&temp);
    let before = fs::read(&backup).expect("a backup");
    let store = open(&temp.join("store"));
    let error = store.backup(&backup).expect_err("it is there already");
    assert!(matches!(error, StoreError::InTheWay { .. }), "{error:?}");
    drop(store);
    assert_eq!(fs::read(&backup).expect("a backup"), before);
    let error = restore(&backup, &temp.join("store")).expect_err("there is a store");
    assert!(matches!(error, StoreError::InTheWay { .. }), "{error:?}");
    assert_eq!(all_events(&open(&temp.join("store"))).len(), 30);
    let names: Vec<_> = fs::read_dir(temp.join("store")).expect("a folder").flatten().collect();
    assert!(names.iter().all(|entry| !entry.file_name().to_string_lossy().contains("restoring")));
}

#[test]
fn a_backup_that_was_cut_off_changed_or_never_one_is_refused() {
    let temp = Temp::new();
    let backup = with_backup(&temp);
    let whole = fs::read(&backup).expect("a backup");
    let bad = temp.join("bad");
    let text_of = |content: &[u8]| {
        fs::write(&bad, content).expect("a file");
        refused(&temp, &bad)
    };
    for cut in [1, 2, 100, 300, 5_000, whole.len() - 1, whole.len()] {
        let text = text_of(&whole[..whole.len() - cut]);
        assert!(text.contains("is not a whole backup of berth: it"), "{cut} bytes cut off: {text}");
    }
    for position in [0, 30, 4_096, whole.len() / 2] {
        let mut changed = whole.clone();
        changed[position] ^= 1;
        assert!(text_of(&changed).contains("its checksum is not"), "byte {position}");
    }
    // A page from the middle is gone, and the end is there.
    let shorter = [&whole[..4_096], &whole[8_192..]].concat();
    assert!(text_of(&shorter).contains("another size"));
    assert!(text_of(b"hello\n").contains("not a manifest"));
    assert!(text_of(b"").contains("does not end with its manifest"));
    assert!(refused(&temp, &temp.join("nowhere")).contains("reading"));
}

#[test]
fn a_store_of_a_later_version_is_refused_and_so_is_its_backup() {
    let temp = Temp::new();
    let folder = temp.join("store");
    drop(open(&folder));
    let connection = rusqlite::Connection::open(folder.join("berth.db")).expect("the file");
    connection
        .execute_batch("PRAGMA user_version = 99; UPDATE meta SET value = '7.3.0' WHERE key = 'berth';")
        .expect("a later version");
    drop(connection);
    let text = Store::open(&folder, &Settings::default()).expect_err("it is newer").to_string();
    assert!(
        text.contains("schema 99 of berth 7.3.0") && text.ends_with("use berth 7.3.0 or later"),
        "{text}"
    );
    let database = fs::read(folder.join("berth.db")).expect("the file");
    let manifest = Manifest {
        berth_backup: 1,
        berth: "7.3.0".into(),
        schema: 99,
        last_seq: 0,
        bytes: database.len() as u64,
        sha256: Sha256::digest(&database).iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    let line = format!("\n{}\n", serde_json::to_string(&manifest).expect("JSON"));
    let backup = temp.join("backup");
    fs::write(&backup, [&database[..], line.as_bytes()].concat()).expect("a file");
    assert_eq!(refused(&temp, &backup), text);
}

#[test]
fn a_file_that_is_not_ours_is_refused_and_left_alone() {
    let temp = Temp::new();
    let folder = temp.join("store");
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("berth.db");
    let text = || Store::open(&folder, &Settings::default()).expect_err("it is not ours").to_string();
    fs::write(&path, "a letter to somebody, long enough to be mistaken for a header of a file".repeat(20))
        .expect("a file");
    let before = fs::read(&path).expect("a file");
    assert!(text().contains("it is not an SQLite file"));
    assert_eq!(fs::read(&path).expect("a file"), before);
    fs::remove_file(&path).expect("it was there");
    let connection = rusqlite::Connection::open(&path).expect("a database");
    connection.execute_batch("CREATE TABLE somebody (x)").expect("a table");
    drop(connection);
    let before = fs::read(&path).expect("a file");
    assert!(text().contains("its application id is 0x0"));
    assert_eq!(fs::read(&path).expect("a file"), before);
}

#[test]
fn a_folder_has_one_user_at_a_time() {
    let temp = Temp::new();
    let folder = temp.join("store");
    let store = open(&folder);
    let error = Store::open(&folder, &Settings::default()).expect_err("it is in use");
    let text = error.to_string();
    assert!(matches!(&error, StoreError::Locked { .. }), "{error:?}");
    assert!(text.contains(&format!("in use by the process {}", std::process::id())), "{text}");
    drop(store);
    open(&folder);
}

#[test]
fn a_restore_that_was_not_finished_is_neither_used_nor_in_the_way() {
    let temp = Temp::new();
    let backup = with_backup(&temp);
    let folder = temp.join("restored");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("berth.db.restoring"), "half").expect("a file");
    let error = Store::open(&folder, &Settings::default()).expect_err("it is half restored");
    assert!(matches!(error, StoreError::HalfRestored { .. }), "{error:?}");
    restore(&backup, &folder).expect("again");
    assert_eq!(all_events(&open(&folder)).len(), 30);
}
