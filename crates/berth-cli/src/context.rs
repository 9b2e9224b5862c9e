//! Contexts: servers by name, so that one command line serves a laptop and a cluster.
//!
//! Each is a file of its own, for its owner alone, because it holds a token.

use crate::{
    config::{self, Config},
    failure::{Exit, Failure},
    names,
    output::{self, Look, OutputArgs, Show, table::Table},
    session::ServerArgs,
};
use anyhow::Context as _;
use berth_client::{Address, Endpoint};
use berth_tls::{Fingerprint, Trust};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The longest token that is read.
const TOKEN_BYTES_MAX: u64 = 8 << 10;

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Show the servers that are known by name
    #[command(visible_alias = "ls")]
    List(OutputArgs),
    /// Remember a server under a name
    Add(AddArgs),
    /// Choose the server of commands that name none
    Use {
        /// Its name; `default` is the server of this machine
        name: String,
    },
    /// Forget a server
    #[command(visible_alias = "delete")]
    Remove {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  berth context add lab --server http://127.0.0.1:7370 --token-file token
  kubectl -n berth-system exec deploy/berth-server -- berth-gate token | berth context add lab --server http://127.0.0.1:7370 --token-file -
  berth context use lab")]
pub(crate) struct AddArgs {
    /// The name
    name: String,
    /// A file with the token of the server that --server names; `-` reads it from the input
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    trust: TrustArgs,
}

/// Whom to believe.
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// Believe the one certificate with this fingerprint, as the server prints it when it starts
    #[arg(long, value_name = "SHA256:HASH")]
    trust_fingerprint: Option<Fingerprint>,
}

impl TrustArgs {
    /// Whose certificate is believed, as it is kept.
    pub(crate) fn kept(&self, server: &ServerArgs) -> anyhow::Result<Kept> {
        let trust = match self.trust_fingerprint {
            Some(_) if server.ca_file.is_some() => {
                let text = "--trust-fingerprint and --ca-file are two ways of the same; choose one";
                return Err(Failure::misuse(text).into());
            }
            Some(fingerprint) => Some(Trust::Fingerprint(fingerprint)),
            None => server.trust()?,
        };
        Ok(match trust {
            None | Some(Trust::System) => Kept::default(),
            Some(Trust::Authorities(text)) => Kept { authorities: Some(text), ..Kept::default() },
            Some(Trust::Fingerprint(hash)) => Kept { fingerprint: Some(hash.to_string()), ..Kept::default() },
        })
    }
}

/// Whose certificate a server may show: what these authorities signed, or the one with this fingerprint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authorities: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
}

impl Kept {
    fn trust(&self) -> anyhow::Result<Trust> {
        Ok(match (&self.fingerprint, &self.authorities) {
            (Some(fingerprint), _) => Trust::Fingerprint(fingerprint.parse().map_err(Failure::misuse)?),
            (None, Some(text)) => Trust::Authorities(text.clone()),
            (None, None) => Trust::System,
        })
    }
}

/// A server by name.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Known {
    /// Somewhere.
    Server {
        address: String,
        #[serde(default)]
        token: String,
        #[serde(flatten)]
        trust: Kept,
    },
    /// On this machine.
    Folder(PathBuf),
}

/// A token is a secret, so it is left out of whatever is printed for debugging.
impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.place())
    }
}

impl Known {
    fn place(&self) -> String {
        match self {
            Self::Server { address, .. } => address.clone(),
            Self::Folder(folder) => folder.display().to_string(),
        }
    }

    pub(crate) fn endpoint(&self) -> anyhow::Result<Endpoint> {
        match self {
            Self::Server { address, token, trust } => {
                Ok(Endpoint::new(address.parse::<Address>()?, token)?.trusting(trust.trust()?))
            }
            Self::Folder(folder) => Ok(Endpoint::of_folder(folder)?),
        }
    }
}

/// The name of the server of this machine, which is known without being remembered.
pub(crate) const DEFAULT: &str = "default";

fn folder() -> anyhow::Result<PathBuf> {
    let config = config::default_path()
        .ok_or_else(|| Failure::misuse("no folder for settings is known, since HOME is not set"))?;
    Ok(config.with_file_name("contexts"))
}

fn file(name: &str) -> anyhow::Result<PathBuf> {
    names::check("context", name)?;
    Ok(folder()?.join(format!("{name}.json")))
}

