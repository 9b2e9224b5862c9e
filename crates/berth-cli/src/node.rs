//! `berth node`: hosts, and whether they take work.

use crate::{
    failure::{Exit, Failure},
    names,
    output::OutputArgs,
    session::Session,
};
use berth_api::Code;
use berth_client::ClientError;
use clap::{Args, Subcommand};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NodeCommand {
    /// List nodes
    #[command(visible_alias = "ls")]
    List(OutputArgs),
    /// Show all about a node, and who is on which GPU
    #[command(visible_alias = "get")]
    Describe(NamedArgs),
    /// Give a node no new work; what runs on it stays
    Cordon(NamedArgs),
    /// Give a node work again
    Uncordon(NamedArgs),
    /// Cordon a node, and return what runs on it to the queue
    Drain(NamedArgs),
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NamedArgs {
    /// Its name
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(session: &Session, command: &NodeCommand) -> anyhow::Result<Exit> {
    let (arguments, verb) = match command {
        NodeCommand::List(output) => {
            session.show(*output, &session.client.nodes().await?)?;
            return Ok(Exit::Done);
        }
        NodeCommand::Describe(arguments) => (arguments, None),
        NodeCommand::Cordon(arguments) => (arguments, Some("cordon")),
        NodeCommand::Uncordon(arguments) => (arguments, Some("uncordon")),
        NodeCommand::Drain(arguments) => (arguments, Some("drain")),
    };
    let name = arguments.name.as_str();
    names::check_host(name)?;
    let answered = match verb {
        None => session.client.node(name).await,
        Some(verb) => session.client.node_action(name, verb).await,
    };
    let node = match answered {
        Ok(node) => node,
        Err(error) => return Err(missing(session, error, name).await),
    };
    if verb.is_some() {
        session.say(&format!("berth: node {name} is {:?} now", node.state));
        // The page about a node is long, and was not asked for.
        if arguments.output.form() == crate::output::Form::Table {
            return Ok(Exit::Done);
        }
    }
    session.show(arguments.output, &node)?;
    Ok(Exit::Done)
}

/// Adds to "not found" which name was probably meant.
async fn missing(session: &Session, error: ClientError, name: &str) -> anyhow::Error {
    if error.problem().is_none_or(|problem| problem.code != Code::NotFound) {
        return error.into();
    }
    let Ok(all) = session.client.nodes().await else { return error.into() };
    let shown = "all are shown by `berth node list`";
    let hint = match names::nearest(name, all.items.iter().map(|node| node.name.as_str())) {
        Some(nearest) => format!("did you mean {nearest}? {shown}"),
        None => shown.to_owned(),
    };
    Failure::new(Exit::NotFound, format!("there is no node {}", names::quoted(name))).hint(hint).into()
}
