//! The system's allocator, counting the bytes that each index holds.
//!
//! Every thread counts for one account and is the only one that does, so a count is a load and a
//! store. An index has two: for what the measuring thread allocates on its behalf, and for its own
//! threads. Memory that one of them allocates and the other frees cancels in their sum.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

/// Accounts: 0 is for memory of no index, index i has 1 + 2i and 2 + 2i.
const MAX_ACCOUNTS: usize = 32;

/// Threads that have not counted yet.
const NEW: usize = usize::MAX;

static HELD: [AtomicIsize; MAX_ACCOUNTS] = [const { AtomicIsize::new(0) }; MAX_ACCOUNTS];

/// The account of threads that begin now.
static OF_NEW_THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static ACCOUNT: Cell<usize> = const { Cell::new(NEW) };
}

/// The system's allocator, counting.
pub(crate) struct Counting;

fn count(bytes: isize) {
    // A thread that is being torn down has no account any more.
    let _ = ACCOUNT.try_with(|account| {
        if account.get() == NEW {
            account.set(OF_NEW_THREADS.load(Relaxed));
        }
        let held = &HELD[account.get()];
        held.store(held.load(Relaxed) + bytes, Relaxed);
    });
}

// SAFETY: every call is passed on to the system's allocator as it came; the counters are plain
// cells and atomics without destructors, and touching them allocates nothing.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller's promises are those that the system's allocator asks for.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller's promises are those that the system's allocator asks for.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    // SAFETY: the caller's promises are those that the system's allocator asks for.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    // SAFETY: the caller's promises are those that the system's allocator asks for.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Until the guard goes, this thread counts for index `index`, and so does every thread that
/// begins. One thread measures; others use [`for_nobody`].
pub(crate) fn for_index(index: usize) -> Counts {
    set(1 + 2 * index, 2 + 2 * index);
    Counts
}

/// Stops counting this thread for an index. For readers, whose answers are no part of an index.
pub(crate) fn for_nobody() {
    let _ = ACCOUNT.try_with(|account| account.set(0));
}

/// Bytes that index `index` holds.
pub(crate) fn held(index: usize) -> isize {
    HELD[1 + 2 * index].load(Relaxed) + HELD[2 + 2 * index].load(Relaxed)
}

/// Forgets what index `index` held, before another one is built in its place.
pub(crate) fn reset(index: usize) {
    HELD[1 + 2 * index].store(0, Relaxed);
    HELD[2 + 2 * index].store(0, Relaxed);
}

/// Ends counting for an index when it goes.
pub(crate) struct Counts;

impl Drop for Counts {
    fn drop(&mut self) {
        set(0, 0);
    }
}

fn set(this_thread: usize, new_threads: usize) {
    OF_NEW_THREADS.store(new_threads, Relaxed);
    let _ = ACCOUNT.try_with(|account| account.set(this_thread));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_of_an_index_keeps_is_counted_with_it() {
        // No real index: other tests that run now may have theirs.
        let index = 11;
        let counts = for_index(index);
        let mine: Vec<u64> = vec![0; 1000];
        let theirs = std::thread::spawn(|| vec![0u64; 500]);
        let theirs = theirs.join().expect("a thread that allocates");
        drop(counts);
        assert!(held(index) >= 12_000, "{}", held(index));
        assert_eq!(ACCOUNT.get(), 0, "and nothing after the guard");
        drop((mine, theirs));
    }
}
