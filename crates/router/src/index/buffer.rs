//! The keys of one run, shared by both views.
//!
//! Keys up to the run's length never change while a view shows them; those behind are the writer's.
//! It publishes them by the view's lock, so relaxed loads and stores do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headstart_core::{Nanos, RouteKey};

/// Stamps of last use count units of this many nanoseconds, some 1.07 s: often enough to tell cold
/// from warm, seldom enough that readers hardly ever write.
const STAMP_SHIFT: u32 = 30;

/// Room for keys, and when they were last used.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    /// The stamp of last use, then the keys. Empty for a run that is gone.
    slots: Arc<[AtomicU64]>,
}

impl Keys {
    /// The first key of a run, with room for `more` others.
    pub(super) fn one(key: RouteKey, more: u32, now: Nanos) -> Self {
        let known = [now.0 >> STAMP_SHIFT, key.0].into_iter();
        let slots = known.chain(std::iter::repeat_n(0, more as usize));
        Self { slots: slots.map(AtomicU64::new).collect() }
    }

    /// A copy of the first `len` keys, with room for `room` keys.
    pub(super) fn moved(&self, len: u32, room: u32) -> Self {
        let kept = self.slots[..=len as usize].iter().map(|slot| slot.load(Ordering::Relaxed));
        let slots = kept.chain(std::iter::repeat_n(0, (room - len) as usize));
        Self { slots: slots.map(AtomicU64::new).collect() }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.slots.len().saturating_sub(1) as u32
    }

    #[inline]
    pub(super) fn get(&self, offset: u32) -> RouteKey {
        RouteKey(self.slots[offset as usize + 1].load(Ordering::Relaxed))
    }

    /// Writes a key that no view shows.
    pub(super) fn put(&self, offset: u32, key: RouteKey) {
        self.slots[offset as usize + 1].store(key.0, Ordering::Relaxed);
    }

    /// Notes that the run is in use.
    pub(super) fn touch(&self, now: Nanos) {
        let stamp = now.0 >> STAMP_SHIFT;
        // Most look-ups only read here. A store takes the line of memory from all other readers.
        if self.last_used() < stamp {
            self.slots[0].store(stamp, Ordering::Relaxed);
        }
    }

    /// When it was last used, in stamps.
    pub(super) fn last_used(&self) -> u64 {
        self.slots[0].load(Ordering::Relaxed)
    }

    /// Memory, with the counters of the shared pointer, bytes.
    pub(super) fn bytes(&self) -> usize {
        (self.slots.len() + 2) * size_of::<AtomicU64>()
    }
}
