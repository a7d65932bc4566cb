//! Places in order, taken or free, that are counted from any place to the end: one bit each, and
//! a Fenwick tree over words of 64.

/// Bits to a word.
const WORD: usize = u64::BITS as usize;

/// A set of taken places.
#[derive(Clone, Debug, Default)]
pub(super) struct FenwickSet {
    words: Vec<u64>,
    /// Fenwick tree over the words' bits; `sums[i]` ends at word `i`.
    sums: Vec<u32>,
    total: u32,
}

impl FenwickSet {
    /// `places` free ones, of which the first `taken` are taken.
    pub(super) fn new(places: usize, taken: usize) -> Self {
        let mut order = Self {
            words: vec![0; places.div_ceil(WORD)],
            sums: vec![0; places.div_ceil(WORD)],
            total: 0,
        };
        (0..taken).for_each(|place| order.take(place));
        order
    }

    /// Returns the number of taken places.
    pub(super) fn total(&self) -> usize {
        self.total as usize
    }

    /// Takes a free place.
    pub(super) fn take(&mut self, place: usize) {
        self.words[place / WORD] |= 1 << (place % WORD);
        self.total += 1;
        self.add(place / WORD, 1);
    }

    /// Frees a taken place.
    pub(super) fn free(&mut self, place: usize) {
        self.words[place / WORD] &= !(1 << (place % WORD));
        self.total -= 1;
        // Minus one modulo 2³²: `add` wraps, and each sum is a count that is at least 0 afterwards.
        self.add(place / WORD, u32::MAX);
    }

    /// Taken places behind `place`.
    pub(super) fn behind(&self, place: usize) -> usize {
        let word = place / WORD;
        // All bits up to and including the place.
        let mask = u64::MAX >> (WORD - 1 - place % WORD);
        let mut sum = (self.words[word] & mask).count_ones();
        // The tree has the whole words in front; this one's own bits are counted already.
        let mut end = word;
        while end > 0 {
            sum += self.sums[end - 1];
            end &= end - 1;
        }
        (self.total - sum) as usize
    }

    /// The first taken place at or behind `place`.
    pub(super) fn first_from(&self, place: usize) -> Option<usize> {
        // The mask clears the places in front of `place` in its word.
        let first = self.words.get(place / WORD)? & (u64::MAX << (place % WORD));
        if first != 0 {
            return Some(place / WORD * WORD + first.trailing_zeros() as usize);
        }
        let later = self.words[place / WORD + 1..].iter();
        // Callers move on past the places that they saw, so the scan passes an empty word once.
        let skipped = later.clone().take_while(|&&word| word == 0).count();
        let word = place / WORD + 1 + skipped;
        let bits = self.words.get(word)?;
        Some(word * WORD + bits.trailing_zeros() as usize)
    }

    /// Adds `change`, modulo 2³².
    fn add(&mut self, word: usize, change: u32) {
        let mut at = word;
        while at < self.sums.len() {
            self.sums[at] = self.sums[at].wrapping_add(change);
            at |= at + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::Rng;

    use super::*;

    #[test]
    fn counts_are_those_of_a_list() {
        let mut rng = Rng::new(1);
        let mut order = FenwickSet::new(1000, 70);
        let mut slow: Vec<bool> = (0..1000).map(|place| place < 70).collect();
        for _ in 0..5000 {
            let place = rng.below(1000);
            slow[place] = !slow[place];
            if slow[place] {
                order.take(place);
            } else {
                order.free(place);
            }
            let from = rng.below(1000);
            let behind = slow[from + 1..].iter().filter(|&&taken| taken).count();
            assert_eq!(order.behind(from), behind);
            let first = (from..1000).find(|&place| slow[place]);
            assert_eq!(order.first_from(from), first);
            assert_eq!(order.total(), slow.iter().filter(|&&taken| taken).count());
        }
    }
}
