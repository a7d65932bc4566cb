//! Tokens of segments by key, within a number of bytes; the least recently used go first.
//!
//! ```text
//! by_key ─▶ slots:  [ key, tokens, newer, older ]   one doubly linked list through the slots
//! ```
//!
//! Invariant: the list holds exactly the slots that `by_key` names, and `held_bytes` is the sum
//! of their [`cost`], at most the capacity. Knows nothing of texts; no lock, so the caller's.

use std::collections::HashMap;
use std::sync::Arc;

use headstart_core::TokenId;

/// The name of a segment: a keyed hash, already as good as random.
pub(super) type SegmentKey = [u8; 16];

/// Bytes that an entry costs beside its tokens: its slot (48), its place in the table (twice 24,
/// since tables double), the counts of the `Arc` (16) and what the allocator adds (16).
const ENTRY_BYTES: usize = 128;

/// An entry may take at most this share of the capacity, so that one text without boundaries
/// does not drive out everything else.
const MAX_SHARE: usize = 8;

/// No slot: the end of the list.
const NONE: u32 = u32::MAX;

/// The store.
pub(super) struct Segments {
    capacity_bytes: usize,
    held_bytes: usize,
    by_key: HashMap<SegmentKey, u32>,
    slots: Vec<SegmentSlot>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

struct SegmentSlot {
    key: SegmentKey,
    tokens: Arc<[TokenId]>,
    newer: u32,
    older: u32,
}

impl Segments {
    pub(super) fn new(capacity_bytes: usize) -> Self {
        Self {
            capacity_bytes,
            held_bytes: 0,
            by_key: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The tokens of each key, where held. Those found become the most recently used, the first
    /// of them the most recent: beginnings are shared by more texts than ends.
    pub(super) fn find<'a>(
        &mut self,
        keys: impl DoubleEndedIterator<Item = &'a SegmentKey> + Clone,
    ) -> Vec<Option<Arc<[TokenId]>>> {
        for key in keys.clone().rev() {
            if let Some(&slot) = self.by_key.get(key) {
                self.unlink(slot);
                self.link_newest(slot);
            }
        }
        let tokens = |key| {
            let slot = *self.by_key.get(key)?;
            Some(Arc::clone(&self.slots[slot as usize].tokens))
        };
        keys.map(tokens).collect()
    }

    /// Keeps the tokens of segments, given in the order of their text; older ones make room.
    pub(super) fn keep(&mut self, new: Vec<(SegmentKey, Arc<[TokenId]>)>) {
        // In reverse, so that the beginning of the text is the most recent and goes last.
        for (key, tokens) in new.into_iter().rev() {
            let cost = cost(&tokens);
            // Another thread may have been first.
            if cost > self.capacity_bytes / MAX_SHARE || self.by_key.contains_key(&key) {
                continue;
            }
            // An entry costs at most an eighth of the capacity, so this ends.
            while self.held_bytes + cost > self.capacity_bytes {
                self.drop_oldest();
            }
            self.held_bytes += cost;
            self.insert(key, tokens);
        }
    }

    /// Recounts everything.
    pub(super) fn check(&self) {
        let (mut newer, mut slot) = (NONE, self.newest);
        let (mut num_slots, mut bytes) = (0, 0);
        while slot != NONE {
            let at = &self.slots[slot as usize];
            assert_eq!(at.newer, newer, "the list is linked both ways");
            assert_eq!(self.by_key.get(&at.key), Some(&slot), "the table names the slot");
            num_slots += 1;
            bytes += cost(&at.tokens);
            (newer, slot) = (slot, at.older);
        }
        assert_eq!(self.oldest, newer, "the list ends at the oldest");
        assert_eq!(num_slots, self.by_key.len(), "the list holds every segment");
        assert_eq!(num_slots + self.free.len(), self.slots.len(), "no slot is lost");
        assert_eq!(bytes, self.held_bytes, "bytes are counted");
        assert!(bytes <= self.capacity_bytes, "the capacity holds");
    }

    fn insert(&mut self, key: SegmentKey, tokens: Arc<[TokenId]>) {
        let new = SegmentSlot { key, tokens, newer: NONE, older: NONE };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = new;
                slot
            }
            None => {
                self.slots.push(new);
                u32::try_from(self.slots.len() - 1).expect("slots of 128 bytes fill 512 GiB first")
            }
        };
        self.by_key.insert(key, slot);
        self.link_newest(slot);
    }

