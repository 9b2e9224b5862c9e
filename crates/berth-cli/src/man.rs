//! `berth man`: manual pages from the definition of the arguments.

use crate::{failure::Exit, output};
use anyhow::Context;
use std::path::Path;

/// Prints the page of the command itself, or writes a page for each command into a folder.
pub(crate) fn run(folder: Option<&Path>, command: clap::Command) -> anyhow::Result<Exit> {
    match folder {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            output::write_part(&page)?;
        }
        Some(folder) => {
            let context = || format!("cannot write into {}", folder.display());
            std::fs::create_dir_all(folder).with_context(context)?;
            clap_mangen::generate_to(command, folder).with_context(context)?;
            eprintln!(
                "berth: the pages are in {}; read one with `man {}/berth.1`",
                folder.display(),
                folder.display()
            );
        }
    }
    Ok(Exit::Done)
}
