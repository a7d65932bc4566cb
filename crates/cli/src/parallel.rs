//! Independent pieces of work on several threads.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads, by default one per core.
#[must_use]
pub fn threads(asked: Option<NonZeroUsize>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or(cores, usize::from)
}

/// `work` on each of `items`, on up to `threads` threads; the results in the items' order.
///
/// # Panics
/// When `work` panics.
pub fn parallel<T: Sync, R: Send>(
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
