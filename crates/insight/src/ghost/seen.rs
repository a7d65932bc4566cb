//! Blocks used so far, as far as memory reaches: the infinite cache.

use std::time::Duration;

use hashbrown::HashTable;
use headstart_core::Nanos;

use super::sampling::{SampleRate, table_hash};

/// Sampled keys of blocks, in two generations: what is used stays, what is not used for one to
/// two spans is forgotten. A generation lasts exactly one span, whether or not blocks are used.
#[derive(Clone, Debug)]
pub(super) struct RecentKeySet {
    rate: SampleRate,
    blocks_max: usize,
    span: Duration,
    younger: HashTable<u64>,
    older: HashTable<u64>,
    /// Start of the younger generation.
    since: Nanos,
}

impl RecentKeySet {
    pub(super) fn new(blocks_max: usize, span: Duration) -> Self {
        Self {
            rate: SampleRate::default(),
            blocks_max: blocks_max.max(1),
            // A span of no time has no generations.
            span: span.max(Duration::from_nanos(1)),
            younger: HashTable::new(),
            older: HashTable::new(),
            since: Nanos(0),
        }
    }

    pub(super) fn rate(&self) -> SampleRate {
        self.rate
    }

    pub(super) fn len(&self) -> usize {
        self.younger.len() + self.older.len()
    }

    /// Uses a chain: `visit` sees of each sampled block, in order, whether it and all before it
    /// were used before, and for how many blocks it stands.
    pub(super) fn touch(&mut self, chain: &[u64], now: Nanos, mut visit: impl FnMut(bool, u64)) {
        self.age(now);
        let rate = self.rate;
        let mut is_leading = true;
        for &key in chain.iter().filter(|&&key| rate.keeps(key)) {
            // The infinite cache is a prefix cache too: after the first new block of a chain
            // nothing counts as seen.
            is_leading &= self.insert(key);
            visit(is_leading, rate.weight());
        }
        // The bound is enforced after the chain, so that one rate applies to all of its blocks.
        while self.len() > self.blocks_max && self.halve() {}
    }

    /// Follows half as many blocks from now on; whether that was possible.
    pub(super) fn halve(&mut self) -> bool {
        let is_possible = self.rate.halve();
        let rate = self.rate;
        self.younger.retain(|key| rate.keeps(*key));
        self.older.retain(|key| rate.keeps(*key));
        is_possible
    }

    /// Begins the generation of `now`: no time is kept per block.
    fn age(&mut self, now: Nanos) {
        let elapsed = now.since(self.since).as_nanos();
        let span = self.span.as_nanos();
        match elapsed / span {
            0 => return,
            1 => self.older = std::mem::take(&mut self.younger),
            // A whole span passed without any use, so even the younger blocks are too old.
            _ => {
                self.younger.clear();
                self.older.clear();
            }
        }
        // The remainder is at most `elapsed`, which fits 64 bits.
        self.since = Nanos(now.0 - (elapsed % span) as u64);
    }

    /// Whether the block was there.
    fn insert(&mut self, key: u64) -> bool {
        let hash = table_hash(key);
        // A block used in the current span is found here, without a look into the older table.
        if self.younger.find(hash, |known| *known == key).is_some() {
            return true;
        }
        let was_older = match self.older.find_entry(hash, |known| *known == key) {
            Ok(entry) => {
                entry.remove();
                true
            }
            Err(_) => false,
        };
        self.younger.insert_unique(hash, key, |key| table_hash(*key));
        was_older
    }

    /// Forgets all blocks.
    pub(super) fn clear(&mut self, now: Nanos) {
        *self = Self::new(self.blocks_max, self.span);
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses one block at even seconds and another at odd ones; whether each was remembered.
    fn remembered(seconds: &[u64]) -> Vec<bool> {
        let mut seen = RecentKeySet::new(usize::MAX, Duration::from_secs(10));
        let touch = |&second: &u64| {
            let mut is_known = false;
            let now = Nanos(0) + Duration::from_secs(second);
            seen.touch(&[1 + second % 2], now, |is_seen, _| is_known = is_seen);
            is_known
        };
        seconds.iter().map(touch).collect()
    }

    #[test]
    fn a_block_is_forgotten_after_two_spans_also_over_a_pause() {
        assert_eq!(remembered(&[0, 18]), [false, true]);
        assert_eq!(remembered(&[8, 18]), [false, true]);
        // Nothing was used in between.
        assert_eq!(remembered(&[0, 100]), [false, false]);
        assert_eq!(remembered(&[0, 20]), [false, false]);
        // A late use of another block does not lengthen the memory.
        assert_eq!(remembered(&[0, 19, 28]), [false, false, false]);
    }

    #[test]
    fn what_is_used_stays_and_what_is_not_is_forgotten() {
        let span = Duration::from_secs(10);
        let mut seen = RecentKeySet::new(usize::MAX, span);
        // Chain, second, and how many leading blocks were used before.
        let uses: [(&[u64], u64, usize); 7] = [
            (&[1, 2, 3], 0, 0),
            (&[1, 2, 9], 9, 2),
            (&[1], 11, 1),
            (&[1, 2, 3], 12, 3),
            (&[1], 21, 1),
            (&[1], 32, 1),
            (&[1, 2, 3], 33, 1),
        ];
        for (chain, second, expected) in uses {
            let mut known = 0;
            let now = Nanos(0) + Duration::from_secs(second);
            seen.touch(chain, now, |is_seen, weight| {
                assert_eq!(weight, 1);
                known += usize::from(is_seen);
            });
            assert_eq!(known, expected, "{chain:?} at {second}");
        }
        seen.clear(Nanos(0) + Duration::from_secs(40));
        assert_eq!(seen.len(), 0);
    }
}
