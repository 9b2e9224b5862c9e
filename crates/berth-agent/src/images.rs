//! Which program of this machine runs in place of an image.

use crate::{AgentConfig, AgentError, ImageEntry};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// What an image stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Runs {
    /// Somebody said so, in the settings or in `images.toml`.
    Entry(ImageEntry),
    /// The built-in trainer.
    Quickstart,
    /// JupyterLab.
    Jupyter,
    /// The machine's Python.
    Python,
    /// The machine's shell.
    Shell,
    /// Whatever the command names.
    Command,
}

const BUILT_IN: [(&str, Runs); 10] = [
    ("berth/quickstart", Runs::Quickstart),
    ("gcr.io/run-ai-demo/quickstart", Runs::Quickstart),
    // The images of the report's walk-through; they train for a while and print how it goes.
    ("netapp/tensorflow-*", Runs::Quickstart),
    ("jupyter/base-notebook", Runs::Jupyter),
    ("jupyter/minimal-notebook", Runs::Jupyter),
    ("python", Runs::Python),
    ("bash", Runs::Shell),
    ("busybox", Runs::Command),
    ("ubuntu", Runs::Command),
    ("debian", Runs::Command),
];

/// The table of images.
#[derive(Debug, Clone)]
pub(crate) struct Images {
    settings: BTreeMap<String, ImageEntry>,
    file: PathBuf,
}

impl Images {
    pub(crate) fn new(config: &AgentConfig, folder: &Path) -> Result<Self, AgentError> {
        let images = Self { settings: config.images.clone(), file: folder.join("images.toml") };
        images.read_file().map_err(|message| AgentError::Images { path: images.file.clone(), message })?;
        Ok(images)
    }

    /// What runs in place of an image. The file is read each time, so that a new line in it needs no restart.
    pub(crate) fn find(&self, image: &str) -> Result<Runs, String> {
        if image.is_empty() {
            return Ok(Runs::Command);
        }
        let file = self.read_file().map_err(|message| format!("{}: {message}", self.file.display()))?;
        for table in [&file, &self.settings] {
            if let Some(entry) = best(image, table.iter().map(|(name, entry)| (name.as_str(), entry))) {
                return Ok(Runs::Entry(entry.clone()));
            }
        }
        best(image, BUILT_IN.iter().map(|(name, runs)| (*name, runs)))
            .cloned()
            .ok_or_else(|| self.unknown(image))
    }

    fn unknown(&self, image: &str) -> String {
        let (name, _) = split_tag(image);
        format!(
            "the image `{image}` stands for no program of this machine: say what runs instead with a line in {}, for \
             example `\"{name}\" = {{ program = [\"/usr/bin/python3\"] }}` or `\"{name}\" = {{ archive = \
             \"/path/of/image.tar\" }}`, or use a container runtime",
            self.file.display()
        )
    }

    fn read_file(&self) -> Result<BTreeMap<String, ImageEntry>, String> {
        match fs::read_to_string(&self.file) {
            Ok(text) => toml::from_str(&text).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The entry that names the image most exactly: with its tag, without, then by the longest beginning.
fn best<'a, T>(image: &str, table: impl Iterator<Item = (&'a str, T)>) -> Option<T> {
    let image = canonical(image);
    let (name, _) = split_tag(image);
    let rank = |entry: &str| {
        let entry = canonical(entry);
        match entry.strip_suffix('*') {
            Some(beginning) => image.starts_with(beginning).then_some(beginning.len()),
            None if entry == image => Some(usize::MAX),
            None => (entry == name).then_some(usize::MAX - 1),
        }
    };
    table
        .filter_map(|(entry, value)| Some((rank(entry)?, value)))
        .max_by_key(|(rank, _)| *rank)
        .map(|(_, value)| value)
}

/// `docker.io/library/python` and `python` are one image.
fn canonical(image: &str) -> &str {
    let image = image.strip_prefix("docker.io/").unwrap_or(image);
    image.strip_prefix("library/").unwrap_or(image)
}

/// The name and the tag or digest; a colon before the last slash belongs to a port.
pub(crate) fn split_tag(image: &str) -> (&str, Option<&str>) {
    if let Some((name, digest)) = image.split_once('@') {
        return (name, Some(digest));
    }
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (image, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use berth_types::Time;

    fn images(folder: &Path, toml: &str) -> Images {
        fs::write(folder.join("images.toml"), toml).unwrap();
        Images::new(&AgentConfig::new(folder, || Time(0)), folder).unwrap()
    }

    #[test]
    fn built_in_images_are_known_by_any_tag() {
        let scratch = Scratch::new();
        let images = images(scratch.path(), "");
        for image in
            ["gcr.io/run-ai-demo/quickstart", "berth/quickstart:2", "netapp/tensorflow-tf1-py3:20.01.0"]
        {
            assert_eq!(images.find(image), Ok(Runs::Quickstart), "{image}");
        }
        assert_eq!(images.find("docker.io/library/python:3.11"), Ok(Runs::Python));
        assert_eq!(images.find("ubuntu@sha256:0123"), Ok(Runs::Command));
        assert_eq!(images.find("jupyter/base-notebook"), Ok(Runs::Jupyter));
    }

    #[test]
    fn an_unknown_image_is_refused_with_the_line_that_would_help() {
        let scratch = Scratch::new();
        let message = images(scratch.path(), "").find("registry:5000/acme/train:7").unwrap_err();
        assert!(message.contains("images.toml"), "{message}");
        assert!(message.contains("\"registry:5000/acme/train\" = { program"), "{message}");
    }

    #[test]
    fn the_file_wins_and_the_most_exact_line_in_it() {
        let scratch = Scratch::new();
        let images = images(
            scratch.path(),
            "\"python\" = { program = [\"/a\"] }\n\"acme/*\" = { root = \"/b\" }\n\"acme/tr*\" = { root = \"/c\" }\n\
             \"acme/train:2\" = { archive = \"/d\" }\n",
        );
        let entry = |image: &str| match images.find(image) {
            Ok(Runs::Entry(entry)) => entry,
            other => panic!("{other:?}"),
        };
        assert_eq!(entry("python:3"), ImageEntry::Program(vec!["/a".into()]));
        assert_eq!(entry("acme/x"), ImageEntry::Root("/b".into()));
        assert_eq!(entry("acme/train:1"), ImageEntry::Root("/c".into()));
        assert_eq!(entry("acme/train:2"), ImageEntry::Archive("/d".into()));
        fs::write(scratch.path().join("images.toml"), "\"late\" = { program = [\"/e\"] }").unwrap();
        assert_eq!(entry("late"), ImageEntry::Program(vec!["/e".into()]));
    }

    #[test]
    fn a_table_that_does_not_read_is_said_to_be_so() {
        let scratch = Scratch::new();
        fs::write(scratch.path().join("images.toml"), "\"a\" = { prog = [] }").unwrap();
        let error = Images::new(&AgentConfig::new(scratch.path(), || Time(0)), scratch.path()).unwrap_err();
        assert!(matches!(error, AgentError::Images { .. }), "{error}");
    }
}
