//! Starting cargo the way a shell would, also from within `cargo run`.
//!
//! It does not know what is run, or in which order.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Variables that `cargo run` sets for us and a shell would not. Build scripts that watch them
/// (`ring`'s is one) would be rebuilt each time a developer alternates `cargo test` and `cargo x`.
const INHERITED_PREFIXES: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

/// A cargo to be started in one folder, with settings common to all steps.
#[derive(Debug)]
pub(crate) struct Cargo {
    program: OsString,
    root: PathBuf,
    settings: Vec<(&'static str, &'static str)>,
}

impl Cargo {
    /// Cargo in `root`, the same binary that started us if one did.
    pub(crate) fn new(root: &Path) -> Self {
        let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        Self { program, root: root.to_owned(), settings: settings_of_environment() }
    }

    /// Runs cargo to its end; its output goes straight to ours.
    pub(crate) fn run(
        &self,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> io::Result<ExitStatus> {
        self.command(arguments).envs(variables.iter().copied()).status()
    }

    /// Runs cargo to its end, and returns what it wrote to standard output.
    pub(crate) fn output(&self, arguments: &[&str]) -> io::Result<(ExitStatus, String)> {
        let output = self.command(arguments).stderr(Stdio::inherit()).output()?;
        Ok((output.status, String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    /// Whether `cargo <subcommand>` can be run: rustup installs it as a component.
    pub(crate) fn has(&self, subcommand: &str) -> bool {
        let output = self.command(&[subcommand, "--version"]).output();
        output.is_ok_and(|output| output.status.success())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.root).envs(self.settings.iter().copied());
        for (name, _) in env::vars_os().filter(|(name, _)| is_inherited(name)) {
            command.env_remove(name);
        }
        command
    }
}

fn settings_of_environment() -> Vec<(&'static str, &'static str)> {
    let terminal = io::stdout().is_terminal();
    let on_ci = env::var_os("CI").is_some_and(|value| value == "true");
    settings(on_ci, terminal, env::var_os("CARGO_TERM_COLOR").is_some())
}

/// CI starts from nothing, so incremental builds only cost it disk; and it reads the output as
/// text, so it gets no colour. A colour that the caller has chosen stays.
fn settings(on_ci: bool, terminal: bool, chosen: bool) -> Vec<(&'static str, &'static str)> {
    let mut settings = Vec::new();
    if on_ci {
        settings.push(("CARGO_INCREMENTAL", "0"));
    }
    if !chosen {
        let color = if terminal && !on_ci { "always" } else { "never" };
        settings.push(("CARGO_TERM_COLOR", color));
    }
    settings
}

fn is_inherited(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    INHERITED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
