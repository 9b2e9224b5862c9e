//! What is typed.

use std::io::Read;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Pieces that may wait for a slow worker.
const WAITING_MAX: usize = 16;
const BUFFER_BYTES: usize = 16 << 10;
/// Ctrl-p and ctrl-q, one after the other, leave a worker's terminal, as those who use containers know.
const LEAVE: [u8; 2] = [0x10, 0x11];

/// Something that was typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    Bytes(Vec<u8>),
    /// The person wants to leave.
    Leave,
    /// Nothing more will be typed.
    End,
}

/// Reads stdin on a thread of its own, which ends with the process: a read that waits for a key cannot be taken back.
pub(super) fn read(can_leave: bool) -> Receiver<Typed> {
    let (sender, receiver) = channel(WAITING_MAX);
    std::thread::spawn(move || {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut leaving = Leaving::new(can_leave);
        loop {
            let count = match std::io::stdin().lock().read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            let typed = if count == 0 { Typed::End } else { leaving.look(&buffer[..count]) };
            let is_last = typed != Typed::Leave && count == 0;
            if sender.blocking_send(typed).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

/// Nothing is typed, and it does not end either.
pub(super) fn none() -> Receiver<Typed> {
    let (sender, receiver): (Sender<Typed>, _) = channel(1);
    // The sender is kept as long as the process, so that nobody takes this for the end of what is typed.
    std::mem::forget(sender);
    receiver
}

/// Looks for the keys that leave.
struct Leaving {
    can_leave: bool,
    /// The first of them was the last key.
    began: bool,
}

impl Leaving {
    fn new(can_leave: bool) -> Self {
        Self { can_leave, began: false }
    }

    /// What of these keys is for the worker. The first of the two is held back until the next key.
    fn look(&mut self, keys: &[u8]) -> Typed {
        if !self.can_leave {
            return Typed::Bytes(keys.to_vec());
        }
        let mut through = Vec::with_capacity(keys.len() + 1);
        for key in keys {
            match (self.began, *key) {
                (true, key) if key == LEAVE[1] => return Typed::Leave,
                (began, key) => {
                    if began {
                        through.push(LEAVE[0]);
                    }
                    self.began = key == LEAVE[0];
                    if !self.began {
                        through.push(key);
                    }
                }
            }
        }
        Typed::Bytes(through)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_keys_leave_also_when_they_come_apart() {
        let mut leaving = Leaving::new(true);
        assert_eq!(leaving.look(b"ls\x10"), Typed::Bytes(b"ls".to_vec()));
        assert_eq!(leaving.look(b"x"), Typed::Bytes(b"\x10x".to_vec()), "it was meant for the worker");
        assert_eq!(leaving.look(b"\x10\x10"), Typed::Bytes(b"\x10".to_vec()));
        assert_eq!(leaving.look(b"\x11"), Typed::Leave);
        assert_eq!(Leaving::new(false).look(b"\x10\x11"), Typed::Bytes(b"\x10\x11".to_vec()));
    }
}
