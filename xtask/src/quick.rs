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

/// The references of the command line are stale once it has changed.
const REFERENCES: [&str; 6] =
    ["test", "--quiet", "-p", "headstart-lab", "--bin", "headstart-reference"];

/// Runs the checks, and stops at the first that fails.
pub(crate) fn run(root: &Path, cargo: &Cargo) -> Result<ExitCode> {
    let start = Instant::now();
    let violations = tidy::run(root)?;
    if !violations.is_empty() {
        violations.iter().for_each(|violation| println!("{violation}"));
        println!("quick: tidy: violations: {}", violations.len());
        return Ok(ExitCode::FAILURE);
    }
    let (libraries, programs): (Vec<Crate>, Vec<Crate>) =
        changed_crates(root)?.into_iter().partition(|one| one.is_library);
    let all: Vec<&Crate> = libraries.iter().chain(&programs).collect();
    let calls = [
        Some(vec!["fmt", "--all", "--check"]),
        call(&["clippy"], &all, &["--all-targets", "--", "-D", "warnings"]),
        call(&["test", "--quiet"], &libraries, &["--lib"]),
        call(&["test", "--quiet"], &programs, &["--bins"]),
        all.iter().any(|one| one.package == "headstart").then(|| REFERENCES.to_vec()),
    ];
    for call in calls.iter().flatten() {
        let line = format!("cargo {}", call.join(" "));
        let status = cargo.run(call, &[]);
        let status = status.with_context(|| format!("`{line}` did not start"))?;
        if !status.success() {
            println!("quick: FAILED: {line}");
            return Ok(ExitCode::FAILURE);
        }
    }
    let names: Vec<&str> = all.iter().map(|one| one.package.as_str()).collect();
    let looked_at = if names.is_empty() { "no crate changed".to_owned() } else { names.join(", ") };
    let seconds = start.elapsed().as_secs_f64();
    println!("quick: passed in {seconds:.1} s: {looked_at}");
    Ok(ExitCode::SUCCESS)
}

/// A crate with changed files.
#[derive(Debug)]
struct Crate {
    package: String,
    /// Whether it is a library; otherwise it is a program.
    is_library: bool,
}

/// A call of cargo for these crates; `None` without any.
fn call<'a, C>(start: &[&'a str], crates: &'a [C], end: &[&'a str]) -> Option<Vec<&'a str>>
where
    C: std::borrow::Borrow<Crate>,
{
    let packages = crates.iter().flat_map(|one| ["-p", one.borrow().package.as_str()]);
    let packages: Vec<&str> = packages.collect();
    (!packages.is_empty()).then(|| [start, &packages, end].concat())
}

/// The crates with changed files.
fn changed_crates(root: &Path) -> Result<Vec<Crate>> {
    let mut files = git(root, &["diff", "--name-only", "HEAD"])?;
    files += &git(root, &["ls-files", "--others", "--exclude-standard"])?;
    if files.is_empty() {
        files = git(root, &["diff", "--name-only", "HEAD~1", "HEAD"])?;
    }
    let folders = folders(&files).into_iter();
    let crates = folders.filter_map(|folder| {
        let sources = if folder == "xtask" {
            root.join("xtask/src")
        } else {
            root.join("crates").join(folder).join("src")
        };
        // A crate that was removed has no sources.
        sources.is_dir().then(|| Crate {
            package: tidy::package_name(folder),
            is_library: sources.join("lib.rs").is_file(),
        })
    });
    Ok(crates.collect())
}

/// The folders of the crates that `files`, one per line, belong to.
fn folders(files: &str) -> BTreeSet<&str> {
    files.lines().filter_map(tidy::crate_of).collect()
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
    fn files_belong_to_crates() {
        let files = "crates/cache/src/lib.rs\ncrates/cache/tests/pins.rs\nxtask/src/quick.rs\n\
                     crates/cli/src/main.rs\nREADME.md\n";
        let expected = ["cache", "cli", "xtask"];
        assert_eq!(folders(files).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_call_names_its_crates() {
        let one = |package: &str| Crate { package: package.to_owned(), is_library: true };
        let crates = [one("a"), one("b")];
        let expected = ["test", "-p", "a", "-p", "b", "--lib"];
        assert_eq!(call(&["test"], &crates, &["--lib"]), Some(expected.to_vec()));
        assert_eq!(call::<Crate>(&["test"], &[], &["--lib"]), None);
    }
}
