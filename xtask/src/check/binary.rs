//! The `headstart` binary for steps that run it.

use std::path::PathBuf;

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

/// Returns the path of the built program: beside this one.
pub(super) fn path() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program's own path")?;
    let folder = program.parent().context("this program lies in a folder")?;
    Ok(folder.join(format!("headstart{}", std::env::consts::EXE_SUFFIX)))
}
