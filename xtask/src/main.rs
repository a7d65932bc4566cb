//! `cargo x`: the checks of this workspace, in one binary.
//!
//! `cargo x check` runs what CI runs; `cargo x quick` a minute of it; `cargo x tidy` runs the rules
//! of the style guide that no other tool knows. This crate reads files and starts cargo. It does
//! not know any other crate of the workspace, and it never fixes what it finds. `docs` and `dist`
//! alone write files.

mod cargo;
mod check;
mod command;
mod dist;
mod docs;
mod quick;
mod tidy;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::cargo::Cargo;
use crate::command::{Command, USAGE};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match Command::parse(&arguments) {
        Ok(command) => execute(command).unwrap_or_else(|error| {
            eprintln!("cargo x: {error:#}");
            ExitCode::FAILURE
        }),
        Err(problem) => {
            eprintln!("cargo x: {problem}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn execute(command: Command) -> Result<ExitCode> {
    match command {
        Command::Check(options) => check::run(&workspace_root()?, options),
        Command::Quick => with_cargo(quick::run),
        Command::Tidy => tidy_alone(),
        Command::Docs => with_cargo(docs::run),
        Command::Dist => with_cargo(dist::run),
        Command::Help => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn with_cargo(run: fn(&Path, &Cargo) -> Result<ExitCode>) -> Result<ExitCode> {
    let root = workspace_root()?;
    run(&root, &Cargo::new(&root))
}

fn tidy_alone() -> Result<ExitCode> {
    let violations = tidy::run(&workspace_root()?)?;
    for violation in &violations {
        println!("{violation}");
    }
    println!("{}", tidy::prose_report(&workspace_root()?)?);
    if violations.is_empty() {
        println!("tidy: no violations");
        return Ok(ExitCode::SUCCESS);
    }
    println!("tidy: violations: {}", violations.len());
    Ok(ExitCode::FAILURE)
}

/// The nearest folder, from the current one upwards, that holds this crate.
///
/// Asked at run time, not compiled in, so that a binary in a shared target folder serves
/// whichever checkout it is started in.
fn workspace_root() -> Result<PathBuf> {
    let current = env::current_dir().context("the current folder cannot be read")?;
    current
        .ancestors()
        .find(|folder| folder.join("xtask/Cargo.toml").is_file())
        .map(PathBuf::from)
        .context("no folder from here upwards holds xtask/Cargo.toml; run inside the workspace")
}
