//! Ports of workers.
//!
//! ```text
//! reads and writes of the server <--pipe--> carry <--messages--> API server <--> port of the Pod
//! ```
//!
//! The node says when nobody listens, and nothing when somebody does. So a new connection is given a moment to be refused,
//! unless the same port has answered just now.

use super::{
    Worker,
    socket::{Receiver, Sender},
};
use berth_api::{Code, Problem};
use berth_server::Duplex;
use hyper::body::Bytes;
use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf},
    sync::{oneshot, watch},
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout_at},
};

const PROTOCOL: &str = "v4.channel.k8s.io";
const DATA: u8 = 0;
const ERROR: u8 = 1;

/// A worker that has just started may not listen yet; it is tried again for so long, and this often.
const LISTENS_WITHIN: Duration = Duration::from_secs(5);
const TRY_EVERY: Duration = Duration::from_millis(200);
/// When nobody listens, that is said within this time, or within twice the time that the line itself took, where all is slow.
const REFUSED_WITHIN: Duration = Duration::from_millis(200);
/// A port that answered is believed to listen for so long: a page is made of many requests.
const BELIEVED_FOR: Duration = Duration::from_secs(5);
/// The end of one direction cannot be said to the node. When nothing comes back for so long, both have ended.
const LAST_WORDS: Duration = Duration::from_secs(10);
const BUFFER_BYTES: usize = 32 << 10;

/// Ports that answered of late, by Pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answered(Arc<Mutex<BTreeMap<(String, u16), Instant>>>);

impl Answered {
    fn is_believed(&self, pod: &str, port: u16) -> bool {
        let answered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answered.get(&(pod.to_owned(), port)).is_some_and(|at| at.elapsed() < BELIEVED_FOR)
    }

    fn note(&self, pod: &str, port: u16) {
        let mut answered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answered.retain(|_, at| at.elapsed() < BELIEVED_FOR);
        answered.insert((pod.to_owned(), port), Instant::now());
    }
}

/// A connection to a port of a worker. It is tried for a while, because programs take a while to listen.
pub(crate) async fn connect(
    worker: Worker,
    port: u16,
    answered: Answered,
) -> Result<Box<dyn Duplex>, Problem> {
    let until = Instant::now() + LISTENS_WITHIN;
    loop {
        let dialled = dial(&worker, port, answered.is_believed(&worker.pod, port)).await?;
        match dialled {
            Ok(dialled) => {
                let (near, far) = tokio::io::duplex(BUFFER_BYTES);
                let (held, gone) = oneshot::channel();
                let refused = Arc::new(OnceLock::new());
                tokio::spawn(carry(dialled, far, gone, worker, port, answered, Arc::clone(&refused)));
                return Ok(Box::new(Connection { pipe: near, refused, _held: held }));
            }
            Err(why) if Instant::now() > until => {
                tracing::debug!(pod = worker.pod, port, why, "its port does not answer");
                let hint =
                    format!("it may still be starting: `berth logs {}` shows what it says", worker.full);
                return Err(Problem::new(Code::WrongState, nobody_listens(&worker, port)).hint(hint));
            }
            Err(_) => sleep(TRY_EVERY).await,
        }
    }
}

fn nobody_listens(worker: &Worker, port: u16) -> String {
    format!("nobody listens on port {port} of worker {} of {}", worker.rank, worker.full)
}

/// A line to a port.
struct Dialled {
    sender: Sender,
    receiver: Receiver,
    channels: Channels,
    /// What came while it was waited for a refusal.
    first: Option<Bytes>,
}

/// The first message of each channel is the number of the port.
#[derive(Debug, Default)]
struct Channels {
    began: [bool; 2],
}

/// What a message means.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Data(Bytes),
    Refused(String),
    Nothing,
}

impl Channels {
    fn hear(&mut self, channel: u8, bytes: Bytes) -> Heard {
        match self.began.get_mut(usize::from(channel)) {
            None => Heard::Nothing,
            Some(began) if !*began => {
                *began = true;
                Heard::Nothing
            }
            Some(_) if bytes.is_empty() => Heard::Nothing,
            Some(_) if channel == ERROR => Heard::Refused(String::from_utf8_lossy(&bytes).into_owned()),
            Some(_) => Heard::Data(bytes),
        }
    }
}

/// Opens a line; the inner error says why the port does not answer.
async fn dial(worker: &Worker, port: u16, is_believed: bool) -> Result<Result<Dialled, String>, Problem> {
    let port = port.to_string();
    let asked = Instant::now();
    let (sender, mut receiver) = worker.open("portforward", &[("ports", &port)], PROTOCOL).await?;
    let patience = REFUSED_WITHIN.max(asked.elapsed() * 2);
    let mut channels = Channels::default();
    let mut first = None;
    let until = Instant::now() + if is_believed { Duration::ZERO } else { patience };
    while first.is_none() && !is_believed {
        match timeout_at(until, receiver.next()).await {
            Err(_) => break,
            Ok(None) => return Ok(Err("the line was cut".into())),
            Ok(Some((channel, bytes))) => match channels.hear(channel, bytes) {
                Heard::Nothing => {}
                Heard::Refused(why) => return Ok(Err(why)),
                Heard::Data(bytes) => first = Some(bytes),
            },
        }
    }
    Ok(Ok(Dialled { sender, receiver, channels, first }))
}

