//! Writes a log, with a bound on its size.

use super::{open, piece_name, pieces};
use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// A line below this size is never split over two files.
pub(crate) const WHOLE_LINE_BYTES_MAX: u64 = 64 << 10;

/// Appends to the log in a folder. Owned by one process at a time.
#[derive(Debug)]
pub(crate) struct LogWriter {
    folder: PathBuf,
    file: File,
    /// Where in the whole output the file begins.
    start: u64,
    /// Bytes in the file.
    size: u64,
    /// Bytes since the last end of a line.
    line: u64,
    file_bytes_max: u64,
    files_max: usize,
}

impl LogWriter {
    pub(crate) fn open(folder: &Path, file_bytes_max: u64, files_max: u32) -> io::Result<Self> {
        let start = pieces(folder).last().map_or(0, |piece| piece.start);
        let file = create(folder, start)?;
        let size = file.metadata()?.len();
        let files_max = files_max.max(1) as usize;
        Ok(Self { folder: folder.to_owned(), file, start, size, line: 0, file_bytes_max, files_max })
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let over = self.size + bytes.len() as u64 > self.file_bytes_max;
            if !over {
                return self.append(bytes);
            }
            if self.line == 0 && self.size > 0 && self.size >= self.file_bytes_max {
                self.rotate()?;
                continue;
            }
            // Up to the end of the line that passes the bound, or as much of it as a file may take beyond the bound.
            let room = self.file_bytes_max.saturating_sub(self.size) as usize;
            let rest = &bytes[room.min(bytes.len())..];
            let to_line_end = rest.iter().position(|byte| *byte == b'\n').map(|index| room + index + 1);
            let line_room = (WHOLE_LINE_BYTES_MAX.saturating_sub(self.line) as usize).max(room);
            let take = to_line_end.unwrap_or(bytes.len()).min(line_room).min(bytes.len());
            self.append(&bytes[..take])?;
            bytes = &bytes[take..];
            if self.size >= self.file_bytes_max && (self.line == 0 || self.line >= WHOLE_LINE_BYTES_MAX) {
                self.rotate()?;
            }
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.size += bytes.len() as u64;
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(index) => self.line = (bytes.len() - index - 1) as u64,
            None => self.line += bytes.len() as u64,
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.start += self.size;
        self.file = create(&self.folder, self.start)?;
        (self.size, self.line) = (0, 0);
        let pieces = pieces(&self.folder);
        for piece in pieces.iter().take(pieces.len().saturating_sub(self.files_max)) {
            fs::remove_file(&piece.path)?;
        }
        Ok(())
    }
}

fn create(folder: &Path, start: u64) -> io::Result<File> {
    let path = folder.join(piece_name(start));
    open(&path, File::options().append(true).create(true).mode(0o600))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn files(folder: &Path) -> Vec<(u64, Vec<u8>)> {
        pieces(folder).into_iter().map(|piece| (piece.start, fs::read(piece.path).unwrap())).collect()
    }

    #[test]
    fn a_log_is_rotated_at_ends_of_lines_and_keeps_positions() {
        let scratch = Scratch::new();
        let mut writer = LogWriter::open(scratch.path(), 100, 3).unwrap();
        let mut all = Vec::new();
        for number in 0..200 {
            let line = format!("line {number} {}\n", "x".repeat(number % 30));
            all.extend_from_slice(line.as_bytes());
            // Written in odd pieces, as a pipe gives them.
            for part in line.as_bytes().chunks(7) {
                writer.write(part).unwrap();
            }
        }
        let files = files(scratch.path());
        assert_eq!(files.len(), 3);
        for (start, content) in &files {
            assert_eq!(
                content[..],
                all[*start as usize..][..content.len()],
                "positions are those of the whole output"
            );
            assert!(content.len() < 100 + 60);
            assert!(content.is_empty() || content.starts_with(b"line "), "no line is cut");
        }
    }

    #[test]
    fn lines_without_an_end_do_not_grow_a_file_without_bound() {
        let scratch = Scratch::new();
        let mut writer = LogWriter::open(scratch.path(), 1000, 4).unwrap();
        for _ in 0..20 {
            writer.write(&vec![0xff; 1 << 20]).unwrap();
        }
        let files = files(scratch.path());
        assert!(files.len() <= 4);
        for (_, content) in &files {
            assert!(content.len() as u64 <= 1000 + WHOLE_LINE_BYTES_MAX);
        }
        let (last, content) = files.last().unwrap();
        assert_eq!(last + content.len() as u64, 20 << 20);
    }

    #[test]
    fn a_line_that_ends_just_below_the_bound_of_lines_is_whole() {
        let scratch = Scratch::new();
        let mut writer = LogWriter::open(scratch.path(), 1000, 4).unwrap();
        writer.write(b"first\n").unwrap();
        let mut line = vec![b'y'; WHOLE_LINE_BYTES_MAX as usize - 1];
        line.push(b'\n');
        for part in line.chunks(4096) {
            writer.write(part).unwrap();
        }
        writer.write(b"last\n").unwrap();
        let whole = files(scratch.path())
            .into_iter()
            .any(|(_, content)| content.windows(line.len()).any(|window| window == line));
        assert!(whole);
    }
}
