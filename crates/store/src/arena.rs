//! Host memory for records: equal slots of one mapping, in huge pages where the system has some.
//!
//! A [`Slot`] is the only way to its bytes and gives them back when dropped, so that neither two
//! threads nor the kernel and a thread ever write the same bytes. Slots begin at page boundaries:
//! direct I/O reads into them and writes from them.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::MmapMut;

/// Slots begin and end at multiples of this, and so do records on a disk, as direct I/O wants it,
/// bytes.
pub const PAGE: usize = 4096;

/// Equal slots of host memory.
#[derive(Debug)]
pub struct Arena {
    /// Owns the memory; only reached through `base`.
    _map: MmapMut,
    base: NonNull<u8>,
    slot_bytes: usize,
    num_slots: usize,
    free: Mutex<Vec<u32>>,
}

// SAFETY: `base` points into `_map`, which lives as long as the arena and is never reached any
// other way. Bytes are only handed out through slots, and the free list gives each index to one
// slot at a time.
unsafe impl Send for Arena {}
// SAFETY: as above; the free list is behind a mutex and all else never changes.
unsafe impl Sync for Arena {}

impl Arena {
    /// `num_slots` slots of at least `slot_bytes` bytes. Untouched ones cost no memory.
    ///
    /// # Errors
    /// When the system gives no such address space.
    pub fn new(slot_bytes: usize, num_slots: usize) -> std::io::Result<Arc<Self>> {
        let slot_bytes = slot_bytes.max(1).next_multiple_of(PAGE);
        let too_large = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        let len = slot_bytes.checked_mul(num_slots).ok_or_else(too_large)?;
        let last = u32::try_from(num_slots).map_err(|_| too_large())?;
        // Also for an arena without slots: `base` has to point somewhere.
        let mut map = MmapMut::map_anon(len.max(PAGE))?;
        #[cfg(target_os = "linux")]
        {
            // Fewer entries for the processor's address tables; where it is refused, all works.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let base = NonNull::new(map.as_mut_ptr()).ok_or_else(too_large)?;
        Ok(Arc::new(Self {
            _map: map,
            base,
            slot_bytes,
            num_slots,
            // Slots are taken from the end: those used last come first, so that untouched ones
            // keep costing no memory.
            free: Mutex::new((0..last).rev().collect()),
        }))
    }

    /// Bytes of a slot, a multiple of [`PAGE`].
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Slots in all.
    #[must_use]
    pub fn num_slots(&self) -> usize {
        self.num_slots
    }

    /// Returns the number of free slots.
    #[must_use]
    pub fn free(&self) -> usize {
        self.lock().len()
    }

    /// A slot, if one is free. Its bytes are what its last holder left.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<Slot> {
        let index = self.lock().pop()?;
        Some(Slot { arena: self.clone(), index })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        // A push or a pop cannot leave the list half changed, so a panic elsewhere does no harm.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of one slot, until dropped.
#[derive(Debug)]
pub struct Slot {
    arena: Arc<Arena>,
    index: u32,
}

impl Slot {
    fn start(&self) -> NonNull<u8> {
        let offset = self.index as usize * self.arena.slot_bytes;
        // SAFETY: the index is below `num_slots`, so that the slot lies within the mapping.
        unsafe { self.arena.base.add(offset) }
    }
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slot's bytes are mapped, were zero at first, and only this slot reaches them.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.arena.slot_bytes) }
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; the slot is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.arena.slot_bytes) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.arena.lock().push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_aligned_apart_and_come_back() {
        let arena = Arena::new(5000, 3).expect("memory");
        assert_eq!(arena.slot_bytes(), 8192);
        let mut slots: Vec<Slot> = std::iter::from_fn(|| arena.take()).collect();
        assert_eq!((slots.len(), arena.free()), (3, 0));
        for (index, slot) in slots.iter_mut().enumerate() {
            assert!(slot.as_ptr().addr().is_multiple_of(PAGE));
            slot.fill(index as u8 + 1);
        }
        for (index, slot) in slots.iter().enumerate() {
            assert!(slot.iter().all(|&byte| byte == index as u8 + 1));
        }
        slots.truncate(1);
        assert_eq!(arena.free(), 2);
        drop(slots);
        assert_eq!((arena.free(), arena.num_slots()), (3, 3));
    }

    #[test]
    fn no_slots_are_no_error_and_too_many_are_one() {
        assert!(Arena::new(PAGE, 0).expect("memory").take().is_none());
        assert!(Arena::new(usize::MAX / 2, 4).is_err());
    }
}
