//! A command beside a task, as a shell that a person opens in it, or the task's own terminal.
//!
//! ```text
//! agent --order, one side of a terminal or of pipes--> the shim's socket --fork, exec--> command
//!       <--started or refused, later how it ended-----
//!       --the connection closes: hang up------------->                  --SIGHUP, SIGKILL-->
//! ```
//!
//! The shim is the parent, so the command is among what the task sees, ends with the task, and ends when whoever asked for it is
//! gone, however that went. The agent keeps the other side of the terminal: when the agent dies, the kernel hangs up.

use crate::{Exit, task_folder::TaskFolder};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::OFlags,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    },
    pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    path::Path,
};

/// The shim's socket in the task's folder.
pub(crate) const SOCKET: &str = "shell.sock";
/// One message. Larger ones than the kernel carries in one piece are refused before they are sent.
pub(crate) const MESSAGE_BYTES_MAX: usize = 96 << 10;
/// Descriptors that come with an order.
const DESCRIPTORS_MAX: usize = 3;
/// Orders that may wait for the shim's loop to come round; more are refused by the kernel.
const WAITING_MAX: i32 = 512;
/// The shim answers as soon as its loop comes round.
const ANSWER_WITHIN_SECS: i64 = 20;

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// How wide.
    pub columns: u16,
    /// How high.
    pub rows: u16,
}

/// What is run beside a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellSpec {
    /// The command and its arguments; the best shell there is, when empty.
    pub command: Vec<String>,
    /// Variables besides those of the task; they win.
    pub environment: BTreeMap<String, String>,
    /// The size of its terminal; none for pipes.
    pub terminal: Option<TerminalSize>,
}

/// A command that runs beside a task. Its descriptors do not block. To drop the control is to hang up.
#[derive(Debug)]
pub struct Shell {
    /// What it reads. On pipes, to close this is the end of its input.
    pub input: OwnedFd,
    /// What it prints.
    pub output: OwnedFd,
    /// What it prints as errors; a terminal has one stream.
    pub errors: Option<OwnedFd>,
    /// Whether there is a terminal.
    pub has_terminal: bool,
    /// Its size and its end.
    pub control: ShellControl,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellEnd {
    /// How.
    pub exit: Exit,
    /// Whether it ended because the task did.
    pub with_task: bool,
}

impl ShellEnd {
    /// From one message of the line; nothing when it speaks of something else. Silence for good means that the parent is gone,
    /// and takes its children with it.
    pub fn of_message(message: &[u8]) -> Option<Self> {
        if message.is_empty() {
            return Some(Self { exit: Exit::Lost, with_task: true });
        }
        match serde_json::from_slice(message) {
            Ok(ShellAnswer::Ended(end)) => Some(end),
            _ => None,
        }
    }
}

/// The line to whoever is the parent of the command. Readable when it has ended.
#[derive(Debug)]
pub struct ShellControl {
    connection: OwnedFd,
    /// The terminal, when its size is set here and not over there.
    terminal: Option<OwnedFd>,
}

/// What a shim is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ShellOrder {
    /// A command; with it come the other side of a terminal, or what it reads, prints and prints as errors.
    Run { command: Vec<String>, environment: BTreeMap<String, String>, terminal: bool },
    /// The task's own output from now on, and its input if it has one; with it come what is typed, and what is printed.
    Attach,
    /// Another size of the task's own terminal.
    Resize(TerminalSize),
}

/// What a shim answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ShellAnswer {
    Started { terminal: bool },
    Refused(String),
    Ended(ShellEnd),
}

/// What stands for "a shell", in whatever is there.
pub(crate) fn usual_shell() -> Vec<String> {
    let script = "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi";
    ["/bin/sh", "-c", script].map(str::to_owned).into()
}

impl ShellControl {
    pub(crate) fn new(connection: OwnedFd, terminal: Option<OwnedFd>) -> Self {
        Self { connection, terminal }
    }

    /// Sets the size of the terminal. What is gone or has none has no size.
    pub fn resize(&self, size: TerminalSize) {
        match &self.terminal {
            Some(terminal) => set_size(terminal, size),
            None => {
                let _ = send(&self.connection, &ShellOrder::Resize(size), &[]);
            }
        }
    }

    /// A descriptor that is readable when it has ended; what is read is for [`ShellEnd::of_message`]. Who hangs up drops this too.
    pub fn line(&self) -> io::Result<OwnedFd> {
        self.connection.try_clone()
    }

    /// How it ended, if it did: an error of kind `WouldBlock` means that it has not.
    pub fn end(&self) -> io::Result<ShellEnd> {
        match receive::<ShellAnswer>(&self.connection)? {
            Some((ShellAnswer::Ended(end), _)) => Ok(end),
            Some(_) => Err(io::ErrorKind::WouldBlock.into()),
            // The parent is gone, and takes its children with it.
            None => Ok(ShellEnd { exit: Exit::Lost, with_task: true }),
        }
    }
}

impl AsFd for ShellControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl AsRawFd for ShellControl {
    fn as_raw_fd(&self) -> RawFd {
        self.connection.as_raw_fd()
    }
}

