//! Gives the program its version with the commit that it is built from.

use std::process::Command;

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    // Builds for development would compile again with each commit.
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = is_release.then(commit).flatten();
    let version = match commit {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo:rustc-env=HEADSTART_VERSION={version}");
    println!("cargo:rerun-if-changed=build.rs");
}

/// The short name of the commit, where the sources lie in a git repository.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let folder = git(&["rev-parse", "--absolute-git-dir"])?;
    println!("cargo:rerun-if-changed={folder}/logs/HEAD");
    git(&["rev-parse", "--short=10", "HEAD"])
}
