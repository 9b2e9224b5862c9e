//! Beside workers: commands in their Pods, their own terminals, their ports, all through the API server.
//!
//! ```text
//! berth-server <--Shell, Duplex--> here <--WebSocket--> API server <--> kubelet <--> container
//! ```

mod port;
mod shell;
mod socket;

pub(crate) use port::{Answered, connect};
pub(crate) use shell::{attach, exec};

use crate::wish;
use berth_api::{Code, Problem};
use berth_kube::{
    pods,
    view::{PodView, View},
};
use berth_types::WorkloadId;
use kube::Client;
use shell::Commands;
use socket::{Receiver, Sender};
use std::time::Duration;

/// The way to workers.
#[derive(Clone)]
pub(crate) struct Way {
    client: Client,
    pub(crate) view: View,
    /// On an open socket something is said this often.
    ping_every: Duration,
    commands: Commands,
}

impl Way {
    pub(crate) fn new(client: Client, view: View, ping_every: Duration) -> Self {
        Self { client, view, ping_every, commands: Commands::default() }
    }

    /// Waits until every command that was abandoned has been told so.
    pub(crate) async fn are_told(&self, limit: Duration) {
        self.commands.are_told(limit).await;
    }
}

/// A worker that runs, and the way to it.
#[derive(Clone)]
pub(crate) struct Worker {
    client: Client,
    view: View,
    id: WorkloadId,
    namespace: String,
    /// `PROJECT/NAME`, as people write it.
    full: String,
    rank: u32,
    pod: String,
    node: String,
    container: String,
    /// Whether its container has a terminal.
    has_terminal: bool,
    /// Whether its container reads what is typed.
    takes_input: bool,
    /// On an open socket something is said this often.
    ping_every: Duration,
    commands: Commands,
}

/// The worker that is meant, if its Pod runs.
pub(crate) fn worker(way: &Way, project: &str, name: &str, rank: u32) -> Result<Worker, Problem> {
    let (client, view) = (way.client.clone(), way.view.clone());
    let namespace = wish::namespace(&view, project)?;
    let full = format!("{project}/{name}");
    let gone = || Problem::new(Code::WrongState, format!("worker {rank} of {full} does not run"));
    let (id, pod, main) = {
        let reading = view.read();
        let (id, workload) = reading.workload(&namespace, name).ok_or_else(gone)?;
        let runs = |pod: &PodView| pod.rank == rank && pod.running && !pod.leaving;
        let pod = reading.pods(id).into_iter().rfind(runs).ok_or_else(gone)?;
        (id, pod, pods::main_container(workload))
    };
    Ok(Worker {
        client,
        view,
        id,
        namespace,
        full,
        rank,
        pod: pod.name,
        node: pod.node.unwrap_or_default(),
        container: main.name,
        has_terminal: main.tty == Some(true),
        takes_input: main.stdin == Some(true),
        ping_every: way.ping_every,
        commands: way.commands.clone(),
    })
}

impl Worker {
    /// Opens a socket to a part of its Pod, as the API server names it.
    async fn open(
        &self,
        part: &str,
        query: &[(&str, &str)],
        protocol: &'static str,
    ) -> Result<(Sender, Receiver), Problem> {
        let Self { namespace, pod, .. } = self;
        let query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/{part}?{}", query.join("&"));
        let opened = socket::open(&self.client, &path, protocol, self.ping_every).await;
        opened.map_err(|problem| match problem.code {
            Code::Forbidden => problem,
            _ => self.refused(&problem.detail),
        })
    }

    /// Waits until the Pod is about to end, or has ended; whether it did within this time.
    async fn ends_within(&self, limit: Duration) -> bool {
        let ended = |reading: &berth_kube::view::Reading<'_>| {
            let pod = reading.pods(self.id).into_iter().find(|pod| pod.name == self.pod);
            pod.is_none_or(|pod| pod.leaving || !pod.running).then_some(())
        };
        self.view.until(limit, ended).await.is_some()
    }

    /// What the API server said, in words for people.
    fn refused(&self, said: &str) -> Problem {
        let Self { full, rank, node, .. } = self;
        // The API server itself is well: it speaks of the way from there to the node.
        let no_way = ["dial", "no such host", "connection refused", "unable to upgrade connection: 404"];
        if no_way.iter().any(|part| said.contains(part)) {
            let text = format!(
                "worker {rank} of {full} cannot be entered: node {node} does not answer the API server, as a simulated node \
                 never does ({said})"
            );
            return Problem::new(Code::WrongState, text);
        }
        Problem::new(Code::WrongState, format!("worker {rank} of {full} cannot be entered: {said}"))
    }
}

/// A text inside of a query: only what is certain to mean itself stays as it is.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().fold(String::with_capacity(text.len()), |mut into, byte| {
        match plain(byte) {
            true => into.push(char::from(byte)),
            false => into.push_str(&format!("%{byte:02X}")),
        }
        into
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_a_command_cannot_become_another_part_of_the_query() {
        assert_eq!(escaped("a&command=b c+ü/%"), "a%26command%3Db%20c%2B%C3%BC%2F%25");
        assert_eq!(escaped("sh-1_2.3~"), "sh-1_2.3~");
    }
}
