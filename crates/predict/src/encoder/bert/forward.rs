//! The layers, and one pass through them.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::attention::attention;
use super::ops::{Activation, Norm};
use super::product::TiledLinear;
use super::tiles::{FeatureRow, TILE, TextBoundaries, Tiles};

/// A model's weights.
#[derive(Debug)]
pub(super) struct BertModel {
    pub(super) hidden: usize,
    pub(super) num_heads: usize,
    pub(super) activation: Activation,
    pub(super) words: Vec<f32>,     // [vocab, hidden]
    pub(super) positions: Vec<f32>, // [positions, hidden], with the embedding of token type 0
    pub(super) norm: Norm,
    pub(super) layers: Vec<Layer>,
}

/// One layer's weights.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) qkv: TiledLinear, // queries scaled by 1 / √dim
    pub(super) out: TiledLinear,
    pub(super) attention_norm: Norm,
    pub(super) up: TiledLinear,
    pub(super) down: TiledLinear,
    pub(super) norm: Norm,
}

/// Pooling of the token vectors of a text into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenPooling {
    Mean,
    /// Vector of the first token.
    First,
}

impl TokenPooling {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::First => "first",
        }
    }
}

/// Activations, kept between batches.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    hidden: Tiles,
    qkv: Tiles,
    mixed: Tiles,
    change: Tiles,
    wide: Tiles,
}

impl BertModel {
    /// The last layer's output for the texts of a batch, pooled and scaled to length 1, into
    /// `out`, `[texts][hidden]`. A text without tokens, or whose sums are not finite, is zeros.
    ///
    /// # Panics
    /// When an id lies outside the vocabulary or a text has more tokens than there are positions.
    pub(super) fn run(
        &self,
        texts: &[&[u32]],
        pooling: TokenPooling,
        space: &mut Workspace,
        out: &mut [f32],
    ) {
        let spans = TextBoundaries::new(texts.iter().map(|text| text.len()));
        self.embed(texts, &spans, &mut space.hidden);
        let (tiles, hidden) = (spans.num_tiles(), self.hidden);
        for layer in &self.layers {
            let Workspace { hidden: x, qkv, mixed, change, wide } = space;
            // Batches differ in size. Old contents may stay, because every live lane is
            // overwritten.
            qkv.resize(tiles, layer.qkv.n());
            mixed.resize(tiles, hidden);
            change.resize(tiles, hidden);
            wide.resize(tiles, layer.up.n());
            layer.qkv.apply(x, qkv, &spans, None);
            attention(qkv, self.num_heads, &spans, mixed);
            layer.out.apply(mixed, change, &spans, None);
            // BERT normalizes after the sum, unlike later models.
            add_and_norm(&layer.attention_norm, x, Some(change));
            layer.up.apply(x, wide, &spans, Some(self.activation));
            layer.down.apply(wide, change, &spans, None);
            add_and_norm(&layer.norm, x, Some(change));
        }
        for (text, out) in spans.texts().zip(out.chunks_exact_mut(hidden)) {
            pool(&space.hidden, text, pooling, out);
        }
    }

    /// Sum of the embeddings of word, position and type, normalized; spare lanes are zeros first.
    fn embed(&self, texts: &[&[u32]], spans: &TextBoundaries, x: &mut Tiles) {
        let hidden = self.hidden;
        x.resize(spans.num_tiles(), hidden);
        x.rows_mut().fill(FeatureRow::ZERO);
        for (span, text) in spans.texts().zip(texts) {
            for ((token, id), position) in span.zip(*text).zip(self.positions.chunks_exact(hidden))
            {
                let word = &self.words[*id as usize * hidden..][..hidden];
                let tile = &mut x.rows_mut()[token / TILE * hidden..][..hidden];
                for ((row, word), position) in tile.iter_mut().zip(word).zip(position) {
                    row.0[token % TILE] = word + position;
                }
            }
        }
        add_and_norm(&self.norm, x, None);
    }
}

/// `x = norm(x + change)`, a task per tile.
fn add_and_norm(norm: &Norm, x: &mut Tiles, change: Option<&Tiles>) {
    let arch = Arch::new();
    // The embeddings have no change to add, and one code path serves both.
    let nothing = vec![FeatureRow::ZERO; x.width()];
    let width = x.width();
    let tiles = x.rows_mut().par_chunks_exact_mut(width).enumerate();
    tiles.for_each(|(tile, x)| {
        let change = change.map_or(&nothing[..], |change| change.tile(tile));
        arch.dispatch(NormTile { norm, x, change });
    });
}

struct NormTile<'a> {
    norm: &'a Norm,
    x: &'a mut [FeatureRow],
    change: &'a [FeatureRow],
}

impl WithSimd for NormTile<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.norm.add_and_apply(self.x, self.change);
    }
}

/// One text's vector, of length 1.
fn pool(x: &Tiles, text: std::ops::Range<usize>, pooling: TokenPooling, out: &mut [f32]) {
    let tokens = match pooling {
        TokenPooling::Mean => text,
        // An empty text has no first token.
        TokenPooling::First => text.start..text.end.min(text.start + 1),
    };
    out.fill(0.0);
    for token in tokens {
        for (out, row) in out.iter_mut().zip(x.tile(token / TILE)) {
            *out += row.0[token % TILE];
        }
    }
    // In f64, because the squares of large activations overflow f32.
    let squares: f64 = out.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    let scale = 1.0 / squares.sqrt();
    // A sum of zero, as of an empty text, has no direction.
    if scale.is_finite() && squares.is_finite() {
        out.iter_mut().for_each(|x| *x = (f64::from(*x) * scale) as f32);
    } else {
        out.fill(0.0);
    }
}
