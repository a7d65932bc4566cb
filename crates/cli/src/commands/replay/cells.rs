//! The cells of the table, replayed on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use headstart_core::Probability;
use headstart_sim::sweep::SweepCell;
use headstart_sim::{ReplayOutcome, Sweep};

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

/// Replays all `cells` on up to `threads` threads; their outcomes, in the same order. Each
/// thread takes the next cell when it is done with one, so none waits for another.
pub(crate) fn replay_all(
    sweep: &Sweep<'_>,
    cells: &[ReplayCell<'_>],
    threads: usize,
    observe: impl Fn(usize) + Sync,
) -> Result<Vec<ReplayOutcome>> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::with_capacity(cells.len()));
    let work = || {
        loop {
            // The counter alone is shared, and no other memory depends on its order.
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(cell) = cells.get(index) else {
                return;
            };
            let arm = SweepCell {
                spec: &cell.spec,
                capacity: cell.blocks,
                predictions: cell.predictions,
            };
            let outcome = sweep.run(arm, &observe);
            // The lock is held for one push; the replay itself runs outside it.
            let mut outcomes = outcomes.lock().expect("no holder of the lock panics");
            outcomes.push((index, outcome));
        }
    };
    std::thread::scope(|scope| {
        // The calling thread works as well, so one thread less is started.
        for _ in 1..threads.min(cells.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut outcomes = outcomes.into_inner().expect("all threads are done");
    // Threads finish in any order, and the table has the order of the cells.
    outcomes.sort_by_key(|(index, _)| *index);
    let outcomes = outcomes.into_iter().map(|(_, outcome)| Ok(outcome?));
    outcomes.collect()
}
