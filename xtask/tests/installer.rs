//! The installer of the archive that `make dist` packs, on a folder like the one it is packed from.
#![allow(missing_docs)]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// An unpacked archive, with a script in the place of the program, and an empty prefix.
struct Archive(PathBuf);

impl Archive {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("berth-installer-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let archive = Self(std::env::temp_dir().join(name));
        let installer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/dist/install.sh");
        archive.write("archive/install.sh", &fs::read_to_string(installer).expect("the installer"));
        archive.write("archive/berth", "#!/bin/sh\necho berth 0.1.0\n");
        archive.write("archive/share/man/man1/berth.1", "a page");
        archive.write("archive/LICENSE", "a licence");
        archive
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }

    fn prefix(&self) -> PathBuf {
        self.0.join("prefix")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("sh");
        command.arg(self.0.join("archive/install.sh")).args(arguments);
        command.env("HOME", self.0.join("home")).output().expect("a shell")
    }

    fn install(&self) -> Output {
        self.run(&["--prefix", self.prefix().to_str().expect("a name of text")])
    }

    fn uninstall(&self) -> Output {
        self.run(&["--uninstall", "--prefix", self.prefix().to_str().expect("a name of text")])
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(text).expect("text")
}

/// Every file and link below a folder.
fn files(folder: &Path) -> Vec<String> {
    let output = Command::new("find").arg(folder).args(["!", "-type", "d", "-printf", "%P\n"]).output();
    let found = String::from_utf8(output.expect("find").stdout).expect("text");
    let mut files: Vec<String> = found.lines().map(str::to_owned).collect();
    files.sort();
    files
}

#[test]
fn it_installs_the_program_its_link_and_its_pages_and_says_where() {
    let archive = Archive::new();
    let output = archive.install();
    assert!(output.status.success(), "{}", text(&output));
    let installed = [
        "bin/berth",
        "bin/runai",
        "share/doc/berth/LICENSE",
        "share/doc/berth/installed",
        "share/man/man1/berth.1",
    ];
    assert_eq!(files(&archive.prefix()), installed);
    assert_eq!(fs::read_link(archive.prefix().join("bin/runai")).expect("a link"), Path::new("berth"));
    let text = text(&output);
    for said in ["installed ", "bin/berth\n", "berth 0.1.0 is installed", "is not on your PATH"] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn without_a_prefix_it_installs_below_the_home_of_its_caller() {
    let archive = Archive::new();
    let output = archive.run(&[]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(archive.0.join("home/.local/bin/berth").is_file());
}

#[test]
fn what_it_installed_it_removes_and_nothing_else() {
    let archive = Archive::new();
    archive.write("prefix/bin/other", "of somebody else");
    archive.install();
    // A second run over the first is an update.
    assert!(archive.install().status.success());
    let output = archive.uninstall();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(files(&archive.prefix()), ["bin/other"]);
    let again = archive.uninstall();
    assert!(!again.status.success() && text(&again).contains("nothing is installed in"), "{}", text(&again));
}

#[test]
fn an_update_removes_what_the_new_version_has_not() {
    let archive = Archive::new();
    archive.install();
    fs::rename(
        archive.0.join("archive/share/man/man1/berth.1"),
        archive.0.join("archive/share/man/man1/new.1"),
    )
    .expect("it is renamed");
    archive.install();
    let files = files(&archive.prefix());
    assert!(files.contains(&"share/man/man1/new.1".to_owned()), "{files:?}");
    assert!(!files.contains(&"share/man/man1/berth.1".to_owned()), "{files:?}");
}

#[test]
fn another_runai_is_left_alone() {
    let archive = Archive::new();
    archive.write("prefix/bin/runai", "the other one");
    let output = archive.install();
    assert!(output.status.success() && text(&output).contains("left "), "{}", text(&output));
    archive.uninstall();
    assert_eq!(fs::read_to_string(archive.prefix().join("bin/runai")).expect("it is there"), "the other one");
    assert_eq!(files(&archive.prefix()), ["bin/runai"]);
}

#[test]
fn a_berth_that_it_did_not_install_is_not_replaced() {
    let archive = Archive::new();
    archive.write("prefix/bin/berth", "of a package");
    let output = archive.install();
    assert!(!output.status.success() && text(&output).contains("was not installed by this script"));
    assert_eq!(files(&archive.prefix()), ["bin/berth"]);
}

#[test]
fn what_cannot_work_is_refused_before_the_first_file_is_written() {
    let archive = Archive::new();
    archive.write("prefix-is-a-file", "");
    let prefix = archive.0.join("prefix-is-a-file/below");
    let output = archive.run(&["--prefix", prefix.to_str().expect("text")]);
    assert!(!output.status.success() && text(&output).contains("not writable"), "{}", text(&output));
    let output = archive.run(&["--prefix"]);
    assert!(
        !output.status.success() && text(&output).contains("--prefix needs a folder"),
        "{}",
        text(&output)
    );
    let output = archive.run(&["--purge"]);
    assert!(
        !output.status.success() && text(&output).contains("unknown option --purge"),
        "{}",
        text(&output)
    );

    archive.write("archive/ARCH", "vax\n");
    let output = archive.install();
    assert!(
        !output.status.success() && text(&output).contains("this archive is for vax"),
        "{}",
        text(&output)
    );
    fs::remove_file(archive.0.join("archive/ARCH")).expect("it is there");

    archive.write("archive/berth", "#!/bin/sh\necho version GLIBC_2.31 not found >&2\nexit 1\n");
    let output = archive.install();
    assert!(!output.status.success() && text(&output).contains("does not start on this machine"));
    assert_eq!(files(&archive.prefix()), Vec::<String>::new());
}

#[test]
fn a_dangling_link_called_runai_is_somebody_elses() {
    let archive = Archive::new();
    fs::create_dir_all(archive.prefix().join("bin")).expect("a folder");
    symlink("/nowhere/runai", archive.prefix().join("bin/runai")).expect("a link");
    assert!(archive.install().status.success());
    assert_eq!(
        fs::read_link(archive.prefix().join("bin/runai")).expect("it is there"),
        Path::new("/nowhere/runai")
    );
}

#[test]
fn what_was_installed_in_part_is_installed_again_or_removed() {
    let archive = Archive::new();
    // A file is where a folder must be, so that the installer ends after the program.
    let full = archive.prefix().join("share/bash-completion");
    fs::create_dir_all(archive.prefix().join("share")).expect("a folder");
    fs::write(&full, "in the way").expect("a file");
    archive.write("archive/share/bash-completion/completions/berth", "words");
    assert!(!archive.install().status.success(), "it cannot be installed as a whole");
    assert!(archive.prefix().join("bin/berth").exists());
    fs::remove_file(&full).expect("it was ours");
    let again = archive.install();
    assert!(again.status.success(), "{}", text(&again));
    let removed = archive.uninstall();
    assert!(removed.status.success() && !archive.prefix().join("bin/berth").exists(), "{}", text(&removed));
}

#[test]
fn a_list_that_leads_out_of_the_prefix_removes_nothing_there() {
    let archive = Archive::new();
    assert!(archive.install().status.success());
    archive.write("outside", "not ours");
    let list = archive.prefix().join("share/doc/berth/installed");
    let listed = fs::read_to_string(&list).expect("a list");
    let absolute = archive.0.join("outside");
    fs::write(&list, format!("../outside\nbin/../../outside\n{}\n{listed}", absolute.display()))
        .expect("is ours");
    assert!(archive.uninstall().status.success());
    assert!(archive.0.join("outside").exists());
}
