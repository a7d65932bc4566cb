//! The cells of the table, replayed on several threads.

use anyhow::Result;
use headstart_core::Probability;
use headstart_sim::sweep::SweepCell;
use headstart_sim::{ReplayOutcome, Sweep};

use crate::parallel::parallel;

/// One policy, told by one predictor, at one capacity.
#[derive(Clone, Debug)]
pub(crate) struct ReplayCell<'a> {
    /// The policy as asked for.
    pub(crate) spec: String,
    /// The same with its predictor, as the table names it.
    pub(crate) policy: String,
    /// One per request, instead of what the requests carry.
    pub(crate) predictions: Option<&'a [Option<Probability>]>,
    /// The capacity as requested; `None` for a default size.
    pub(crate) asked: Option<String>,
    pub(crate) blocks: u64,
}

/// Replays all `cells` on up to `threads` threads; their outcomes, in the same order.
pub(crate) fn replay_all(
    sweep: &Sweep<'_>,
    cells: &[ReplayCell<'_>],
    threads: usize,
    observe: impl Fn(usize) + Sync,
) -> Result<Vec<ReplayOutcome>> {
    let outcomes = parallel(cells, threads, |cell| {
        let arm =
            SweepCell { spec: &cell.spec, capacity: cell.blocks, predictions: cell.predictions };
        sweep.run(arm, &observe)
    });
    outcomes.into_iter().map(|outcome| Ok(outcome?)).collect()
}
