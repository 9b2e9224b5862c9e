//! `berth user`, `role`, `token` and `whoami`.

use crate::{failure::Exit, output::OutputArgs, session::Session, show::Me};
use berth_api::{Grant, Role, Scope, TokenRequest, UserChange, UserRequest};
use berth_types::Span;
use clap::{Args, Subcommand};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum UserCommand {
    /// Make a user, who may do nothing yet
    #[command(
        after_help = "Example:\n  berth user create bob\n  berth role grant bob researcher project/team-a\n  \
                      berth token create laptop --user bob"
    )]
    Create {
        /// The name
        name: String,
        /// The account of the machine that their work runs as, by name or as UID:GID; one of their own when absent
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Change under which account of the machine the work of a user runs, from the next submission on
    #[command(
        after_help = "Examples:\n  berth user set bob --account bob\n  berth user set bob --account none"
    )]
    Set {
        /// The user
        name: String,
        /// By name or as UID:GID; `none` for one of their own
        #[arg(long, value_name = "ACCOUNT")]
        account: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// List users, with their roles
    #[command(visible_alias = "ls")]
    List(OutputArgs),
    /// Delete users, with all their roles and tokens; their work stays
    Delete {
        /// The users
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum RoleCommand {
    /// List who has which role where
    #[command(visible_alias = "ls")]
    List(OutputArgs),
    /// Give a user a role in a scope
    #[command(after_help = "\
Roles:
  admin            everything                                        in `all`
  department-lead  projects, people and work below a department      in `department/NAME`
  project-lead     people and all work of a project                  in `project/NAME`
  researcher       submits; changes and enters own work              in `project/NAME`
  viewer           looks                                             in `project/NAME` or `all`

Examples:
  berth role grant bob researcher project/team-a
  berth role grant eve department-lead department/vision")]
    Grant(GrantArgs),
    /// Take a role back
    Revoke(GrantArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct GrantArgs {
    /// The user
    user: String,
    /// admin, department-lead, project-lead, researcher or viewer
    role: Role,
    /// Where: all, department/NAME or project/NAME
    #[arg(default_value = "all")]
    scope: Scope,
}

impl GrantArgs {
    fn grant(&self) -> Grant {
        Grant { user: self.user.clone(), role: self.role, scope: self.scope.clone() }
    }
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, and print it this once
    #[command(after_help = "\
Examples:
  berth token create laptop > token
  berth token create ci --user bob --expires 30d > token")]
    Create(TokenArgs),
    /// List tokens that count, without their secrets
    #[command(visible_alias = "ls")]
    List(OutputArgs),
    /// End tokens
    Revoke {
        /// Their numbers, as `berth token list` shows them
        #[arg(required = true, value_name = "NUMBER")]
        ids: Vec<u64>,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TokenArgs {
    /// What it is for, in a word
    name: String,
    /// For whom; only an admin makes tokens for others
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// How long it counts, as 12h or 30d
    #[arg(long, default_value = "90d", value_name = "TIME")]
    expires: Span,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn who_am_i(session: &Session, output: OutputArgs) -> anyhow::Result<Exit> {
    let who = session.client.who_am_i().await?;
    session.show(output, &Me { who, server: session.client.address().to_string() })?;
    Ok(Exit::Done)
}

pub(crate) async fn users(session: &Session, command: &UserCommand) -> anyhow::Result<Exit> {
    match command {
        UserCommand::Set { name, account, output } => {
            let account = if account == "none" { String::new() } else { account.clone() };
            let user = session.client.update_user(name, &UserChange { account }).await?;
            session.show(*output, &user)?;
        }
        UserCommand::Create { name, account, output } => {
            let request = UserRequest { name: name.clone(), account: account.clone() };
            let user = session.client.create_user(&request).await?;
            session.say(&format!(
                "berth: user {name} created; `berth role grant {name} researcher project/NAME` lets them submit there"
            ));
            session.show(*output, &user)?;
        }
        UserCommand::List(output) => session.show(*output, &session.client.users().await?)?,
        UserCommand::Delete { names } => {
            for name in names {
                session.client.delete_user(name).await?;
                session.say(&format!("berth: user {name} deleted"));
            }
        }
    }
    Ok(Exit::Done)
}

pub(crate) async fn roles(session: &Session, command: &RoleCommand) -> anyhow::Result<Exit> {
    match command {
        RoleCommand::List(output) => session.show(*output, &session.client.roles().await?)?,
        RoleCommand::Grant(arguments) => {
            let Grant { user, role, scope } = session.client.grant(&arguments.grant()).await?;
            session.say(&format!("berth: {user} is {role} in {scope}"));
        }
        RoleCommand::Revoke(arguments) => {
            let Grant { user, role, scope } = session.client.revoke_role(&arguments.grant()).await?;
            session.say(&format!("berth: {user} is no longer {role} in {scope}"));
        }
    }
    Ok(Exit::Done)
}

pub(crate) async fn tokens(session: &Session, command: &TokenCommand) -> anyhow::Result<Exit> {
    match command {
        TokenCommand::Create(arguments) => {
            let request = TokenRequest {
                user: arguments.user.clone(),
                name: arguments.name.clone(),
                expires_secs: Some(arguments.expires.as_secs()),
            };
            let made = session.client.create_token(&request).await?;
            let (id, user) = (made.token.id, &made.token.user);
            session.say(&format!("berth: token {id} of {user}; it is shown this once:"));
            session.show(arguments.output, &made)?;
        }
        TokenCommand::List(output) => session.show(*output, &session.client.tokens().await?)?,
        TokenCommand::Revoke { ids } => {
            for id in ids {
                session.client.revoke_token(*id).await?;
                session.say(&format!("berth: token {id} revoked"));
            }
        }
    }
    Ok(Exit::Done)
}
