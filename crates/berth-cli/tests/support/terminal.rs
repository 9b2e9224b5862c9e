//! A person at a terminal: a command in a pseudo-terminal, what is on it, and what is typed.

use super::Home;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use std::{
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Child, Command},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A command that runs in a terminal of its own, and is ended with the test.
pub(crate) struct Person {
    terminal: OwnedFd,
    child: Child,
    seen: String,
}

impl Person {
    /// Runs a command line of the product in a terminal of this size, as columns and rows.
    pub(crate) fn sits_at(home: &Home, size: (u16, u16), line: &str) -> Self {
        Self::runs(home, size, line, Command::new("setsid"))
    }

    /// The same, where nobody hears of a terminal that is gone, as below `nohup`.
    pub(crate) fn hears_no_hangup(home: &Home, size: (u16, u16), line: &str) -> Self {
        let mut command = Command::new("env");
        command.args(["--ignore-signal=HUP", "setsid"]);
        Self::runs(home, size, line, command)
    }

    fn runs(home: &Home, size: (u16, u16), line: &str, mut command: Command) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = openpt(flags).expect("a terminal");
        unlockpt(&terminal).expect("a terminal");
        let slave = ioctl_tiocgptpeer(&terminal, flags).expect("its other side");
        let copy = || slave.try_clone().expect("a copy");
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some("berth"), "a person types a command of the product");
        // `setsid --ctty` makes the terminal that of the command, so that its signals come from there.
        command
            .args(["--ctty", "--wait", env!("CARGO_BIN_EXE_berth")])
            .args(words)
            // Every account may enter it, wherever the clone is.
            .current_dir("/")
            .env_clear()
            .envs(home.environment())
            .env("PATH", "/usr/bin:/bin")
            .env("TERM", "xterm-256color");
        command.stdin(copy()).stdout(copy()).stderr(copy()).process_group(0);
        set_size(&terminal, size);
        let child = command.spawn().expect("setsid is part of every Linux");
        Self { terminal, child, seen: String::new() }
    }

    pub(crate) fn resizes(&mut self, size: (u16, u16)) {
        set_size(&self.terminal, size);
    }

    pub(crate) fn types(&mut self, text: &str) {
        rustix::io::write(&self.terminal, text.as_bytes()).expect("the terminal takes it");
    }

    /// Waits until a text is seen that was not seen before, and gives everything up to it.
    pub(crate) fn sees(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            assert!(Instant::now() < deadline, "{text:?} was never seen: {:?}", self.seen);
            assert!(self.look(deadline), "it ended before {text:?} was seen: {:?}", self.seen);
        }
    }

    /// Waits until the command has ended; everything that was seen since, and its code.
    pub(crate) fn sees_the_end(mut self) -> (String, Option<i32>) {
        let deadline = Instant::now() + PATIENCE;
        while self.look(deadline) {
            assert!(Instant::now() < deadline, "it never ended: {:?}", self.seen);
        }
        let code = self.child.wait().expect("it was started").code();
        (std::mem::take(&mut self.seen), code)
    }

    /// Takes what is on the terminal; whether there may be more.
    fn look(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now()).min(Duration::from_millis(200));
        let timeout = Timespec { tv_sec: 0, tv_nsec: left.as_nanos() as i64 };
        let mut waits = [PollFd::new(&self.terminal, PollFlags::IN)];
        if poll(&mut waits, Some(&timeout)).expect("it waits") == 0 {
            return true;
        }
        let mut buffer = [0; 4096];
        match rustix::io::read(&self.terminal, &mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
                true
            }
        }
    }
}

fn set_size(terminal: &OwnedFd, (columns, rows): (u16, u16)) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a terminal has a size");
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
