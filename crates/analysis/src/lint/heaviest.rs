//! The heaviest of many keys in bounded memory, in one pass: a key that comes late and often
//! displaces one that came early and once.
//!
//! Source: Space-Saving (Metwally, Agrawal, El Abbadi: ICDT'05). Difference: a new key inherits the
//! weight of the displaced key only as its rank; its value starts empty. So each key with more than
//! 1/n-th of all weight is among the n, and no value counts too much.

use std::collections::BTreeMap;

/// At most `most` keys with their values.
#[derive(Debug)]
pub(super) struct Heaviest<K, V> {
    most: usize,
    kept: BTreeMap<K, RankedValue<V>>,
}

#[derive(Debug)]
struct RankedValue<V> {
    /// At least what it weighs.
    rank: u64,
    value: V,
}

impl<K: Ord + Copy, V> Heaviest<K, V> {
    /// Keeps `most` keys, at least one.
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), kept: BTreeMap::new() }
    }

    /// Adds `weight` to `key`, whose value is returned: a new one by `fresh` where it has none. The
    /// lightest key makes room.
    pub(super) fn add(&mut self, key: K, weight: u64, fresh: impl FnOnce() -> V) -> &mut V {
        let mut inherited = 0;
        // A known key replaces none, so room is made for new ones only.
        if !self.kept.contains_key(&key) && self.kept.len() == self.most {
            // A scan of all keys is linear, but happens only for a new key while the table is full.
            let lightest = self.kept.iter().min_by_key(|(_, kept)| kept.rank);
            if let Some((lightest, rank)) = lightest.map(|(key, kept)| (*key, kept.rank)) {
                self.kept.remove(&lightest);
                // The rank must not fall below the weight that may have been lost with an earlier
                // eviction.
                inherited = rank;
            }
        }
        let kept =
            self.kept.entry(key).or_insert_with(|| RankedValue { rank: inherited, value: fresh() });
        // The sum of many weights saturates rather than wraps to the lightest.
        kept.rank = kept.rank.saturating_add(weight);
        &mut kept.value
    }

    /// All that are kept, in the order of their keys.
    pub(super) fn into_values(self) -> impl Iterator<Item = (K, V)> {
        self.kept.into_iter().map(|(key, kept)| (key, kept.value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use headstart_core::Rng;

    use super::*;

    /// Against a map of everything.
    #[test]
    fn the_heavy_are_kept_and_nothing_counts_too_much() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let most = 1 + rng.below(12);
            let mut heaviest: Heaviest<usize, u64> = Heaviest::new(most);
            let mut all: BTreeMap<usize, u64> = BTreeMap::new();
            for _ in 0..400 {
                // Few keys come often, many once.
                let key = match rng.below(3) {
                    0 => rng.below(4),
                    _ => 4 + rng.below(500),
                };
                let weight = 1 + rng.below(20) as u64;
                *heaviest.add(key, weight, || 0) += weight;
                *all.entry(key).or_default() += weight;
            }
            let total: u64 = all.values().sum();
            let kept: BTreeMap<usize, u64> = heaviest.into_values().collect();
            assert!(kept.len() <= most);
            for (key, weight) in &all {
                let counted = kept.get(key);
                assert!(counted.is_none_or(|count| count <= weight), "{key} of seed {seed}");
                let is_heavy = *weight > total / most as u64;
                assert!(!is_heavy || counted.is_some(), "{key} of seed {seed}");
            }
        }
    }

    #[test]
    fn where_all_fit_all_is_exact() {
        let mut heaviest: Heaviest<u32, u64> = Heaviest::new(3);
        for (key, weight) in [(1, 5), (2, 1), (1, 2), (3, 9)] {
            *heaviest.add(key, weight, || 0) += weight;
        }
        let kept: Vec<_> = heaviest.into_values().collect();
        assert_eq!(kept, [(1, 7), (2, 1), (3, 9)]);
    }
}
