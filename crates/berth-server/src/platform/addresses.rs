//! Under which paths of the server the ports of workloads are reached.
//!
//! ```text
//! /<project>/<job>            its first port; always there
//! /<project>/<job>-<port>     another of its ports
//! /<job>-<port>, /<project>-<job>     as the report writes them; while they mean one workload
//! /<base_url>                 what a notebook was told that its path is; it sees the path as it is
//! ```

use super::{Platform, Record};
use berth_types::WorkloadId;

/// Options by which a notebook is told the path under which it is reached.
const BASE_URL_OPTIONS: [&str; 4] =
    ["--NotebookApp.base_url", "--ServerApp.base_url", "--LabApp.base_url", "--base_url"];
/// First parts of paths that are the server's own.
const OWN: [&str; 7] = ["api", "metrics", "healthz", "readyz", "openapi.json", "ui", "assets"];

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Routed {
    To(Target),
    /// To several workloads, by their names.
    Ambiguous(Vec<String>),
    Nowhere,
}

/// A port of a workload, and how the path leads there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) workload: WorkloadId,
    pub(crate) project: String,
    pub(crate) name: String,
    pub(crate) port: u16,
    /// The part of the path that leads to it, as `/team-a/nb`.
    pub(crate) prefix: String,
    /// The path that the program itself expects, if it was told one; then nothing is taken off.
    pub(crate) base: Option<String>,
}

impl Platform {
    /// Where a path leads among the unfinished work.
    pub(crate) fn route(&self, path: &str) -> Routed {
        let parts: Vec<&str> = path.split('/').skip(1).filter(|part| !part.is_empty()).collect();
        let Some(first) = parts.first() else { return Routed::Nowhere };
        if OWN.contains(first) {
            return Routed::Nowhere;
        }
        if let Some(target) = parts.get(1).and_then(|second| self.by_project(first, second)) {
            return Routed::To(target);
        }
        let mut found: Vec<Target> = Vec::new();
        for record in self.records.values().filter(|record| !record.request.ports.is_empty()) {
            let targets = by_base(record, path).into_iter().chain(by_short_name(record, first));
            for target in targets {
                let is_new = |known: &Target| (known.workload, known.port) != (target.workload, target.port);
                if found.iter().all(is_new) {
                    found.push(target);
                }
            }
        }
        match found.len() {
            0 => Routed::Nowhere,
            1 => Routed::To(found.remove(0)),
            _ => {
                let name = |target: &Target| format!("{}/{}", target.project, target.name);
                Routed::Ambiguous(found.iter().map(name).collect())
            }
        }
    }

    fn by_project(&self, project: &str, name: &str) -> Option<Target> {
        let port_of = |record: &Record| record.request.ports.first().copied();
        if let Some(record) = self.find(project, name).and_then(|id| self.records.get(&id)) {
            return Some(target(record, port_of(record)?, format!("/{project}/{name}")));
        }
        let (name, port) = name.rsplit_once('-')?;
        let record = self.records.get(&self.find(project, name)?)?;
        let port = port.parse().ok().filter(|port| record.request.ports.contains(port))?;
        Some(target(record, port, format!("/{project}/{name}-{port}")))
    }

    /// Where the ports of a workload are reached.
    pub(crate) fn urls(&self, record: &Record) -> Vec<String> {
        let first = format!("/{}/{}", record.request.project, record.name);
        let path = |(at, port): (usize, &u16)| match (at, base_url(record)) {
            (0, Some(base)) => base,
            (0, None) => first.clone(),
            _ => format!("{first}-{port}"),
        };
        let ports = record.request.ports.iter().enumerate();
        ports.map(|at| format!("{}{}/", self.address, path(at))).collect()
    }

    /// Takes over what is not written down from a platform that was known before.
    pub(crate) fn keep_settings(&mut self, known: &Self) {
        self.address = known.address.clone();
        self.accounts_from = known.accounts_from;
    }

    /// Sets the address under which people reach the server.
    pub(crate) fn set_address(&mut self, address: String) {
        self.address = address;
    }

    /// The address under which people reach the server.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

fn target(record: &Record, port: u16, prefix: String) -> Target {
    let is_first = record.request.ports.first() == Some(&port);
    Target {
        workload: record.id,
        project: record.request.project.clone(),
        name: record.name.clone(),
        port,
        prefix,
        base: base_url(record).filter(|_| is_first),
    }
}

fn by_base(record: &Record, path: &str) -> Option<Target> {
    let base = base_url(record)?;
    let rest = path.strip_prefix(base.as_str())?;
    let is_below = rest.is_empty() || rest.starts_with('/');
    is_below.then(|| target(record, record.request.ports[0], base))
}

fn by_short_name(record: &Record, part: &str) -> Vec<Target> {
    let mut found = Vec::new();
    let first = record.request.ports[0];
    let of_project =
        part.strip_prefix(record.request.project.as_str()).and_then(|rest| rest.strip_prefix('-'));
    if of_project == Some(&record.name) {
        found.push(target(record, first, format!("/{part}")));
    }
    let port = part.strip_prefix(record.name.as_str()).and_then(|rest| rest.strip_prefix('-'));
    if let Some(port) = port.and_then(|port| port.parse::<u16>().ok())
        && record.request.ports.contains(&port)
    {
        found.push(target(record, port, format!("/{part}")));
    }
    found
}

/// The path that a notebook was told, as `/team-a-test-ingress`. One that is the server's own, or none at all, is not routed.
pub(crate) fn base_url(record: &Record) -> Option<String> {
    let request = &record.request;
    let words: Vec<&String> = request.command.iter().chain(&request.args).collect();
    let of_option = |(at, word): (usize, &&String)| {
        let option = BASE_URL_OPTIONS.iter().find(|option| word.starts_with(**option))?;
        match word[option.len()..].strip_prefix('=') {
            Some(value) => Some(value.to_owned()),
            None if word.len() == option.len() => words.get(at + 1).map(|value| (*value).clone()),
            None => None,
        }
    };
    let told = words.iter().enumerate().find_map(of_option)?;
    let told = told.trim_matches(['/', '"', '\'']);
    let plain = |part: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        !part.is_empty() && part != "." && part != ".." && part.bytes().all(fits)
    };
    let is_own = told.split('/').next().is_some_and(|first| OWN.contains(&first));
    (told.split('/').all(plain) && !is_own).then(|| format!("/{told}"))
}
