//! Roles and weights of the attention heads.
//!
//! A head's dimensions come in pairs (i, i + 16) that turn together:
//!
//! ```text
//! pair 0-3   place         turn fast enough to tell positions apart
//! pair 5     salience      how much the token draws this head
//! pair 6     start         whether it is the first token
//! pair 7     character     a second look, by which heads of one group differ
//! pair 8-15  earlier key   the code of the key before the token
//! ```

use headstart_core::Rng;

use super::stream::SELF;
use super::{HEAD_DIM, HeadLayout};

/// Pairs of dimensions of a head.
pub(super) const PAIRS: usize = HEAD_DIM / 2;
/// Dimensions of the keys' constant, one per pair that turns; the partner is `PAIRS` further.
pub(super) const PLACE: std::ops::Range<usize> = 0..4;
/// Dimension of the salience.
pub(super) const SALIENT: usize = 5;
/// Dimension of the first token's mark.
pub(super) const FIRST: usize = 6;
/// Dimension of the second look at the token's character.
pub(super) const CHARACTER: usize = 7;

/// Returns the dimension of a head that holds dimension `i` of a code: pairs 8 to 15, first halves,
/// then partners.
pub(super) fn code_dim(i: usize) -> usize {
    if i < 8 { 8 + i } else { PAIRS + i }
}

/// Weights of the pairs of [`PLACE`] in a previous-token head, nats. No other distance up to 8,192
/// comes within 8.9 of the first.
pub(super) const PREVIOUS: [f32; 4] = [120.0, 80.0, 80.0, 40.0];

/// Decay of a local head: scores fall by `LOCAL / 5,200` nats a token at first.
pub(super) const LOCAL: f32 = 30.0;

/// Phase of the slowest pair at distance 0, an eighth of a turn: falling from there on.
pub(super) const RECENT_PHASE: f32 = std::f32::consts::FRAC_PI_4;

/// Score of the first token in a sink head, nats.
pub(super) const SINK: f32 = 12.0;

/// Score of a full match, nats: the least and the largest of a head.
const SHARPNESS: (f64, f64) = (13.0, 20.0);

/// Typical deviation of a head from the common salience, nats, by the token's own character and by
/// that of the token before.
const DEVIATION: f32 = 0.25;

/// The same by a head's second look.
const SECOND_LOOK: f64 = 0.15;

/// Most change of a query's second look by its mood, nats: so queries agree on what is salient
/// as heads do, a lot and not entirely.
const MOODS: f64 = 1.0;

/// Most that a head's scores lean towards recent or towards old tokens, nats.
const LEANING: f64 = 0.2;

/// Seed of all heads' deviations.
const DEVIATIONS: u64 = 0x4ead;

/// Role of a query head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadRole {
    /// Looks at salient tokens.
    Salient,
    /// The same, and where its key stood before, at what followed.
    Match,
    /// Looks at the token before.
    Previous,
    /// Looks at the last few hundred tokens.
    Local,
    /// Looks at the first token, and a little at recent ones.
    Sink,
    /// Looks at all tokens alike.
    Count,
}

/// Layer of the counting head, the last of its heads.
pub(super) const COUNTING_LAYER: usize = 1;

impl HeadLayout {
    /// Returns the role of query head `head` in layer `layer`.
    pub(super) fn role(self, layer: usize, head: usize) -> HeadRole {
        let role = match self {
            Self::Mha => match head {
                0..16 => HeadRole::Match,
                16..24 if layer == 0 => HeadRole::Previous,
                16..24 => HeadRole::Match,
                24..28 => HeadRole::Local,
                28..31 => HeadRole::Sink,
                _ if layer == COUNTING_LAYER => HeadRole::Count,
                _ => HeadRole::Sink,
            },
            Self::Gqa => match head {
                0..4 => HeadRole::Local,
                _ if layer == 0 && head % 4 == 3 => HeadRole::Previous,
                31 if layer == COUNTING_LAYER => HeadRole::Count,
                _ => HeadRole::Match,
            },
            Self::Small => match head {
                0..3 => HeadRole::Match,
                _ if layer == 0 => HeadRole::Previous,
                _ if layer == COUNTING_LAYER => HeadRole::Count,
                _ => HeadRole::Sink,
            },
        };
        // Nothing can be matched before the first layer has said what came earlier.
        match role {
            HeadRole::Match if layer == 0 => HeadRole::Salient,
            other => other,
        }
    }
}

/// Key weights of one key-value head.
pub(super) struct KeyLook {
    /// Weights of the token's own character, of the earlier one, and of the second look.
    pub(super) own: Vec<f32>,
    pub(super) earlier: Vec<f32>,
    pub(super) second: Vec<f32>,
}

impl KeyLook {
    pub(super) fn of(layer: usize, kv_head: usize) -> Self {
        let mut rng = Rng::new(DEVIATIONS ^ (layer as u64) << 32 ^ (kv_head as u64) << 16);
        Self {
            own: signs(&mut rng, DEVIATION),
            earlier: signs(&mut rng, DEVIATION),
            second: signs(&mut rng, 1.0),
        }
    }
}

/// Query weights of one head.
pub(super) struct QueryLook {
    /// Of the second look.
    pub(super) second: f32,
    /// Of the second look, times the query's mood.
    pub(super) mood: f32,
    /// Of recency; negative for the old.
    pub(super) leaning: f32,
    /// Of a full match.
    pub(super) sharpness: f32,
}

impl QueryLook {
    pub(super) fn of(layer: usize, head: usize) -> Self {
        let mut rng = Rng::new(DEVIATIONS ^ (layer as u64) << 32 ^ head as u64 ^ 1 << 48);
        let mut between = |least: f64, most: f64| (least + (most - least) * rng.next_f64()) as f32;
        Self {
            second: between(-SECOND_LOOK, SECOND_LOOK),
            mood: between(-MOODS, MOODS),
            leaning: between(-LEANING, LEANING),
            sharpness: between(SHARPNESS.0, SHARPNESS.1),
        }
    }
}

/// `±scale` for each dimension of a character: its product with a unit vector has a typical size
/// of `scale`, and is at most `scale * sqrt(8)`.
fn signs(rng: &mut Rng, scale: f32) -> Vec<f32> {
    let sign = |_| if rng.below(2) == 0 { scale } else { -scale };
    SELF.map(sign).collect()
}
