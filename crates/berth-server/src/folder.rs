//! The folder of an installation: the database, the token, where it listens, volumes, the agent's part.

use crate::{ServerError, auth, platform::People};
use berth_api::RunningServer;
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// The folder of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder at a path; nothing is made yet.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where the database is.
    pub fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    /// Where volumes are.
    pub fn volumes(&self) -> PathBuf {
        self.0.join("volumes")
    }

    /// Where the audit log is.
    pub fn audit(&self) -> PathBuf {
        self.0.join("audit")
    }

    /// Where a certificate that was made is.
    pub(crate) fn tls(&self) -> PathBuf {
        self.0.join("tls")
    }

    /// Where users, roles and hashes of tokens are, in front of a cluster.
    pub(crate) fn people_file(&self) -> PathBuf {
        self.0.join("people.json")
    }

    /// The agent's part.
    pub fn agent(&self) -> PathBuf {
        self.0.join("agent")
    }

    /// Where the server wrote its address.
    pub fn server_file(&self) -> PathBuf {
        self.0.join(berth_api::SERVER_FILE)
    }

    /// Where the token is.
    pub fn token_file(&self) -> PathBuf {
        self.0.join(berth_api::TOKEN_FILE)
    }

    /// Where the settings of the last start are.
    pub fn settings_file(&self) -> PathBuf {
        self.0.join("settings.toml")
    }

    /// Writes the settings of a start, for its owner alone, as a whole or not at all.
    pub(crate) fn keep_settings(&self, text: &str) -> Result<(), ServerError> {
        let path = self.settings_file();
        write_private(&path, text).map_err(ServerError::file("writing", &path))
    }

    /// Refuses a folder that belongs to another account: its owner could give root's server a token, settings and tasks of their
    /// choice. A server of another account cannot use such a folder anyway.
    pub fn check_owner(&self) -> Result<(), ServerError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        for path in [self.0.clone(), self.token_file(), self.settings_file(), self.store(), self.agent()] {
            let owner = match fs::metadata(&path) {
                Ok(found) => found.uid(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(ServerError::file("looking at", &path)(error)),
            };
            if owner != 0 {
                let text = format!(
                    "it belongs to user {owner}, who could change what this server does: run the server as that user, or use \
                     another --folder; if everything in it is known to be good, `chown -R root {}`",
                    self.0.display()
                );
                return Err(ServerError::file("using", &path)(io::Error::other(text)));
            }
        }
        Ok(())
    }

    /// Makes the folder and what is in it, for its owner alone.
    pub(crate) fn prepare(&self) -> Result<(), ServerError> {
        self.check_owner()?;
        for folder in [self.0.clone(), self.volumes()] {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
            made.map_err(ServerError::file("making the folder", &folder))?;
            // It may have been made by somebody else, who did not know what would be kept in it.
            let closed = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700));
            closed.map_err(ServerError::file("closing the folder", &folder))?;
        }
        Ok(())
    }

    /// The token of the installation; made at the first start.
    pub fn token(&self) -> Result<String, ServerError> {
        let path = self.token_file();
        match fs::read_to_string(&path) {
            Ok(token) if token.trim().len() >= 32 => return Ok(token.trim().to_owned()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(ServerError::file("reading the token", &path)(error)),
        }
        let token =
            auth::new_token().map_err(|source| ServerError::Start { doing: "random numbers", source })?;
        write_private(&path, &token).map_err(ServerError::file("writing the token", &path))?;
        Ok(token)
    }

    /// Makes a token of somebody's choice that of the installation.
    pub fn keep_token(&self, token: &str) -> Result<(), ServerError> {
        self.prepare()?;
        let path = self.token_file();
        write_private(&path, token).map_err(ServerError::file("writing the token", &path))
    }

    /// Everybody who is known, in front of a cluster.
    pub(crate) fn people(&self) -> Result<People, ServerError> {
        let path = self.people_file();
        let damaged =
            |error| ServerError::file("reading", &path)(io::Error::new(io::ErrorKind::InvalidData, error));
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice::<People>(&text).map_err(damaged),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(People::default()),
            Err(error) => Err(ServerError::file("reading", &path)(error)),
        }
    }

    pub(crate) fn keep_people(&self, people: &People) -> io::Result<()> {
        write_private(&self.people_file(), &serde_json::to_string(people)?)
    }

    pub(crate) fn write_server_file(&self, file: &RunningServer) -> Result<(), ServerError> {
        let path = self.server_file();
        let text = serde_json::to_string(file).expect("is JSON");
        write_private(&path, &text).map_err(ServerError::file("writing", &path))
    }

    pub(crate) fn remove_server_file(&self) {
        // Whoever finds it finds a process that is gone, and says so.
        let _ = fs::remove_file(self.server_file());
    }

    /// Makes the folder of a volume.
    pub(crate) fn make_volume(&self, name: &str) -> io::Result<()> {
        let path = self.volumes().join(name);
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&path)?;
        // Nobody gets this far but through a workload that mounts it, whoever that runs as.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777))
    }

    /// Puts the folder of a deleted volume away, so that a mistake can be mended by hand.
    pub(crate) fn retire_volume(&self, name: &str, at: u64) -> io::Result<()> {
        let retired = self.volumes().join(".deleted");
        fs::create_dir_all(&retired)?;
        fs::rename(self.volumes().join(name), retired.join(format!("{name}-{at}")))
    }
}

/// Writes a file that only its owner reads, as a whole or not at all.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}
