//! Waterfalls by key, in bounded memory.

use std::collections::BTreeMap;

use headstart_core::RouteKey;

use crate::{Split, Waterfall};

/// A waterfall per key, for as many keys as there is room; the others share one.
#[derive(Clone, Debug)]
pub struct Tally<K> {
    rows: BTreeMap<K, Waterfall>,
    other: Waterfall,
    max_keys: usize,
}

impl<K: Ord> Tally<K> {
    /// One with room for `max_keys` keys: those that come first.
    #[must_use]
    pub fn new(max_keys: usize) -> Self {
        Self {
            rows: BTreeMap::new(),
            other: Waterfall::default(),
            max_keys,
        }
    }

    /// Adds a request.
    pub fn add(&mut self, key: K, split: &Split) {
        let has_room = self.rows.len() < self.max_keys;
        match self.rows.get_mut(&key) {
            Some(row) => row.add(split),
            None if has_room => self.rows.entry(key).or_default().add(split),
            None => self.other.add(split),
        }
    }

    /// The keys with their waterfalls, by key.
    pub fn rows(&self) -> impl Iterator<Item = (&K, &Waterfall)> {
        self.rows.iter()
    }

    /// All keys that there was no room for.
    #[must_use]
    pub fn other(&self) -> &Waterfall {
        &self.other
    }
}

/// One of the prefixes that most requests begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The key of an early block.
    pub key: RouteKey,
    /// Requests that begin so, at most: as many as `missed` may be another prefix's.
    pub requests: u64,
    /// Requests that another prefix in its place had.
    pub missed: u64,
    /// Of the requests counted since it has its place.
    pub waterfall: Waterfall,
}

/// The prefixes that most requests begin with, with their waterfalls.
///
/// Source: Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005): a newcomer takes the place and
/// the count of the rarest. Each prefix of more than 1 in `places` requests has a place.
#[derive(Clone, Debug)]
pub struct HotPrefixes {
    rows: Vec<Prefix>,
    places: usize,
}

impl HotPrefixes {
    /// One with so many places, at least one.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self {
            rows: Vec::new(),
            places: places.max(1),
        }
    }

    /// Adds a request that begins with the block `key`. O(places).
    pub fn add(&mut self, key: RouteKey, split: &Split) {
        let known = self.rows.iter().position(|row| row.key == key);
        let place = known.unwrap_or_else(|| self.make_place(key));
        let row = &mut self.rows[place];
        row.requests += 1;
        row.waterfall.add(split);
    }

    fn make_place(&mut self, key: RouteKey) -> usize {
        let newcomer = |missed| Prefix {
            key,
            requests: missed,
            missed,
            waterfall: Waterfall::default(),
        };
        if self.rows.len() < self.places {
            self.rows.push(newcomer(0));
            return self.rows.len() - 1;
        }
        let rarest = (0..self.rows.len()).min_by_key(|&place| self.rows[place].requests);
        let rarest = rarest.unwrap_or(0);
        self.rows[rarest] = newcomer(self.rows[rarest].requests);
        rarest
    }

    /// The prefixes, those of most requests first.
    #[must_use]
    pub fn rows(&self) -> Vec<&Prefix> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.requests));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bucket;
    use headstart_core::Rng;
    use std::collections::HashMap;

    fn split(tokens: u32) -> Split {
        let mut split = Split::default();
        split.put(Bucket::NeverSeen, tokens);
        split
    }

    #[test]
    fn keys_beyond_the_bound_share_a_row() {
        let mut tally = Tally::new(2);
        for (key, tokens) in [("a", 1), ("b", 2), ("c", 4), ("a", 8), ("d", 16)] {
            tally.add(key, &split(tokens));
        }
        let rows: Vec<_> = tally.rows().map(|(key, row)| (*key, row.total())).collect();
        assert_eq!(rows, [("a", 9), ("b", 2)]);
        assert_eq!((tally.other().total(), tally.other().requests()), (20, 2));
    }

    /// Against exact counts: what must have a place has one, and no count is too low, or too high
    /// by more than it says.
    #[test]
    fn frequent_prefixes_are_found_with_a_stated_error() {
        let mut rng = Rng::new(4);
        let (mut hot, mut exact) = (HotPrefixes::new(20), HashMap::new());
        let all = 20_000;
        for _ in 0..all {
            let key = (200.0 * rng.next_f64().powi(4)) as u64;
            hot.add(RouteKey(key), &split(1));
            *exact.entry(key).or_insert(0u64) += 1;
        }
        let rows = hot.rows();
        for (&key, &count) in &exact {
            let row = rows.iter().find(|row| row.key == RouteKey(key));
            assert!(row.is_some() || count <= all / 20, "{key}: {count}");
            let Some(row) = row else { continue };
            assert!(row.requests >= count && row.requests - row.missed <= count);
            assert_eq!(row.waterfall.requests(), row.requests - row.missed);
        }
    }
}
