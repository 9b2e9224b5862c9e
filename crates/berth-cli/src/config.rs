//! What a person chose for all commands: the server, the project.

use anyhow::Context;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
};

/// The content of the file. Settings of later releases are no mistake.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Config {
    /// The project of commands that name none, at the server of this machine.
    pub(crate) project: Option<String>,
    /// The same at other servers, by context, address or folder.
    #[serde(default)]
    pub(crate) projects: BTreeMap<String, String>,
    /// The server of commands that name none.
    pub(crate) context: Option<String>,
}

/// `$XDG_CONFIG_HOME/berth/config.toml`.
pub(crate) fn default_path() -> Option<PathBuf> {
    Some(base("XDG_CONFIG_HOME", ".config")?.join("berth").join("config.toml"))
}

/// The folder of a server that names none: `$XDG_DATA_HOME/berth`.
pub(crate) fn default_folder() -> Option<PathBuf> {
    Some(base("XDG_DATA_HOME", ".local/share")?.join("berth"))
}

/// A folder of the XDG specification, in which a relative path counts as unset.
fn base(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    set.or_else(|| {
        let home = env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute())?;
        Some(home.join(below_home))
    })
}

impl Config {
    /// Reads the file; one that is not there has nothing set.
    pub(crate) fn load(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self::default()) };
        match fs::read_to_string(path) {
            Ok(text) => {
                toml::from_str(&text).with_context(|| format!("{} cannot be understood", path.display()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// The project that was chosen for a server; `None` is the server of this machine.
    pub(crate) fn project_of(&self, server: Option<&str>) -> Option<String> {
        match server {
            None => self.project.clone(),
            Some(server) => self.projects.get(server).cloned(),
        }
    }

    /// The setting that holds the chosen project of a server.
    pub(crate) fn project_key(server: Option<&str>) -> String {
        match server {
            None => "project".into(),
            // A text of JSON is a key of TOML, whatever is in it.
            Some(server) => format!("projects.{}", serde_json::Value::from(server)),
        }
    }

    /// Sets one thing and leaves every other line as it is. The name has been checked.
    pub(crate) fn save(path: &Path, key: &str, name: &str) -> anyhow::Result<()> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let is_it = |line: &&str| {
            line.rsplit_once(" = ").is_some_and(|(found, _)| found.trim() == key)
                || line.split('=').next().is_some_and(|found| found.trim() == key)
        };
        let kept: Vec<&str> = text.lines().filter(|line| !is_it(line)).collect();
        let mut lines = vec![format!("{key} = \"{name}\"")];
        lines.extend(kept.into_iter().map(str::to_owned));
        let context = || format!("cannot write {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(context)?;
        }
        // Written aside first, so that a full disk does not lose what was there.
        let aside = path.with_extension("toml.new");
        fs::write(&aside, lines.join("\n") + "\n").with_context(context)?;
        fs::rename(&aside, path).with_context(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_project_is_kept_and_other_lines_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("berth").join("config.toml");
        assert_eq!(Config::load(Some(&path)).expect("nothing is set"), Config::default());
        Config::save(&path, "project", "team-a").expect("is written");
        assert_eq!(Config::load(Some(&path)).expect("is read").project.as_deref(), Some("team-a"));
        fs::write(&path, "# mine\nproject = \"team-a\"\nlater = 1\n").expect("is written");
        Config::save(&path, "project", "team-b").expect("is written");
        assert_eq!(fs::read_to_string(&path).expect("is read"), "project = \"team-b\"\n# mine\nlater = 1\n");
        let key = Config::project_key(Some("http://lab:7370/=x"));
        Config::save(&path, &key, "team-c").expect("is written");
        Config::save(&path, &key, "team-d").expect("is written");
        let config = Config::load(Some(&path)).expect("is read");
        assert_eq!(config.project_of(Some("http://lab:7370/=x")).as_deref(), Some("team-d"));
        assert_eq!(config.project_of(None).as_deref(), Some("team-b"));
        assert_eq!(config.project_of(Some("other")), None);
        fs::write(&path, "project = ").expect("is written");
        assert!(
            format!("{:#}", Config::load(Some(&path)).expect_err("is refused"))
                .contains("cannot be understood")
        );
    }
}
