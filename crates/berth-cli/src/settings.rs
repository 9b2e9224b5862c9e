//! What a server's folder remembers of `berth up`: nodes, port and options.
//!
//! ```text
//! command line --> given ----+
//! settings.toml -> remembered +--> effective --> a start --> settings.toml
//!                             +--> differences: refused without --change
//! ```
//!
//! Settings are compared as tables of option names and values, so that a new option needs no code here but a field.

use crate::failure::{Exit, Failure};
use berth_server::{Access, Folder, TasksRunAs};
use berth_types::Span;
use serde::{Deserialize, Serialize};
use std::{
    fmt, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};
use toml::{Table, Value};

/// The form of the file. Readers understand every version that was ever released.
const VERSION: i64 = 1;
/// Where a server listens unless it is set.
const LISTEN: &str = "127.0.0.1:7370";
/// The value of `nodes` that means the GPUs of this machine.
pub(crate) const THIS_MACHINE: &str = "this-machine";
/// The first lines of the file.
const HEAD: &str = "\
# Settings of `berth up` in this folder. `berth up` without options uses them;
# `berth up --change OPTIONS` changes them, and so does an edit while berth is stopped.
";

/// Options of `berth up`, as given on a command line or as remembered; what is absent has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Settings {
    /// The form of the file that these were read from; 0 otherwise.
    #[serde(default, skip_serializing)]
    pub(crate) version: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nodes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) listen: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ping_every: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tasks_run_as: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) accounts_from: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allow_mount: Option<Vec<PathBuf>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) images: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_key: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_generate: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) public_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) insecure_listen: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oidc_issuer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oidc_client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oidc_client_secret_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oidc_user_claim: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oidc_groups_claim: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oidc_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oidc_ca_file: Option<PathBuf>,
}

/// Names of all settings, which are those of the options.
const NAMES: [&str; 19] = [
    "nodes",
    "listen",
    "ping-every",
    "tasks-run-as",
    "accounts-from",
    "allow-mount",
    "images",
    "tls-cert",
    "tls-key",
    "tls-generate",
    "public-name",
    "insecure-listen",
    "oidc-issuer",
    "oidc-client-id",
    "oidc-client-secret-file",
    "oidc-user-claim",
    "oidc-groups-claim",
    "oidc-name",
    "oidc-ca-file",
];

/// A setting that a start would change.
#[derive(Debug, PartialEq)]
pub(crate) struct Difference {
    name: String,
    old: Option<Value>,
    new: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<Value>| match value {
            None => "(not set)".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(items)) => {
                let items = items.iter().map(|item| item.as_str().unwrap_or_default());
                items.collect::<Vec<_>>().join(", ")
            }
            Some(other) => written(other),
        };
        write!(f, "{}: {} -> {}", self.name, text(&self.old), text(&self.new))
    }
}

/// The name of a setting, for `--unset`.
pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    let name = text.replace('_', "-");
    match NAMES.contains(&name.as_str()) {
        true => Ok(name),
        false => Err(format!("write one of {}", NAMES.join(", "))),
    }
}

