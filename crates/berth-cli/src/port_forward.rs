//! `berth port-forward`: ports of a workload as ports of this machine, through the server.

use crate::{
    failure::{Exit, Failure},
    session::{Place, ProjectArg, Session},
};
use berth_api::ConnectQuery;
use berth_client::{Client, PortReceiver, PortSender};
use clap::Args;
use std::{net::IpAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  berth port-forward nb 8888                 the same port here
  berth port-forward nb 9000:8888 6006       two ports, the first under another number
  berth port-forward nb 0:8888               any free port here; it is printed")]
pub(crate) struct PortForwardArgs {
    /// The workload, as NAME or PROJECT/NAME
    name: String,
    #[command(flatten)]
    project: ProjectArg,
    /// Ports, as LOCAL:REMOTE or one number for both
    #[arg(value_name = "[LOCAL:]REMOTE", value_parser = parse_pair)]
    ports: Vec<(u16, u16)>,
    /// The same by a flag, as other releases write it
    #[arg(long = "port", hide = true, value_parser = parse_pair)]
    more_ports: Vec<(u16, u16)>,
    /// Of this worker; the first that runs when absent
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS", value_parser = parse_address)]
    address: IpAddr,
}

fn parse_address(text: &str) -> Result<IpAddr, String> {
    let text = if text == "localhost" { "127.0.0.1" } else { text };
    text.parse().map_err(|_| "write an address of this machine, as 127.0.0.1".into())
}

fn parse_pair(text: &str) -> Result<(u16, u16), String> {
    let (local, remote) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u16>().ok();
    match (number(local), number(remote).filter(|port| *port > 0)) {
        (Some(local), Some(remote)) => Ok((local, remote)),
        _ => Err("write LOCAL:REMOTE, or one number from 1 to 65535".into()),
    }
}

pub(crate) async fn run(session: &Session, arguments: &PortForwardArgs) -> anyhow::Result<Exit> {
    let place = session.place(&arguments.name, &arguments.project).await?;
    let workload = match session.client.workload(&place.project, &place.name).await {
        Ok(workload) => workload,
        Err(error) => return Err(session.missing(error, &place).await),
    };
    let mut ports: Vec<(u16, u16)> = arguments.ports.iter().chain(&arguments.more_ports).copied().collect();
    if ports.is_empty() {
        ports = workload.request.ports.iter().map(|port| (*port, *port)).collect();
    }
    if ports.is_empty() {
        return Err(Failure::misuse(format!("{place} declares no port, and none is named"))
            .hint(format!("write `berth port-forward {place} 8888`"))
            .into());
    }
    let client = Arc::clone(&session.client);
    let mut listeners = Vec::new();
    for (local, remote) in ports {
        let listener = TcpListener::bind((arguments.address, local)).await.map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot listen on port {local} of this machine: {error}"))
                .hint(format!("take another, as `berth port-forward {place} 0:{remote}`"))
        })?;
        session.say(&format!("berth: {} leads to port {remote} of {place}", listener.local_addr()?));
        listeners.push((listener, remote));
    }
    session.say("berth: ctrl-c ends this");
    for (listener, remote) in listeners {
        let (client, place, rank) = (Arc::clone(&client), place.clone(), arguments.rank);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let query = ConnectQuery { port: remote, rank };
                tokio::spawn(forward(Arc::clone(&client), place.clone(), query, stream));
            }
        });
    }
    tokio::signal::ctrl_c().await?;
    Ok(Exit::Done)
}

async fn forward(client: Arc<Client>, place: Place, query: ConnectQuery, stream: TcpStream) {
    match client.connect_port(&place.project, &place.name, &query).await {
        Ok((sender, receiver)) => carry(stream, sender, receiver).await,
        Err(error) => eprintln!("berth: {error}"),
    }
}

/// Carries bytes both ways until both directions have ended, or one side is gone.
async fn carry(stream: TcpStream, mut sender: PortSender, mut receiver: PortReceiver) {
    let (mut from, mut to) = stream.into_split();
    let up = async {
        let mut buffer = vec![0; 32 << 10];
        loop {
            let count = from.read(&mut buffer).await.unwrap_or(0);
            if !sender.send(&buffer[..count]).await || count == 0 {
                return;
            }
        }
    };
    let down = async {
        loop {
            let bytes = match receiver.next().await {
                Ok(bytes) => bytes,
                // It ends like this when it is over, or when the server has a reason.
                Err(error) => {
                    if let Some(reason) = PortReceiver::reason(&error) {
                        eprintln!("berth: the connection was closed: {reason}");
                    }
                    return;
                }
            };
            if bytes.is_empty() {
                // The other direction may still have something to say.
                let _ = to.shutdown().await;
            } else if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    // The server closes the socket when both directions have ended.
    tokio::pin!(up);
    tokio::select! {
        () = down => {}
        () = async { (&mut up).await; std::future::pending::<()>().await } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_people_write_them() {
        assert_eq!(parse_pair("8888"), Ok((8888, 8888)));
        assert_eq!(parse_pair("9000:8888"), Ok((9000, 8888)));
        assert_eq!(parse_pair("0:8888"), Ok((0, 8888)));
        for text in ["", "x", "8888:0", "0", "70000", "1:2:3", ":"] {
            assert!(parse_pair(text).is_err(), "{text}");
        }
    }
}