/// Runs a command beside a task that has a shim. Returns when it runs; the text says why it does not.
pub(crate) fn run(task: &TaskFolder, spec: ShellSpec) -> Result<Shell, String> {
    let failed = |error: rustix::io::Errno| format!("no terminal or pipe could be had: {error}");
    let connection = connect(task)?;
    let terminal = spec.terminal.is_some();
    let order = ShellOrder::Run { command: spec.command, environment: spec.environment, terminal };
    match spec.terminal {
        Some(size) => {
            let (master, slave) = open_terminal().map_err(failed)?;
            set_size(&master, size);
            ask(&connection, &order, &[slave.as_fd()])?;
            no_block(&master).map_err(failed)?;
            let copy = || master.try_clone().map_err(|error| error.to_string());
            let (input, output) = (copy()?, copy()?);
            let control = ShellControl::new(connection, Some(master));
            Ok(Shell { input, output, errors: None, has_terminal: true, control })
        }
        None => {
            let [(stdin, input), (output, stdout), (errors, stderr)] =
                [pipe().map_err(failed)?, pipe().map_err(failed)?, pipe().map_err(failed)?];
            ask(&connection, &order, &[stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])?;
            for ours in [&input, &output, &errors] {
                no_block(ours).map_err(failed)?;
            }
            let control = ShellControl::new(connection, None);
            Ok(Shell { input, output, errors: Some(errors), has_terminal: false, control })
        }
    }
}

/// Joins the task's own input and output. The text says why that is not possible.
pub(crate) fn attach(task: &TaskFolder, size: Option<TerminalSize>) -> Result<Shell, String> {
    let failed = |error: rustix::io::Errno| format!("no pipe could be had: {error}");
    let connection = connect(task)?;
    let [(typed, input), (output, printed)] = [pipe().map_err(failed)?, pipe().map_err(failed)?];
    let has_terminal = ask(&connection, &ShellOrder::Attach, &[typed.as_fd(), printed.as_fd()])?;
    for ours in [&input, &output] {
        no_block(ours).map_err(failed)?;
    }
    let control = ShellControl::new(connection, None);
    if let Some(size) = size.filter(|_| has_terminal) {
        control.resize(size);
    }
    Ok(Shell { input, output, errors: None, has_terminal, control })
}

fn connect(task: &TaskFolder) -> Result<OwnedFd, String> {
    let connected = || -> io::Result<OwnedFd> {
        let folder = File::open(task.path())?;
        let socket = socket()?;
        rustix::net::connect(&socket, &address(&folder)?)?;
        Ok(socket)
    };
    connected().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "it does not run any more, or was started by an older release".to_owned()
        }
        _ => format!("the task's shim cannot be reached: {error}"),
    })
}

/// Sends an order and waits for the answer: whether there is a terminal.
fn ask(connection: &OwnedFd, order: &ShellOrder, descriptors: &[BorrowedFd<'_>]) -> Result<bool, String> {
    let lost = |error: io::Error| format!("the task's shim does not answer: {error}");
    send(connection, order, descriptors).map_err(lost)?;
    let wait = Timespec { tv_sec: ANSWER_WITHIN_SECS, tv_nsec: 0 };
    let mut fds = [PollFd::new(connection, PollFlags::IN)];
    if poll(&mut fds, Some(&wait)).map_err(|error| lost(error.into()))? == 0 {
        return Err("the task's shim does not answer".into());
    }
    match receive::<ShellAnswer>(connection).map_err(lost)? {
        Some((ShellAnswer::Started { terminal }, _)) => Ok(terminal),
        Some((ShellAnswer::Refused(why), _)) => Err(why),
        _ => Err("the task ended just now".into()),
    }
}

/// A new terminal: our side, and the side of whoever runs in it.
pub(crate) fn open_terminal() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    // By descriptor and not by name: the name may mean another terminal in another mount namespace.
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    Ok((master, slave))
}

pub(crate) fn set_size(terminal: &OwnedFd, size: TerminalSize) {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    // A terminal that is gone has no size.
    let _ = tcsetwinsize(terminal, size);
}

pub(crate) fn pipe() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
}

pub(crate) fn no_block(descriptor: &OwnedFd) -> rustix::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    rustix::fs::fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)
}

/// Two ends of a line that keeps messages apart and does not block.
#[cfg(feature = "docker")]
pub(crate) fn line() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// The address goes through a descriptor, because the path of a socket may have 107 bytes only.
fn address(folder: &File) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

/// Where a shim listens.
pub(crate) fn listen(folder: &Path) -> io::Result<OwnedFd> {
    let opened = File::open(folder)?;
    let socket = socket()?;
    rustix::net::bind(&socket, &address(&opened)?)?;
    rustix::net::listen(&socket, WAITING_MAX)?;
    Ok(socket)
}

pub(crate) fn accept(listener: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

pub(crate) fn send(
    connection: &OwnedFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    if text.len() > MESSAGE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is too long"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::net::sendmsg(connection, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next message with what came along, if there is one; nothing when the other side is gone.
pub(crate) fn receive<T: DeserializeOwned>(connection: &OwnedFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut text = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received =
        match rustix::net::recvmsg(connection, &mut [IoSliceMut::new(&mut text)], &mut ancillary, flags) {
            Ok(received) => received,
            Err(rustix::io::Errno::CONNRESET | rustix::io::Errno::PIPE) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
    let descriptors = ancillary
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
            _ => Vec::new(),
        })
        .collect();
    if received.bytes == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&text[..received.bytes])?, descriptors)))
}