impl Settings {
    /// Adds how other machines reach the server. Paths become absolute, because the next start may be typed elsewhere.
    pub(crate) fn with_access(self, access: &Access) -> io::Result<Self> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(std::path::absolute).transpose();
        Ok(Self {
            tls_cert: path(&access.tls_cert)?,
            tls_key: path(&access.tls_key)?,
            tls_generate: access.tls_generate.then_some(true),
            public_name: access.public_name.clone(),
            insecure_listen: access.insecure_listen.then_some(true),
            oidc_issuer: access.oidc_issuer.clone(),
            oidc_client_id: access.oidc_client_id.clone(),
            oidc_client_secret_file: path(&access.oidc_client_secret_file)?,
            oidc_user_claim: access.oidc_user_claim.clone(),
            oidc_groups_claim: access.oidc_groups_claim.clone(),
            oidc_name: access.oidc_name.clone(),
            oidc_ca_file: path(&access.oidc_ca_file)?,
            ..self
        })
    }

    /// How other machines reach the server.
    pub(crate) fn access(&self) -> Access {
        Access {
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
            tls_generate: self.tls_generate.unwrap_or_default(),
            public_name: self.public_name.clone(),
            insecure_listen: self.insecure_listen.unwrap_or_default(),
            oidc_issuer: self.oidc_issuer.clone(),
            oidc_client_id: self.oidc_client_id.clone(),
            oidc_client_secret_file: self.oidc_client_secret_file.clone(),
            oidc_user_claim: self.oidc_user_claim.clone(),
            oidc_groups_claim: self.oidc_groups_claim.clone(),
            oidc_name: self.oidc_name.clone(),
            oidc_ca_file: self.oidc_ca_file.clone(),
        }
    }

    pub(crate) fn listen(&self) -> SocketAddr {
        self.listen.unwrap_or_else(|| LISTEN.parse().expect("is an address"))
    }

    /// The declared nodes, or `None` for this machine.
    pub(crate) fn declared(&self) -> Option<&str> {
        self.nodes.as_deref().filter(|nodes| *nodes != THIS_MACHINE)
    }

    pub(crate) fn ping_every(&self) -> Result<Duration, String> {
        self.ping_every.as_deref().map_or(Ok(berth_server::PING_EVERY), parse_ping)
    }

    pub(crate) fn tasks_run_as(&self) -> Result<TasksRunAs, String> {
        self.tasks_run_as.as_deref().map_or(Ok(TasksRunAs::Auto), parse_run_as)
    }

    pub(crate) fn accounts_from(&self) -> u32 {
        self.accounts_from.unwrap_or(berth_server::ACCOUNTS_FROM)
    }

    /// The settings that a folder remembers; none before its first start.
    pub(crate) fn of_folder(folder: &Folder) -> anyhow::Result<Option<Self>> {
        let path = folder.settings_file();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let text = format!("cannot read {}: {error}", path.display());
                return Err(Failure::new(Exit::Failed, text).into());
            }
        };
        Ok(Some(Self::of_text(&text, &path)?))
    }

    fn of_text(text: &str, path: &Path) -> Result<Self, Failure> {
        let broken = |error: String| {
            Failure::misuse(format!("{} is not understood: {error}", path.display()))
                .hint("correct it, or delete it and start with all options again")
        };
        // The version is read first: what a later release wrote need not be understood to say so.
        let table: Table = toml::from_str(text).map_err(|error| broken(error.to_string()))?;
        match table.get("version").cloned() {
            Some(Value::Integer(VERSION)) => {}
            Some(Value::Integer(version)) if version > VERSION => {
                let text =
                    format!("{} was written by a later release of berth (version {version})", path.display());
                return Err(Failure::misuse(text)
                    .hint("start that release, or delete the file and name all options again"));
            }
            _ => return Err(broken("version = 1 is missing".into())),
        }
        // From the text again, so that a mistake is shown with its line.
        let read: Self = toml::from_str(text).map_err(|error| broken(error.to_string()))?;
        Ok(Self { version: 0, ..read })
    }

    fn try_from(table: Table) -> Result<Self, String> {
        table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())
    }

    /// Refuses what the file of settings cannot hold: a path that is not text.
    pub(crate) fn check(self) -> Result<Self, Failure> {
        match Table::try_from(&self) {
            Ok(_) => Ok(self),
            Err(_) => {
                Err(Failure::misuse("a path of the options is not UTF-8 text, and could not be remembered")
                    .hint("rename the file or folder, or give a link to it"))
            }
        }
    }

    fn table(&self) -> Table {
        Table::try_from(self).expect("settings were checked")
    }

    /// What a start would have, and what it would change of what is remembered. `self` is what the command line gives.
    pub(crate) fn merged(&self, remembered: &Self, unset: &[String]) -> (Self, Vec<Difference>) {
        let old = remembered.table();
        let mut new = old.clone();
        new.extend(self.table());
        // Two ways to have a certificate; the one that is given replaces the other.
        if self.tls_generate.is_some() {
            new.remove("tls-cert");
            new.remove("tls-key");
        } else if self.tls_cert.is_some() {
            new.remove("tls-generate");
        }
        new.retain(|name, _| !unset.iter().any(|unset| unset == name));
        let difference = |name: &&str| {
            let effective = |table: &Table| table.get(*name).cloned().or_else(|| default_of(name));
            let (old, new) = (effective(&old), effective(&new));
            (old != new).then(|| Difference { name: (*name).to_owned(), old, new })
        };
        let differences = NAMES.iter().filter_map(difference).collect();
        (Self::try_from(new).expect("settings that were read"), differences)
    }

    /// The file. What can change with a release is written out, so that a default that changes changes no server.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::new();
        table.insert("version".into(), VERSION.into());
        for name in ["nodes", "listen"] {
            table.extend(default_of(name).map(|value| (name.to_owned(), value)));
        }
        table.extend(self.table());
        let mut text = HEAD.to_owned();
        for name in ["version"].iter().chain(&NAMES) {
            if let Some(value) = table.get(*name) {
                text.push_str(&format!("{name} = {}\n", written(value)));
            }
        }
        text
    }
}

