//! Streams: events as they happen, and what a workload prints.

use crate::{
    Client, ClientError,
    client::Call,
    connection::Connection,
    query::{path, with_query},
    sse::Parser,
};
use berth_api::{Code, Event, EventQuery};
use http_body_util::BodyExt;
use hyper::{Method, body::Bytes, body::Incoming};
use std::{collections::VecDeque, time::Duration};
use tokio::time;

/// The longest pause between attempts to open a stream again.
const RECONNECT_MAX: Duration = Duration::from_secs(5);
/// So many failures in a row, with nothing seen in between, end a stream.
const ATTEMPTS_MAX: u32 = 8;

/// Events, in their order, each once. A connection that breaks is opened again after the last event that was seen.
#[derive(Debug)]
pub struct EventStream<'a> {
    client: &'a Client,
    query: EventQuery,
    open: Option<(Incoming, Connection)>,
    parser: Parser,
    ready: VecDeque<Event>,
    failures: u32,
}

impl<'a> EventStream<'a> {
    pub(crate) fn new(client: &'a Client, query: &EventQuery) -> Self {
        Self {
            client,
            query: query.clone(),
            open: None,
            parser: Parser::default(),
            ready: VecDeque::new(),
            failures: 0,
        }
    }

    /// Waits for the next event. Safe to drop while it waits.
    pub async fn next(&mut self) -> Result<Event, ClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.query.after = Some(event.seq);
                return Ok(event);
            }
            match self.receive().await {
                Ok(()) => {}
                Err(error) if is_passing(&error) && self.failures < ATTEMPTS_MAX => {
                    self.open = None;
                    self.failures += 1;
                    let pause = self.client.limits.reconnect * 2u32.pow(self.failures - 1);
                    time::sleep(pause.min(RECONNECT_MAX)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens the stream before the first event is waited for, so that a mistake in the question is known at once.
    pub async fn open(&mut self) -> Result<(), ClientError> {
        if self.open.is_none() {
            let path = with_query(path(&["events", "stream"]), &self.query);
            let call = Call {
                accept: "text/event-stream",
                last_event: self.query.after,
                ..Call::new(Method::GET, &path)
            };
            let answered = self.client.answer_on_its_own(&call);
            let (response, connection) = within(self.client, self.client.limits.answer, answered).await??;
            self.open = Some((response.into_body(), connection));
            self.parser = Parser::default();
        }
        Ok(())
    }

    /// Reads one part of the stream, which may complete events.
    async fn receive(&mut self) -> Result<(), ClientError> {
        self.open().await?;
        let Some((body, _)) = &mut self.open else { return Ok(()) };
        let bytes = within(self.client, self.client.limits.silence, next_bytes(body, self.client)).await??;
        let Some(bytes) = bytes else { return Err(closed(self.client)) };
        // Whatever was said, somebody serves the stream.
        self.failures = 0;
        let messages = self.parser.take(&bytes, self.client.limits.answer_bytes_max);
        for message in messages.map_err(|_| self.client.protocol("an event is above the limit"))? {
            let event: Event = serde_json::from_str(&message.data)
                .map_err(|error| self.client.protocol(format!("an event has another form: {error}")))?;
            // After a reconnect the server may repeat what was already seen.
            if self.query.after.is_none_or(|last| event.seq > last) {
                self.ready.push_back(event);
            }
        }
        Ok(())
    }
}

/// What a workload prints, as it comes.
#[derive(Debug)]
pub struct LogStream<'a> {
    client: &'a Client,
    body: Incoming,
    /// Dropping it would close the connection.
    _connection: Connection,
}

impl<'a> LogStream<'a> {
    pub(crate) async fn open(client: &'a Client, path: String) -> Result<Self, ClientError> {
        let call = Call { accept: "text/plain", ..Call::new(Method::GET, &path) };
        let answered = client.answer_on_its_own(&call);
        let (response, connection) = within(client, client.limits.answer, answered).await??;
        Ok(Self { client, body: response.into_body(), _connection: connection })
    }

    /// The next part; nothing at the end. A workload may be silent for long, so there is no limit of time.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        next_bytes(&mut self.body, self.client).await
    }
}

async fn next_bytes(body: &mut Incoming, client: &Client) -> Result<Option<Bytes>, ClientError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|_| closed(client))?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

async fn within<T>(
    client: &Client,
    after: Duration,
    future: impl Future<Output = T>,
) -> Result<T, ClientError> {
    time::timeout(after, future)
        .await
        .map_err(|_| ClientError::Timeout { address: client.address().to_string(), after })
}

fn closed(client: &Client) -> ClientError {
    ClientError::Closed { address: client.address().to_string() }
}

/// Whether trying again may help.
fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::Timeout { .. } | ClientError::Closed { .. } => true,
        ClientError::Problem(problem) => problem.code == Code::Overloaded,
        _ => false,
    }
}
