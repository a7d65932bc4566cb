//! `headstart simulate`: fleets in virtual time.

mod fleet;

use anyhow::Result;
use clap::Subcommand;

pub(crate) use self::fleet::SourceOptions;

/// Simulate in virtual time.
#[derive(Debug, Subcommand)]
pub(crate) enum Simulate {
    /// Compare routing strategies on a fleet
    Fleet(Box<fleet::FleetSimulation>),
}

/// Runs the simulation and prints what came out.
pub(crate) fn run(simulate: &Simulate) -> Result<()> {
    match simulate {
        Simulate::Fleet(fleet) => fleet::run(fleet),
    }
}
