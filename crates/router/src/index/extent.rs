//! A set of offsets in a run. Nearly always the leading ones; then it is a number.
//!
//! Invariant: what is equal to leading offsets is stored as their number, and the last word of a
//! bit set is not 0. So equal sets are stored alike.

use std::ops::Range;

const WORD: u32 = u64::BITS;

/// Offsets of a run that have something in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OffsetSet {
    /// All below this one.
    Lead(u32),
    /// One bit per offset.
    Bits(Vec<u64>),
}

impl OffsetSet {
    pub(super) const EMPTY: Self = Self::Lead(0);

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    pub(super) fn contains(&self, offset: u32) -> bool {
        match self {
            Self::Lead(lead) => offset < *lead,
            Self::Bits(words) => {
                let word = words.get((offset / WORD) as usize);
                word.is_some_and(|word| word >> (offset % WORD) & 1 == 1)
            }
        }
    }

    /// One more than the last offset; 0 without any.
    pub(super) fn end(&self) -> u32 {
        match self {
            Self::Lead(lead) => *lead,
            Self::Bits(words) => {
                let zeros = words.last().map_or(0, |word| word.leading_zeros());
                words.len() as u32 * WORD - zeros
            }
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count_in(0..self.end())
    }

    pub(super) fn count_in(&self, range: Range<u32>) -> u32 {
        match self {
            Self::Lead(lead) => range.end.min(*lead).saturating_sub(range.start),
            Self::Bits(words) => {
                let masks = masks(range, words.len());
                masks.map(|(at, mask)| (words[at] & mask).count_ones()).sum()
            }
        }
    }

    /// Counts the consecutive offsets from `start` on that it contains.
    pub(super) fn run_from(&self, start: u32) -> u32 {
        let Self::Bits(words) = self else {
            return self.end().saturating_sub(start);
        };
        let mut offset = start;
        while let Some(word) = words.get((offset / WORD) as usize) {
            let ones = (word >> (offset % WORD)).trailing_ones();
            offset += ones;
            // A word of ones may continue in the next word.
            if ones == 0 || !offset.is_multiple_of(WORD) {
                break;
            }
        }
        offset - start
    }

    /// All offsets, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.end()).filter(|&offset| self.contains(offset))
    }

    /// Puts all of `range` in.
    pub(super) fn fill(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        match self {
            Self::Lead(lead) if range.start <= *lead => *lead = range.end.max(*lead),
            _ => self.change(range.end, |words| {
                for (at, mask) in masks(range, words.len()) {
                    words[at] |= mask;
                }
            }),
        }
    }

    /// Takes all of `range` out.
    pub(super) fn clear(&mut self, range: Range<u32>) {
        match self {
            Self::Lead(lead) if range.end >= *lead => *lead = range.start.min(*lead),
            _ => self.change(0, |words| {
                for (at, mask) in masks(range, words.len()) {
                    words[at] &= !mask;
                }
            }),
        }
    }

    /// Puts all of `other` in.
    pub(super) fn join(&mut self, other: &Self) {
        match other {
            Self::Lead(lead) => self.fill(0..*lead),
            Self::Bits(bits) => self.change(other.end(), |words| {
                for (word, other) in words.iter_mut().zip(bits) {
                    *word |= other;
                }
            }),
        }
    }

    /// Memory beyond the value itself, bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Lead(_) => 0,
            Self::Bits(words) => words.capacity() * size_of::<u64>(),
        }
    }

    /// Runs `change` on words that have room below `end`, and restores the invariant.
    fn change(&mut self, end: u32, change: impl FnOnce(&mut Vec<u64>)) {
        let num_words = end.max(self.end()).div_ceil(WORD) as usize;
        let mut words = match self {
            Self::Bits(words) => std::mem::take(words),
            Self::Lead(lead) => {
                let mut words = vec![0; num_words];
                for (at, mask) in masks(0..*lead, num_words) {
                    words[at] = mask;
                }
                words
            }
        };
        words.resize(num_words.max(words.len()), 0);
        change(&mut words);
        // Equal sets must be stored alike, and `end` reads the last word.
        while words.last() == Some(&0) {
            words.pop();
        }
        *self = Self::Bits(words);
        let lead = self.run_from(0);
        if lead == self.end() {
            *self = Self::Lead(lead);
        }
    }
}

/// The words that `range` touches, among `num_words`, with the bits that it covers in each.
fn masks(range: Range<u32>, num_words: usize) -> impl Iterator<Item = (usize, u64)> {
    let words = (range.start / WORD) as usize..(range.end.div_ceil(WORD) as usize).min(num_words);
    words.map(move |at| {
        let base = at as u32 * WORD;
        let low = range.start.saturating_sub(base);
        let high = range.end.saturating_sub(base).min(WORD);
        // Without bits the shift is 64, which `checked_shr` refuses; the mask is empty then.
        let below = |bits: u32| u64::MAX.checked_shr(WORD - bits).unwrap_or(0);
        (at, below(high) & !below(low))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use headstart_core::Rng;

    /// Against a plain set, on random ranges around the borders of words.
    #[test]
    fn it_is_a_set() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut extent, mut set) = (OffsetSet::EMPTY, BTreeSet::new());
            for _ in 0..40 {
                let start = rng.below(200) as u32;
                let range = start..start + rng.below(140) as u32;
                match rng.below(3) {
                    0 => {
                        extent.clear(range.clone());
                        set.retain(|offset| !range.contains(offset));
                    }
                    1 => {
                        extent.fill(range.clone());
                        set.extend(range.clone());
                    }
                    _ => {
                        let mut other = OffsetSet::EMPTY;
                        other.fill(range.clone());
                        other.clear(start + 5..start + 9);
                        set.extend(other.iter());
                        extent.join(&other);
                    }
                }
                assert!(extent.iter().eq(set.iter().copied()), "seed {seed}");
                assert_eq!(extent.count(), set.len() as u32, "seed {seed}");
                let within = set.range(range.clone()).count() as u32;
                assert_eq!(extent.count_in(range.clone()), within, "seed {seed}");
                let run = (start..).take_while(|offset| set.contains(offset)).count() as u32;
                assert_eq!(extent.run_from(start), run, "seed {seed}");
                let is_lead = (0..set.len() as u32).all(|offset| set.contains(&offset));
                assert_eq!(matches!(extent, OffsetSet::Lead(_)), is_lead, "seed {seed}");
            }
        }
    }
}
