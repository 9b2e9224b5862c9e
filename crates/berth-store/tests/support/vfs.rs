//! A file layer for SQLite that counts, fails and crashes. The system's layer does the work; this one stands in front of it and
//! asks the [`Disk`] what is to happen to each write, sync and truncation.
#![allow(unsafe_code)]

use super::disk::{Disk, Verdict};
use rusqlite::ffi::{
    SQLITE_IOERR_FSYNC, SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE, SQLITE_OK, SQLITE_OPEN_MAIN_DB,
    SQLITE_OPEN_MAIN_JOURNAL, SQLITE_OPEN_WAL, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs,
    sqlite3_vfs_find, sqlite3_vfs_register, sqlite3_vfs_unregister,
};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A registered file layer; it is unregistered when this is dropped, which must be after its last connection.
pub struct Vfs {
    name: String,
    disk: Arc<Disk>,
    raw: *mut sqlite3_vfs,
    raw_name: *mut c_char,
}

impl Vfs {
    /// Registers a new layer with a disk of its own.
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("faulty-{}", COUNT.fetch_add(1, Relaxed));
        let disk = Arc::new(Disk::default());
        let raw_name = CString::new(name.as_str()).expect("no NUL inside").into_raw();
        // SAFETY: a null name asks for the default layer, which lives as long as the process. The copy of it is ours, and
        // stays where it is, with its name and its disk, until `drop` has unregistered it.
        let raw = unsafe {
            let real = sqlite3_vfs_find(ptr::null());
            assert!(!real.is_null(), "SQLite has a default file layer");
            let mut vfs: sqlite3_vfs = *real;
            vfs.zName = raw_name;
            vfs.pNext = ptr::null_mut();
            vfs.szOsFile += size_of::<File>() as c_int;
            vfs.pAppData = Arc::into_raw(Arc::clone(&disk)).cast_mut().cast();
            vfs.xOpen = Some(open);
            vfs.xDelete = Some(delete);
            let raw = Box::into_raw(Box::new(vfs));
            assert_eq!(sqlite3_vfs_register(raw, 0), SQLITE_OK);
            raw
        };
        Self { name, disk, raw, raw_name }
    }

    pub fn name(&self) -> String {
        self.name.clone()
    }

    pub fn disk(&self) -> &Disk {
        &self.disk
    }
}

impl Drop for Vfs {
    fn drop(&mut self) {
        // SAFETY: all three were made by `new` from the matching `into_raw`, and no connection uses the layer any more.
        unsafe {
            sqlite3_vfs_unregister(self.raw);
            drop(Arc::from_raw((*self.raw).pAppData.cast::<Disk>().cast_const()));
            drop(Box::from_raw(self.raw));
            drop(CString::from_raw(self.raw_name));
        }
    }
}

/// What SQLite hands to each callback. The system's own file lies directly behind it, in the same piece of memory.
#[repr(C)]
struct File {
    base: sqlite3_file,
    disk: *const Disk,
    /// A boxed path; null for a file that nobody looks at after a crash.
    path: *mut String,
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    // Version 2 has shared memory, and no memory mapping around our back.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// The system's file behind ours.
///
/// SAFETY: `file` must be one that `open` was given, so that the memory behind it belongs to the system's layer.
unsafe fn real(file: *mut sqlite3_file) -> *mut sqlite3_file {
    unsafe { file.cast::<File>().add(1).cast() }
}

/// Calls a method of the system's file with its arguments.
macro_rules! forward {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        // SAFETY: SQLite calls this with an open file of ours; the system's file behind it is open too and has the method,
        // because its version is at least 2. The arguments are passed on as they came.
        unsafe {
            let real = real($file);
            ((*(*real).pMethods).$method.expect("the system's layer has every method"))(real $(, $argument)*)
        }
    }};
}

