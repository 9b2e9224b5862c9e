//! A command's view of the world: the server, the person, the chosen project, and how answers look.

use crate::{
    config::{self, Config},
    context,
    failure::{Exit, Failure},
    names,
    output::{self, Look, OutputArgs, Show, Spelling},
};
use berth_api::{Code, Project, WorkloadQuery};
use berth_client::{Client, ClientError, Endpoint};
use berth_tls::Trust;
use clap::Args;
use std::{path::PathBuf, sync::Arc};

/// Which server is meant.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    // The variables are read below: as a part of the definition they would be shown in the usage of whatever was mistyped.
    /// The address of the server, as http://127.0.0.1:7370 [env: BERTH_SERVER]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The folder of a server on this machine [env: BERTH_HOME] [default: ~/.local/share/berth]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// A server by its name, as `berth context list` shows them [env: BERTH_CONTEXT]
    #[arg(long, global = true, value_name = "NAME", conflicts_with_all = ["server", "folder"])]
    pub(crate) context: Option<String>,
    /// A file with the authority, or the certificate itself (PEM), of a server that speaks TLS [env: BERTH_CA_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl ServerArgs {
    /// The folder that is meant, whether or not a server runs there.
    pub(crate) fn folder(&self) -> Result<PathBuf, Failure> {
        let named = self.folder.clone().or_else(|| variable("BERTH_HOME").map(PathBuf::from));
        let folder = named.or_else(config::default_folder);
        folder.ok_or_else(|| {
            Failure::misuse("no folder is known, since HOME is not set").hint("name one with --folder")
        })
    }

    /// Which server commands go to. What is typed is closer than the environment, and that is closer than what was chosen once.
    pub(crate) fn target(&self, config: &Config) -> Result<Target, Failure> {
        let text = |name: &str| variable(name)?.into_string().ok();
        let of = |by, server| Ok(Target { server, by });
        if let Some(address) = &self.server {
            return of(By::Typed, Meant::Address(address.clone()));
        }
        if let Some(context) = &self.context {
            return of(By::Typed, Meant::Context(context.clone()));
        }
        if self.folder.is_some() {
            return of(By::Typed, Meant::Folder(self.folder()?));
        }
        if let Some(address) = text("BERTH_SERVER") {
            return of(By::Variable("BERTH_SERVER"), Meant::Address(address));
        }
        if let Some(context) = text("BERTH_CONTEXT") {
            return of(By::Variable("BERTH_CONTEXT"), Meant::Context(context));
        }
        if text("BERTH_HOME").is_some() {
            return of(By::Variable("BERTH_HOME"), Meant::Folder(self.folder()?));
        }
        of(By::Chosen, Meant::Context(config.context.clone().unwrap_or_else(|| context::DEFAULT.into())))
    }

    /// Where commands are sent.
    pub(crate) fn endpoint(&self, config: &Config) -> anyhow::Result<Endpoint> {
        match self.target(config)?.server {
            Meant::Address(address) => self.at(&address),
            Meant::Context(context) => self.known(&context),
            Meant::Folder(folder) => Ok(Endpoint::of_folder(&folder)?),
        }
    }

    fn known(&self, name: &str) -> anyhow::Result<Endpoint> {
        match context::find(name)? {
            Some(known) => Ok(match self.trust()? {
                Some(trust) => known.endpoint()?.trusting(trust),
                None => known.endpoint()?,
            }),
            None => Ok(Endpoint::of_folder(&self.folder()?)?),
        }
    }

    fn at(&self, address: &str) -> anyhow::Result<Endpoint> {
        let token = std::env::var("BERTH_TOKEN").unwrap_or_default();
        let endpoint = Endpoint::new(address.parse::<berth_client::Address>()?, token.trim())?;
        Ok(match self.trust()? {
            Some(trust) => endpoint.trusting(trust),
            None => endpoint,
        })
    }

    /// Whose certificate is believed, if that is said.
    pub(crate) fn trust(&self) -> anyhow::Result<Option<Trust>> {
        let file = self.ca_file.clone().or_else(|| variable("BERTH_CA_FILE").map(PathBuf::from));
        let trust = file.map(|file| Trust::of_file(&file)).transpose();
        trust.map_err(|error| Failure::misuse(error.to_string()).into())
    }
}