    fn drop_oldest(&mut self) {
        let slot = self.oldest;
        assert_ne!(slot, NONE, "bytes are held by segments");
        self.unlink(slot);
        let old = &mut self.slots[slot as usize];
        // The slot waits for its next use, and the tokens must not wait with it.
        let tokens = std::mem::take(&mut old.tokens);
        self.held_bytes -= cost(&tokens);
        self.by_key.remove(&old.key);
        self.free.push(slot);
    }

    fn unlink(&mut self, slot: u32) {
        let SegmentSlot { newer, older, .. } = self.slots[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let older = self.newest;
        let at = &mut self.slots[slot as usize];
        (at.newer, at.older) = (NONE, older);
        match older {
            NONE => self.oldest = slot,
            older => self.slots[older as usize].newer = slot,
        }
        self.newest = slot;
    }
}

/// Bytes that an entry is charged.
fn cost(tokens: &[TokenId]) -> usize {
    size_of_val(tokens) + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    /// A list, newest first, searched from the front.
    struct Reference {
        capacity_bytes: usize,
        newest_first: Vec<(SegmentKey, usize)>,
    }

    impl Reference {
        fn find(&mut self, keys: &[SegmentKey]) -> Vec<bool> {
            for key in keys.iter().rev() {
                if let Some(at) = self.newest_first.iter().position(|(held, _)| held == key) {
                    let entry = self.newest_first.remove(at);
                    self.newest_first.insert(0, entry);
                }
            }
            let held = |key| self.newest_first.iter().any(|(held, _)| held == key);
            keys.iter().map(held).collect()
        }

        fn keep(&mut self, key: SegmentKey, num_tokens: usize) {
            let cost = num_tokens * 4 + ENTRY_BYTES;
            if cost > self.capacity_bytes / MAX_SHARE
                || self.newest_first.iter().any(|(held, _)| *held == key)
            {
                return;
            }
            self.newest_first.insert(0, (key, cost));
            while self.bytes() > self.capacity_bytes {
                self.newest_first.pop();
            }
        }

        fn bytes(&self) -> usize {
            self.newest_first.iter().map(|(_, cost)| cost).sum()
        }
    }

    #[test]
    fn holds_what_a_plain_list_holds() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let capacity_bytes = [0, 1500, 8000, 40_000][rng.below(4)];
            let mut segments = Segments::new(capacity_bytes);
            let mut reference = Reference { capacity_bytes, newest_first: Vec::new() };
            for step in 0..400 {
                let keys: Vec<SegmentKey> =
                    (0..1 + rng.below(5)).map(|_| [rng.below(60) as u8; 16]).collect();
                let found = segments.find(keys.iter());
                let found: Vec<bool> = found.iter().map(Option::is_some).collect();
                assert_eq!(found, reference.find(&keys), "seed {seed} step {step}");
                let num_tokens = rng.below(200);
                let tokens: Arc<[TokenId]> = vec![7; num_tokens].into();
                segments.keep(keys.iter().map(|&key| (key, Arc::clone(&tokens))).collect());
                for &key in keys.iter().rev() {
                    reference.keep(key, num_tokens);
                }
                segments.check();
                assert_eq!(segments.held_bytes(), reference.bytes(), "seed {seed}");
                assert_eq!(segments.len(), reference.newest_first.len());
            }
        }
    }

    #[test]
    fn tokens_come_back_as_they_were_kept() {
        let mut segments = Segments::new(10_000);
        segments.keep(vec![([1; 16], [1, 2, 3].into()), ([2; 16], [4].into())]);
        let found = segments.find([[2; 16], [3; 16], [1; 16]].iter());
        let found: Vec<Option<&[TokenId]>> = found.iter().map(Option::as_deref).collect();
        assert_eq!(found, [Some(&[4][..]), None, Some(&[1, 2, 3][..])]);
    }
}
