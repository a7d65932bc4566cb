//! Finding and running the examples, so that what the README shows keeps working.
//!
//! Every `*.rs` directly under `examples/` (declared by the binary's package) and under
//! `crates/<folder>/examples/` is run, without arguments: an example must work offline, on a CPU,
//! from a fresh checkout. One that cannot is not an example but a document.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Outcome;
use crate::cargo::Cargo;
use crate::tidy::package_name;

/// Examples that must exist, because a document promises them.
const REQUIRED: &[&str] = &["policy", "replay", "route"];

/// The folder under `crates/` whose package declares the examples at the workspace root.
const ROOT_EXAMPLES_CRATE: &str = "cli";

/// One example and the package that declares it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Example {
    package: String,
    name: String,
}

/// Runs every example and stops at the first that fails.
pub(super) fn run(root: &Path, cargo: &Cargo) -> Result<Outcome> {
    let examples = discover(root)?;
    if let Some(name) = first_missing(REQUIRED, &examples) {
        return Ok(Outcome::Failed(format!("example `{name}` is required but does not exist")));
    }
    // Built with the whole workspace, as the tests were: building one package alone would choose
    // other features of its dependencies and compile them again.
    let built = cargo.run(&["build", "--quiet", "--locked", "--workspace", "--examples"], &[])?;
    if !built.success() {
        return Ok(Outcome::Failed(format!("examples do not build: {built}")));
    }
    let folder = examples_folder()?;
    for Example { package, name } in &examples {
        let program = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        let status = Command::new(&program)
            .current_dir(root)
            .status()
            .with_context(|| format!("example `{name}` of `{package}` did not start"))?;
        if !status.success() {
            return Ok(Outcome::Failed(format!("example `{name}` of `{package}`: {status}")));
        }
    }
    Ok(Outcome::Passed(format!("examples run: {}", examples.len())))
}

/// Returns the folder in which cargo puts examples: beside this program.
fn examples_folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program's own path")?;
    let folder = program.parent().context("this program lies in a folder")?;
    Ok(folder.join("examples"))
}

fn discover(root: &Path) -> Result<Vec<Example>> {
    let mut examples = examples_in(&root.join("examples"), ROOT_EXAMPLES_CRATE)?;
    for folder in names_in(&root.join("crates"))? {
        let path = root.join("crates").join(&folder).join("examples");
        examples.extend(examples_in(&path, &folder)?);
    }
    examples.sort();
    Ok(examples)
}

fn examples_in(path: &Path, folder: &str) -> Result<Vec<Example>> {
    let names = names_in(path)?;
    let stems = names.iter().filter_map(|name| name.strip_suffix(".rs"));
    Ok(stems.map(|name| Example { package: package_name(folder), name: name.to_owned() }).collect())
}

/// The names in a folder; none if there is no such folder.
fn names_in(path: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries.with_context(|| format!("{} cannot be read", path.display()))?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn first_missing<'a>(required: &[&'a str], examples: &[Example]) -> Option<&'a str> {
    required.iter().copied().find(|&name| examples.iter().all(|example| example.name != name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(required: &[&str], existing: &[&str], expected: Option<&str>) {
        let examples: Vec<Example> = existing
            .iter()
            .map(|&name| Example { package: package_name("cli"), name: name.to_owned() })
            .collect();
        assert_eq!(first_missing(required, &examples), expected);
    }

    #[test]
    fn a_required_example_must_exist() {
        check(&["route", "replay"], &["replay", "route", "fleet"], None);
        check(&["route", "replay"], &["route"], Some("replay"));
    }

    #[test]
    fn a_folder_that_is_not_there_holds_no_examples() {
        let nowhere = Path::new("a/folder/that/is/not/there");
        assert_eq!(discover(nowhere).expect("absence is not an error"), Vec::new());
    }
}
