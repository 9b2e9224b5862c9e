//! The one thread that decides.
//!
//! It takes commands and facts as they come, as many at once as are waiting, lets them happen, plans once, and appends all of
//! it. It never waits for the disk: what is to be said and done afterwards is handed on, and released in order once it is
//! durable. When the store refuses something, what is in memory is ahead of what is written, so all of it is forgotten and
//! read again.

use crate::{
    ServerError,
    feed::{Durable, Feed},
    platform::{Happened, Logged, News, Platform, Seen},
    release::{Pending, Reply},
    samples::{self, Measured},
    tasks::Tasks,
};
use berth_api::{Code, Problem};
use berth_store::{Answer, Batch, Json, NewEvent, Snapshot, Store, StoreError};
use berth_types::{Policy, Span, Time};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::Duration,
};

/// Messages taken together.
const TOGETHER_MAX: usize = 512;
/// Events after which the state is written as a whole.
pub(crate) const SNAPSHOT_EVERY: u64 = 20_000;
/// Numbers for charts are noted this often.
pub(crate) const SAMPLE_EVERY: Span = Span::secs(10);
/// A measurement of the GPUs that is older is not shown.
const MEASURED_KEPT: Span = Span::secs(30);
/// An idempotency key is remembered this long.
pub(crate) const KEY_KEPT: Span = Span::secs(24 * 3600);
/// The form of a body.
pub(crate) const BODY_VERSION: u32 = 1;

/// A command: what it does to the platform, and what is answered.
pub(crate) type Command = Box<dyn FnOnce(&mut Platform, Time) -> Result<Json, Problem> + Send>;

/// An idempotency key with the hash of its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) key: String,
    pub(crate) request: Vec<u8>,
}

/// Keys whose answers are on their way to the disk, with the hash of the request.
pub(crate) type Keys = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// What the controller is told.
pub(crate) enum Message {
    Command {
        command: Command,
        key: Option<Key>,
        reply: Reply,
    },
    Seen(Seen),
    /// What the GPUs of this machine say of themselves.
    Measured(Vec<Measured>),
    /// The store refused a batch of this epoch.
    Refused {
        epoch: u64,
    },
    /// A snapshot is written, or could not be.
    SnapshotDone,
    /// Stop; with the tasks, or leaving them to a later start.
    Close {
        end_workloads: bool,
    },
}

/// What readers see: the platform, and the last event in it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) platform: RwLock<Platform>,
    /// The last event that is in the platform; it may not be durable yet.
    pub(crate) seq: AtomicU64,
    /// How often what was in memory had to be forgotten.
    pub(crate) epoch: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) plans: AtomicU64,
    /// What the GPUs of this machine said last, and when.
    pub(crate) measured: RwLock<(Time, Vec<Measured>)>,
    /// Time comes in from outside.
    pub(crate) clock: fn() -> Time,
}

impl Shared {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Platform> {
        // A panic of the one writer ends the process, so nobody meets what it left half done.
        self.platform.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the platform stands; asked while it is read, since both change under the lock.
    pub(crate) fn stands(&self) -> Durable {
        Durable { seq: self.seq.load(Ordering::Acquire), epoch: self.epoch.load(Ordering::Acquire) }
    }

    pub(crate) fn now(&self) -> Time {
        (self.clock)()
    }

