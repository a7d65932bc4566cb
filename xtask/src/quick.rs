//! `cargo x quick`: the checks of a minute, for what changed since the last commit.
//!
//! Tidy and format look at everything, in seconds. Lints and unit tests run for the crates with
//! changed files; without changes, for those of the last commit.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::cargo::Cargo;
use crate::tidy;

/// Runs the checks, and stops at the first that fails.
pub(crate) fn run(root: &Path, cargo: &Cargo) -> Result<ExitCode> {
    let start = Instant::now();
    let violations = tidy::run(root)?;
    if !violations.is_empty() {
        violations
            .iter()
            .for_each(|violation| println!("{violation}"));
        println!("quick: tidy: violations: {}", violations.len());
        return Ok(ExitCode::FAILURE);
    }
    let packages = changed_packages(root)?;
    let named: Vec<&str> = packages.iter().flat_map(|name| ["-p", name]).collect();
    let mut calls = vec![vec!["fmt", "--all", "--check"]];
    if !packages.is_empty() {
        let clippy = [
            &["clippy"],
            &named[..],
            &["--all-targets", "--", "-D", "warnings"],
        ];
        calls.extend([
            clippy.concat(),
            [&["test", "--quiet"], &named[..], &["--lib", "--bins"]].concat(),
        ]);
    }
    for call in &calls {
        let line = format!("cargo {}", call.join(" "));
        let status = cargo.run(call, &[]);
        if !status
            .with_context(|| format!("`{line}` did not start"))?
            .success()
        {
            println!("quick: FAILED: {line}");
            return Ok(ExitCode::FAILURE);
        }
    }
    let looked_at = match packages.is_empty() {
        true => "no crate changed".to_owned(),
        false => packages.into_iter().collect::<Vec<_>>().join(", "),
    };
    let seconds = start.elapsed().as_secs_f64();
    println!("quick: passed in {seconds:.1} s: {looked_at}");
    Ok(ExitCode::SUCCESS)
}

/// The packages with changed files.
fn changed_packages(root: &Path) -> Result<BTreeSet<String>> {
    let mut files = git(root, &["diff", "--name-only", "HEAD"])?;
    files += &git(root, &["ls-files", "--others", "--exclude-standard"])?;
    if files.is_empty() {
        files = git(root, &["diff", "--name-only", "HEAD~1", "HEAD"])?;
    }
    Ok(packages(&files))
}

/// The packages of the crates that `files`, one per line, belong to.
fn packages(files: &str) -> BTreeSet<String> {
    let folders = files.lines().filter_map(tidy::crate_of);
    folders.map(tidy::package_name).collect()
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output()
        .context("`git` did not start; `cargo x quick` asks it for the changes")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("`git {}` failed: {}", arguments.join(" "), error.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_packages() {
        let files = "crates/cache/src/lib.rs\ncrates/cache/tests/pins.rs\nxtask/src/quick.rs\n\
                     crates/cli/src/main.rs\nREADME.md\n";
        let expected = ["headstart", "headstart-cache", "xtask"];
        assert_eq!(packages(files).into_iter().collect::<Vec<_>>(), expected);
    }
}
