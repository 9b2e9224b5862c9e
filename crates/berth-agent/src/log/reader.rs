//! Reads a log while it is written.

use super::{Piece, open, pieces};
use crate::watch;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify,
};
use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

const READ_BYTES_MAX: usize = 64 << 10;
/// How often more is looked for where nothing can be watched.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// From where to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStart {
    /// From a position in the whole output; what is gone is skipped.
    Offset(u64),
    /// The last so many lines.
    Lines(u64),
}

/// A part of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChunk {
    /// Where in the whole output it begins.
    pub offset: u64,
    /// The bytes, as the task wrote them.
    pub bytes: Vec<u8>,
}

/// Reads the log of one task; goes on over rotated files, and can wait for more without asking again and again.
///
/// ```text
/// loop { let ended = reader.is_ended();      // asked before the last read, see there
///        while let Some(chunk) = reader.read()? { show(chunk) }
///        if ended { break }
///        reader.wait(...)?  }
/// ```
#[derive(Debug)]
pub struct LogReader {
    /// Where the task writes, and where its log is kept when it is over: it moves from one to the other, file by file.
    folders: [PathBuf; 2],
    watch: OwnedFd,
    position: u64,
    open: Option<(u64, File)>,
}

impl LogReader {
    pub(crate) fn open(running: &Path, kept: &Path, start: LogStart) -> io::Result<Self> {
        let what = inotify::WatchFlags::MODIFY
            | inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::DELETE_SELF;
        let watch = watch::watch(&[running, kept], what, LOOK_EVERY)?;
        let folders = [running.to_owned(), kept.to_owned()];
        let position = match start {
            LogStart::Offset(offset) => offset,
            LogStart::Lines(lines) => start_of_last_lines(&folders, lines)?,
        };
        Ok(Self { folders, watch, position, open: None })
    }

