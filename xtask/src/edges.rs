//! Which crate may depend on which.

use crate::tidy::Broken;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::{path::Path, process::Command};

/// What one crate may point at. A crate that has no row here may not exist.
struct Row {
    name: &'static str,
    /// Crates its code may use.
    uses: &'static [&'static str],
    /// Crates its tests may use besides.
    tests_use: &'static [&'static str],
    /// Why nothing else is allowed.
    reason: &'static str,
}

const TABLE: [Row; 16] = [
    Row {
        name: "berth-types",
        uses: &[],
        tests_use: &[],
        reason: "the nouns know no rule, so that every crate can share them",
    },
    Row {
        name: "berth-check",
        uses: &["berth-types"],
        tests_use: &["berth-engine", "berth-sim"],
        reason: "an oracle that shares code with what it judges repeats its mistakes",
    },
    Row {
        name: "berth-engine",
        uses: &["berth-types"],
        tests_use: &["berth-check"],
        reason: "the engine is a pure function of state and time; its oracle and the simulator stand outside of it",
    },
    Row {
        name: "berth-store",
        uses: &["berth-types"],
        tests_use: &[],
        reason: "the store keeps bodies it does not read, so that no rule can hide in the database",
    },
    Row {
        name: "berth-api",
        uses: &["berth-types"],
        tests_use: &[],
        reason: "what is said over the wire stays the same while the engine behind it changes",
    },
    Row {
        name: "berth-tls",
        uses: &[],
        tests_use: &[],
        reason: "who is trusted is one question, whoever asks it, and whatever is said afterwards",
    },
    Row {
        name: "berth-client",
        uses: &["berth-api", "berth-tls"],
        tests_use: &[],
        reason: "whoever calls the API knows what is said over the wire, and nothing behind it",
    },
    Row {
        name: "berth-agent",
        uses: &["berth-types"],
        tests_use: &[],
        reason: "the agent runs tasks where it is told to, and knows neither rules nor sockets of the control plane",
    },
    Row {
        name: "berth-server",
        uses: &["berth-agent", "berth-api", "berth-engine", "berth-store", "berth-tls", "berth-types"],
        tests_use: &["berth-check", "berth-client"],
        reason: "the control plane joins engine, store and agent; only the command line starts it",
    },
    Row {
        name: "berth-sim",
        uses: &["berth-check", "berth-engine", "berth-types"],
        tests_use: &[],
        reason: "the simulator drives the engine and is judged by the checker; nothing of the product is in it",
    },
    Row {
        name: "berth-cli",
        uses: &[
            "berth-agent",
            "berth-api",
            "berth-check",
            "berth-client",
            "berth-engine",
            "berth-server",
            "berth-sim",
            "berth-store",
            "berth-tls",
            "berth-types",
        ],
        tests_use: &["berth-gate", "berth-kube", "berth-testbed"],
        reason: "the command line is an outermost crate: it points inwards and nothing points at it",
    },
    Row {
        name: "berth-bench",
        uses: &["berth-engine", "berth-store", "berth-types"],
        tests_use: &[],
        reason: "what is measured are the engine and the store, each alone",
    },
    Row {
        name: "berth-kube",
        uses: &["berth-engine", "berth-types"],
        tests_use: &["berth-check", "berth-sim", "berth-testbed"],
        reason: "the only crate of the product that names types of Kubernetes, and it has no rule of its own",
    },
    Row {
        name: "berth-gate",
        uses: &["berth-api", "berth-kube", "berth-server", "berth-tls", "berth-types"],
        tests_use: &["berth-sim", "berth-testbed"],
        reason: "an outermost crate: it joins the API of the platform and a cluster, and nothing points at it",
    },
    Row {
        name: "berth-testbed",
        uses: &[],
        tests_use: &[],
        reason: "a cluster to test against knows nothing of what is tested",
    },
    Row {
        name: "xtask",
        uses: &[],
        tests_use: &[],
        reason: "house rules must be checkable while the product does not compile",
    },
];

/// An edge of the crate graph, from the crate that depends.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edge {
    from: String,
    to: String,
    for_tests: bool,
}

/// Reads the crate graph from cargo and compares it with the table.
pub(crate) fn check_workspace(root: &Path) -> Result<Vec<Broken>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .context("starting cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    check_metadata(&serde_json::from_slice(&output.stdout)?, root)
}