/// A server by its name; nothing is the one of this machine.
pub(crate) fn find(name: &str) -> anyhow::Result<Option<Known>> {
    if name == DEFAULT {
        return Ok(None);
    }
    let path = file(name)?;
    match fs::read(&path) {
        Ok(text) => {
            let known = serde_json::from_slice(&text);
            known.map(Some).with_context(|| format!("{} cannot be understood", path.display()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let all = all()?;
            let names = all.iter().map(|(name, _)| name.as_str()).chain([DEFAULT]);
            let hint = match names::nearest(name, names) {
                Some(nearest) => format!("did you mean {nearest}? all are shown by `berth context list`"),
                None => "all are shown by `berth context list`; `berth context add` remembers one".into(),
            };
            let text = format!("there is no context {}", names::quoted(name));
            Err(Failure::new(Exit::NotFound, text).hint(hint).into())
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Every server that is remembered, by name.
fn all() -> anyhow::Result<Vec<(String, Known)>> {
    let folder = folder()?;
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", folder.display())),
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.extension().is_some_and(|extension| extension == "json") && berth_api::is_name(&name) {
            let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let known = serde_json::from_slice(&text)
                .with_context(|| format!("{} cannot be understood", path.display()))?;
            all.push((name, known));
        }
    }
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(all)
}

/// Remembers a server.
pub(crate) fn save(name: &str, known: &Known) -> anyhow::Result<()> {
    let path = file(name)?;
    let context = || format!("cannot write {}", path.display());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder()?).with_context(context)?;
    // Written aside first, so that a full disk does not lose what was there.
    let aside = path.with_extension("new");
    let _ = fs::remove_file(&aside);
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside);
    let text = serde_json::to_vec(known).context("a context is JSON")?;
    let written = file.and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()));
    written.with_context(context)?;
    fs::rename(&aside, &path).with_context(context)
}

pub(crate) fn run(server: &ServerArgs, command: &ContextCommand) -> anyhow::Result<Exit> {
    match command {
        ContextCommand::List(output) => list(server, *output)?,
        ContextCommand::Add(arguments) => add(server, arguments)?,
        ContextCommand::Use { name } => {
            // Whether it is known is asked before it is chosen.
            find(name)?;
            let path = config::default_path().expect("contexts are beside it");
            Config::save(&path, "context", name)?;
            eprintln!("commands go to {name}");
        }
        ContextCommand::Remove { name } => {
            find(name)?;
            if name == DEFAULT {
                return Err(Failure::misuse("the server of this machine is not remembered by name").into());
            }
            let path = file(name)?;
            fs::remove_file(&path).with_context(|| format!("cannot delete {}", path.display()))?;
            let config = config::default_path().expect("contexts are beside it");
            if Config::load(Some(&config))?.context.as_deref() == Some(name) {
                Config::save(&config, "context", DEFAULT)?;
                eprintln!("{name} is forgotten; commands go to the server of this machine");
            } else {
                eprintln!("{name} is forgotten");
            }
        }
    }
    Ok(Exit::Done)
}

/// Servers by name, and which one is chosen.
#[derive(Debug, Serialize)]
struct Contexts {
    items: Vec<Context>,
}

#[derive(Debug, Serialize)]
struct Context {
    name: String,
    server: String,
    chosen: bool,
}

impl Show for Contexts {
    fn text(&self, look: &Look) -> String {
        let mut table = Table::new(&["NAME", "SERVER", "CHOSEN"]);
        for context in &self.items {
            let chosen = if context.chosen { "yes" } else { "" };
            table.row(vec![context.name.clone().into(), context.server.clone().into(), chosen.into()]);
        }
        look.table(&table)
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(|context| context.name.clone()).collect()
    }
}

fn list(server: &ServerArgs, output: OutputArgs) -> anyhow::Result<()> {
    let config = Config::load(config::default_path().as_deref())?;
    let chosen = server.target(&config)?;
    // The environment is closer than what was chosen once, and a list that hid that would send people to the wrong server.
    if let Some(variable) = chosen.variable() {
        eprintln!("berth: {variable} is set, so commands go to {}", chosen.shown());
    }
    let own = (DEFAULT.to_owned(), Known::Folder(server.folder()?));
    let item = |(name, known): (String, Known)| Context {
        chosen: chosen.is_context(&name),
        server: known.place(),
        name,
    };
    let contexts = Contexts { items: [own].into_iter().chain(all()?).map(item).collect() };
    let look = Look::of(output);
    output::write_part(output::render(output.form(), &look, &contexts)?.as_bytes()).map(drop)
}

fn add(server: &ServerArgs, arguments: &AddArgs) -> anyhow::Result<()> {
    if arguments.name == DEFAULT {
        return Err(Failure::misuse("`default` is the server of this machine; choose another name").into());
    }
    let known = match (&server.server, &server.folder) {
        (Some(address), _) => {
            let address = address.parse::<Address>()?.to_string();
            let token = arguments.token_file.as_deref().map(read_token).transpose()?.unwrap_or_default();
            Known::Server { address, token, trust: arguments.trust.kept(server)? }
        }
        (None, Some(folder)) => Known::Folder(std::path::absolute(folder)?),
        (None, None) => {
            let failure = Failure::misuse("no server is named");
            return Err(failure
                .hint("name it with --server URL, or with --folder DIR on this machine")
                .into());
        }
    };
    save(&arguments.name, &known)?;
    let name = &arguments.name;
    eprintln!("{name} is {}; choose it with `berth context use {name}` or --context {name}", known.place());
    Ok(())
}

pub(crate) fn read_token(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let context = || format!("cannot read a token from {}", path.display());
    if path == Path::new("-") {
        io::stdin().take(TOKEN_BYTES_MAX).read_to_string(&mut text).with_context(context)?;
    } else {
        fs::File::open(path)
            .and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut text))
            .with_context(context)?;
    }
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::misuse(format!("{} holds no token", path.display())).into());
    }
    Ok(token.to_owned())
}
