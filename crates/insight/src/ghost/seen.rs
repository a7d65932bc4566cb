//! Blocks used so far, as far as memory reaches: the infinite cache.

use std::time::Duration;

use hashbrown::HashTable;
use headstart_core::Nanos;

use super::sampling::{SampleRate, table_hash};

/// Sampled keys of blocks, in two generations: what is used stays, what is not used for one to
/// two spans is forgotten.
#[derive(Clone, Debug)]
pub(super) struct RecentKeySet {
    rate: SampleRate,
    blocks_max: usize,
    span: Duration,
    younger: HashTable<u64>,
    older: HashTable<u64>,
    since: Nanos,
}

impl RecentKeySet {
    pub(super) fn new(blocks_max: usize, span: Duration) -> Self {
        Self {
            rate: SampleRate::default(),
            blocks_max: blocks_max.max(1),
            span,
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
        // One swap forgets all blocks that were not used for a span: no time is kept per block.
        if now.since(self.since) >= self.span {
            self.older = std::mem::take(&mut self.younger);
            self.since = now;
        }
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
