//! `berth submit`: a request from flags and a file, sent once.

mod args;
mod command_line;
mod file;
mod here;
mod lower;
mod values;

#[cfg(test)]
mod tests;

use crate::{
    failure::{Exit, Failure},
    names,
    output::{self, Form, Spelling},
    session::{Place, Session},
    shell, url,
    wait::{self, Until},
};
pub(crate) use args::SubmitArgs;
use berth_api::{Submitted, WorkloadRequest};
pub(crate) use command_line::shown as shown_command_line;
use std::process::ExitCode;
pub(crate) use values::{parse_secs, parse_selector};

/// Sends the request of `arguments`.
pub(crate) async fn run(
    session: &Session,
    arguments: &SubmitArgs,
    mut request: WorkloadRequest,
) -> anyhow::Result<ExitCode> {
    if request.project.is_empty() || arguments.project.project.is_some() {
        request.project = session.project(&arguments.project).await?;
    }
    here::add(session, arguments, &mut request).await?;
    if arguments.dry_run {
        return match session.client.preview(&request).await {
            Ok(preview) => {
                warn(&preview.warnings);
                session.show(arguments.output, &preview)?;
                Ok(Exit::Done.into())
            }
            Err(error) => Err(session.missing_project(error, &request.project).await),
        };
    }
    let submitted = match session.client.submit(&request).await {
        Ok(submitted) => submitted,
        Err(error) => return Err(session.missing_project(error, &request.project).await),
    };
    warn(&submitted.warnings);
    confirm(session, arguments, &submitted)?;
    let Submitted { workload, .. } = submitted;
    let place = Place { project: workload.project, name: workload.name };
    if arguments.jupyter {
        let waited = wait::wait_for(session, std::slice::from_ref(&place), Until::Running, None).await?;
        if waited != Exit::Done {
            return Ok(waited.into());
        }
        url::until_it_listens(session, &place).await?;
        return Ok(url::print(session, &place).await?.into());
    }
    if arguments.attach {
        wait::wait_for(session, std::slice::from_ref(&place), Until::Running, None).await?;
        return shell::join(session, &place, 0, false).await;
    }
    match arguments.wait {
        None => Ok(Exit::Done.into()),
        Some(until) => Ok(wait::wait_for(session, &[place], until, None).await?.into()),
    }
}

/// The request of file and flags, without the server's help; its project may be empty still.
pub(crate) fn request(arguments: &SubmitArgs) -> anyhow::Result<WorkloadRequest> {
    let base = match &arguments.file {
        Some(path) => file::read(path)?,
        None => WorkloadRequest::default(),
    };
    let request = lower::lower(arguments, base)?;
    if let Some(name) = &request.name {
        names::check("workload", name)?;
    }
    if !request.project.is_empty() {
        names::check("project", &request.project)?;
    }
    if request.image.is_empty() && request.command.is_empty() && !request.notebook {
        return Err(Failure::misuse("there is nothing to run: neither an image nor a command is named")
            .hint("name an image with -i, and a command after `--` if it is not the image's own")
            .into());
    }
    Ok(request)
}

fn confirm(session: &Session, arguments: &SubmitArgs, submitted: &Submitted) -> anyhow::Result<()> {
    let (name, project) = (&submitted.workload.name, &submitted.workload.project);
    let is_for_people = matches!(arguments.output.form(), Form::Table | Form::Wide);
    match session.spelling {
        Spelling::Runai if is_for_people => {
            let text = format!(
                "The job '{name}' has been submitted successfully\n\
                 You can run `runai get {name} -p {project}` to check the job status\n"
            );
            output::write_part(text.as_bytes()).map(|_| ())
        }
        _ => {
            session.say(&format!(
                "berth: {project}/{name} was submitted; follow it with `berth logs {project}/{name} -f`"
            ));
            session.show(arguments.output, submitted)
        }
    }
}

pub(crate) fn warn(warnings: &[String]) {
    for warning in warnings {
        eprintln!("berth: warning: {}", output::table::one_line(warning));
    }
}
