//! `headstart trace materialize`.

use anyhow::Result;
use clap::Args;

/// To be written.
#[derive(Args, Debug)]
pub(crate) struct Materialize {}

/// Runs it.
pub(crate) fn run(_: &Materialize) -> Result<()> {
    anyhow::bail!("not there yet")
}
