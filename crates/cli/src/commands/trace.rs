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
pub(crate) enum TraceCommand {
    /// Convert a trace to Headstart's canonical format.
    Convert(convert::Convert),
    /// Generate a trace from presets and a seed.
    Synth(synth::Synth),
    /// Generate conversations whose words predict their end.
    Planted(planted::PlantedCommand),
    /// Convert block ids to prompts that a server can answer.
    Materialize(materialize::Materialize),
}

/// Runs one subcommand.
pub(crate) fn run(trace: &TraceCommand) -> Result<()> {
    match trace {
        TraceCommand::Convert(convert) => convert::run(convert),
        TraceCommand::Synth(synth) => synth::run(synth),
        TraceCommand::Planted(planted) => planted::run(planted),
        TraceCommand::Materialize(materialize) => materialize::run(materialize),
    }
}
