//! `headstart trace convert`.

use anyhow::Result;
use clap::Args;

/// To be written.
#[derive(Args, Debug)]
pub(crate) struct Convert {}

/// Runs it.
pub(crate) fn run(_: &Convert) -> Result<()> {
    anyhow::bail!("not there yet")
}
