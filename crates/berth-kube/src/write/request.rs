//! Requests that write: bounded in number and time, fenced, and tried again where that is safe.

use crate::lease::{Fence, REQUEST};
use http::{Method, Request, header};
use kube::{Client, client::Body};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;

/// Requests under way at one time. More only wait in the server.
pub const REQUESTS_AT_ONCE: usize = 64;
/// Tries of a request whose answer was lost, or that the server was too busy for.
const TRIES: u32 = 4;
/// The longest answer that is looked at.
const ANSWER_MAX: usize = 8 << 20;

/// Why something was not written.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum WriteError {
    /// The server said no.
    #[error("{message} ({code})")]
    Refused { code: u16, message: String },
    /// The server could not be asked, or did not answer in time; it may have been done.
    #[error("the API server did not answer: {0}")]
    Unanswered(String),
    /// This process does not lead any more.
    #[error("another process leads")]
    Fenced,
}

impl WriteError {
    /// Whether the object is not there. A server that has just started says the same code of resources that it does not serve
    /// yet, in other words: only of an object it says the name.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { code: 404, message } if message.ends_with("\" not found"))
    }
}

/// Sends requests that write.
#[derive(Clone)]
pub(crate) struct Requests {
    client: Client,
    fence: Fence,
    gate: Arc<Semaphore>,
}

impl Requests {
    pub(crate) fn new(client: Client, fence: Fence) -> Self {
        Self { client, fence, gate: Arc::new(Semaphore::new(REQUESTS_AT_ONCE)) }
    }

    /// The epoch in which something that begins now is written.
    pub(crate) fn epoch(&self) -> Result<u64, WriteError> {
        self.fence.epoch().ok_or(WriteError::Fenced)
    }

    /// Waits until nothing is under way.
    pub(crate) async fn quiet(&self) {
        let all = self.gate.acquire_many(REQUESTS_AT_ONCE as u32).await;
        drop(all);
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Vec<u8>, WriteError> {
        self.send(Method::POST, path, "application/json", body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Vec<u8>, WriteError> {
        self.send(Method::PUT, path, "application/json", body).await
    }

    pub(crate) async fn delete(&self, path: &str, body: &Value) -> Result<Vec<u8>, WriteError> {
        self.send(Method::DELETE, path, "application/json", body).await
    }

    /// Changes the fields that are named, if the object is still of the version that is named with them.
    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Result<Vec<u8>, WriteError> {
        self.send(Method::PATCH, path, "application/merge-patch+json", body).await
    }

    /// Changes lists by the keys of their elements, which Kubernetes' own kinds have.
    pub(crate) async fn merge_lists(&self, path: &str, body: &Value) -> Result<Vec<u8>, WriteError> {
        self.send(Method::PATCH, path, "application/strategic-merge-patch+json", body).await
    }

    /// Makes an object what it should be, whether it is there or not.
    pub(crate) async fn apply(&self, path: &str, body: &Value) -> Result<Vec<u8>, WriteError> {
        let path = format!("{path}?fieldManager={}&force=true", crate::names::MANAGER);
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Vec<u8>, WriteError> {
        self.send(Method::GET, path, "application/json", &Value::Null).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content: &'static str,
        body: &Value,
    ) -> Result<Vec<u8>, WriteError> {
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).expect("JSON is JSON") };
        let mut pause = Duration::from_millis(100);
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match self.try_send(&method, path, content, bytes.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let again = match &error {
                WriteError::Fenced => false,
                // An eviction that a budget refuses looks like a busy server; its caller knows better.
                WriteError::Refused { code: 429, .. } => !path.ends_with("/eviction"),
                WriteError::Refused { code, .. } => *code >= 500,
                WriteError::Unanswered(_) => true,
            };
            if !again || tries == TRIES {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause *= 3;
        }
    }

    async fn try_send(
        &self,
        method: &Method,
        path: &str,
        content: &'static str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, WriteError> {
        let _turn = self.gate.acquire().await.map_err(|_| WriteError::Fenced)?;
        // Asked when its turn has come, because the wait for it may be long.
        if *method != Method::GET {
            self.epoch()?;
        }
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content)
            .header(header::ACCEPT, "application/json")
            .body(Body::from(body))
            .map_err(|error| WriteError::Unanswered(error.to_string()))?;
        let answer = async {
            let response =
                self.client.send(request).await.map_err(|error| WriteError::Unanswered(error.to_string()))?;
            let (parts, body) = response.into_parts();
            let limited = http_body_util::Limited::new(body, ANSWER_MAX);
            let bytes = http_body_util::BodyExt::collect(limited)
                .await
                .map_err(|error| WriteError::Unanswered(error.to_string()))?
                .to_bytes();
            if parts.status.is_success() {
                return Ok(bytes.to_vec());
            }
            let status: Option<Value> = serde_json::from_slice(&bytes).ok();
            let message = status.as_ref().and_then(|status| status["message"].as_str()).map_or_else(
                || String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned(),
                ToOwned::to_owned,
            );
            Err(WriteError::Refused { code: parts.status.as_u16(), message })
        };
        match tokio::time::timeout(REQUEST, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(WriteError::Unanswered("it took too long".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_served_yet_is_not_gone() {
        let said = |code, message: &str| WriteError::Refused { code, message: message.into() };
        assert!(said(404, "workloads.berth.dev \"train\" not found").is_gone());
        assert!(said(404, "pods \"train-r1-0\" not found").is_gone());
        assert!(!said(404, "the server could not find the requested resource").is_gone());
        assert!(!said(404, "404 page not found\n").is_gone());
        assert!(!said(409, "pods \"train-r1-0\" not found").is_gone());
    }
}
