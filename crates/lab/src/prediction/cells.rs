//! The cells of an experiment, run on several threads.

use crate::prediction::chat::Replica;
use crate::prediction::experiment::{Arm, Traffic};
use anyhow::Result;
use headstart::parts::parallel;

use super::report::RunMeasurements;

/// One arm with one cache on one traffic.
#[derive(Debug)]
pub(crate) struct SimulationCell<'a> {
    pub(crate) traffic: &'a Traffic,
    pub(crate) arm: &'a Arm,
    pub(crate) size_tokens: u32,
}

/// Runs all `cells` and returns their measurements in the same order. Each thread takes the next
/// cell when it finishes one.
pub(crate) fn run_all(
    cells: &[SimulationCell<'_>],
    replica: &Replica,
    threads: usize,
    observe: impl Fn() + Sync,
) -> Result<Vec<RunMeasurements>> {
    let done = parallel(cells, threads, |cell| {
        let outcome = cell.traffic.run(cell.arm, *replica, cell.size_tokens);
        observe();
        let block_tokens = replica.scheduler.block_size as u32;
        outcome.map(|outcome| RunMeasurements::of(&outcome, block_tokens))
    });
    done.into_iter().map(|measured| Ok(measured?)).collect()
}