/// Carries bytes both ways until the port closes, or until whoever connected is gone and everything was said.
async fn carry(
    dialled: Dialled,
    pipe: DuplexStream,
    gone: oneshot::Receiver<()>,
    worker: Worker,
    port: u16,
    answered: Answered,
    refused: Arc<OnceLock<String>>,
) {
    let Dialled { sender, mut receiver, mut channels, mut first } = dialled;
    let (from, mut to) = tokio::io::split(pipe);
    let (heard, last_heard) = watch::channel(Instant::now());
    let onward = send_on(from, sender, gone, last_heard, worker.ping_every);
    let back = async {
        let mut is_heard = false;
        loop {
            let bytes = match first.take() {
                Some(bytes) => bytes,
                None => match receiver.next().await {
                    None => return,
                    Some((channel, bytes)) => match channels.hear(channel, bytes) {
                        Heard::Data(bytes) => bytes,
                        Heard::Nothing => continue,
                        Heard::Refused(why) => {
                            tracing::debug!(pod = worker.pod, port, why, "its port has ended");
                            if !is_heard {
                                let _ = refused.set(nobody_listens(&worker, port));
                            }
                            return;
                        }
                    },
                },
            };
            is_heard = true;
            answered.note(&worker.pod, port);
            heard.send_replace(Instant::now());
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = onward => {}
        () = back => {}
    }
    let _ = to.shutdown().await;
}

/// Sends what is written to the port. Ends when nobody is there any more, or when nothing more is written and nothing comes.
async fn send_on(
    mut from: impl AsyncRead + Unpin,
    mut sender: Sender,
    mut gone: oneshot::Receiver<()>,
    last_heard: watch::Receiver<Instant>,
    ping_every: Duration,
) {
    let mut ping = interval(ping_every);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut is_gone, mut ends_at) = (false, None);
    loop {
        tokio::select! {
            count = from.read(&mut buffer), if ends_at.is_none() => match count {
                Ok(count) if count > 0 => {
                    if !sender.send(DATA, &buffer[..count]).await {
                        return;
                    }
                }
                _ if is_gone => return,
                _ => ends_at = Some(Instant::now() + LAST_WORDS),
            },
            _ = &mut gone, if !is_gone => {
                is_gone = true;
                if ends_at.is_some() {
                    return;
                }
            }
            () = sleep_until(ends_at.unwrap_or_else(Instant::now)), if ends_at.is_some() => {
                let silent_at = *last_heard.borrow() + LAST_WORDS;
                if silent_at <= Instant::now() {
                    return;
                }
                ends_at = Some(silent_at);
            }
            _ = ping.tick() => if !sender.ping().await {
                return;
            },
        }
    }
}

/// Our end of a connection. Whoever drops it is gone, which is more than the end of what they write.
struct Connection {
    pipe: DuplexStream,
    /// What became of it, if that was said later than it was waited for.
    refused: Arc<OnceLock<String>>,
    _held: oneshot::Sender<()>,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.pipe).poll_read(context, buffer);
        match (&read, self.refused.get()) {
            (Poll::Ready(Ok(())), Some(why)) if buffer.filled().len() == before => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionRefused, why.clone())))
            }
            _ => read,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_the_port_is_no_part_of_what_it_says() {
        let mut channels = Channels::default();
        let number = || Bytes::from_static(&[0x90, 0x1f]);
        assert_eq!(channels.hear(DATA, number()), Heard::Nothing);
        assert_eq!(channels.hear(DATA, number()), Heard::Data(number()), "the same bytes may be said later");
        assert_eq!(channels.hear(ERROR, number()), Heard::Nothing);
        let why = Heard::Refused("connection refused".into());
        assert_eq!(channels.hear(ERROR, Bytes::from_static(b"connection refused")), why);
        assert_eq!(channels.hear(7, number()), Heard::Nothing);
    }

    #[tokio::test]
    async fn who_is_refused_late_is_told_so_and_not_that_it_is_over() {
        for (refused, expected) in [(None, Ok(0)), (Some("nobody"), Err(io::ErrorKind::ConnectionRefused))] {
            let (pipe, far) = tokio::io::duplex(8);
            let (held, _gone) = oneshot::channel();
            let mut connection = Connection { pipe, refused: Arc::default(), _held: held };
            if let Some(why) = refused {
                connection.refused.set(why.to_owned()).expect("is not set");
            }
            drop(far);
            let read = connection.read(&mut [0; 8]).await.map_err(|error| error.kind());
            assert_eq!(read, expected);
        }
    }

    #[test]
    fn a_port_that_answered_is_believed_and_others_are_not() {
        let answered = Answered::default();
        answered.note("pod", 80);
        assert!(answered.is_believed("pod", 80));
        assert!(!answered.is_believed("pod", 81) && !answered.is_believed("other", 80));
    }
}