/// The server that commands go to, and what decided that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    server: Meant,
    by: By,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Meant {
    Address(String),
    Folder(PathBuf),
    Context(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Typed,
    Variable(&'static str),
    Chosen,
}

impl Target {
    /// The variable of the environment that decided it.
    pub(crate) fn variable(&self) -> Option<&'static str> {
        match self.by {
            By::Variable(name) => Some(name),
            By::Typed | By::Chosen => None,
        }
    }

    /// Whether it is the server of this context. The folder that BERTH_HOME names is that of `default`.
    pub(crate) fn is_context(&self, name: &str) -> bool {
        match &self.server {
            Meant::Context(context) => context == name,
            Meant::Folder(_) => name == context::DEFAULT && self.variable() == Some("BERTH_HOME"),
            Meant::Address(_) => false,
        }
    }

    pub(crate) fn shown(&self) -> String {
        match &self.server {
            Meant::Address(address) => address.clone(),
            Meant::Folder(folder) => folder.display().to_string(),
            Meant::Context(context) => format!("context {context}"),
        }
    }

    /// The name under which settings of this server are kept; none for the server of this machine.
    pub(crate) fn key(&self) -> Option<String> {
        match &self.server {
            Meant::Context(context) if context == context::DEFAULT => None,
            Meant::Folder(folder) if config::default_folder().as_ref() == Some(folder) => None,
            Meant::Context(context) => Some(context.clone()),
            Meant::Address(address) => Some(address.trim_end_matches('/').to_owned()),
            Meant::Folder(folder) => Some(folder.display().to_string()),
        }
    }
}

/// The project a command is about.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ProjectArg {
    /// The project; the one chosen with `project set` when absent
    #[arg(short, long, env = "BERTH_PROJECT", value_name = "NAME")]
    pub(crate) project: Option<String>,
}

/// A workload by project and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) project: String,
    pub(crate) name: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.project, self.name)
    }
}

pub(crate) struct Session {
    pub(crate) client: Arc<Client>,
    pub(crate) spelling: Spelling,
    pub(crate) config: Config,
    /// The name under which settings of this server are kept.
    pub(crate) key: Option<String>,
}

impl Session {
    pub(crate) fn open(server: &ServerArgs, user: Option<&str>, spelling: Spelling) -> anyhow::Result<Self> {
        let user = user.map_or_else(user_name, str::to_owned);
        let mut config = Config::load(config::default_path().as_deref())?;
        let key = server.target(&config)?.key();
        let client = Arc::new(Client::new(server.endpoint(&config)?, &user));
        config.project = config.project_of(key.as_deref());
        Ok(Self { client, spelling, config, key })
    }

    /// For what a workload does by itself.
    pub(crate) fn of_workload(client: Client) -> Self {
        Self { client: Arc::new(client), spelling: Spelling::Berth, config: Config::default(), key: None }
    }

    pub(crate) fn look(&self, output: OutputArgs) -> Look {
        Look { spelling: self.spelling, default_project: self.config.project.clone(), ..Look::of(output) }
    }

    /// Writes an answer to stdout.
    pub(crate) fn show(&self, output: OutputArgs, what: &impl Show) -> anyhow::Result<()> {
        let text = output::render(output.form(), &self.look(output), what)?;
        output::write_part(text.as_bytes()).map(|_| ())
    }

    /// The project that is named or chosen, if one is.
    pub(crate) fn chosen_project(&self, argument: &ProjectArg) -> Result<Option<String>, Failure> {
        let project = argument.project.clone().or_else(|| self.config.project.clone());
        if let Some(project) = &project {
            names::check("project", project)?;
        }
        Ok(project)
    }

    /// The project that is named or chosen, or the only one there is.
    pub(crate) async fn project(&self, argument: &ProjectArg) -> anyhow::Result<String> {
        if let Some(project) = self.chosen_project(argument)? {
            return Ok(project);
        }
        let command = self.spelling.command();
        let mut projects = self.client.projects(None).await?.items;
        match projects.len() {
            0 => Err(Failure::new(Exit::NotFound, "there is no project yet")
                .hint(format!("create one with `{command} project create NAME --quota GPUS`"))
                .into()),
            1 => Ok(projects.remove(0).name),
            _ => {
                let names: Vec<&str> = projects.iter().map(|project| project.name.as_str()).collect();
                Err(Failure::misuse("no project is named or chosen")
                    .hint(format!(
                        "name one with -p, or choose one for all commands with `{command} project set NAME`: {}",
                        names.join(", ")
                    ))
                    .into())
            }
        }
    }

