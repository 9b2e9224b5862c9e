//! Helm, and what it makes of the chart.
#![allow(dead_code, reason = "each test uses a part of it")]

use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    path::PathBuf,
    process::Command,
};
use tempfile::TempDir;

/// The oldest Kubernetes that the chart is for.
const OLDEST: &str = "1.34.0";
/// Labels that only Helm gives.
pub(crate) const OF_RELEASE: [&str; 4] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
];

/// Objects by kind and name.
pub(crate) type Objects = BTreeMap<String, Value>;

/// Helm, with folders of its own.
pub(crate) struct Helm {
    program: PathBuf,
    home: TempDir,
}

impl Helm {
    /// Helm, or a line that says why there is none.
    pub(crate) fn find(test: &str) -> Option<Self> {
        let program =
            berth_testbed::helm().inspect_err(|reason| eprintln!("NOT TESTED: {test}: {reason}")).ok()?;
        Some(Self { program, home: tempfile::tempdir().expect("a folder") })
    }

    /// What it prints, or what it says when it refuses.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<String, String> {
        let folder = |name: &str| self.home.path().join(name);
        let mut command = Command::new(&self.program);
        command.args(arguments).env_clear().env("HOME", self.home.path());
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        for (variable, name) in
            [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
        {
            command.env(variable, folder(name));
        }
        let output = command.output().expect("Helm starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stdout) + &text(&output.stderr)),
        }
    }

    /// What it would install with settings such as `replicas=3`; single quotes stand for double ones.
    pub(crate) fn render(&self, namespace: &str, settings: &[&str]) -> Result<Objects, String> {
        let chart = chart();
        let mut arguments = vec!["template", "berth", &chart, "--namespace", namespace, "--include-crds"];
        arguments.extend(["--kube-version", OLDEST]);
        let settings = settings_of(settings);
        arguments.extend(settings.iter().map(String::as_str));
        self.run(&arguments).map(|text| by_name(read(&text)))
    }
}

/// The folder of the chart.
pub(crate) fn chart() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/helm/berth").into()
}

/// Settings as Helm takes them.
pub(crate) fn settings_of(settings: &[&str]) -> Vec<String> {
    settings.iter().flat_map(|setting| ["--set-json".into(), setting.replace('\'', "\"")]).collect()
}

/// The objects of a file.
pub(crate) fn read(text: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).expect("is YAML");
    all.into_iter().filter(|object| !object.is_null()).collect()
}

pub(crate) fn by_name(objects: Vec<Value>) -> Objects {
    let count = objects.len();
    let text = |value: &Value| value.as_str().expect("is written").to_owned();
    let named = objects
        .into_iter()
        .map(|object| (format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"])), object));
    let named = Objects::from_iter(named);
    assert_eq!(named.len(), count, "every object has its own name");
    named
}

/// Objects without the labels that only Helm gives.
pub(crate) fn without_release(mut objects: Objects) -> Objects {
    for object in objects.values_mut() {
        if let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
            labels.retain(|name, _| !OF_RELEASE.contains(&name.as_str()));
        }
    }
    objects
}

/// What is another in the second, line by line.
pub(crate) fn difference(before: &Objects, after: &Objects) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut all = Vec::new();
    for name in names {
        let (before, after) = match (before.get(name), after.get(name)) {
            (Some(before), Some(after)) => (lines(before), lines(after)),
            (Some(_), None) => {
                all.push(format!("{name} gone"));
                continue;
            }
            _ => {
                all.push(format!("{name} new"));
                continue;
            }
        };
        let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for path in paths {
            match after.get(path) {
                Some(value) if before.get(path) != Some(value) => {
                    all.push(format!("{name} {path} = {value}"));
                }
                None => all.push(format!("{name} {path} gone")),
                _ => {}
            }
        }
    }
    all
}

/// Every value of an object by its path. What has a name is found by it, because its place in a list means nothing.
fn lines(object: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    add_lines(String::new(), object, &mut all);
    all
}

fn add_lines(path: String, value: &Value, all: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let dot = if path.is_empty() { "" } else { "." };
            fields.iter().for_each(|(name, field)| add_lines(format!("{path}{dot}{name}"), field, all));
        }
        Value::Array(items) if !items.is_empty() => {
            for (number, item) in items.iter().enumerate() {
                let name = item["name"].as_str().map_or_else(|| number.to_string(), str::to_owned);
                match path.ends_with("gress") {
                    // Who may be reached is a set: each of its rules is one line, wherever it stands.
                    true => add_lines(format!("{path} {}", quoted(item)), &"open".into(), all),
                    false => add_lines(format!("{path}[{name}]"), item, all),
                }
            }
        }
        value => {
            let before = all.insert(path.clone(), quoted(value));
            assert_eq!(before, None, "{path} is said once");
        }
    }
}

/// A value with quotes that need no escape in a test.
fn quoted(value: &Value) -> String {
    value.to_string().replace('"', "'")
}