/// A value as TOML. Text, numbers, words and lists of text are the same in JSON, but for one control character.
fn written(value: &Value) -> String {
    let text = serde_json::to_string(value).expect("settings have no times and no tables");
    text.replace('\u{7f}', "\\u007F")
}

/// What a setting is when it is not set.
fn default_of(name: &str) -> Option<Value> {
    Some(match name {
        "nodes" => THIS_MACHINE.into(),
        "listen" => LISTEN.into(),
        "ping-every" => Span(berth_server::PING_EVERY.as_millis() as u64).to_string().into(),
        "tasks-run-as" => "auto".into(),
        "accounts-from" => i64::from(berth_server::ACCOUNTS_FROM).into(),
        "tls-generate" | "insecure-listen" => false.into(),
        "allow-mount" => Value::Array(Vec::new()),
        _ => return None,
    })
}

/// The answer to a start that would change settings: each difference, and the flag that allows it.
pub(crate) fn refusal(differences: &[Difference], folder: &Path) -> Failure {
    let lines: Vec<String> = differences.iter().map(|difference| format!("  {difference}")).collect();
    let text = format!("this start would change settings of {}:\n{}", folder.display(), lines.join("\n"));
    Failure::misuse(text).hint(
        "add --change to change them, or leave the options out to keep them; another server needs a folder of its own: --folder DIR",
    )
}

pub(crate) fn parse_run_as(text: &str) -> Result<TasksRunAs, String> {
    match text {
        "auto" => Ok(TasksRunAs::Auto),
        "accounts" => Ok(TasksRunAs::Accounts),
        "server" => Ok(TasksRunAs::Server),
        _ => Err("write auto, accounts or server".into()),
    }
}

