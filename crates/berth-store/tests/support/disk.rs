//! What is on a disk, and what will be on it after the power went: a model that the faulty file layer asks.

use super::random::Random;
use rusqlite::ffi::SQLITE_FULL;
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What goes wrong at one operation, counted from zero. Writes, syncs and truncations count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is reported to have failed, once. A write was made all the same: nobody promised that it was not.
    Fails,
    /// This write and some after it find no room.
    Full,
    /// The power goes: nothing works after it.
    Crash(Remains),
}

/// What is on the disk after a crash, of what was written and not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remains {
    /// Nothing.
    Nothing,
    /// Everything, and half of the write in which the crash fell.
    AllAndHalf,
    /// Any sectors, in any order.
    AnySectors(u64),
}

/// What is to happen to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Done,
    DoneButFailed,
    /// Half of it is done, and it is reported with this code.
    Short(i32),
    Failed,
}

/// How many writes in a row find no room.
const FULL_WRITES: u64 = 7;
const SECTOR_BYTES: usize = 512;

#[derive(Default)]
pub struct Disk {
    state: Mutex<State>,
    #[allow(clippy::type_complexity)]
    before_sync: Mutex<Option<Box<dyn Fn() + Send>>>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Image>,
    operations: u64,
    syncs: u64,
    fault: Option<(u64, Fault)>,
    is_crashed: bool,
}

#[derive(Default)]
struct Image {
    durable: Vec<u8>,
    /// Since the last sync, in order.
    pending: Vec<Operation>,
}

enum Operation {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

impl Disk {
    /// Lets something go wrong at an operation.
    pub fn inject(&self, at: u64, fault: Fault) {
        self.lock().fault = Some((at, fault));
    }

    /// Nothing goes wrong any more, unless the power is gone.
    pub fn mend(&self) {
        self.lock().fault = None;
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    pub fn is_crashed(&self) -> bool {
        self.lock().is_crashed
    }

    /// Runs before each sync, which takes as long as this does.
    pub fn before_sync(&self, run: impl Fn() + Send + 'static) {
        *self.before_sync.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(run));
    }

    /// Writes what is left after a crash into another folder.
    pub fn write_remains(&self, folder: &Path) {
        fs::create_dir_all(folder).expect("a folder");
        let state = self.lock();
        let Some((_, Fault::Crash(remains))) = state.fault else { panic!("no crash was injected") };
        for (path, image) in &state.files {
            let name = Path::new(path).file_name().expect("a file has a name");
            fs::write(folder.join(name), image.after_crash(remains)).expect("a file");
        }
    }

    pub fn on_open(&self, path: &str) {
        let mut state = self.lock();
        if !state.files.contains_key(path) {
            let durable = fs::read(path).unwrap_or_default();
            state.files.insert(path.to_owned(), Image { durable, pending: Vec::new() });
        }
    }

    /// Whether the file may be deleted. A deletion is taken to be durable at once.
    pub fn on_delete(&self, path: &str) -> bool {
        let mut state = self.lock();
        if !state.is_crashed {
            state.files.remove(path);
        }
        !state.is_crashed
    }

    pub fn on_write(&self, path: &str, offset: usize, content: &[u8]) -> Verdict {
        let mut state = self.lock();
        let verdict = state.judge(true);
        let written = match verdict {
            Verdict::Done | Verdict::DoneButFailed => content,
            Verdict::Short(_) => &content[..content.len() / 2],
            Verdict::Failed => return verdict,
        };
        state.image(path).pending.push(Operation::Write(offset, written.to_vec()));
        verdict
    }

    pub fn on_truncate(&self, path: &str, size: usize) -> Verdict {
        let mut state = self.lock();
        let verdict = state.judge(false);
        if verdict == Verdict::Done {
            state.image(path).pending.push(Operation::Truncate(size));
        }
        verdict
    }

    pub fn on_sync(&self, path: &str) -> Verdict {
        if let Some(run) = &*self.before_sync.lock().unwrap_or_else(PoisonError::into_inner) {
            run();
        }
        let mut state = self.lock();
        let verdict = state.judge(false);
        state.syncs += 1;
        if verdict == Verdict::Done {
            state.image(path).sync();
        }
        verdict
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn image(&mut self, path: &str) -> &mut Image {
        self.files.entry(path.to_owned()).or_default()
    }

    fn judge(&mut self, is_write: bool) -> Verdict {
        let number = self.operations;
        self.operations += 1;
        if self.is_crashed {
            return Verdict::Failed;
        }
        match self.fault {
            Some((at, Fault::Fails)) if at == number => match is_write {
                true => Verdict::DoneButFailed,
                false => Verdict::Failed,
            },
            Some((at, Fault::Full)) if is_write && (at..at + FULL_WRITES).contains(&number) => {
                Verdict::Short(SQLITE_FULL)
            }
            Some((at, Fault::Crash(remains))) if at == number => {
                self.is_crashed = true;
                match remains {
                    Remains::AllAndHalf if is_write => Verdict::Short(rusqlite::ffi::SQLITE_IOERR_WRITE),
                    _ => Verdict::Failed,
                }
            }
            _ => Verdict::Done,
        }
    }
}

impl Image {
    fn sync(&mut self) {
        for operation in std::mem::take(&mut self.pending) {
            operation.apply(&mut self.durable);
        }
    }

    fn after_crash(&self, remains: Remains) -> Vec<u8> {
        let mut content = self.durable.clone();
        match remains {
            Remains::Nothing => {}
            Remains::AllAndHalf => self.pending.iter().for_each(|operation| operation.apply(&mut content)),
            Remains::AnySectors(seed) => {
                let mut random = Random(seed);
                for operation in &self.pending {
                    operation.apply_sectors(&mut content, &mut random);
                }
            }
        }
        content
    }
}

impl Operation {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write(offset, bytes) => put(content, *offset, bytes),
            Self::Truncate(size) => content.resize(*size, 0),
        }
    }

    fn apply_sectors(&self, content: &mut Vec<u8>, random: &mut Random) {
        match self {
            Self::Truncate(_) if random.chance(50) => self.apply(content),
            Self::Truncate(_) => {}
            Self::Write(offset, bytes) => {
                let (mut at, mut rest) = (*offset, &bytes[..]);
                while !rest.is_empty() {
                    let count = (SECTOR_BYTES - at % SECTOR_BYTES).min(rest.len());
                    if random.chance(50) {
                        put(content, at, &rest[..count]);
                    }
                    (at, rest) = (at + count, &rest[count..]);
                }
            }
        }
    }
}

fn put(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}
