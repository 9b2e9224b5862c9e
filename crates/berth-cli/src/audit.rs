//! `berth audit`: who changed what, and what was refused.

use crate::{
    failure::Exit,
    output::{self, Form, OutputArgs},
    session::Session,
    show::audit_line,
};
use berth_api::{AuditList, AuditQuery};
use clap::Args;
use std::time::Duration;

/// How often a follower asks.
const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  berth audit                     the last 50
  berth audit --user bob -f       of one user, as they come
  berth audit -p team-a --json")]
pub(crate) struct AuditArgs {
    /// Only of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only about this project
    #[arg(short, long, value_name = "NAME")]
    project: Option<String>,
    /// Go on as they come
    #[arg(short, long)]
    follow: bool,
    /// Only the last so many
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N")]
    last: usize,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(session: &Session, arguments: &AuditArgs) -> anyhow::Result<Exit> {
    let mut query = AuditQuery {
        after: None,
        before: None,
        limit: Some(arguments.last),
        user: arguments.user.clone(),
        project: arguments.project.clone(),
    };
    let mut list = session.client.audit(&query).await?;
    if !arguments.follow {
        session.show(arguments.output, &list)?;
        return Ok(Exit::Done);
    }
    while write(session, arguments, &list)? {
        if list.items.is_empty() {
            tokio::time::sleep(ASK_EVERY).await;
        }
        query = AuditQuery { after: Some(list.cursor), limit: None, ..query };
        list = session.client.audit(&query).await?;
    }
    Ok(Exit::Done)
}

/// Entries as lines that do not depend on what comes later.
fn write(session: &Session, arguments: &AuditArgs, list: &AuditList) -> anyhow::Result<bool> {
    let look = session.look(arguments.output);
    let text = match arguments.output.form() {
        Form::Json => {
            let lines = list.items.iter().map(|entry| serde_json::to_string(entry).map(|line| line + "\n"));
            lines.collect::<Result<String, _>>()?
        }
        Form::Table | Form::Wide => list.items.iter().map(|entry| audit_line(entry, &look)).collect(),
        form => output::render(form, &look, list)?,
    };
    output::write_part(text.as_bytes())
}
