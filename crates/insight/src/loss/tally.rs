//! Waterfalls by key, in bounded memory.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use headstart_core::RouteKey;

use crate::{BucketTokens, Waterfall};

/// A waterfall for each of the most frequent keys, as many as there is room for; all other keys
/// share one. Together they cover all requests.
///
/// Source: Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005): a newcomer takes the place and
/// the count of the rarest key. Each key of more than 1 in `places` requests has a place, so keys
/// that come once cannot fill the table. Unlike there, the waterfall of an evicted key is added to
/// the shared row.
#[derive(Clone, Debug)]
pub struct WaterfallTally<K> {
    places: BTreeMap<K, usize>,
    /// By place. Apart from the rows, so that the rarest is found by reading little.
    requests: Vec<u64>,
    rows: Vec<Row<K>>,
    other: Waterfall,
    max_keys: usize,
}

#[derive(Clone, Debug)]
struct Row<K> {
    key: K,
    missed: u64,
    waterfall: Waterfall,
}

impl<K: Ord + Clone> WaterfallTally<K> {
    /// One with room for `max_keys` keys, at least one.
    #[must_use]
    pub fn new(max_keys: usize) -> Self {
        Self {
            places: BTreeMap::new(),
            requests: Vec::new(),
            rows: Vec::new(),
            other: Waterfall::default(),
            max_keys: max_keys.max(1),
        }
    }

    /// Adds a request. A key that has no place costs O(`max_keys`).
    pub fn add<Q>(&mut self, key: &Q, split: &BucketTokens)
    where
        K: Borrow<Q>,
        Q: Ord + ToOwned<Owned = K> + ?Sized,
    {
        let known = self.places.get(key).copied();
        let place = known.unwrap_or_else(|| self.make_place(key.to_owned()));
        self.requests[place] += 1;
        self.rows[place].waterfall.add(split);
    }

    fn make_place(&mut self, key: K) -> usize {
        let newcomer = |missed| Row { key: key.clone(), missed, waterfall: Waterfall::default() };
        let place = if self.rows.len() < self.max_keys {
            self.rows.push(newcomer(0));
            self.requests.push(0);
            self.rows.len() - 1
        } else {
            // A linear search: only a key without a place pays for it.
            let rarest = self.requests.iter().enumerate().min_by_key(|(_, count)| **count);
            let rarest = rarest.map_or(0, |(place, _)| place);
            // The newcomer inherits the count of the rarest key, which may be counted too high by
            // as much.
            let gone = std::mem::replace(&mut self.rows[rarest], newcomer(self.requests[rarest]));
            // The row moves to the shared one, so that all rows together still cover all requests.
            self.other.merge(&gone.waterfall);
            self.places.remove(&gone.key);
            rarest
        };
        self.places.insert(key, place);
        place
    }

    /// The keys with their waterfalls, by key: of the requests counted since each has its place.
    pub fn rows(&self) -> impl Iterator<Item = (&K, &Waterfall)> {
        let rows = self.places.iter();
        rows.map(|(key, &place)| (key, &self.rows[place].waterfall))
    }

    /// Requests of all keys that have no place, or had none then.
    #[must_use]
    pub fn other(&self) -> &Waterfall {
        &self.other
    }
}

/// One of the prefixes that most requests begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotPrefix {
    /// The key of an early block.
    pub key: RouteKey,
    /// Requests that begin so, at most: as many as `missed` may be another prefix's.
    pub requests: u64,
    /// Requests that another prefix in its place had.
    pub missed: u64,
    /// Of the requests counted since it has its place.
    pub waterfall: Waterfall,
}

/// The prefixes that most requests begin with, with their waterfalls: as [`WaterfallTally`] has
/// them.
#[derive(Clone, Debug)]
pub struct HotPrefixes(WaterfallTally<RouteKey>);

impl HotPrefixes {
    /// Creates a tally with `places` places, at least one.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self(WaterfallTally::new(places))
    }

    /// Adds a request that begins with the block `key`.
    pub fn add(&mut self, key: RouteKey, split: &BucketTokens) {
        self.0.add(&key, split);
    }

    /// The prefixes, those of most requests first.
    #[must_use]
    pub fn rows(&self) -> Vec<HotPrefix> {
        let rows = self.0.rows.iter().zip(&self.0.requests);
        let rows = rows.map(|(row, &requests)| HotPrefix {
            key: row.key,
            requests,
            missed: row.missed,
            waterfall: row.waterfall.clone(),
        });
        let mut rows: Vec<_> = rows.collect();
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

    fn split(tokens: u32) -> BucketTokens {
        let mut split = BucketTokens::default();
        split.put(Bucket::NeverSeen, tokens);
        split
    }

    #[test]
    fn keys_that_have_to_go_share_a_row() {
        let mut tally: WaterfallTally<String> = WaterfallTally::new(2);
        for (key, tokens) in [("a", 1), ("b", 2), ("a", 8), ("c", 4), ("c", 16), ("b", 32)] {
            tally.add(key, &split(tokens));
        }
        let rows: Vec<_> = tally.rows().map(|(key, row)| (&key[..], row.total())).collect();
        // The third key took the place and the count of the second one, which took the first's.
        assert_eq!(rows, [("b", 32), ("c", 20)]);
        assert_eq!((tally.other().total(), tally.other().requests()), (11, 3));
    }

    /// A client with a new key for each request evicts no more frequent key, and the sum stays
    /// complete.
    #[test]
    fn nobody_fills_the_table() {
        let (mut rng, mut tally) = (Rng::new(6), WaterfallTally::new(50));
        for at in 0..20_000u64 {
            let key = match rng.below(2) {
                0 => rng.below(20) as u64,
                _ => 1_000 + at,
            };
            tally.add(&key, &split(3));
        }
        assert_eq!(tally.rows().filter(|(key, _)| **key < 20).count(), 20);
        let rows: u64 = tally.rows().map(|(_, row)| row.total()).sum();
        assert_eq!(rows + tally.other().total(), 60_000);
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
