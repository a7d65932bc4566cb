//! A text as marks, and as hashes of its windows.
//!
//! Source: rolling hash by cyclic polynomials (Cohen 1997), which takes no multiplication;
//! choosing the least of a row is winnowing (Schleimer, Wilkerson, Aiken, SIGMOD 2003).

use headstart_core::TokenId;

use super::{NameSecret, SPREAD, WINDOW};

/// The windows of one text, in memory that is used again.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    key: NameSecret,
    parts: Vec<u64>,
    marks: Vec<u16>,
    hashes: Vec<u64>,
    /// Indexes at which the anchors begin, in order.
    anchors: Vec<usize>,
}

impl Windows {
    pub(super) fn new(key: NameSecret) -> Self {
        Self { key, parts: Vec::new(), marks: Vec::new(), hashes: Vec::new(), anchors: Vec::new() }
    }

    /// Reads a text.
    pub(super) fn read(&mut self, tokens: &[TokenId]) {
        let key = self.key;
        self.parts.clear();
        let parts = tokens.iter().map(|&token| key.of_token(token));
        self.parts.extend(parts);
        self.marks.clear();
        // Two bytes a token suffice: a match needs at least a whole window of equal marks.
        let marks = self.parts.iter().map(|part| (part >> 48) as u16);
        self.marks.extend(marks);
        self.hash();
        self.choose();
    }

    /// Two bytes for each token.
    pub(super) fn marks(&self) -> &[u16] {
        &self.marks
    }

    /// The windows that are anchors, by where they begin, and their hashes.
    pub(super) fn anchors(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.anchors.iter().map(|&start| (start, self.hashes[start]))
    }

    /// Anchors whose windows lie between `start` and `end`, and their hashes.
    pub(super) fn anchors_in(
        &self,
        start: usize,
        end: usize,
    ) -> impl Iterator<Item = (usize, u64)> + '_ {
        let first = self.anchors.partition_point(|&at| at < start);
        let inside = self.anchors[first..].iter();
        let inside = inside.take_while(move |&&at| at + WINDOW <= end);
        inside.map(|&at| (at, self.hashes[at]))
    }

    /// Each token's part is turned by one bit with every token behind it, and leaves when it has
    /// been turned by [`WINDOW`].
    fn hash(&mut self) {
        self.hashes.clear();
        // A text that is shorter than a window has no hashes, and so no anchors.
        let Some((first, rest)) = self.parts.split_at_checked(WINDOW) else {
            return;
        };
        let enters = |rolling: u64, part: &u64| rolling.rotate_left(1) ^ part;
        let mut rolling = first.iter().fold(0, enters);
        self.hashes.push(rolling);
        self.hashes.extend(rest.iter().zip(&self.parts).map(|(part, gone)| {
            // The part that leaves was turned once per step; turned as often, the same XOR removes
            // it.
            rolling = enters(rolling, part) ^ gone.rotate_left(WINDOW as u32);
            rolling
        }));
    }

    /// The least of each row of windows, and of a text that is shorter the least of all.
    fn choose(&mut self) {
        let (hashes, anchors) = (&self.hashes, &mut self.anchors);
        anchors.clear();
        if hashes.is_empty() {
            return;
        }
        // A short text has fewer windows than a row and still gets one anchor.
        let spread = SPREAD.min(hashes.len());
        let least_of = |row: usize| (row..row + spread).min_by_key(|&at| hashes[at]).unwrap_or(row);
        let mut least = least_of(0);
        anchors.push(least);
        for newest in spread..hashes.len() {
            let row = newest + 1 - spread;
            // The least so far is still in the row: only the newest can beat it.
            let next = match least >= row {
                true if hashes[newest] >= hashes[least] => continue,
                true => newest,
                // The least one left the row. With random hashes that happens about once per row.
                false => least_of(row),
            };
            least = next;
            anchors.push(least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    /// Against the definition, row by row.
    #[test]
    fn anchors_are_the_least_of_each_row() {
        let (mut rng, mut windows) = (Rng::new(4), Windows::new(NameSecret::new(7)));
        let mut alone = Windows::new(NameSecret::new(7));
        for len in (0..70).chain([500]) {
            let tokens: Vec<TokenId> = (0..len).map(|_| rng.below(9) as TokenId).collect();
            windows.read(&tokens);
            let hashes: Vec<u64> = tokens
                .windows(WINDOW)
                .map(|window| {
                    alone.read(window);
                    alone.hashes[0]
                })
                .collect();
            let mut expected = vec![];
            for row in hashes.windows(SPREAD.min(hashes.len()).max(1)) {
                let least = row.iter().min().copied();
                assert!(windows.anchors().any(|(_, hash)| Some(hash) == least), "{len}");
                expected.extend(least);
            }
            for (start, hash) in windows.anchors() {
                assert_eq!(hash, hashes[start], "{len}");
                assert!(expected.contains(&hash), "{len}");
            }
            let starts: Vec<_> = windows.anchors().map(|(start, _)| start).collect();
            assert!(starts.is_sorted_by(|one, other| one < other), "{starts:?}");
        }
    }
}
