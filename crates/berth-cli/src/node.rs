//! `berth node`: hosts, and whether they take work.

use crate::{
    failure::{Exit, Failure},
    names,
    output::{Form, OutputArgs},
    session::Session,
    show::WithLabels,
};
use berth_api::{Code, NodeLabels, NodeList};
use berth_client::ClientError;
use clap::{Args, Subcommand};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NodeCommand {
    /// List nodes
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show all about a node, and who is on which GPU
    #[command(visible_alias = "get")]
    Describe(NamedArgs),
    /// Set and remove labels of a node, which group nodes for --node-selector, --topology and pools
    Label(LabelArgs),
    /// Give nodes no new work; what runs on them stays
    Cordon(ManyArgs),
    /// Give nodes work again
    Uncordon(ManyArgs),
    /// Cordon nodes, and return what runs on them to the queue
    Drain(ManyArgs),
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ManyArgs {
    /// Their names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ListArgs {
    /// Add a column with the labels
    #[arg(short = 'L', long)]
    show_labels: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  berth node label node1 rack=r1
  berth node label node1 rack=r2 --overwrite
  berth node label node1 rack-                     removes the label
  berth node label node1 berth/pool=research       moves an empty node to a pool

Labels survive a restart, and win over those of `berth up --nodes`. Work that runs on the node stays.")]
pub(crate) struct LabelArgs {
    /// Name of the node
    name: String,
    /// Labels to set, as KEY=VALUE, and to remove, as KEY-
    #[arg(required = true, value_name = "KEY=VALUE|KEY-", value_parser = parse_label)]
    labels: Vec<Label>,
    /// Change labels that have another value
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// A label as it is typed: with its value, or without when it is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Label(String, Option<String>);

fn parse_label(text: &str) -> Result<Label, String> {
    let label = match (text.split_once('='), text.strip_suffix('-')) {
        (Some((key, value)), _) => Label(key.to_owned(), Some(value.to_owned())),
        (None, Some(key)) => Label(key.to_owned(), None),
        (None, None) => return Err("write KEY=VALUE to set a label, KEY- to remove one".into()),
    };
    let is_label =
        berth_api::is_label_key(&label.0) && label.1.as_deref().is_none_or(berth_api::is_label_value);
    if is_label { Ok(label) } else { Err(berth_api::LABEL_RULE.into()) }
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NamedArgs {
    /// Its name
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(session: &Session, command: &NodeCommand) -> anyhow::Result<Exit> {
    match command {
        NodeCommand::List(arguments) => {
            let nodes = session.client.nodes().await?;
            match arguments.show_labels {
                true => session.show(arguments.output, &WithLabels(nodes))?,
                false => session.show(arguments.output, &nodes)?,
            }
            Ok(Exit::Done)
        }
        NodeCommand::Label(arguments) => label(session, arguments).await,
        NodeCommand::Describe(arguments) => {
            let name = arguments.name.as_str();
            names::check_host(name)?;
            match session.client.node(name).await {
                Ok(node) => session.show(arguments.output, &node)?,
                Err(error) => return Err(missing(session, error, name).await),
            }
            Ok(Exit::Done)
        }
        NodeCommand::Cordon(arguments) => each(session, arguments, "cordon").await,
        NodeCommand::Uncordon(arguments) => each(session, arguments, "uncordon").await,
        NodeCommand::Drain(arguments) => each(session, arguments, "drain").await,
    }
}

/// Does it to each node, whatever becomes of the others; the exit code is that of the first failure.
async fn each(session: &Session, arguments: &ManyArgs, verb: &str) -> anyhow::Result<Exit> {
    for name in &arguments.names {
        names::check_host(name)?;
    }
    let mut changed = Vec::new();
    let mut exit = Exit::Done;
    for name in &arguments.names {
        match session.client.node_action(name, verb).await {
            Ok(node) => {
                session.say(&format!("berth: node {name} is {:?} now", node.state));
                changed.push(node);
            }
            Err(error) => {
                let failure = Failure::of(&missing(session, error, name).await);
                if arguments.names.len() == 1 || failure.exit == Exit::NotRunning {
                    return Err(failure.into());
                }
                eprintln!("berth: {failure}");
                exit = if exit == Exit::Done { failure.exit } else { exit };
            }
        }
    }
    // The page about a node is long, and was not asked for.
    if arguments.output.form() != Form::Table {
        match &changed[..] {
            [one] if arguments.names.len() == 1 => session.show(arguments.output, one)?,
            _ => session.show(arguments.output, &NodeList { items: changed })?,
        }
    }
    Ok(exit)
}

async fn label(session: &Session, arguments: &LabelArgs) -> anyhow::Result<Exit> {
    let name = arguments.name.as_str();
    names::check_host(name)?;
    let mut change = NodeLabels { overwrite: arguments.overwrite, ..NodeLabels::default() };
    for Label(key, value) in &arguments.labels {
        let before = match value {
            Some(value) => {
                change.set.insert(key.clone(), value.clone()).is_some() || change.remove.contains(key)
            }
            None => {
                change.remove.push(key.clone());
                change.set.contains_key(key) || change.remove.iter().filter(|other| *other == key).count() > 1
            }
        };
        if before {
            return Err(Failure::misuse(format!("the label {key} is named twice")).into());
        }
    }
    let node = match session.client.label_node(name, &change).await {
        Ok(node) => node,
        Err(error) => return Err(missing(session, error, name).await),
    };
    let labels: Vec<String> = node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let labels =
        if labels.is_empty() { "no labels".into() } else { format!("the labels {}", labels.join(", ")) };
    session.say(&format!("berth: node {name} has {labels} now"));
    if arguments.output.form() != Form::Table {
        session.show(arguments.output, &node)?;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_set_and_removed_as_in_kubectl() {
        assert_eq!(parse_label("rack=r1"), Ok(Label("rack".into(), Some("r1".into()))));
        assert_eq!(
            parse_label("example.org/rack="),
            Ok(Label("example.org/rack".into(), Some(String::new())))
        );
        assert_eq!(parse_label("rack-"), Ok(Label("rack".into(), None)));
        for bad in ["rack", "=r1", "-", "a b=c", "rack=a b", "rack=-x", "a/b/c=d"] {
            assert!(parse_label(bad).is_err(), "{bad}");
        }
    }
}
