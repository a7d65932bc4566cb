//! Images and other media in a prompt.
//!
//! A medium takes a run of placeholder tokens, the same for all media of its size. Engines
//! therefore add its identifier to the name of each block that it reaches into:
//!
//! ```text
//! tokens   t0 … t9 ▒▒▒▒▒▒ │ ▒▒▒▒▒▒▒▒▒ t25 …      ▒: placeholders of the image "cat"
//! extra    ("cat", 10)    │ ("cat", -6)
//! ```
//!
//! Source: vLLM `_gen_mm_extra_hash_keys` in `v1/core/kv_cache_utils.py`.

/// An image, an audio or a video in a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Medium {
    /// The engine's name of its content: a hash, or an id that the client chose.
    pub identifier: Box<str>,
    /// Position of its first placeholder token in the prompt.
    pub start: usize,
    /// Number of placeholder tokens.
    pub length: usize,
}

impl Medium {
    /// Position of the first token behind it.
    #[must_use]
    pub fn end(&self) -> usize {
        self.start.saturating_add(self.length)
    }
}

/// The bytes that tell a block with media from a block of the same tokens: for each medium its
/// identifier and its start, in tokens from the block's start. The start is negative where the
/// medium began in an earlier block.
#[must_use]
pub fn media_extra<'a>(items: impl IntoIterator<Item = (&'a [u8], i64)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (identifier, offset) in items {
        // The length goes first: one identifier's end cannot be read as the next one's start.
        bytes.extend((identifier.len() as u64).to_le_bytes());
        bytes.extend(identifier);
        bytes.extend(offset.to_le_bytes());
    }
    bytes
}

/// Walks over the media of a prompt, block by block.
///
/// The media are sorted by their start and do not overlap.
#[derive(Clone, Debug)]
pub struct MediaOfBlocks<'a> {
    /// The media that end behind the last block asked for.
    rest: &'a [Medium],
}

impl<'a> MediaOfBlocks<'a> {
    /// Begins in front of the first block.
    #[must_use]
    pub fn new(media: &'a [Medium]) -> Self {
        Self { rest: media }
    }

    /// The extra of the block of the tokens `start..end`, empty for a block without media. Blocks
    /// come in ascending order. Costs the media that were passed.
    pub fn extra(&mut self, start: usize, end: usize) -> Vec<u8> {
        // Both loops pass each medium once, because blocks come in order.
        while let [first, rest @ ..] = self.rest
            && first.end() <= start
        {
            self.rest = rest;
        }
        // A medium stays in `rest` while it reaches into the next block.
        let inside = self.rest.iter().take_while(|medium| medium.start < end);
        media_extra(inside.map(|medium| {
            // Negative where the medium began before the block: its later blocks differ from one
            // another.
            let offset = medium.start as i64 - start as i64;
            (medium.identifier.as_bytes(), offset)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn medium(identifier: &str, start: usize, length: usize) -> Medium {
        Medium { identifier: identifier.into(), start, length }
    }

    /// The extras of blocks of four tokens.
    fn check(media: &[Medium], expected: &[&[(&str, i64)]]) {
        let mut walk = MediaOfBlocks::new(media);
        for (index, items) in expected.iter().enumerate() {
            let items = items.iter().map(|(name, offset)| (name.as_bytes(), *offset));
            let extra = walk.extra(index * 4, index * 4 + 4);
            assert_eq!(extra, media_extra(items), "block {index} of {media:?}");
        }
    }

    #[test]
    fn each_block_has_the_media_that_reach_into_it() {
        check(&[], &[&[], &[]]);
        check(&[medium("a", 0, 4)], &[&[("a", 0)], &[]]);
        check(&[medium("a", 2, 5)], &[&[("a", 2)], &[("a", -2)], &[], &[]]);
        check(
            &[medium("a", 1, 1), medium("b", 3, 6), medium("a", 9, 2)],
            &[&[("a", 1), ("b", 3)], &[("b", -1)], &[("b", -5), ("a", 1)]],
        );
        check(&[medium("a", usize::MAX, usize::MAX)], &[&[], &[]]);
    }

    #[test]
    fn the_walk_finds_the_media_that_a_scan_finds() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut media = Vec::new();
            let mut at = 0;
            for number in 0..rng.below(6) {
                let start = at + rng.below(9);
                let length = 1 + rng.below(12);
                media.push(medium(&number.to_string(), start, length));
                at = start + length;
            }
            let mut walk = MediaOfBlocks::new(&media);
            for start in (0..at + 8).step_by(4) {
                let inside = |one: &&Medium| one.start < start + 4 && one.end() > start;
                let found = media.iter().filter(inside);
                let items =
                    found.map(|one| (one.identifier.as_bytes(), one.start as i64 - start as i64));
                let expected = media_extra(items);
                assert_eq!(walk.extra(start, start + 4), expected, "seed {seed}, {media:?}");
            }
        }
    }
}
