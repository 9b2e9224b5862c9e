//! What somebody else may reach, as the kernel says.
//!
//! A folder that root mounts for a task is open to it whatever the folders above say. So what a person names is opened with the
//! rights of whoever the task runs as, and what was opened is mounted: between the look and the mount nothing can be put in its
//! place.

use crate::account::Account;
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2},
    io::Errno,
    process::{Gid, Uid},
    thread::{set_thread_gid, set_thread_groups, set_thread_uid},
};
use std::{os::fd::OwnedFd, path::Path};

/// A path without a link in it, as this process may reach it.
pub(crate) fn without_links(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}

/// The same, as somebody else may reach it.
pub(crate) fn as_account(account: &Account, path: &Path) -> rustix::io::Result<OwnedFd> {
    acting_as(account, || without_links(path))
}

/// A file that somebody else may read, opened for reading. A pipe without a writer holds nobody up.
pub(crate) fn read_as_account(account: &Account, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    acting_as(account, || openat2(CWD, path, flags, Mode::empty(), links))
}

/// Whether somebody else may begin in a folder.
pub(crate) fn enter_as_account(account: &Account, folder: &Path) -> rustix::io::Result<()> {
    let inside = folder.join(".");
    acting_as(account, || open(&inside, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map(drop))
}

/// Whether somebody else finds a program that is looked for along a path of folders; one that is named by its own path is there.
pub(crate) fn finds_as_account(account: &Account, path: &str, program: &str) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let mut places = path.split(':').map(|folder| Path::new(folder).join(program));
    program.contains('/')
        || acting_as(account, || Ok(places.any(|place| open(&place, flags, Mode::empty()).is_ok())))
            .unwrap_or(true)
}

/// Whether tasks can be given the rights of a user with this number.
pub(crate) fn can_become(user: u32, group: u32) -> rustix::io::Result<()> {
    in_thread(|| become_account(Uid::from_raw(user), Gid::from_raw(group), &[]))
}

/// Does something with somebody else's rights.
pub(crate) fn acting_as<T: Send>(
    account: &Account,
    act: impl FnOnce() -> rustix::io::Result<T> + Send,
) -> rustix::io::Result<T> {
    let groups: Vec<Gid> = account.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let (user, group) = (Uid::from_raw(account.user), Gid::from_raw(account.group));
    in_thread(move || {
        become_account(user, group, &groups)?;
        act()
    })
}

/// Rights are those of a thread to the kernel: one of its own gives them up for good, and nobody has to take them back.
fn in_thread<T: Send>(act: impl FnOnce() -> rustix::io::Result<T> + Send) -> rustix::io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, act);
        thread.map_err(|_| Errno::AGAIN)?.join().unwrap_or(Err(Errno::AGAIN))
    })
}

/// The user last: whoever is not root may not choose its groups.
pub(crate) fn become_account(user: Uid, group: Gid, groups: &[Gid]) -> rustix::io::Result<()> {
    set_thread_groups(groups)?;
    set_thread_gid(group)?;
    set_thread_uid(user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{account, scratch::Scratch};
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn what_lies_behind_a_closed_folder_is_not_reached_by_somebody_else() {
        if !account::is_root() {
            println!("SKIPPED: acting as somebody else needs root");
            return;
        }
        let scratch = Scratch::new();
        let (closed, open) = (scratch.path().join("closed"), scratch.path().join("open"));
        for folder in [&closed, &open] {
            fs::create_dir_all(folder.join("data")).unwrap();
        }
        for (folder, mode) in [(scratch.path(), 0o755), (&closed, 0o700)] {
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::symlink(&closed, open.join("link")).unwrap();
        let nobody = Account::of(3_999, 3_999).unwrap();
        assert!(as_account(&nobody, &open.join("data")).is_ok());
        assert_eq!(as_account(&nobody, &closed.join("data")).unwrap_err(), Errno::ACCESS);
        assert_eq!(as_account(&nobody, &open.join("link")).unwrap_err(), Errno::LOOP);
        assert!(without_links(&closed.join("data")).is_ok(), "this thread has kept its rights");
        let secret = open.join("secret");
        fs::write(&secret, "x").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_as_account(&nobody, &secret).unwrap_err(), Errno::ACCESS);
    }
}
