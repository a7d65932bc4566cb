//! Layout of the residual stream, and the embedding and unembedding of tokens.

use std::ops::Range;

use headstart_core::{Rng, TokenId};

use super::code::{self, word};
use super::words::{Symbol, TokenMeaning};

/// Width of the stream.
pub(super) const HIDDEN: usize = 128;

/// The token's own key, as a word of the code; zeros for tokens that are not keys.
pub(super) const KEY: Range<usize> = 0..16;
/// The token's own value.
pub(super) const VALUE: Range<usize> = 16..32;
/// The key before the token.
pub(super) const EARLIER_KEY: Range<usize> = 32..48;
/// Code found by the matching heads.
pub(super) const FOUND: Range<usize> = 48..64;
/// The code found, if the prompt asked for it.
pub(super) const ANSWER: Range<usize> = 64..80;
/// The token's own character, in which heads differ: a unit vector.
pub(super) const SELF: Range<usize> = 80..88;
/// The character of the token before.
pub(super) const EARLIER_SELF: Range<usize> = 88..96;
/// Always 1.
pub(super) const ONE: usize = 96;
/// Attraction of all heads to the token, nats.
pub(super) const SALIENCE: usize = 97;
/// 1 in the first token of a document.
pub(super) const START: usize = 98;
/// 1 in keys: they ask for their value.
pub(super) const ASKS_VALUE: usize = 99;
/// 1 in [`TokenMeaning::Most`].
pub(super) const ASKS_MOST: usize = 100;
/// 1 and -1 in the two symbols.
pub(super) const SYMBOL: usize = 101;
/// Mean of [`SYMBOL`] over all that is seen.
pub(super) const BALANCE: usize = 102;
/// The balance, if it was asked for.
pub(super) const VERDICT: usize = 103;
/// Change in the preference of salient heads, -1 to 1; 0 in tokens that ask, whose answers are
/// proved.
pub(super) const MOOD: usize = 104;
/// Filler that gives all tokens the same length.
const BALLAST: usize = 105;

/// Logit of the right value where a matching head sees nothing else: some 80 % of the probability,
/// so that what is lost shows in the distribution before it shows in the answer.
const CERTAINTY: f32 = 10.0;

/// Seed of the tokens' characters and of their salience within its range.
const CHARACTERS: u64 = 0xc0de;

/// Least and largest salience, nats: facts are e² to e⁴ times as salient as filler. The two
/// symbols are filler to everybody but the counting head, one near the top, one at the bottom.
fn salience_range(word: TokenMeaning) -> (f32, f32) {
    match word {
        TokenMeaning::Value(_) => (4.0, 4.6),
        TokenMeaning::Key(_) => (3.6, 4.2),
        TokenMeaning::Open | TokenMeaning::Close => (3.4, 3.6),
        TokenMeaning::Start => (4.0, 4.0),
        TokenMeaning::Symbol(Symbol::Loud) => (1.8, 1.8),
        TokenMeaning::Symbol(Symbol::Quiet) => (0.0, 0.0),
        TokenMeaning::Filler(_) | TokenMeaning::Ask | TokenMeaning::Most => (0.0, 1.5),
    }
}

/// Returns the embedding of `token`, of squared length [`HIDDEN`].
pub(super) fn embedding(token: TokenId) -> Vec<f32> {
    let meaning = TokenMeaning::of(token);
    let mut row = vec![0.0; HIDDEN];
    let mut rng = Rng::new(CHARACTERS ^ u64::from(token) << 16);
    let (least, largest) = salience_range(meaning);
    row[SALIENCE] = least + (largest - least) * rng.next_f64() as f32;
    row[SELF].copy_from_slice(&character(&mut rng));
    row[ONE] = 1.0;
    let asks = matches!(meaning, TokenMeaning::Key(_) | TokenMeaning::Most);
    row[MOOD] = if asks { 0.0 } else { (2.0 * rng.next_f64() - 1.0) as f32 };
    match meaning {
        TokenMeaning::Start => row[START] = 1.0,
        TokenMeaning::Key(key) => {
            row[KEY].copy_from_slice(&word(key));
            row[ASKS_VALUE] = 1.0;
        }
        TokenMeaning::Value(value) => row[VALUE].copy_from_slice(&word(value)),
        TokenMeaning::Most => row[ASKS_MOST] = 1.0,
        TokenMeaning::Symbol(Symbol::Loud) => row[SYMBOL] = 1.0,
        TokenMeaning::Symbol(Symbol::Quiet) => row[SYMBOL] = -1.0,
        TokenMeaning::Open | TokenMeaning::Close | TokenMeaning::Ask | TokenMeaning::Filler(_) => {}
    }
    let square: f32 = row.iter().map(|x| x * x).sum();
    row[BALLAST] = (HIDDEN as f32 - square).sqrt();
    row
}

/// Returns the output head's row for `token`; zeros if it is never an answer.
pub(super) fn unembedding(token: TokenId) -> Vec<f32> {
    let mut row = vec![0.0; HIDDEN];
    match TokenMeaning::of(token) {
        TokenMeaning::Value(value) => {
            let scaled = word(value).map(|x| CERTAINTY * x);
            row[ANSWER].copy_from_slice(&scaled);
        }
        TokenMeaning::Symbol(Symbol::Loud) => row[VERDICT] = CERTAINTY,
        TokenMeaning::Symbol(Symbol::Quiet) => row[VERDICT] = -CERTAINTY,
        _ => {}
    }
    row
}

/// A unit vector.
fn character(rng: &mut Rng) -> [f32; SELF.end - SELF.start] {
    let raw: [f64; SELF.end - SELF.start] = std::array::from_fn(|_| rng.next_f64() * 2.0 - 1.0);
    let length = raw.iter().map(|x| x * x).sum::<f64>().sqrt();
    raw.map(|x| (x / length) as f32)
}

const _: () = assert!(KEY.end - KEY.start == code::LENGTH && BALLAST < HIDDEN);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::constructed::words::VOCAB;

    #[test]
    fn all_tokens_have_the_same_length() {
        for token in 0..VOCAB as TokenId {
            let row = embedding(token);
            let square: f32 = row.iter().map(|x| x * x).sum();
            assert!((square - HIDDEN as f32).abs() < 1e-3, "{token}: {square}");
            let character: f32 = row[SELF].iter().map(|x| x * x).sum();
            assert!((character - 1.0).abs() < 1e-5, "{token}: {character}");
        }
    }
}
