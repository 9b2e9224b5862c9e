//! `berth volume`: named folders that workloads share.

use crate::{failure::Exit, names, output::OutputArgs, session::Session};
use berth_api::{MemoryAmount, VolumeQuery, VolumeRequest};
use clap::{Args, Subcommand};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make a volume
    #[command(
        after_help = "Example:\n  berth volume create data -p team-a\n  berth submit x -i python --pvc data:/data"
    )]
    Create(CreateArgs),
    /// List volumes
    #[command(visible_alias = "ls")]
    List(OutputArgs),
    /// Delete volumes that nothing uses, and all that is in them
    Delete {
        /// The volumes
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// The project they belong to, in a cluster where several have one of that name
        #[arg(short, long, value_name = "NAME")]
        project: Option<String>,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CreateArgs {
    /// Its name
    name: String,
    /// The only project that may use it; every project when absent. In a cluster, the one it belongs to
    #[arg(short, long, value_name = "NAME")]
    project: Option<String>,
    /// How much fits into it, in a cluster, such as 100G [default: 10Gi]
    #[arg(long, value_name = "SIZE")]
    size: Option<MemoryAmount>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(session: &Session, command: &VolumeCommand) -> anyhow::Result<Exit> {
    match command {
        VolumeCommand::Create(arguments) => {
            names::check("volume", &arguments.name)?;
            let request = VolumeRequest {
                name: arguments.name.clone(),
                project: arguments.project.clone(),
                size: arguments.size,
            };
            let project = arguments.project.as_deref().unwrap_or_default();
            match session.client.create_volume(&request).await {
                Ok(volume) => {
                    session.say(&format!("berth: volume {} is there", volume.name));
                    session.show(arguments.output, &volume)?;
                }
                Err(error) => return Err(session.missing_project(error, project).await),
            }
        }
        VolumeCommand::List(output) => session.show(*output, &session.client.volumes().await?)?,
        VolumeCommand::Delete { names, project } => {
            let query = VolumeQuery { project: project.clone() };
            for name in names {
                names::check("volume", name)?;
                session.client.delete_volume(name, &query).await?;
                session.say(&format!("berth: volume {name} is deleted"));
            }
        }
    }
    Ok(Exit::Done)
}