    /// What the GPUs of this machine said last; nothing when that is too long ago.
    pub(crate) fn measured(&self) -> Vec<Measured> {
        let measured = self.measured.read().unwrap_or_else(PoisonError::into_inner);
        let is_new = self.now().since(measured.0) <= MEASURED_KEPT;
        if is_new { measured.1.clone() } else { Vec::new() }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Platform> {
        self.platform.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the platform from the store.
pub(crate) fn load(
    store: &Store,
    policy: &Policy,
    snapshot: Option<&Snapshot>,
) -> Result<(Platform, u64), ServerError> {
    let mut seq = 0;
    let mut platform = match snapshot {
        None => Platform::new(policy.clone()),
        Some(snapshot) => {
            seq = snapshot.seq;
            let broken = |reason: String| ServerError::Log { seq, reason };
            let image = serde_json::from_slice(&snapshot.body).map_err(|error| broken(error.to_string()))?;
            Platform::from_image(policy.clone(), image).map_err(|error| broken(error.to_string()))?
        }
    };
    loop {
        let events = store.load_events(seq, berth_store::EVENTS_MAX)?;
        let Some(last) = events.last().map(|event| event.seq) else { break };
        for event in &events {
            let broken = |reason: String| ServerError::Log { seq: event.seq, reason };
            let logged: Logged = event.body.read().map_err(|error| broken(error.to_string()))?;
            platform.replay(&logged.happened, event.at).map_err(|problem| broken(problem.detail))?;
        }
        seq = last;
    }
    // What followed from the past has been ordered in the past.
    platform.take_news();
    Ok((platform, seq))
}

/// The thread's own things.
pub(crate) struct Controller {
    pub(crate) shared: Arc<Shared>,
    pub(crate) store: Arc<Store>,
    pub(crate) policy: Policy,
    pub(crate) tasks: Tasks,
    pub(crate) feed: Arc<Feed>,
    pub(crate) messages: Receiver<Message>,
    /// To itself, for what others finish.
    pub(crate) own: Sender<Message>,
    pub(crate) pending: Sender<Pending>,
    /// What is decided and not handed to the store yet.
    pub(crate) outbox: Vec<(Option<Batch>, Pending)>,
    pub(crate) epoch: u64,
    /// It waits for the last task to end.
    pub(crate) closing: bool,
    pub(crate) now: Time,
    pub(crate) snapshot_seq: u64,
    pub(crate) snapshotting: bool,
    pub(crate) sampled: Time,
    pub(crate) keys: Keys,
}

impl Controller {
    /// Hands on what happened before it runs.
    pub(crate) fn begin(&mut self, news: News) {
        let shared = Arc::clone(&self.shared);
        self.append(news, &shared.read(), None, None);
        self.flush();
    }

    /// Runs until it is told to close.
    pub(crate) fn run(mut self) {
        self.decide(Vec::new());
        loop {
            if self.closing && !self.shared.read().has_tasks() {
                break;
            }
            let Some(messages) = self.next_messages() else { break };
            let mut batch = Vec::new();
            for message in messages {
                match message {
                    Message::Close { end_workloads: true } if !self.closing => {
                        self.closing = true;
                        self.decide(std::mem::take(&mut batch));
                        self.close_tasks();
                    }
                    Message::Close { end_workloads: false } => {
                        self.decide(batch);
                        return self.finish();
                    }
                    Message::Close { .. } => {}
                    Message::SnapshotDone => self.snapshotting = false,
                    Message::Refused { epoch } if epoch == self.epoch => {
                        self.decide(std::mem::take(&mut batch));
                        self.start_over();
                    }
                    Message::Refused { .. } => {}
                    other => batch.push(other),
                }
            }
            self.decide(batch);
        }
        self.finish();
    }

    /// Waits for messages, at most until something is due; nothing when nobody can send any more.
    fn next_messages(&mut self) -> Option<Vec<Message>> {
        let instant = self.shared.read().next_instant();
        let next = instant
            .into_iter()
            .chain([self.sampled + SAMPLE_EVERY])
            .min()
            .expect("there is always a next sample");
        let wait = Duration::from_millis(next.since(self.shared.now()).0);
        let mut messages = match self.messages.recv_timeout(wait) {
            Ok(message) => vec![message],
            Err(RecvTimeoutError::Timeout) => return Some(Vec::new()),
            Err(RecvTimeoutError::Disconnected) => return None,
        };
        messages.extend(self.messages.try_iter().take(TOGETHER_MAX - 1));
        Some(messages)
    }

    /// Lets everything happen that was asked for or seen, then plans, then hands all of it to the store.
    fn decide(&mut self, messages: Vec<Message>) {
        self.now = self.now.max(self.shared.now());
        let now = self.now;
        let shared = Arc::clone(&self.shared);
        let mut platform = shared.write();
        for message in messages {
            match message {
                Message::Command { command, key, reply } => {
                    self.on_command(&mut platform, command, key, reply)
                }
                Message::Seen(seen) => platform.on_seen(seen, now),
                Message::Measured(measured) => {
                    let devices = measured.iter().map(|gpu| gpu.utilisation).collect();
                    platform.on_seen(Seen::Busy { devices }, now);
                    *self.shared.measured.write().unwrap_or_else(PoisonError::into_inner) = (now, measured);
                }
                _ => unreachable!("the others are taken out before"),
            }
        }
        let inputs = self.append(platform.take_news(), &platform, None, None);
        platform.plan(now);
        self.shared.plans.fetch_add(1, Ordering::Relaxed);
        self.append(platform.take_news(), &platform, None, Some(inputs));
        self.flush();
        if now.since(self.sampled) >= SAMPLE_EVERY {
            self.sampled = now;
            self.append_samples(&mut platform);
        }
        if inputs.saturating_sub(self.snapshot_seq) >= SNAPSHOT_EVERY && !self.snapshotting {
            self.snapshot(&platform);
        }
    }

    fn on_command(&mut self, platform: &mut Platform, command: Command, key: Option<Key>, reply: Reply) {
        self.shared.commands.fetch_add(1, Ordering::Relaxed);
        let now = self.now;
        if let Some(key) = &key {
            match self.answered(key) {
                Ok(None) => {}
                Ok(Some(body)) => return reply.give(Ok(body)),
                Err(problem) => return reply.give(Err(problem)),
            }
        }
        // What was seen before belongs to an earlier batch.
        self.append(platform.take_news(), platform, None, None);
        let result = command(platform, now);
        let answer = result.as_ref().ok().zip(key).map(|(body, key)| {
            self.lock_keys().insert(key.key.clone(), key.request.clone());
            Answer { key: key.key, request: key.request, body: body.clone(), expires: now + KEY_KEPT }
        });
        self.append(platform.take_news(), platform, Some((reply, result, answer)), None);
    }

    /// The answer to a request that came before, if it did.
    fn answered(&self, key: &Key) -> Result<Option<Json>, Problem> {
        match self.lock_keys().get(&key.key) {
            Some(request) if *request != key.request => {
                return Err(store_problem(&StoreError::KeyReused { key: key.key.clone() }));
            }
            Some(_) => {
                return Err(Problem::new(
                    Code::Overloaded,
                    "the same request is being answered: try again in a moment",
                ));
            }
            None => {}
        }
        let given = self.store.load_answer(&key.key, &key.request, self.now);
        Ok(given.map_err(|error| store_problem(&error))?.map(|given| given.body))
    }

    /// Makes what happened ready for the store, and what follows from it for whoever waits for the store. Gives the last event.
    fn append(
        &mut self,
        news: News,
        platform: &Platform,
        asked: Option<(Reply, Result<Json, Problem>, Option<Answer>)>,
        inputs: Option<u64>,
    ) -> u64 {
        let before = self.shared.seq.load(Ordering::Acquire);
        let News { logged, finished, orders } = news;
        if logged.is_empty() && asked.is_none() {
            debug_assert!(orders.is_empty() && finished.is_empty(), "nothing follows from nothing");
            return before;
        }
        let (reply, result, answer) = match asked {
            Some((reply, result, answer)) => (Some(reply), result, answer),
            None => (None, Ok(Json::of(&()).expect("nothing is JSON")), None),
        };
        let after = before + logged.len() as u64;
        self.shared.seq.store(after, Ordering::Release);
        let orders = self.tasks.prepare(&orders, platform);
        let key = answer.as_ref().map(|answer| answer.key.clone());
        let batch = (!logged.is_empty()).then(|| {
            let event = |logged: &Logged| NewEvent {
                kind: logged.happened.kind().into(),
                version: BODY_VERSION,
                inputs: inputs.filter(|_| matches!(logged.happened, Happened::Decided { .. })),
                body: Json::of(logged).expect("events are JSON"),
            };
            let events = logged.iter().map(event).collect();
            Batch { at: self.now, expected: Some(before), events, finished, answer, ..Batch::default() }
        });
        let pending = Pending {
            epoch: self.epoch,
            at: self.now,
            before,
            logged,
            receipt: None,
            orders,
            reply: reply.map(|reply| (reply, result)),
            key,
        };
        self.outbox.push((batch, pending));
        after
    }

    /// Hands everything to the store at once, so that it shares one sync.
    fn flush(&mut self) {
        let outbox = std::mem::take(&mut self.outbox);
        let appended: Vec<Pending> = outbox
            .into_iter()
            .map(|(batch, pending)| Pending {
                receipt: batch.map(|batch| self.store.append(batch)),
                ..pending
            })
            .collect();
        for pending in appended {
            // When nobody releases any more the process is ending.
            let _ = self.pending.send(pending);
        }
    }

    fn append_samples(&mut self, platform: &mut Platform) {
        let samples = samples::of_window(platform, &self.shared.measured(), self.now);
        self.feed.note(samples::told(self.now, &samples));
        // Nobody waits for a sample, and the next one comes soon.
        drop(self.store.append(Batch { at: self.now, samples, ..Batch::default() }));
    }

    /// Writes the state as a whole, beside everything else.
    fn snapshot(&mut self, platform: &Platform) {
        let seq = self.shared.seq.load(Ordering::Acquire);
        let (image, at) = (platform.image(), self.now);
        let (store, own) = (Arc::clone(&self.store), self.own.clone());
        self.snapshot_seq = seq;
        let writes = move || {
            let body = serde_json::to_vec(&image).expect("an image is JSON");
            if let Err(error) = store.snapshot(Snapshot { seq, at, body }).wait() {
                tracing::warn!(%error, "the state could not be written; a start reads more of the log");
            }
            let _ = own.send(Message::SnapshotDone);
        };
        match std::thread::Builder::new().name("berth-snapshot".into()).spawn(writes) {
            Ok(_) => self.snapshotting = true,
            Err(error) => tracing::warn!(%error, "no thread for a snapshot"),
        }
    }

    fn lock_keys(&self) -> MutexGuard<'_, HashMap<String, Vec<u8>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_tasks(&mut self) {
        let now = self.now;
        let shared = Arc::clone(&self.shared);
        let mut platform = shared.write();
        platform.close(now);
        self.append(platform.take_news(), &platform, None, None);
        self.flush();
    }

    /// Forgets what is in memory and reads what is written. What the agent reported meanwhile is asked for again.
    fn start_over(&mut self) {
        self.epoch += 1;
        self.lock_keys().clear();
        let snapshot = self.store.load_snapshot().map_err(ServerError::from);
        let reloaded = snapshot.and_then(|snapshot| load(&self.store, &self.policy, snapshot.as_ref()));
        match reloaded {
            Ok((mut platform, seq)) => {
                tracing::warn!(seq, "the store refused a write; the state was read again");
                if self.closing {
                    // What was told to stop and is not written as such is told again.
                    platform.close(self.now);
                }
                self.tasks.recover(&platform);
                let mut known = self.shared.write();
                platform.keep_settings(&known);
                platform.begin_window(self.now);
                *known = platform;
                self.shared.seq.store(seq, Ordering::Release);
                self.shared.epoch.store(self.epoch, Ordering::Release);
                drop(known);
                self.feed.start_over(self.epoch);
            }
            Err(error) => tracing::error!(%error, "the state could not be read again"),
        }
    }

    fn finish(self) {
        let platform = self.shared.read();
        let seq = self.shared.seq.load(Ordering::Acquire);
        if seq > self.snapshot_seq {
            let body = serde_json::to_vec(&platform.image()).expect("an image is JSON");
            // The next start reads the log instead.
            if let Err(error) = self.store.snapshot(Snapshot { seq, at: self.now, body }).wait() {
                tracing::warn!(%error, "the state could not be written; the next start reads the log");
            }
        }
    }
}

/// What the store refuses, in the words of the API.
pub(crate) fn store_problem(error: &StoreError) -> Problem {
    let code = match error {
        StoreError::Moved { .. } | StoreError::Overloaded { .. } => Code::Overloaded,
        StoreError::KeyReused { .. } => Code::KeyReused,
        StoreError::TooLarge { .. } => Code::TooLarge,
        StoreError::DiskFull => Code::DiskFull,
        StoreError::ReadOnly { .. } | StoreError::InDoubt { .. } | StoreError::Closed => Code::ReadOnly,
        _ => Code::Internal,
    };
    Problem::new(code, error.to_string())
}