    /// A workload by what a person typed: `name`, or `project/name` as lists write it.
    pub(crate) async fn place(&self, text: &str, argument: &ProjectArg) -> anyhow::Result<Place> {
        let (project, name) = match text.split_once('/') {
            Some((project, name)) => (Some(project), name),
            None => (None, text),
        };
        names::check("workload", name)?;
        let project = match project {
            Some(project) => {
                names::check("project", project)?;
                project.to_owned()
            }
            None => self.project(argument).await?,
        };
        Ok(Place { project, name: name.to_owned() })
    }

    /// Adds to "not found" which name was probably meant.
    pub(crate) async fn missing_project(&self, error: ClientError, project: &str) -> anyhow::Error {
        if error.problem().is_none_or(|problem| problem.code != Code::NotFound) {
            return error.into();
        }
        match self.client.projects(None).await {
            Ok(projects) => self.no_such_project(project, &projects.items).unwrap_or_else(|| error.into()),
            Err(_) => error.into(),
        }
    }

    fn no_such_project(&self, project: &str, projects: &[Project]) -> Option<anyhow::Error> {
        if projects.iter().any(|other| other.name == project) {
            return None;
        }
        let all = format!("all are shown by `{} project list`", self.spelling.command());
        let hint = match names::nearest(project, projects.iter().map(|other| other.name.as_str())) {
            Some(nearest) => format!("did you mean {nearest}? {all}"),
            None => all,
        };
        let text = format!("there is no project {}", names::quoted(project));
        Some(Failure::new(Exit::NotFound, text).hint(hint).into())
    }

    /// Adds to "not found" what is missing, project or workload, and which name was probably meant.
    pub(crate) async fn missing(&self, error: ClientError, place: &Place) -> anyhow::Error {
        if error.problem().is_none_or(|problem| problem.code != Code::NotFound) {
            return error.into();
        }
        if let Ok(projects) = self.client.projects(None).await
            && let Some(missing) = self.no_such_project(&place.project, &projects.items)
        {
            return missing;
        }
        let Place { project, name } = place;
        let all = format!("all are shown by `{} list -p {project}`", self.spelling.command());
        let same = WorkloadQuery { name: Some(name.clone()), ..WorkloadQuery::default() };
        let here = WorkloadQuery { project: Some(project.clone()), ..WorkloadQuery::default() };
        let found = async {
            Ok::<_, ClientError>((self.client.workloads(&same).await?, self.client.workloads(&here).await?))
        };
        let Ok((same, here)) = found.await else { return error.into() };
        if here.value.items.iter().any(|other| other.project == *project && other.name == *name) {
            // It is there; something of it is not.
            return error.into();
        }
        let hint =
            match same.value.items.iter().find(|other| other.name == *name && other.project != *project) {
                Some(other) => format!("there is one in another project: {}/{name}", other.project),
                None => {
                    match names::nearest(name, here.value.items.iter().map(|other| other.name.as_str())) {
                        Some(nearest) => format!("did you mean {nearest}? {all}"),
                        None => all,
                    }
                }
            };
        Failure::new(Exit::NotFound, format!("{project} has no workload {name}")).hint(hint).into()
    }

    /// Says something to the person. In the words of the report it was data; here it is talk.
    pub(crate) fn say(&self, text: &str) {
        eprintln!("{text}");
    }
}

/// The name of the person who runs this process, from the system rather than from what the environment claims.
pub(crate) fn user_name() -> String {
    use std::os::unix::fs::MetadataExt;
    let from_environment = || std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    let Ok(process) = std::fs::metadata("/proc/self") else { return from_environment() };
    let uid = process.uid().to_string();
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut accounts = accounts.lines().map(|line| line.split(':'));
    let found = accounts.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    // People of a directory service are in no file; the environment knows them.
    found.or_else(|| Some(from_environment()).filter(|name| !name.is_empty())).unwrap_or(uid)
}