    /// The next part, or none when everything written so far was read. It never waits.
    pub fn read(&mut self) -> io::Result<Option<LogChunk>> {
        loop {
            if let Some((start, file)) = &mut self.open {
                let start = *start;
                file.seek(SeekFrom::Start(self.position.saturating_sub(start)))?;
                let mut bytes = vec![0; READ_BYTES_MAX];
                let count = file.read(&mut bytes)?;
                if count > 0 {
                    bytes.truncate(count);
                    let chunk = LogChunk { offset: self.position.max(start), bytes };
                    self.position = chunk.offset + count as u64;
                    return Ok(Some(chunk));
                }
                // A file is complete once there is one that begins after it; until then it may grow.
                let Some(next) = all_pieces(&self.folders).into_iter().find(|piece| piece.start > start)
                else {
                    return Ok(None);
                };
                if file.metadata()?.len() > self.position.saturating_sub(start) {
                    continue;
                }
                self.position = self.position.max(next.start);
                self.open = None;
            }
            let pieces = all_pieces(&self.folders);
            let at = pieces.iter().rev().find(|piece| piece.start <= self.position).or(pieces.first());
            let Some(piece) = at else { return Ok(None) };
            match open(&piece.path, File::options().read(true)) {
                Ok(file) => {
                    self.position = self.position.max(piece.start);
                    self.open = Some((piece.start, file));
                }
                // Rotated or moved away between the listing and the opening.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
        }
    }

    /// Where the next part begins.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether the task has ended, so that nothing is written any more. What was written before may still be unread: ask
    /// this first, then read until there is no more, then wait: what happens after this question ends the waiting.
    pub fn is_ended(&self) -> bool {
        watch::clear(&self.watch);
        // A folder that was made a moment ago has nothing in it yet.
        let [running, _] = &self.folders;
        running.join("exit.json").exists() || !running.exists()
    }

    /// Waits until something may have changed, or the time is over; says which.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        let at_most =
            Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
        let mut fds = [PollFd::new(&self.watch, PollFlags::IN)];
        match poll(&mut fds, Some(&at_most)) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// Readable when something may have changed since the last [`LogReader::is_ended`], for callers with a loop of their own.
impl AsFd for LogReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

/// The files of a log that may be about to move: looked for where they come from before where they go.
fn all_pieces([running, kept]: &[PathBuf; 2]) -> Vec<Piece> {
    let mut all = pieces(running);
    let moved = pieces(kept);
    all.retain(|piece| moved.iter().all(|one| one.start != piece.start));
    all.extend(moved);
    all.sort_by_key(|piece| piece.start);
    all
}

/// Reads backwards until enough ends of lines were seen.
fn start_of_last_lines(folders: &[PathBuf; 2], lines: u64) -> io::Result<u64> {
    loop {
        match try_start_of_last_lines(&all_pieces(folders), lines) {
            // Rotated or moved away between the listing and the opening.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            start => return start,
        }
    }
}

fn try_start_of_last_lines(pieces: &[Piece], lines: u64) -> io::Result<u64> {
    let mut seen = 0;
    let mut is_last_byte = true;
    let mut oldest = 0;
    for piece in pieces.iter().rev() {
        let mut file = open(&piece.path, File::options().read(true))?;
        let mut end = file.metadata()?.len();
        if lines == 0 {
            return Ok(piece.start + end);
        }
        oldest = piece.start;
        while end > 0 {
            let start = end.saturating_sub(READ_BYTES_MAX as u64);
            let mut bytes = vec![0; (end - start) as usize];
            file.seek(SeekFrom::Start(start))?;
            file.read_exact(&mut bytes)?;
            for (index, byte) in bytes.iter().enumerate().rev() {
                if *byte == b'\n' && !is_last_byte {
                    seen += 1;
                    if seen == lines {
                        return Ok(piece.start + start + index as u64 + 1);
                    }
                }
                is_last_byte = false;
            }
            end = start;
        }
    }
    Ok(oldest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{log::LogWriter, scratch::Scratch};

    fn rest(reader: &mut LogReader) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(chunk) = reader.read().unwrap() {
            assert_eq!(chunk.offset + chunk.bytes.len() as u64, reader.position());
            all.extend_from_slice(&chunk.bytes);
        }
        all
    }

    #[test]
    fn a_reader_follows_over_rotated_files() {
        let scratch = Scratch::new();
        let mut writer = LogWriter::open(scratch.path(), 50, 100).unwrap();
        let mut reader =
            LogReader::open(scratch.path(), &scratch.path().join("kept"), LogStart::Offset(0)).unwrap();
        let (mut written, mut read) = (Vec::new(), Vec::new());
        for number in 0..100 {
            let line = format!("line {number}\n");
            writer.write(line.as_bytes()).unwrap();
            written.extend_from_slice(line.as_bytes());
            if number % 7 == 0 {
                read.extend(rest(&mut reader));
            }
        }
        read.extend(rest(&mut reader));
        assert_eq!(read, written);
    }

    #[test]
    fn a_log_that_is_being_put_away_is_read_whole() {
        let scratch = Scratch::new();
        let (running, kept) = (scratch.path().join("running"), scratch.path().join("kept"));
        std::fs::create_dir(&running).unwrap();
        let mut writer = LogWriter::open(&running, 50, 100).unwrap();
        for number in 0..20 {
            writer.write(format!("line {number}\n").as_bytes()).unwrap();
        }
        let whole = rest(&mut LogReader::open(&running, &kept, LogStart::Offset(0)).unwrap());
        std::fs::create_dir(&kept).unwrap();
        for piece in pieces(&running) {
            std::fs::rename(&piece.path, kept.join(piece.path.file_name().unwrap())).unwrap();
            let mut reader = LogReader::open(&running, &kept, LogStart::Offset(0)).unwrap();
            assert_eq!(rest(&mut reader), whole);
            let mut last = LogReader::open(&running, &kept, LogStart::Lines(1)).unwrap();
            assert_eq!(rest(&mut last), b"line 19\n");
        }
        std::fs::remove_dir(&running).unwrap();
        assert_eq!(rest(&mut LogReader::open(&running, &kept, LogStart::Offset(0)).unwrap()), whole);
    }

    #[test]
    fn a_reader_skips_what_is_gone() {
        let scratch = Scratch::new();
        let mut writer = LogWriter::open(scratch.path(), 50, 2).unwrap();
        let mut written = Vec::new();
        for number in 0..100 {
            let line = format!("line {number}\n");
            writer.write(line.as_bytes()).unwrap();
            written.extend_from_slice(line.as_bytes());
        }
        let mut reader =
            LogReader::open(scratch.path(), &scratch.path().join("kept"), LogStart::Offset(3)).unwrap();
        let first = reader.read().unwrap().unwrap();
        assert!(first.offset > 3);
        assert!(written[first.offset as usize..].starts_with(&first.bytes));
    }

    #[test]
    fn the_last_lines_are_found_over_several_files() {
        let scratch = Scratch::new();
        let mut writer = LogWriter::open(scratch.path(), 30, 100).unwrap();
        for number in 0..20 {
            writer.write(format!("line {number}\n").as_bytes()).unwrap();
        }
        let last = |lines| {
            let mut reader =
                LogReader::open(scratch.path(), &scratch.path().join("kept"), LogStart::Lines(lines))
                    .unwrap();
            String::from_utf8(rest(&mut reader)).unwrap()
        };
        assert_eq!(last(0), "");
        assert_eq!(last(1), "line 19\n");
        assert_eq!(last(7).lines().next(), Some("line 13"));
        assert_eq!(last(1000).lines().count(), 20);
        writer.write(b"half").unwrap();
        assert_eq!(last(1), "half");
        assert_eq!(last(2), "line 19\nhalf");
    }

    #[test]
    fn a_reader_is_woken_by_a_write() {
        let scratch = Scratch::new();
        let mut writer = LogWriter::open(scratch.path(), 1000, 2).unwrap();
        let mut reader =
            LogReader::open(scratch.path(), &scratch.path().join("kept"), LogStart::Offset(0)).unwrap();
        assert_eq!(reader.read().unwrap(), None);
        assert!(!reader.wait(Duration::ZERO).unwrap());
        writer.write(b"more\n").unwrap();
        assert!(reader.wait(Duration::from_secs(20)).unwrap());
        assert_eq!(rest(&mut reader), b"more\n");
    }

    #[test]
    fn an_end_between_the_question_and_the_last_read_is_not_slept_through() {
        let scratch = Scratch::new();
        LogWriter::open(scratch.path(), 1000, 2).unwrap();
        std::fs::write(scratch.path().join("lock"), "").unwrap();
        let mut reader =
            LogReader::open(scratch.path(), &scratch.path().join("kept"), LogStart::Offset(0)).unwrap();
        assert!(!reader.is_ended());
        std::fs::write(scratch.path().join("exit.json"), "").unwrap();
        assert_eq!(reader.read().unwrap(), None);
        assert!(reader.wait(Duration::from_secs(20)).unwrap());
        assert!(reader.is_ended());
    }

    #[test]
    fn a_task_whose_folder_was_just_made_has_not_ended() {
        let scratch = Scratch::new();
        let (running, kept) = (scratch.path().join("running"), scratch.path().join("kept"));
        std::fs::create_dir(&running).unwrap();
        let reader = LogReader::open(&running, &kept, LogStart::Offset(0)).unwrap();
        assert!(!reader.is_ended());
        std::fs::remove_dir(&running).unwrap();
        assert!(reader.is_ended());
    }
}
