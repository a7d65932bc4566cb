//! Hits of LRU caches of many sizes, from stack distances.

use super::histogram::{bin, first as first_of};

/// Sizes to a doubling, as a power of two; below twice as many, every size is listed.
const BITS: u32 = 3;

/// Hits by stack distance, in bins between listed sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Distances(Vec<u64>);

impl Distances {
    /// Counts `count` hits at the distances from `first` on, each `weight` times.
    pub(super) fn add(&mut self, first: u64, count: u32, weight: u64) {
        let until = first.saturating_add(u64::from(count));
        // Bin by bin and not distance by distance: a run can be a whole prompt long.
        let mut next = first;
        while next < until {
            let bin = bin(BITS, next);
            let end = first_of(BITS, bin + 1).min(until);
            if bin >= self.0.len() {
                self.0.resize(bin + 1, 0);
            }
            self.0[bin] += (end - next) * weight;
            next = end;
        }
    }

    /// Sizes at which something changes, the hits of an LRU cache of that size, and how many of
    /// them are in `part`.
    pub(super) fn hits<'d>(&'d self, part: &'d Self) -> impl Iterator<Item = (u64, u64, u64)> + 'd {
        let (mut hits, mut in_part) = (0, 0);
        let sizes = self.0.iter().enumerate().map(move |(bin, count)| {
            hits += count;
            // `part` ends at its own largest distance, which may be lower.
            in_part += part.0.get(bin).copied().unwrap_or(0);
            // A cache of C blocks hits the distances below C, so the bin's end is the size.
            (*count, (first_of(BITS, bin + 1), hits, in_part))
        });
        sizes.filter(|(count, _)| *count > 0).map(|(_, point)| point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_what_was_counted() {
        let mut distances = Distances::default();
        let pieces = [(0, 3), (5, 100), (1000, 7), (63, 2), (1 << 40, 5)];
        for (first, count) in pieces {
            distances.add(first, count, 2);
        }
        let mut part = Distances::default();
        part.add(0, 3, 2);
        part.add(1001, 2, 2);
        for (size, hits, in_part) in distances.hits(&part) {
            let expected = if size > 1002 { 10 } else { 2 * size.min(3) };
            assert!(size <= 1000 || size > 1002, "a bin ends at {size}");
            assert_eq!(in_part, expected, "{size}");
            let below = |&(first, count): &(u64, u32)| {
                let all = first..first + u64::from(count);
                all.filter(|&distance| distance < size).count() as u64
            };
            assert_eq!(hits, 2 * pieces.iter().map(below).sum::<u64>(), "{size}");
        }
        assert_eq!(distances.hits(&part).last().map(|point| point.1), Some(234));
    }
}