pub(crate) fn parse_ping(text: &str) -> Result<Duration, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}; write for example 20s"))?;
    match span.0 {
        0..100 => Err("the shortest time is 100ms".into()),
        millis => Ok(Duration::from_millis(millis)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, Failure> {
        Settings::of_text(text, Path::new("settings.toml"))
    }

    fn shown(differences: &[Difference]) -> Vec<String> {
        differences.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let settings = Settings {
            nodes: Some("2xdgx1".into()),
            listen: Some("0.0.0.0:7370".parse().expect("an address")),
            allow_mount: Some(vec!["/data".into(), "/a \"b\"".into()]),
            tls_generate: Some(true),
            accounts_from: Some(5000),
            ..Settings::default()
        };
        assert_eq!(read(&settings.text()).expect("is understood"), settings);
        let first = Settings::default().text();
        assert!(
            first.ends_with("version = 1\nnodes = \"this-machine\"\nlisten = \"127.0.0.1:7370\"\n"),
            "{first}"
        );
    }

    #[test]
    fn every_setting_has_a_name_and_every_name_is_a_setting() {
        let all = Settings {
            version: 0,
            nodes: Some("x".into()),
            listen: Some("127.0.0.1:1".parse().expect("an address")),
            ping_every: Some("1s".into()),
            tasks_run_as: Some("auto".into()),
            accounts_from: Some(1),
            allow_mount: Some(vec!["/x".into()]),
            images: Some("/x".into()),
            tls_cert: Some("/x".into()),
            tls_key: Some("/x".into()),
            tls_generate: Some(true),
            public_name: Some("x".into()),
            insecure_listen: Some(true),
            oidc_issuer: Some("x".into()),
            oidc_client_id: Some("x".into()),
            oidc_client_secret_file: Some("/x".into()),
            oidc_user_claim: Some("x".into()),
            oidc_groups_claim: Some("x".into()),
            oidc_name: Some("x".into()),
            oidc_ca_file: Some("/x".into()),
        };
        let mut names = NAMES.map(str::to_owned).to_vec();
        names.sort();
        assert_eq!(all.table().keys().cloned().collect::<Vec<_>>(), names);
        let access = all.access();
        let again = Settings::default().with_access(&access).expect("paths are absolute");
        assert_eq!(again.access().oidc_ca_file, access.oidc_ca_file);
        assert_eq!(again.table().len(), 12, "{again:?}");
    }

    #[test]
    fn differences_are_named_with_both_values_and_defaults_are_none() {
        let remembered = Settings {
            nodes: Some("2xdgx1".into()),
            listen: Some("127.0.0.1:7370".parse().expect("an address")),
            tls_generate: Some(true),
            ..Settings::default()
        };
        let nothing = Settings { ping_every: Some("20s".into()), ..Settings::default() };
        assert_eq!(shown(&nothing.merged(&remembered, &[]).1), [""; 0]);
        let given = Settings {
            nodes: Some("1xdgx1".into()),
            tls_cert: Some("/c.pem".into()),
            tls_key: Some("/k.pem".into()),
            allow_mount: Some(vec!["/a".into(), "/b".into()]),
            ..Settings::default()
        };
        let (merged, differences) = given.merged(&remembered, &[]);
        assert_eq!(
            shown(&differences),
            [
                "nodes: 2xdgx1 -> 1xdgx1",
                "allow-mount:  -> /a, /b",
                "tls-cert: (not set) -> /c.pem",
                "tls-key: (not set) -> /k.pem",
                "tls-generate: true -> false",
            ]
        );
        assert_eq!((merged.listen, merged.tls_generate), (remembered.listen, None));
        let (merged, differences) = Settings::default().merged(&remembered, &["nodes".into()]);
        assert_eq!(shown(&differences), ["nodes: 2xdgx1 -> this-machine"]);
        assert_eq!(merged.declared(), None);
    }

    #[test]
    fn what_the_file_cannot_hold_is_refused_and_control_characters_are_read_again() {
        use std::os::unix::ffi::OsStrExt;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(b"/\xff.toml"));
        let refused = Settings { images: Some(path), ..Settings::default() }.check().unwrap_err();
        assert!(refused.to_string().contains("not UTF-8"), "{refused}");
        let odd = Settings { images: Some("/a\u{7f}\u{1}\"b".into()), ..Settings::default() };
        assert_eq!(read(&odd.text()).expect("is TOML").images, odd.images);
    }

    #[test]
    fn a_file_that_is_not_understood_is_refused_with_the_reason() {
        for (text, part) in [
            ("nodes = \"2xdgx1\"", "version = 1 is missing"),
            ("version = 2\nnew = 1", "later release"),
            ("version = 1\nnods = \"x\"", "unknown field `nods`"),
            ("version = 1\nlisten = 5", "listen"),
            ("version = ", "settings.toml"),
        ] {
            let refused = read(text).expect_err(text).to_string();
            assert!(refused.contains(part), "{text}: {refused}");
        }
        assert!(parse_name("oidc_name").is_ok() && parse_name("project").is_err());
    }
}
