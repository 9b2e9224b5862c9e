//! `berth department`: projects that share a quota.

use crate::{
    failure::{Exit, Failure},
    names,
    output::{Form, OutputArgs},
    project::{ListArgs, NamedArgs},
    session::Session,
    submit::warn,
};
use berth_api::{Code, DepartmentSettings, GpuAmount};
use berth_client::ClientError;
use clap::{Args, Subcommand};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum DepartmentCommand {
    /// Make a department
    #[command(after_help = "Example:\n  berth department create vision --quota 12")]
    Create(SettingsArgs),
    /// Change what is set of a department; what is not named stays
    Update(SettingsArgs),
    /// List departments
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show all about a department
    #[command(visible_alias = "get")]
    Describe(NamedArgs),
    /// Delete departments that nothing depends on
    Delete {
        /// The departments
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
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
    parent: Option<String>,
    /// The pool of nodes that quota, limit, weight and rank are for
    #[arg(long, value_name = "POOL")]
    node_pool: Option<String>,
    /// GPUs never passed
    #[arg(long, value_name = "GPUS")]
    limit: Option<GpuAmount>,
    /// Weight when idle GPUs are shared; 0 does not borrow
    #[arg(long)]
    weight: Option<GpuAmount>,
    /// Higher ranks are served first when idle GPUs are shared
    #[arg(long, allow_negative_numbers = true)]
    rank: Option<i32>,
    /// A setting to be unset, such as limit
    #[arg(long, value_name = "SETTING", value_delimiter = ',')]
    unset: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
}

impl SettingsArgs {
    fn settings(&self) -> DepartmentSettings {
        DepartmentSettings {
            name: None,
            parent: self.parent.clone(),
            node_pool: self.node_pool.clone(),
            quota: self.quota,
            limit: self.limit,
            weight: self.weight,
            rank: self.rank,
            unset: self.unset.iter().map(|name| name.replace('-', "_")).collect(),
        }
    }
}

pub(crate) async fn run(session: &Session, command: &DepartmentCommand) -> anyhow::Result<Exit> {
    match command {
        DepartmentCommand::Create(arguments) => {
            names::check("department", &arguments.name)?;
            let settings = DepartmentSettings { name: Some(arguments.name.clone()), ..arguments.settings() };
            let created = session.client.create_department(&settings).await?;
            warn(&created.warnings);
            session.say(&format!("berth: department {} created", arguments.name));
            // The page about it would hold what was just typed.
            if arguments.output.form() != Form::Table {
                session.show(arguments.output, &created)?;
            }
        }
        DepartmentCommand::Update(arguments) => {
            names::check("department", &arguments.name)?;
            match session.client.update_department(&arguments.name, &arguments.settings()).await {
                Ok(updated) => {
                    warn(&updated.warnings);
                    session.show(arguments.output, &updated)?;
                }
                Err(error) => return Err(missing(session, error, &arguments.name).await),
            }
        }
        DepartmentCommand::List(arguments) => {
            session.show(arguments.output, &session.client.departments(arguments.pool.as_deref()).await?)?;
        }
        DepartmentCommand::Describe(NamedArgs { name, list }) => {
            names::check("department", name)?;
            match session.client.department(name, list.pool.as_deref()).await {
                Ok(department) => session.show(list.output, &department)?,
                Err(error) => return Err(missing(session, error, name).await),
            }
        }
        DepartmentCommand::Delete { names } => {
            for name in names {
                names::check("department", name)?;
                if let Err(error) = session.client.delete_department(name).await {
                    return Err(missing(session, error, name).await);
                }
                session.say(&format!("berth: department {name} deleted"));
            }
        }
    }
    Ok(Exit::Done)
}

/// Adds to "not found" which name was probably meant.
async fn missing(session: &Session, error: ClientError, name: &str) -> anyhow::Error {
    if error.problem().is_none_or(|problem| problem.code != Code::NotFound) {
        return error.into();
    }
    let Ok(all) = session.client.departments(None).await else { return error.into() };
    let shown = "all are shown by `berth department list`";
    let hint = match names::nearest(name, all.items.iter().map(|department| department.name.as_str())) {
        Some(nearest) => format!("did you mean {nearest}? {shown}"),
        None => shown.to_owned(),
    };
    Failure::new(Exit::NotFound, format!("there is no department {}", names::quoted(name))).hint(hint).into()
}
