//! Keeps logs of what has ended, up to a bound.

use super::pieces;
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Moves the logs of a task to where they are kept.
pub(crate) fn keep_logs(from: &Path, to: &Path) -> io::Result<()> {
    let pieces = pieces(from);
    if pieces.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for piece in pieces {
        fs::rename(&piece.path, to.join(piece.path.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// Removes the oldest files of the logs in these folders until all of them together are within the bound.
pub(crate) fn trim(folders: &[PathBuf], bytes_max: u64) {
    let files = folders.iter().flat_map(|folder| pieces(folder)).filter_map(|piece| {
        let metadata = fs::metadata(&piece.path).ok()?;
        Some((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), piece.start, piece.path, metadata.len()))
    });
    let mut files: Vec<_> = files.collect();
    files.sort();
    let mut total: u64 = files.iter().map(|(_, _, _, size)| size).sum();
    for (_, _, path, size) in files {
        if total <= bytes_max {
            return;
        }
        if fs::remove_file(&path).is_ok() {
            total -= size;
            // The folder of a forgotten task goes with its last file.
            let _ = path.parent().map(fs::remove_dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{log::LogWriter, scratch::Scratch};

    #[test]
    fn the_oldest_logs_go_first_and_the_rest_fits() {
        let scratch = Scratch::new();
        let mut folders = Vec::new();
        for task in 0..4 {
            let folder = scratch.path().join(task.to_string());
            fs::create_dir(&folder).unwrap();
            LogWriter::open(&folder, 1000, 3).unwrap().write(&[b'a'; 100]).unwrap();
            let then = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 + task);
            fs::File::options()
                .append(true)
                .open(&pieces(&folder)[0].path)
                .unwrap()
                .set_modified(then)
                .unwrap();
            folders.push(folder);
        }
        trim(&folders, 250);
        let left: Vec<bool> = folders.iter().map(|folder| folder.exists()).collect();
        assert_eq!(left, [false, false, true, true]);
    }
}
