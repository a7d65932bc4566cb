//! A decoder whose weights are set by formula, so that its answers can be proved: it looks up a
//! fact anywhere in a long prefix, and it says which of two symbols the prefix holds more of.
//!
//! Random weights show nothing about accuracy, so what loads only a part of a prefix is tried on
//! this. Its language has token ids and no text ([`words`]); a prefix is a document of filler and
//! facts, `OPEN key value CLOSE`, and a question is its last token ([`tasks`]).
//!
//! ```text
//! layer 0     previous-token heads   the token before  ─► EARLIER_KEY, EARLIER_SELF
//! layer 1     counting head          mean of ±1 per symbol ─► BALANCE
//! layers 1-3  matching heads         where EARLIER_KEY is my KEY: its VALUE ─► FOUND
//! layer 3     feed-forward           FOUND ─► ANSWER if I am a key, BALANCE ─► VERDICT if MOST
//! head        logits                 ANSWER · value's word, ± VERDICT
//! ```
//!
//! # Why the answers are right
//!
//! - **Norm.** Every embedding has the squared length `HIDDEN` (`stream`): the first RMS norm is
//!   the identity, and what layers add changes later ones by a few per cent.
//! - **Codes.** Keys and values are words of the Kerdock code of length 16: 256 unit vectors, no
//!   two with a product above 1/4 (`code`).
//! - **Place.** `ROPE_THETA` turns four pairs of a head's dimensions; the others turn by less than
//!   0.01 over 8,192 positions and hold contents. A previous-token head scores
//!   `Σ A·cos(ω(Δ - 1))`; the softmax of all other distances together is below 2·10⁻⁴ of the
//!   previous token's.
//! - **Match.** With sharpness M and all other scores within a spread S of each other, at most 112
//!   keys have the product 1/4, so that the asked fact's weight is at least
//!   `1 / (1 + e^S (112 e^(-3M/4) + n e^-M))`: w > 0.85 on the average over heads at n = 8,192, for
//!   M from 13 to 20 and the worst tokens of the vocabulary (computed from the weights in this
//!   module's test; in documents it is above 0.9). With b of background, at most 0.08, the right
//!   value has at least `w - (1 - w) - b`, above 0.62, any other at most `w / 4 + (1 - w) + b`,
//!   below 0.45.
//! - **Count.** A head with a zero query attends alike to all it sees: the mean is
//!   (more - fewer) / n, its sign is the majority's.
//! - **Gates.** `silu(0) = 0`: a question of one kind adds exactly nothing to the other's answer.
//!
//! # What resembles real models, and what does not
//!
//! All matching heads are pulled towards facts by a salience of tokens that they share, each with
//! deviations of its own: so heads agree on what matters, though not entirely, and queries agree
//! among each other. Beside them are previous-token heads, local ones and sinks. The diffuse task
//! fails by construction where only important tokens are seen: one symbol is more salient than
//! the other. How *much* real models lose is not shown by any of this.
//!
//! In the GQA shape, group 0 is local in all layers: its keys hold no trace of facts. Probes in
//! it (heads 0, 1, 2) agree among each other, on the wrong tokens.

mod code;
mod heads;
mod layers;
mod stream;
pub mod tasks;
pub mod words;

use headstart_scheduler::Sampling;

use super::{GenerationDefaults, LanguageModel};
use crate::ModelConfig;
use crate::config::{Family, Rope};
use crate::kv::{Dtype, Numbers, Probes};

/// Changes with the weights: part of every block's identity.
const REVISION: u32 = 1;

/// Dimensions of a head.
const HEAD_DIM: usize = 32;

/// One layer that reads, three that match.
const LAYERS: usize = 4;

/// Four pairs turn within 8,192 positions (wavelengths 6, 97, 1,500 and 23,000); from the sixth on
/// none does.
const ROPE_THETA: f32 = 1e19;

/// Arrangement of the heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadLayout {
    /// 32 heads with keys and values of their own.
    Mha,
    /// 32 query heads over 8 key-value heads.
    Gqa,
    /// 4 heads with keys and values of their own.
    Small,
}

impl HeadLayout {
    /// All.
    pub const ALL: [Self; 3] = [Self::Mha, Self::Gqa, Self::Small];

    /// Its model's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mha => "needle-mha",
            Self::Gqa => "needle-gqa",
            Self::Small => "needle-small",
        }
    }

    /// The shape whose model is called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.name() == name)
    }

    /// Three query heads that see the facts, by a rule that does not look at the model: without
    /// groups heads 0, 1 and 2, as published; with groups the first head of the middle group of
    /// each third.
    #[must_use]
    pub fn probes(self) -> [usize; 3] {
        let probes = Probes::of(&config(self));
        probes.heads().try_into().expect("there are three")
    }
}

/// The shape as the engine knows it.
#[must_use]
pub fn config(shape: HeadLayout) -> ModelConfig {
    let (num_heads, num_kv_heads) = match shape {
        HeadLayout::Mha => (32, 32),
        HeadLayout::Gqa => (32, 8),
        HeadLayout::Small => (4, 4),
    };
    ModelConfig {
        family: Family::Llama,
        hidden: stream::HIDDEN,
        intermediate: layers::INTERMEDIATE,
        num_layers: LAYERS,
        num_heads,
        num_kv_heads,
        head_dim: HEAD_DIM,
        vocab: words::VOCAB,
        max_context: 8192,
        rms_eps: 1e-5,
        rope: Rope { theta: ROPE_THETA, llama3: None },
        tied: false,
    }
}

/// The model. It answers with one token, greedily, unless asked otherwise.
#[must_use]
pub fn build(shape: HeadLayout, dtype: Dtype) -> LanguageModel {
    let config = config(shape);
    let tokens = 0..words::VOCAB as u32;
    let embedding = tokens.clone().flat_map(stream::embedding).collect();
    let head = tokens.flat_map(stream::unembedding).collect();
    let layers = (0..LAYERS).map(|layer| layers::build(shape, &config, layer, dtype)).collect();
    LanguageModel {
        revision: format!("{}-{REVISION}-{}", shape.name(), dtype.name()),
        generation: GenerationDefaults {
            sampling: Sampling::default(),
            max_new_tokens: Some(1),
            ..GenerationDefaults::default()
        },
        embedding: Numbers::from_f32(dtype, embedding),
        layers,
        final_norm: vec![1.0; config.hidden],
        head: Some(Numbers::from_f32(dtype, head)),
        config,
    }
}

#[cfg(test)]
mod tests;
