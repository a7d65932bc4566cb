//! `headstart simulate`: three experiments in virtual time.

mod arms;
mod cells;
mod engine;
mod fleet;
mod grid;
mod prediction;
mod record;
mod texts;
mod traffic;
mod wild;

use std::num::NonZeroUsize;

use anyhow::Result;
use clap::Subcommand;

pub(crate) use self::cells::parallel;
pub(crate) use self::fleet::SourceOptions;
pub(crate) use self::grid::{Grid, RunGroup, SweepAxis, SweepPoint, kilo};

/// Longest run, minutes: a day.
const MINUTES_MAX: f64 = 1_440.0;

/// Simulate in virtual time.
#[derive(Debug, Subcommand)]
pub(crate) enum Simulate {
    /// Compare routing strategies on a fleet
    Fleet(Box<fleet::FleetSimulation>),
    /// Compare sizes of host memory and eviction policies
    HostMemory(Box<wild::HostMemory>),
    /// Compare eviction policies with predictors on one replica
    Prediction(Box<prediction::PredictionSimulation>),
}

/// Runs the simulation and prints what came out.
pub(crate) fn run(simulate: &Simulate) -> Result<()> {
    match simulate {
        Simulate::Fleet(fleet) => fleet::run(fleet),
        Simulate::HostMemory(host) => wild::run(host),
        Simulate::Prediction(prediction) => prediction::run(prediction),
    }
}

/// Threads, by default one per core.
fn threads(asked: Option<NonZeroUsize>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or(cores, usize::from)
}
