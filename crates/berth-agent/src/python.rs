//! The Python helper, where process tasks find it.

use crate::{AgentError, folder};
use std::{fs, path::Path};

const SOURCE: &str = include_str!("../../../python/berth/__init__.py");

/// Puts the helper into the agent's folder.
pub(crate) fn install(root: &Path) -> Result<(), AgentError> {
    let package = root.join("python/berth");
    folder::create(&package, 0o755)?;
    let file = package.join("__init__.py");
    if fs::read_to_string(&file).is_ok_and(|text| text == SOURCE) {
        return Ok(());
    }
    fs::write(&file, SOURCE).map_err(AgentError::file("writing", &file))
}
