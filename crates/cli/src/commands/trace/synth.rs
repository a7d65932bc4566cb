//! `headstart trace synth`.

use anyhow::Result;
use clap::Args;

/// To be written.
#[derive(Args, Debug)]
pub(crate) struct Synth {}

/// Runs it.
pub(crate) fn run(_: &Synth) -> Result<()> {
    anyhow::bail!("not there yet")
}
