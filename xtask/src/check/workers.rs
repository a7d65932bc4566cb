//! Work on a list by as many threads as there are cores.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;

use anyhow::Result;

/// Calls `work` once for each item, and returns the results in the order in which calls ended.
///
/// Calls start in the items' order. After an error no further call starts.
pub(super) fn each<T: Send, R: Send>(
    items: Vec<T>,
    work: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(VecDeque::from(items));
    let results = Mutex::new(Vec::new());
    let take = || -> Result<()> {
        loop {
            let next = queue.lock().expect("no holder panics").pop_front();
            let Some(item) = next else {
                return Ok(());
            };
            let result =
                work(item).inspect_err(|_| queue.lock().expect("no holder panics").clear())?;
            results.lock().expect("no holder panics").push(result);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    Ok(results.into_inner().expect("no holder panics"))
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn each_item_is_worked_on_once() {
        let mut doubled = each((0..100).collect(), |item| Ok(item * 2)).expect("no call fails");
        doubled.sort_unstable();
        assert_eq!(doubled, (0..100).map(|item| item * 2).collect::<Vec<_>>());
    }

    #[test]
    fn an_error_ends_the_work() {
        let result =
            each((0..100).collect(), |item: u32| if item == 3 { bail!("three") } else { Ok(item) });
        assert_eq!(result.expect_err("one call fails").to_string(), "three");
    }
}
