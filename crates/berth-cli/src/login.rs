//! `berth login`: a server is remembered with a token, which is read from where no list of processes shows it.

use crate::{
    config::{self, Config},
    context::{self, Known},
    failure::{Exit, Failure},
    session::{self, ServerArgs},
};
use berth_client::{Address, Client};
use clap::Args;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::{
    io::{self, BufRead, IsTerminal},
    path::{Path, PathBuf},
};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  berth login --server http://127.0.0.1:7370
  berth login lab --server http://127.0.0.1:7370 --token-file token
  pass show berth | berth login --server http://127.0.0.1:7370")]
pub(crate) struct LoginArgs {
    /// The name under which it is remembered
    #[arg(default_value = "login")]
    name: String,
    /// A file with the token; without one it is asked for, or read from the input
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub(crate) async fn run(server: &ServerArgs, arguments: &LoginArgs) -> anyhow::Result<Exit> {
    let Some(address) = &server.server else {
        return Err(Failure::misuse("no server is named").hint("name it with --server URL").into());
    };
    let address = address.parse::<Address>()?.to_string();
    let token = match &arguments.token_file {
        Some(file) => context::read_token(file)?,
        None if io::stdin().is_terminal() => ask()?,
        None => context::read_token(Path::new("-"))?,
    };
    let known = Known::Server { address: address.clone(), token };
    // Whether the token counts is asked before it is kept.
    let who = Client::new(known.endpoint()?, &session::user_name()).who_am_i().await?;
    context::save(&arguments.name, &known)?;
    if let Some(path) = config::default_path() {
        Config::save(&path, "context", &arguments.name)?;
    }
    let until = who.expires_at.map(|at| format!(", until {at}")).unwrap_or_default();
    eprintln!("berth: you are {} at {address}{until}; commands go there", who.user);
    Ok(Exit::Done)
}

/// Asks for the token without showing what is typed.
fn ask() -> anyhow::Result<String> {
    eprint!("Token: ");
    let shown = tcgetattr(io::stdin())?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    tcsetattr(io::stdin(), OptionalActions::Now, &shown)?;
    eprintln!();
    read?;
    match line.trim() {
        "" => Err(Failure::misuse("no token was typed").into()),
        token => Ok(token.to_owned()),
    }
}
