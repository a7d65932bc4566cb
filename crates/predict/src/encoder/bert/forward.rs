//! The layers, and one pass through them.

use pulp::Arch;
use rayon::prelude::*;

use super::attention::attention;
use super::ops::{Activation, Norm, RowWork};
use super::product::PanelLinear;

/// Tokens that a task normalizes.
const TASK_TOKENS: usize = 32;

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
    pub(super) qkv: PanelLinear, // queries scaled by 1 / √dim
    pub(super) out: PanelLinear,
    pub(super) attention_norm: Norm,
    pub(super) up: PanelLinear,
    pub(super) down: PanelLinear,
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

impl BertModel {
    /// The last layer's output for the texts of a batch, pooled and scaled to length 1, into
    /// `out`, `[texts][hidden]`. A text without tokens, or whose sums are not finite, is zeros.
    ///
    /// # Panics
    /// When an id lies outside the vocabulary or a text has more tokens than there are positions.
    pub(super) fn run(&self, texts: &[&[u32]], pooling: TokenPooling, out: &mut [f32]) {
        let lengths = || texts.iter().map(|text| text.len());
        let mut x = self.embed(texts);
        for layer in &self.layers {
            let qkv = layer.qkv.apply(&x, None);
            let mixed = attention(&qkv, self.hidden, self.num_heads, lengths());
            // BERT normalizes after the sum, unlike later models.
            add_and_norm(&layer.attention_norm, &mut x, &layer.out.apply(&mixed, None));
            let wide = layer.up.apply(&x, Some(self.activation));
            add_and_norm(&layer.norm, &mut x, &layer.down.apply(&wide, None));
        }
        let mut rest = &x[..];
        for (length, out) in lengths().zip(out.chunks_exact_mut(self.hidden)) {
            let (text, behind) = rest.split_at(length * self.hidden);
            pool(text, pooling, out);
            rest = behind;
        }
    }

    /// Sum of the embeddings of word, position and type, normalized: `[tokens, hidden]`.
    fn embed(&self, texts: &[&[u32]]) -> Vec<f32> {
        let mut words = Vec::new();
        let mut positions = Vec::new();
        for text in texts {
            for id in *text {
                words.extend_from_slice(&self.words[*id as usize * self.hidden..][..self.hidden]);
            }
            positions.extend_from_slice(&self.positions[..text.len() * self.hidden]);
        }
        add_and_norm(&self.norm, &mut words, &positions);
        words
    }
}

/// `x = norm(x + change)`, token by token.
fn add_and_norm(norm: &Norm, x: &mut [f32], change: &[f32]) {
    let (width, arch) = (norm.weight.len(), Arch::new());
    let changes = change.par_chunks(TASK_TOKENS * width);
    x.par_chunks_mut(TASK_TOKENS * width).zip(changes).for_each(|(x, change)| {
        arch.dispatch(RowWork::AddAndNorm { norm, x, change });
    });
}

/// One text's vector, of length 1, from its tokens' `[tokens, hidden]`.
fn pool(text: &[f32], pooling: TokenPooling, out: &mut [f32]) {
    let width = out.len();
    let tokens = text.chunks_exact(width).take(match pooling {
        TokenPooling::Mean => usize::MAX,
        TokenPooling::First => 1,
    });
    out.fill(0.0);
    for token in tokens {
        out.iter_mut().zip(token).for_each(|(out, x)| *out += x);
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
