//! Waits for something to happen in a folder.
//!
//! The kernel gives a user 128 watches at most unless somebody raised it, for everything that runs as that user: kubelet and others
//! need some too, and a machine may well have more tasks than that. So only whoever reads a log takes one, and looks every so
//! often where there is none left.

use rustix::{
    fs::inotify,
    io::Errno,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::Duration,
};

/// A descriptor that is readable when something of the kind may have happened in the first of these folders that is there. Without
/// a watch it is readable every so often.
pub(crate) fn watch(
    folders: &[&Path],
    what: inotify::WatchFlags,
    else_every: Duration,
) -> io::Result<OwnedFd> {
    match watched(folders, what) {
        Ok(watch) => Ok(watch),
        // No more watches, or no more folders under one.
        Err(Errno::MFILE | Errno::NOSPC) => ticks(else_every),
        Err(error) => Err(error.into()),
    }
}

fn watched(folders: &[&Path], what: inotify::WatchFlags) -> Result<OwnedFd, Errno> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let mut found = Err(Errno::NOENT);
    for folder in folders {
        found = inotify::add_watch(&watch, *folder, what);
        if matches!(found, Ok(_) | Err(Errno::NOSPC)) {
            break;
        }
    }
    found.map(|_| watch)
}

/// Forgets what has happened so far.
pub(crate) fn clear(watch: impl AsFd) {
    let mut buffer = [0; 4096];
    while rustix::io::read(&watch, &mut buffer).is_ok_and(|count| count > 0) {}
}

/// A descriptor that is readable every so often.
pub(crate) fn ticks(every: Duration) -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    let every = Timespec { tv_sec: every.as_secs() as i64, tv_nsec: every.subsec_nanos().into() };
    let times = Itimerspec { it_interval: every, it_value: every };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
    Ok(timer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use rustix::event::{PollFd, PollFlags, poll};

    fn readable(watch: &OwnedFd, within: Duration) -> bool {
        let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
        poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&within)).unwrap() > 0
    }

    #[test]
    fn a_watch_tells_of_what_happens_and_forgets_what_was_told() {
        let scratch = Scratch::new();
        let (there, gone) = (scratch.path().to_owned(), scratch.path().join("gone"));
        let watch = match watched(&[&gone, &there], inotify::WatchFlags::CREATE) {
            Err(Errno::MFILE | Errno::NOSPC) => {
                eprintln!("NOT TESTED: watches, because this machine has none left");
                return;
            }
            watch => watch.unwrap(),
        };
        assert!(!readable(&watch, Duration::ZERO));
        std::fs::write(there.join("file"), "").unwrap();
        assert!(readable(&watch, Duration::from_secs(20)));
        clear(&watch);
        assert!(!readable(&watch, Duration::ZERO));
        assert_eq!(watched(&[&gone], inotify::WatchFlags::CREATE).unwrap_err(), Errno::NOENT);
    }

    #[test]
    fn who_gets_no_watch_looks_every_so_often() {
        let ticks = ticks(Duration::from_millis(20)).unwrap();
        for _ in 0..3 {
            assert!(readable(&ticks, Duration::from_secs(20)));
            clear(&ticks);
        }
        let never = super::ticks(Duration::from_secs(1000)).unwrap();
        assert!(!readable(&never, Duration::ZERO));
    }
}
