//! The `headstart` binary for steps that run it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::Outcome;
use crate::cargo::Cargo;

/// Builds it with the whole workspace, as the tests were; see `examples`. Returns the outcome of a
/// build that fails.
pub(super) fn build(cargo: &Cargo) -> Result<Option<Outcome>> {
    let built = cargo.run(&["build", "--quiet", "--locked", "--workspace", "--bins"], &[])?;
    let failed = || Outcome::Failed(format!("the binary does not build: {built}"));
    Ok((!built.success()).then(failed))
}

/// Runs a script below the root with `--headstart` and the built program, and prints its output.
/// Returns its exit code and output.
pub(super) fn run_script(script: &str, root: &Path) -> Result<(Option<i32>, String)> {
    let done = Command::new(root.join(script))
        .arg("--headstart")
        .arg(path()?)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{script} did not start"))?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    print!("{said}");
    Ok((done.status.code(), said))
}

/// Returns the path of the built program: beside this one.
pub(super) fn path() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program's own path")?;
    let folder = program.parent().context("this program lies in a folder")?;
    Ok(folder.join(format!("headstart{}", std::env::consts::EXE_SUFFIX)))
}
