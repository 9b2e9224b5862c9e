//! `berth login`: a server is remembered with a token, which is read from where no list of processes shows it.

use crate::{
    config::{self, Config},
    context::{self, Known, TrustArgs},
    failure::{Exit, Failure},
    session::{self, ServerArgs},
    sign_on,
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
  berth login https://berth.example:7370
  berth login https://10.0.0.7:7370 --trust-fingerprint SHA256:4f1c...
  berth login https://berth.example:7370 --oidc      sign in with a browser
  berth login lab --server http://127.0.0.1:7370 --token-file token
  pass show berth | berth login --server http://127.0.0.1:7370")]
pub(crate) struct LoginArgs {
    /// The server, as https://berth.example:7370, or the name under which the one of --server is remembered
    #[arg(value_name = "URL|NAME", default_value = "login")]
    name: String,
    /// A file with the token; without one it is asked for, or read from the input
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Sign in with a browser, at the provider of single sign-on that the server has
    #[arg(long, conflicts_with = "token_file")]
    oidc: bool,
    #[command(flatten)]
    trust: TrustArgs,
}

pub(crate) async fn run(server: &ServerArgs, arguments: &LoginArgs) -> anyhow::Result<Exit> {
    // What is typed first is an address or a name, and no name has a scheme.
    let (name, address) = match arguments.name.contains("://") {
        true => ("login", Some(&arguments.name)),
        false => (arguments.name.as_str(), server.server.as_ref()),
    };
    let Some(address) = address else {
        let hint = "write `berth login https://HOST:PORT`, or name it with --server";
        return Err(Failure::misuse("no server is named").hint(hint).into());
    };
    let address = address.parse::<Address>()?;
    let trust = arguments.trust.kept(server)?;
    // Whether it is the right server is known before a token is asked for, and shown to it.
    let nobody = Known::Server { address: address.to_string(), token: String::new(), trust: trust.clone() };
    let client = Client::new(nobody.endpoint()?, "");
    client.ready().await?;
    let address = address.to_string();
    let token = match &arguments.token_file {
        None if arguments.oidc => sign_on::token(&client).await?,
        Some(file) => context::read_token(file)?,
        None if io::stdin().is_terminal() => ask()?,
        None => context::read_token(Path::new("-"))?,
    };
    let known = Known::Server { address: address.clone(), token, trust };
    // Whether the token counts is asked before it is kept.
    let who = Client::new(known.endpoint()?, &session::user_name()).who_am_i().await?;
    context::save(name, &known)?;
    if let Some(path) = config::default_path() {
        Config::save(&path, "context", name)?;
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
