//! Memory layout of activations.
//!
//! ```text
//! tile 0: tokens 0 … 31              tile 1: tokens 32 … 63
//!   feature 0: 32 values, a lane per token
//!   feature 1: …
//! ```
//!
//! The texts of a batch stand one after another without padding; only the last tile of a batch
//! may have lanes to spare. A vector register holds one feature of neighbouring tokens, so norms,
//! softmax and sums over features need no step across lanes.

/// Tokens per tile: two vectors of 16.
pub(super) const TILE: usize = 32;

/// One feature of a tile's tokens; aligned so that no vector straddles two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(128))]
pub(super) struct FeatureRow(pub(super) [f32; TILE]);

impl FeatureRow {
    pub(super) const ZERO: Self = Self([0.0; TILE]);
}

/// Activations of a batch: `[tiles][width][TILE]`.
#[derive(Debug, Default)]
pub(super) struct Tiles {
    rows: Vec<FeatureRow>,
    width: usize,
}

impl Tiles {
    /// Makes room for `num_tiles` tiles of `width` features. Old contents stay where they were.
    pub(super) fn resize(&mut self, num_tiles: usize, width: usize) {
        self.width = width;
        self.rows.resize(num_tiles * width, FeatureRow::ZERO);
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// `[tiles][width]`
    pub(super) fn rows_mut(&mut self) -> &mut [FeatureRow] {
        &mut self.rows
    }

    /// The features of one tile.
    pub(super) fn tile(&self, index: usize) -> &[FeatureRow] {
        &self.rows[index * self.width..][..self.width]
    }
}

/// Boundaries of the texts in a batch of tokens.
#[derive(Debug, Default)]
pub(super) struct TextBoundaries {
    starts: Vec<usize>, // first token of each text, and the end of the last
}

impl TextBoundaries {
    /// Texts of these many tokens, one after another.
    pub(super) fn new(lengths: impl Iterator<Item = usize>) -> Self {
        let mut starts = vec![0];
        for length in lengths {
            starts.push(starts[starts.len() - 1] + length);
        }
        Self { starts }
    }

    pub(super) fn num_tokens(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    pub(super) fn num_tiles(&self) -> usize {
        self.num_tokens().div_ceil(TILE)
    }

    /// Tokens of tile `tile` that belong to a text.
    pub(super) fn live(&self, tile: usize) -> usize {
        // `tile` has at least one token, so the subtraction cannot underflow.
        (self.num_tokens() - tile * TILE).min(TILE)
    }

    /// The tokens of each text.
    pub(super) fn texts(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        self.starts.windows(2).map(|pair| pair[0]..pair[1])
    }

    /// The tokens of the text that token `token` belongs to; spare lanes belong to the last.
    pub(super) fn around(&self, token: usize) -> std::ops::Range<usize> {
        let token = token.min(self.num_tokens().saturating_sub(1));
        // Texts start at 0, so at least one start counts. Of empty texts the last start wins.
        let behind = self.starts.partition_point(|&start| start <= token);
        self.starts[behind - 1]..self.starts[behind]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_belongs_to_its_text() {
        let spans = TextBoundaries::new([3, 0, 30, 1].into_iter());
        assert_eq!((spans.num_tokens(), spans.num_tiles()), (34, 2));
        assert_eq!((spans.live(0), spans.live(1)), (32, 2));
        for (token, expected) in [(0, 0..3), (2, 0..3), (3, 3..33), (33, 33..34), (63, 33..34)] {
            assert_eq!(spans.around(token), expected, "token {token}");
        }
        let texts: Vec<_> = spans.texts().collect();
        assert_eq!(texts, [0..3, 3..3, 3..33, 33..34]);
    }
}
