//! A tiny image, built in the test from the machine's own static busybox.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Why containers cannot be tested here, if they cannot.
pub fn missing(programs: &[&str]) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders: Vec<&str> = path.split(':').chain(["/usr/sbin", "/sbin"]).collect();
    let has = |program: &str| folders.iter().any(|folder| Path::new(folder).join(program).is_file());
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !has(program)).collect();
    let root = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").expect("/proc")) == 0;
    match (root, &missing[..]) {
        (false, _) => Some("containers need root".into()),
        (true, []) => None,
        (true, missing) => {
            Some(format!("{} missing; `.ci/ensure containers` installs it", missing.join(" and ")))
        }
    }
}

/// A root folder with busybox and nothing else.
pub fn root(folder: &Path) -> PathBuf {
    let root = folder.join("busybox-root");
    for name in ["bin", "etc", "tmp", "proc", "sys", "dev"] {
        fs::create_dir_all(root.join(name)).expect("a folder");
    }
    let program = ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .find(|path| Path::new(path).is_file())
        .expect("busybox");
    fs::copy(program, root.join("bin/busybox")).expect("a copy");
    for applet in ["sh", "sleep", "cat", "echo", "id", "touch", "env", "df", "true", "dd"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).expect("a link");
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nworker:x:1234:99::/:/bin/sh\n")
        .expect("users");
    root
}

/// What `docker save` would write for it.
pub fn archive(folder: &Path, name: &str, config: &serde_json::Value) -> PathBuf {
    let (root, parts) = (root(folder), folder.join("parts"));
    fs::create_dir_all(parts.join("one")).expect("a folder");
    tar(&root, &parts.join("one/layer.tar"), &["."]);
    let layer = fs::read(parts.join("one/layer.tar")).expect("a layer");
    let whole = serde_json::json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }, "os": "linux", "config": config,
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(&parts.join("one/layer.tar")))] },
    });
    assert!(!layer.is_empty());
    fs::write(parts.join("config.json"), whole.to_string()).expect("a config");
    let manifest =
        serde_json::json!([{ "Config": "config.json", "RepoTags": [name], "Layers": ["one/layer.tar"] }]);
    fs::write(parts.join("manifest.json"), manifest.to_string()).expect("a manifest");
    let archive = folder.join("image.tar");
    tar(&parts, &archive, &["manifest.json", "config.json", "one/layer.tar"]);
    archive
}

fn tar(folder: &Path, to: &Path, names: &[&str]) {
    let made =
        Command::new("tar").arg("-C").arg(folder).arg("-cf").arg(to).args(names).status().expect("tar");
    assert!(made.success());
}

fn sha256(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().expect("sha256sum");
    String::from_utf8_lossy(&output.stdout).split_whitespace().next().expect("a sum").to_owned()
}
