//! `headstart trace`: one file per subcommand.

mod convert;
mod materialize;
mod planted;
mod sessions;
mod synth;

use anyhow::Result;
use clap::Subcommand;

/// Convert and generate traces.
#[derive(Debug, Subcommand)]
pub(crate) enum Trace {
    /// Convert a trace to Headstart's canonical format.
    Convert(convert::Convert),
    /// Generate a trace from presets and a seed.
    Synth(synth::Synth),
    /// Generate conversations whose words predict their end.
    Planted(planted::Planted),
    /// Convert block ids to prompts that a server can answer.
    Materialize(materialize::Materialize),
}

/// Runs one subcommand.
pub(crate) fn run(trace: &Trace) -> Result<()> {
    match trace {
        Trace::Convert(convert) => convert::run(convert),
        Trace::Synth(synth) => synth::run(synth),
        Trace::Planted(planted) => planted::run(planted),
        Trace::Materialize(materialize) => materialize::run(materialize),
    }
}
