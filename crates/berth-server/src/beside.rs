//! A command beside a worker, and a connection to one of its ports, wherever the worker runs.
//!
//! ```text
//! socket of a client <--messages--> http/shell.rs <--channels--> Shell: the agent's descriptors, or a cluster's streams
//! ```

use berth_agent::{Exit, ShellControl, ShellEnd, TerminalSize};
use berth_api::ShellSize;
use std::{io, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::unix::pipe,
    sync::mpsc::{self, Receiver, Sender},
    time::Instant,
};

/// Messages that may wait for a slow reader.
const WAITING_MAX: usize = 16;
const BUFFER_BYTES: usize = 32 << 10;
/// What is printed by who outlives the command is waited for this long after its end, and after each piece of it.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// What a command is told.
#[derive(Debug)]
pub enum ShellInput {
    /// Somebody typed this.
    Typed(Vec<u8>),
    /// Nobody types any more.
    Close,
    /// Its terminal has another size.
    Resize(ShellSize),
}

/// What a command says.
#[derive(Debug)]
pub enum ShellOutput {
    /// It printed this.
    Printed(Vec<u8>),
    /// It printed this as an error.
    Errors(Vec<u8>),
    /// It ended; the last thing that is heard.
    Ended {
        /// Its code.
        code: Option<i32>,
        /// The signal it died of.
        signal: Option<i32>,
        /// Whether it ended because its worker did.
        with_worker: bool,
    },
    /// It was never run after all, or the line to it was cut: why. The last thing that is heard.
    Failed(String),
}

/// A command that runs beside a worker, or a worker that was joined. To drop either channel is to hang up.
#[derive(Debug)]
pub struct Shell {
    /// To it.
    pub input: Sender<ShellInput>,
    /// From it.
    pub output: Receiver<ShellOutput>,
    /// Whether it has a terminal.
    pub terminal: bool,
}

/// Both ways of a connection to a port.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

impl Shell {
    /// One that the agent of this machine started.
    pub(crate) fn of_agent(shell: berth_agent::Shell) -> io::Result<Self> {
        let (input, said) = mpsc::channel(WAITING_MAX);
        let (told, output) = mpsc::channel(WAITING_MAX);
        let terminal = shell.has_terminal;
        // A terminal and a line of messages are read and written as pipes are.
        let carried = Carried {
            typed: Vec::new(),
            input: Some(pipe::Sender::from_owned_fd_unchecked(shell.input)?),
            output: Some(pipe::Receiver::from_owned_fd_unchecked(shell.output)?),
            errors: shell.errors.map(pipe::Receiver::from_owned_fd_unchecked).transpose()?,
        };
        let line = pipe::Receiver::from_owned_fd_unchecked(shell.control.line()?)?;
        tokio::spawn(carry(carried, shell.control, line, said, told));
        Ok(Self { input, output, terminal })
    }
}

/// Our sides of what a command reads and prints.
struct Carried {
    /// Typed, and not yet taken.
    typed: Vec<u8>,
    input: Option<pipe::Sender>,
    output: Option<pipe::Receiver>,
    errors: Option<pipe::Receiver>,
}

/// Carries what is said until the command has ended and said its last, or until nobody listens.
async fn carry(
    mut shell: Carried,
    control: ShellControl,
    mut line: pipe::Receiver,
    mut said: Receiver<ShellInput>,
    told: Sender<ShellOutput>,
) {
    let mut ended = None;
    let mut last_words = Instant::now();
    while ended.is_none() || shell.output.is_some() || shell.errors.is_some() {
        tokio::select! {
            // In this order: what was printed goes before the end of waiting for it, however late this looks, and what is
            // typed before what is printed, or a flood could not be interrupted.
            biased;
            () = told.closed() => break,
            input = said.recv(), if shell.typed.is_empty() && ended.is_none() => match input {
                None => break,
                Some(ShellInput::Typed(bytes)) => shell.typed = bytes,
                Some(ShellInput::Close) => shell.input = None,
                Some(ShellInput::Resize(size)) => {
                    let ShellSize { columns, rows } = size;
                    control.resize(TerminalSize { columns, rows });
                }
            },
            written = write_some(shell.input.as_mut(), &shell.typed), if !shell.typed.is_empty() => match written {
                Some(count) => drop(shell.typed.drain(..count)),
                None => (shell.input, shell.typed) = (None, Vec::new()),
            },
            end = its_end(&mut line), if ended.is_none() => {
                last_words = Instant::now() + LAST_WORDS;
                ended = Some(end);
            }
            part = read_some(shell.errors.as_mut()), if shell.errors.is_some() => {
                match part {
                    None => shell.errors = None,
                    Some(bytes) => {
                        if told.send(ShellOutput::Errors(bytes)).await.is_err() {
                            break;
                        }
                    }
                }
                // A slow listener is not a silent command.
                last_words = Instant::now() + LAST_WORDS;
            }
            part = read_some(shell.output.as_mut()), if shell.output.is_some() => {
                match part {
                    None => shell.output = None,
                    Some(bytes) => {
                        if told.send(ShellOutput::Printed(bytes)).await.is_err() {
                            break;
                        }
                    }
                }
                last_words = Instant::now() + LAST_WORDS;
            }
            () = tokio::time::sleep_until(last_words), if ended.is_some() => break,
        }
    }
    // Before its input is closed: who hangs up has not said that nothing more will be typed.
    drop((control, line));
    if let Some(end) = ended {
        let _ = told.send(end).await;
    }
}

async fn its_end(line: &mut pipe::Receiver) -> ShellOutput {
    let mut message = [0; 4096];
    loop {
        let count = line.read(&mut message).await.unwrap_or(0);
        let Some(end) = ShellEnd::of_message(&message[..count]) else { continue };
        let (code, signal) = match end.exit {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
            Exit::Lost => (None, None),
        };
        return ShellOutput::Ended { code, signal, with_worker: end.with_task };
    }
}

/// What is there to read; nothing at its end. The end of a terminal is an error to whoever holds its other side.
async fn read_some(from: Option<&mut pipe::Receiver>) -> Option<Vec<u8>> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let count = from?.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
    buffer.truncate(count);
    Some(buffer)
}

/// How much of it was taken; nothing when nobody takes any more.
async fn write_some(to: Option<&mut pipe::Sender>, bytes: &[u8]) -> Option<usize> {
    to?.write(bytes).await.ok()
}
