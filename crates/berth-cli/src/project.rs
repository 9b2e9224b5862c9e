//! `berth project`: who owns quota.

use crate::{
    config::{self, Config},
    confirm,
    failure::{Exit, Failure},
    names,
    output::{Form, OutputArgs},
    session::Session,
    submit::{parse_secs, parse_selector, warn},
};
use berth_api::{CoresAmount, GpuAmount, MemoryAmount, ProjectSettings};
use clap::{Args, Subcommand};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ProjectCommand {
    /// Make a project
    #[command(after_help = "Example:\n  berth project create team-a --quota 4 --department vision")]
    Create(SettingsArgs),
    /// Change what is set of a project; what is not named stays
    Update(SettingsArgs),
    /// List projects
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show all about a project
    #[command(visible_alias = "get")]
    Describe(NamedArgs),
    /// Choose the project of commands that name none
    Set {
        /// The project
        name: String,
    },
    /// Delete projects that nothing depends on
    Delete {
        /// The projects
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ListArgs {
    /// What they have in this pool of nodes
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NamedArgs {
    /// Its name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SettingsArgs {
    /// Its name
    name: String,
    /// Guaranteed GPUs
    #[arg(short, long, value_name = "GPUS")]
    quota: Option<GpuAmount>,
    /// The department it is part of; empty for none
    #[arg(long, value_name = "NAME")]
    department: Option<String>,
    /// The pool of nodes that quota, limit, weight and rank are for
    #[arg(long, value_name = "POOL")]
    node_pool: Option<String>,
    /// Guaranteed GPUs of a model, part of the quota
    #[arg(long, value_name = "MODEL=GPUS", value_parser = parse_model_quota)]
    model_quota: Vec<(String, GpuAmount)>,
    /// Guaranteed cores
    #[arg(long, value_name = "CORES")]
    cpu_quota: Option<CoresAmount>,
    /// Guaranteed memory
    #[arg(long, value_name = "BYTES")]
    memory_quota: Option<MemoryAmount>,
    /// GPUs never passed
    #[arg(long, value_name = "GPUS")]
    limit: Option<GpuAmount>,
    /// Weight when idle GPUs are shared; 0 does not borrow
    #[arg(long)]
    weight: Option<GpuAmount>,
    /// Higher ranks are served first when idle GPUs are shared
    #[arg(long, allow_negative_numbers = true)]
    rank: Option<i32>,
    /// A label of nodes that training may use
    #[arg(long, value_name = "LABEL=VALUE", value_parser = parse_selector)]
    train_nodes: Vec<(String, String)>,
    /// A label of nodes that interactive work may use
    #[arg(long, value_name = "LABEL=VALUE", value_parser = parse_selector)]
    interactive_nodes: Vec<(String, String)>,
    /// End interactive work after this time; 0s for never
    #[arg(long, value_name = "TIME", value_parser = parse_secs)]
    interactive_limit: Option<u64>,
    /// End any work after this time; 0s for never
    #[arg(long, value_name = "TIME", value_parser = parse_secs)]
    time_limit: Option<u64>,
    /// Suspend work whose GPUs have been idle for this time; 0s for never
    #[arg(long, value_name = "TIME", value_parser = parse_secs)]
    idle_limit: Option<u64>,
    /// Evict nothing before it ran this long
    #[arg(long, value_name = "TIME", value_parser = parse_secs)]
    min_run: Option<u64>,
    /// Whether its work may use the network of the node, on Kubernetes; `=false` takes it back
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_host_network: Option<bool>,
    /// Whether its work may be privileged and see folders of the node, on Kubernetes; `=false` takes it back
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_privileged: Option<bool>,
    /// A setting to be unset, such as limit or train_nodes
    #[arg(long, value_name = "SETTING", value_delimiter = ',')]
    unset: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
}

impl SettingsArgs {
    pub(crate) fn settings(&self) -> ProjectSettings {
        let labels = |pairs: &[(String, String)]| {
            let mut labels: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (label, value) in pairs {
                labels.entry(label.clone()).or_default().push(value.clone());
            }
            (!labels.is_empty()).then_some(labels)
        };
        ProjectSettings {
            name: None,
            department: self.department.clone(),
            node_pool: self.node_pool.clone(),
            quota: self.quota,
            model_quotas: (!self.model_quota.is_empty()).then(|| self.model_quota.iter().cloned().collect()),
            cpu_quota: self.cpu_quota,
            memory_quota: self.memory_quota,
            limit: self.limit,
            weight: self.weight,
            rank: self.rank,
            train_nodes: labels(&self.train_nodes),
            interactive_nodes: labels(&self.interactive_nodes),
            interactive_limit_secs: self.interactive_limit,
            time_limit_secs: self.time_limit,
            idle_limit_secs: self.idle_limit,
            min_run_secs: self.min_run,
            allow_host_network: self.allow_host_network,
            allow_privileged: self.allow_privileged,
            unset: self.unset.iter().map(|name| name.replace('-', "_")).collect(),
        }
    }
}

fn parse_model_quota(text: &str) -> Result<(String, GpuAmount), String> {
    let (model, quota) = parse_selector(text).map_err(|_| "write MODEL=GPUS, as A100=4")?;
    Ok((model, quota.parse().map_err(|error: berth_types::AmountError| error.to_string())?))
}

pub(crate) async fn run(session: &Session, command: &ProjectCommand) -> anyhow::Result<Exit> {
    match command {
        ProjectCommand::Create(arguments) => {
            names::check("project", &arguments.name)?;
            let settings = ProjectSettings { name: Some(arguments.name.clone()), ..arguments.settings() };
            let created = session.client.create_project(&settings).await?;
            warn(&created.warnings);
            session.say(&format!("berth: project {} created", arguments.name));
            // The page about it would hold what was just typed.
            if arguments.output.form() != Form::Table {
                session.show(arguments.output, &created)?;
            }
        }
        ProjectCommand::Update(arguments) => {
            names::check("project", &arguments.name)?;
            let settings = arguments.settings();
            if settings == ProjectSettings::default() {
                return Err(Failure::misuse("nothing is named to be changed")
                    .hint("see what can be set with `berth project update --help`")
                    .into());
            }
            match session.client.update_project(&arguments.name, &settings).await {
                Ok(updated) => {
                    warn(&updated.warnings);
                    session.show(arguments.output, &updated)?;
                }
                Err(error) => return Err(session.missing_project(error, &arguments.name).await),
            }
        }
        ProjectCommand::List(arguments) => {
            let projects = session.client.projects(arguments.pool.as_deref()).await?;
            if projects.items.is_empty() {
                session.say("berth: there is no project yet; create one with `berth project create NAME --quota GPUS`");
            }
            session.show(arguments.output, &projects)?;
        }
        ProjectCommand::Describe(NamedArgs { name, list }) => {
            names::check("project", name)?;
            match session.client.project(name, list.pool.as_deref()).await {
                Ok(project) => session.show(list.output, &project)?,
                Err(error) => return Err(session.missing_project(error, name).await),
            }
        }
        ProjectCommand::Set { name } => set(session, name).await?,
        ProjectCommand::Delete { names, yes } => {
            for name in names {
                names::check("project", name)?;
            }
            if !yes {
                ask_before_delete(session, names).await?;
            }
            for name in names {
                if let Err(error) = session.client.delete_project(name).await {
                    return Err(session.missing_project(error, name).await);
                }
                session.say(&format!("berth: project {name} deleted"));
            }
        }
    }
    Ok(Exit::Done)
}

/// Asks once for all of them, with what goes along.
async fn ask_before_delete(session: &Session, names: &[String]) -> anyhow::Result<()> {
    for name in names {
        if let Err(error) = session.client.project(name, None).await {
            return Err(session.missing_project(error, name).await);
        }
    }
    // Who may not list roles is not shown them; the server decides whether they may delete.
    let grants = session.client.roles().await.map(|list| list.items).unwrap_or_default();
    let is_theirs =
        |scope: &berth_api::Scope| matches!(scope, berth_api::Scope::Project(name) if names.contains(name));
    let roles = grants.iter().filter(|grant| is_theirs(&grant.scope)).count();
    let what = if names.len() == 1 {
        format!("project {}", names[0])
    } else {
        format!("projects {}", names.join(", "))
    };
    let roles = match roles {
        0 => String::new(),
        1 => " One role in it is revoked.".into(),
        count => format!(" {count} roles in it are revoked."),
    };
    confirm::ask(&format!(
        "Delete {what}?{roles} Finished workloads stay in the history, visible to administrators only."
    ))
    .map_err(Into::into)
}

/// Chooses the default project, once it is known to exist.
async fn set(session: &Session, name: &str) -> anyhow::Result<()> {
    names::check("project", name)?;
    if let Err(error) = session.client.project(name, None).await {
        return Err(session.missing_project(error, name).await);
    }
    let path = config::default_path().ok_or_else(|| {
        Failure::misuse("no folder is known, since HOME is not set").hint("set XDG_CONFIG_HOME")
    })?;
    Config::save(&path, &Config::project_key(session.key.as_deref()), name)?;
    let at = session.key.as_ref().map(|key| format!(" at {key}")).unwrap_or_default();
    session
        .say(&format!("{}: commands that name no project now mean {name}{at}", session.spelling.command()));
    Ok(())
}