/// What the disk says about an operation on a file; everything goes well with files nobody looks at.
macro_rules! ask {
    ($file:expr, |$disk:ident, $path:ident| $question:expr) => {{
        // SAFETY: SQLite calls this with an open file of ours, whose disk and path live until it is closed.
        let file = unsafe { &*$file.cast::<File>() };
        if file.path.is_null() {
            Verdict::Done
        } else {
            // SAFETY: as above, and it is not null.
            let ($disk, $path) = unsafe { (&*file.disk, (*file.path).as_str()) };
            $question
        }
    }};
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives memory of `szOsFile` bytes, which is ours and the system's together, and a name that is null or
    // ends with NUL.
    unsafe {
        let own = file.cast::<File>();
        (*own).base.pMethods = ptr::null();
        (*own).disk = (*vfs).pAppData.cast::<Disk>().cast_const();
        (*own).path = ptr::null_mut();
        let default = sqlite3_vfs_find(ptr::null());
        let opened =
            ((*default).xOpen.expect("every layer can open"))(default, name, real(file), flags, out_flags);
        if opened != SQLITE_OK {
            return opened;
        }
        let is_watched = flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL) != 0;
        if is_watched && !name.is_null() {
            let path = CStr::from_ptr(name).to_string_lossy().into_owned();
            (*(*own).disk).on_open(&path);
            (*own).path = Box::into_raw(Box::new(path));
        }
        (*own).base.pMethods = &METHODS;
        SQLITE_OK
    }
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync_folder: c_int) -> c_int {
    // SAFETY: SQLite gives a name that ends with NUL, and the layer it belongs to.
    unsafe {
        let disk = &*(*vfs).pAppData.cast::<Disk>();
        if !disk.on_delete(&CStr::from_ptr(name).to_string_lossy()) {
            return SQLITE_IOERR_WRITE;
        }
        let default = sqlite3_vfs_find(ptr::null());
        ((*default).xDelete.expect("every layer can delete"))(default, name, sync_folder)
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    let closed = forward!(file, xClose);
    // SAFETY: SQLite closes a file once; the path was boxed by `open`.
    unsafe {
        let own = file.cast::<File>();
        if !(*own).path.is_null() {
            drop(Box::from_raw((*own).path));
        }
    }
    closed
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    count: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite gives `count` bytes that can be read.
    let content = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), count as usize) };
    match ask!(file, |disk, path| disk.on_write(path, offset as usize, content)) {
        Verdict::Done => forward!(file, xWrite, bytes, count, offset),
        Verdict::DoneButFailed => {
            forward!(file, xWrite, bytes, count, offset);
            SQLITE_IOERR_WRITE
        }
        Verdict::Short(code) => {
            forward!(file, xWrite, bytes, count / 2, offset);
            code
        }
        Verdict::Failed => SQLITE_IOERR_WRITE,
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    match ask!(file, |disk, path| disk.on_truncate(path, size as usize)) {
        Verdict::Done => forward!(file, xTruncate, size),
        _ => SQLITE_IOERR_TRUNCATE,
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    // The disk keeps what is durable itself. Syncing for real would only take time.
    match ask!(file, |disk, path| disk.on_sync(path)) {
        Verdict::Done => SQLITE_OK,
        _ => SQLITE_IOERR_FSYNC,
    }
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    into: *mut c_void,
    count: c_int,
    offset: sqlite3_int64,
) -> c_int {
    forward!(file, xRead, into, count, offset)
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut sqlite3_int64) -> c_int {
    forward!(file, xFileSize, size)
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    forward!(file, xLock, level)
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    forward!(file, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, is_locked: *mut c_int) -> c_int {
    forward!(file, xCheckReservedLock, is_locked)
}

unsafe extern "C" fn file_control(file: *mut sqlite3_file, operation: c_int, argument: *mut c_void) -> c_int {
    forward!(file, xFileControl, operation, argument)
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    forward!(file, xSectorSize)
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    forward!(file, xDeviceCharacteristics)
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    page: c_int,
    page_bytes: c_int,
    extend: c_int,
    mapped: *mut *mut c_void,
) -> c_int {
    forward!(file, xShmMap, page, page_bytes, extend, mapped)
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, offset: c_int, count: c_int, flags: c_int) -> c_int {
    forward!(file, xShmLock, offset, count, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    forward!(file, xShmBarrier)
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    forward!(file, xShmUnmap, delete)
}
