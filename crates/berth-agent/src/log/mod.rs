//! Logs of tasks: files named by where in the whole output they begin.
//!
//! ```text
//! log-000000000000   bytes 0..1048590 of the output
//! log-000001048590   what follows; the last one grows
//! ```
//!
//! A position in the output stays what it is when old files go, so a reader can go on where it was.

mod reader;
mod shelf;
mod writer;

pub use reader::{LogChunk, LogReader, LogStart};
pub(crate) use shelf::{keep_logs, trim};
pub(crate) use writer::LogWriter;

use rustix::fs::OFlags;
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// A file of a log, and the position at which it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) path: PathBuf,
}

/// The files of the log in a folder, oldest first; none when a link is in its place.
pub(crate) fn pieces(folder: &Path) -> Vec<Piece> {
    if !folder.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return Vec::new();
    }
    let piece = |name: String| {
        let start = name.strip_prefix("log-")?.parse().ok()?;
        Some(Piece { start, path: folder.join(name) })
    };
    let mut pieces: Vec<Piece> = crate::folder::names(folder).into_iter().filter_map(piece).collect();
    pieces.sort_by_key(|piece| piece.start);
    pieces
}

/// How much was ever written to the log in a folder.
#[cfg(feature = "docker")]
pub(crate) fn length(folder: &Path) -> u64 {
    let last = pieces(folder).pop();
    last.map_or(0, |piece| piece.start + std::fs::metadata(&piece.path).map_or(0, |file| file.len()))
}

/// Opens a file of a log, and never what a link in its place leads to.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)
}

pub(crate) fn piece_name(start: u64) -> String {
    format!("log-{start:012}")
}
