//! Serves the platform's API in front of a Kubernetes cluster.

use anyhow::{Context, Result, bail};
use berth_api::RunningServer;
use berth_gate::Gate;
use berth_server::{Access, Answering, Folder, Serving};
use berth_tls::{Connector, Trust};
use clap::{Parser, Subcommand};
use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
};

/// How long a server that is well may take to say so.
const PATIENCE: Duration = Duration::from_secs(3);
/// What people left in Pods is told that they are gone within this time.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// A shorter token could be guessed.
const TOKEN_LENGTH_MIN: usize = 32;

/// Serves the platform's API in front of a Kubernetes cluster.
#[derive(Debug, Parser)]
#[command(name = "berth-gate", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The cluster; without it, the one this process runs in, or the one of KUBECONFIG.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Where its token and the history for charts are.
    #[arg(long, env = "BERTH_HOME", default_value = "/var/lib/berth")]
    folder: PathBuf,
    /// Where it listens.
    #[arg(long, env = "BERTH_LISTEN", default_value = "127.0.0.1:7370")]
    listen: SocketAddr,
    /// A file with the token that callers must have; without it, one is made at the first start.
    #[arg(long, env = "BERTH_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the token that callers must have.
    Token,
    /// Ask the server that runs here whether it is well.
    Check,
}

#[tokio::main]
async fn main() -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    let arguments = Arguments::parse();
    let folder = Folder::at(&arguments.folder);
    match arguments.command {
        Some(Command::Check) => return check(&folder, arguments.listen).await,
        Some(Command::Token) => {
            println!("{}", folder.token()?);
            return Ok(());
        }
        None => {}
    }
    if let Some(token) = arguments.token_file.as_deref().map(chosen_token).transpose()?.flatten() {
        folder.keep_token(&token)?;
    }
    let config = berth_kube::run::config(arguments.kubeconfig.as_deref()).await?;
    let gate = Gate::open(berth_kube::run::client(config)?, berth_server::PING_EVERY).await?;
    let user = std::env::var("USER").unwrap_or_else(|_| "berth".into());
    let serving = Serving {
        folder: arguments.folder,
        listen: arguments.listen,
        access: arguments.access,
        user,
        clock: berth_server::now,
        ping_every: berth_server::PING_EVERY,
    };
    let (answers_at, told) = oneshot::channel::<Answering>();
    let said = async {
        if let Ok(at) = told.await {
            println!("berth answers at {}, in front of the cluster", at.public_url);
            if let Some(fingerprint) = at.fingerprint {
                println!("the fingerprint of its certificate is {fingerprint}");
            }
        }
    };
    let serve =
        berth_server::serve(serving, Arc::new(gate.clone()), answers_at, berth_kube::run::stop_asked());
    let (served, ()) = tokio::join!(serve, said);
    gate.finish(LAST_WORDS).await;
    served.context("the API cannot be served")
}

/// The token that an administrator chose, if there is one.
fn chosen_token(path: &Path) -> Result<Option<String>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
    };
    let token = text.trim();
    if token.len() < TOKEN_LENGTH_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!(
            "{} holds no token: {TOKEN_LENGTH_MIN} letters and digits at least, as `openssl rand -hex 32` prints",
            path.display()
        );
    }
    Ok(Some(token.to_owned()))
}

/// Whether the server of a folder answers; without one that says where it is, whoever listens at an address.
async fn check(folder: &Folder, listen: SocketAddr) -> Result<()> {
    let answer =
        tokio::time::timeout(PATIENCE, answer(folder, listen)).await.context("it does not answer")??;
    if !answer.starts_with(b"HTTP/1.1 200") {
        bail!("it is not well: {}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

/// The beginning of what it says about its health.
async fn answer(folder: &Folder, listen: SocketAddr) -> Result<Vec<u8>> {
    let running = fs::read_to_string(folder.server_file()).ok();
    let running = running.and_then(|text| serde_json::from_str::<RunningServer>(&text).ok());
    let authority = running.as_ref().and_then(|running| running.address.split_once("://"));
    let authority = authority.map_or_else(|| listen.to_string(), |(_, authority)| authority.to_owned());
    let stream = TcpStream::connect(&authority).await.context("nobody listens")?;
    let fingerprint = running.and_then(|running| running.fingerprint);
    match fingerprint {
        Some(fingerprint) => {
            let trust = Trust::Fingerprint(fingerprint.parse().map_err(anyhow::Error::msg)?);
            ask(Connector::new(&trust)?.connect("localhost", stream).await?).await
        }
        None => ask(stream).await,
    }
}

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<Vec<u8>> {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut answer = vec![0; 64];
    let length = stream.read(&mut answer).await.context("it does not answer")?;
    answer.truncate(length);
    Ok(answer)
}
