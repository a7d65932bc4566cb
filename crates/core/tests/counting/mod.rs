//! An allocator that counts what the calling thread holds, and the most that it held.
//!
//! For tests of any crate, which take it in by its path; it is part of no product. The benchmark
//! beside the peers has one of its own, which counts over threads.

// Each test file uses its own part.
#![allow(dead_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counting.
pub(crate) struct Counting;

fn count(bytes: isize) {
    // A thread that is being torn down has no counters any more, and no test reads them.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is passed on to the system's allocator as it came; the counters are plain
// cells without destructors, and touching them allocates nothing.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller's promises are those that the system's allocator asks for.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller's promises are those that the system's allocator asks for.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes that this thread holds: what it allocated, less what it freed.
pub(crate) fn held_bytes() -> isize {
    HELD.get()
}

/// The most bytes that `run` held beyond what was held before, on this thread.
pub(crate) fn peak_bytes(run: impl FnOnce()) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    run();
    usize::try_from(PEAK.get() - before).unwrap_or(0)
}
