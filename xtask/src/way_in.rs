//! What the first `make run` must not compile.
//!
//! A newcomer waits for the command `berth` to be compiled on two cores. Each crate below takes tens of seconds of that, and
//! is of use on a cluster or to another program only.

use crate::tidy::Broken;
use anyhow::{Context, Result, bail};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The package that `make run` compiles.
const PACKAGE: &str = "berth-cli";

/// Crates that stay off the way in, by the beginning of their name.
const HEAVY: [&str; 9] = [
    "kube",
    "k8s-openapi",
    "schemars",
    "berth-kube",
    "berth-gate",
    "berth-testbed",
    "aws-lc-",
    "openssl-sys",
    "reqwest",
];

const REASON: &str =
    "a newcomer waits for `make run` to compile it; keep it in a crate that the command does not use";

/// Reads what the command depends on, directly or not, and lists what is too heavy.
pub(crate) fn check_workspace(root: &Path) -> Result<Vec<Broken>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "-p", PACKAGE, "-e", "normal,build", "--prefix", "none", "-f", "{p}"])
        .current_dir(root)
        .output()
        .context("starting cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(check_tree(&String::from_utf8(output.stdout)?))
}

fn check_tree(tree: &str) -> Vec<Broken> {
    let mut names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    names.sort_unstable();
    names.dedup();
    let heavy = names.into_iter().filter(|name| HEAVY.iter().any(|heavy| name.starts_with(heavy)));
    let broken = |name: &str| Broken {
        file: PathBuf::from(format!("crates/{PACKAGE}/Cargo.toml")),
        line: 1,
        rule: format!("{PACKAGE} may not depend, directly or not, on {name}"),
        reason: REASON,
    };
    heavy.map(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_on_the_way_in_is_reported_with_its_name_once() {
        let tree = "berth-cli v0.1.0 (/work)\nserde v1.0.0\nkube v5.0.0\nkube-core v5.0.0\nkube v5.0.0 (*)\n";
        let broken: Vec<String> = check_tree(tree).iter().map(ToString::to_string).collect();
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert!(
            broken[0].starts_with(
                "crates/berth-cli/Cargo.toml:1: berth-cli may not depend, directly or not, on kube:"
            ),
            "{broken:?}"
        );
    }

    #[test]
    fn what_the_command_needs_is_no_finding() {
        let tree = "berth-cli v0.1.0\nberth-server v0.1.0\nserde v1.0.0\nlibsqlite3-sys v0.35.0\n";
        assert_eq!(check_tree(tree), []);
    }
}
