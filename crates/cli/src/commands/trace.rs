//! `headstart trace`: one file per subcommand.

mod convert;
mod materialize;
mod planted;
mod sessions;
mod synth;

use anyhow::Result;
use clap::Subcommand;

/// Convert, synthesize and materialize traces.
#[derive(Debug, Subcommand)]
pub(crate) enum Trace {
    /// Rewrite a trace in Headstart's canonical form.
    Convert(convert::Convert),
    /// Generate a trace from a seed.
    Synth(synth::Synth),
    /// Generate conversations whose words tell whether they go on.
    Planted(planted::Planted),
    /// Give each anonymous block tokens of its own, to drive a live server.
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
