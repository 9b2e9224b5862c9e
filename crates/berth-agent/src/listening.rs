//! Who listens on a port of this machine.
//!
//! Tasks share the network of the machine, so a port that a task declared may be somebody else's. Whoever is led to a task must
//! not arrive at another one.

use crate::{TaskId, environment::MARK, folder};
use std::{collections::BTreeSet, fs, path::Path};

/// Who listens on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listening {
    /// A process of the task.
    Task,
    /// Somebody else, or somebody who cannot be looked at.
    Other,
    /// Nobody.
    Nobody,
}

/// Looks for the sockets on which a port is listened on, and for a process of the task that holds one of them.
pub(crate) fn look(port: u16, mark: &str) -> Listening {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let inodes: BTreeSet<u64> = tables.iter().flat_map(|table| listeners(table, port)).collect();
    if inodes.is_empty() {
        return Listening::Nobody;
    }
    let pids = folder::names(Path::new("/proc")).into_iter().filter_map(|name| name.parse::<u32>().ok());
    let mut of_task = pids.filter(|pid| carries(*pid, mark));
    match of_task.any(|pid| holds(pid, &inodes)) {
        true => Listening::Task,
        false => Listening::Other,
    }
}

/// What a process of a task carries in its environment.
pub(crate) fn entry(mark: &str) -> String {
    format!("{MARK}={mark}")
}

fn carries(pid: u32, entry: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == entry.as_bytes())
}

fn holds(pid: u32, inodes: &BTreeSet<u64>) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let target = fs::read_link(descriptor.path()).unwrap_or_default();
        let inode =
            target.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
        inode.is_some_and(|inode: u64| inodes.contains(&inode))
    })
}

/// The sockets of a table of the kernel that listen on a port: local address, state and inode are its second, fourth and tenth
/// columns.
fn listeners(table: &str, port: u16) -> Vec<u64> {
    const LISTENS: &str = "0A";
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, local) = fields.get(1)?.rsplit_once(':')?;
        let is_meant = u16::from_str_radix(local, 16).ok()? == port && *fields.get(3)? == LISTENS;
        is_meant.then(|| fields.get(9)?.parse().ok()).flatten()
    };
    table.lines().skip(1).filter_map(of_line).collect()
}

/// The mark of a task as it stands in an environment.
pub(crate) fn mark_of(folder: &folder::Folder, id: TaskId) -> String {
    entry(&folder.mark(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn listeners_are_read_from_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:22B8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n\
            1: 0100007F:22B8 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4 30 10 -1\n\
            2: 0100007F:22B9 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0 0 10 0\n";
        assert_eq!(listeners(table, 8888), [4711]);
        assert_eq!(listeners(table, 8890), [0u64; 0]);
        assert_eq!(listeners("", 1), [0u64; 0]);
    }

    #[test]
    fn somebody_elses_port_is_told_apart_from_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        assert_eq!(look(port, "BERTH_TASK=nobody/1.1.0"), Listening::Other);
        drop(listener);
        assert_eq!(look(port, "BERTH_TASK=nobody/1.1.0"), Listening::Nobody);
    }
}