fn check_metadata(metadata: &Value, root: &Path) -> Result<Vec<Broken>> {
    let packages = metadata["packages"].as_array().context("cargo metadata without packages")?;
    let mut broken = Vec::new();
    for package in packages {
        let name = text(&package["name"])?;
        let manifest = Path::new(text(&package["manifest_path"])?);
        let manifest = manifest.strip_prefix(root).unwrap_or(manifest);
        let at = |line: usize, rule: String, reason: &'static str| Broken {
            file: manifest.to_path_buf(),
            line,
            rule,
            reason,
        };
        if !TABLE.iter().any(|row| row.name == name) {
            broken.push(at(
                1,
                format!("crate {name} has no row in xtask/src/edges.rs"),
                "each crate's place in the graph is decided before it is written",
            ));
            continue;
        }
        let source = std::fs::read_to_string(root.join(manifest)).unwrap_or_default();
        for edge in edges(name, package)? {
            if let Some(reason) = forbidden(&edge) {
                let kind = if edge.for_tests { "in tests " } else { "" };
                broken.push(at(
                    line_naming(&source, &edge.to),
                    format!("{} may not depend {kind}on {}", edge.from, edge.to),
                    reason,
                ));
            }
        }
    }
    Ok(broken)
}

/// The edges of one package that stay inside the workspace.
fn edges(name: &str, package: &Value) -> Result<Vec<Edge>> {
    let dependencies = package["dependencies"].as_array().context("a package without dependencies")?;
    let inside = dependencies.iter().filter(|dependency| {
        dependency["path"].is_string()
            || dependency["name"].as_str().is_some_and(|name| name.starts_with("berth-"))
    });
    inside
        .map(|dependency| {
            Ok(Edge {
                from: name.to_owned(),
                to: text(&dependency["name"])?.to_owned(),
                for_tests: dependency["kind"].as_str() == Some("dev"),
            })
        })
        .collect()
}

/// Why the table forbids an edge, if it does.
fn forbidden(edge: &Edge) -> Option<&'static str> {
    let row = TABLE.iter().find(|row| row.name == edge.from)?;
    let to = edge.to.as_str();
    let allowed = row.uses.contains(&to) || (edge.for_tests && row.tests_use.contains(&to));
    (!allowed).then_some(row.reason)
}

fn line_naming(source: &str, dependency: &str) -> usize {
    let position = source.lines().position(|line| line.trim_start().starts_with(dependency));
    position.map_or(1, |index| index + 1)
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().context("cargo metadata has an unexpected shape")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn broken(package: &str, dependency: Value) -> Vec<String> {
        let metadata = json!({"packages": [{
            "name": package,
            "manifest_path": format!("/nowhere/crates/{package}/Cargo.toml"),
            "dependencies": [dependency],
        }]});
        let broken = check_metadata(&metadata, Path::new("/nowhere")).expect("the metadata is well formed");
        broken.iter().map(ToString::to_string).collect()
    }

    fn normal(name: &str) -> Value {
        json!({"name": name, "kind": null, "path": "/nowhere"})
    }

    fn dev(name: &str) -> Value {
        json!({"name": name, "kind": "dev", "path": "/nowhere"})
    }

    #[test]
    fn the_engine_may_use_the_checker_in_tests_only() {
        assert_eq!(broken("berth-engine", dev("berth-check")), Vec::<String>::new());
        let found = broken("berth-engine", normal("berth-check"));
        assert!(
            found[0].starts_with(
                "crates/berth-engine/Cargo.toml:1: berth-engine may not depend on berth-check: the engine"
            ),
            "{found:?}"
        );
    }

    #[test]
    fn the_engine_never_uses_the_simulator() {
        assert_eq!(broken("berth-engine", normal("berth-sim")).len(), 1);
        assert_eq!(broken("berth-engine", dev("berth-sim")).len(), 1);
    }

    #[test]
    fn types_use_no_crate_of_the_workspace() {
        for name in ["berth-engine", "berth-check", "berth-sim", "berth-cli"] {
            assert_eq!(broken("berth-types", normal(name)).len(), 1, "{name}");
        }
    }

    #[test]
    fn the_store_knows_no_rule_and_the_engine_no_store() {
        assert_eq!(broken("berth-store", normal("berth-types")), Vec::<String>::new());
        assert_eq!(broken("berth-store", normal("berth-engine")).len(), 1);
        assert_eq!(broken("berth-engine", dev("berth-store")).len(), 1);
    }

    #[test]
    fn nothing_points_at_the_command_line() {
        for name in ["berth-types", "berth-check", "berth-engine", "berth-store", "berth-sim", "berth-bench"]
        {
            assert_eq!(broken(name, normal("berth-cli")).len(), 1, "{name}");
        }
    }

    #[test]
    fn a_build_dependency_counts_as_a_normal_one() {
        let dependency = json!({"name": "berth-check", "kind": "build", "path": "/nowhere"});
        assert_eq!(broken("berth-engine", dependency).len(), 1);
    }

    #[test]
    fn a_crate_from_a_registry_is_nobodys_business_here() {
        let dependency = json!({"name": "serde", "kind": null});
        assert_eq!(broken("berth-types", dependency), Vec::<String>::new());
    }

    #[test]
    fn an_unknown_crate_must_get_a_row_first() {
        let found = broken("berth-surprise", normal("berth-types"));
        assert!(found[0].contains("crate berth-surprise has no row"), "{found:?}");
    }
}
