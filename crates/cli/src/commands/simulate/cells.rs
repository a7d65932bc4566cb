//! The cells of an experiment, run on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use headstart_sim::chat::Replica;
use headstart_sim::experiment::{Arm, Traffic};

use crate::report::simulate::RunMeasurements;

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

/// `work` on each of `items`, on up to `threads` threads; the results in the items' order.
pub(crate) fn parallel<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let take = || {
        loop {
            // The counter alone is shared, and no other memory depends on its order.
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                return;
            };
            let result = work(item);
            // The lock is held for one push; the work itself runs outside it.
            let mut results = results.lock().expect("no holder of the lock panics");
            results.push((index, result));
        }
    };
    std::thread::scope(|scope| {
        // The calling thread works as well, so one thread less is started.
        for _ in 1..threads.min(items.len()) {
            scope.spawn(take);
        }
        take();
    });
    let mut results = results.into_inner().expect("all threads are done");
    // Threads finish in any order; the results are in the order of the items.
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
