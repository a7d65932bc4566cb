//! Documents and questions with known answers, drawn from a seed.

use headstart_core::{Rng, TokenId};

use super::words::{FILLERS, KEYS, Symbol, TokenMeaning};

/// Tokens of a fact: open, key, value, close.
pub const FACT_TOKENS: usize = 4;

/// Size of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Tokens of all.
    pub tokens: usize,
    /// Facts, each about a key of its own; at most [`KEYS`].
    pub facts: usize,
    /// Symbols to be counted, both kinds together.
    pub symbols: usize,
}

impl Size {
    /// A fifth of the tokens belong to facts, a tenth are symbols.
    #[must_use]
    pub fn of(tokens: usize) -> Self {
        Self { tokens, facts: (tokens / (5 * FACT_TOKENS)).min(KEYS), symbols: tokens / 10 }
    }
}

/// A prefix: facts and symbols, scattered among filler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// Its facts: keys and their values.
    pub facts: Vec<(u8, u8)>,
    /// The symbol that it holds more of.
    pub majority: Symbol,
}

/// Question after a document, with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentQuestion {
    /// Its tokens, the last of which asks.
    pub tokens: Vec<TokenId>,
    /// The right next token.
    pub answer: TokenId,
}

impl Document {
    /// A document; `majority` gets 55 to 65 % of the symbols.
    ///
    /// # Panics
    /// When facts and symbols do not fit into the tokens, or there are more facts than keys.
    #[must_use]
    pub fn new(rng: &mut Rng, size: Size, majority: Symbol) -> Self {
        assert!(size.facts <= KEYS, "every fact needs a key of its own");
        let taken = 1 + size.facts * FACT_TOKENS + size.symbols;
        assert!(taken <= size.tokens, "facts and symbols do not fit");
        let facts = draw_facts(rng, size.facts);
        let mut pieces: Vec<Vec<TokenMeaning>> =
            facts.iter().map(|&(key, value)| fact(key, value)).collect();
        let lead = 0.55 + 0.1 * rng.next_f64();
        let winners = (size.symbols as f64 * lead).round() as usize;
        for index in 0..size.symbols {
            let symbol = if index < winners { majority } else { majority.other() };
            pieces.push(vec![TokenMeaning::Symbol(symbol)]);
        }
        pieces.extend((taken..size.tokens).map(|_| vec![filler(rng)]));
        rng.shuffle(&mut pieces);
        let words = std::iter::once(TokenMeaning::Start).chain(pieces.into_iter().flatten());
        Self { tokens: words.map(TokenMeaning::token).collect(), facts, majority }
    }

    /// Asks for a value: filler, up to three worked examples, `ASK key`. The question has `tokens`
    /// tokens, at least 11.
    ///
    /// # Panics
    /// When the document has no fact, or `tokens` are too few.
    #[must_use]
    pub fn ask_value(&self, rng: &mut Rng, tokens: usize) -> DocumentQuestion {
        const EXAMPLES: usize = 3;
        let pick = |rng: &mut Rng| self.facts[rng.below(self.facts.len())];
        let (key, value) = pick(rng);
        let mut words = Vec::new();
        for _ in 0..EXAMPLES {
            let (other, value) = pick(rng);
            // The answer must not stand in the question.
            if other != key {
                words.extend([
                    TokenMeaning::Ask,
                    TokenMeaning::Key(other),
                    TokenMeaning::Value(value),
                ]);
            }
        }
        words.extend([TokenMeaning::Ask, TokenMeaning::Key(key)]);
        DocumentQuestion::padded(rng, tokens, words, TokenMeaning::Value(value))
    }

    /// Asks for the majority: filler, `MOST`; `tokens` long, at least 1.
    #[must_use]
    pub fn ask_majority(&self, rng: &mut Rng, tokens: usize) -> DocumentQuestion {
        DocumentQuestion::padded(
            rng,
            tokens,
            vec![TokenMeaning::Most],
            TokenMeaning::Symbol(self.majority),
        )
    }
}

impl DocumentQuestion {
    fn padded(
        rng: &mut Rng,
        tokens: usize,
        words: Vec<TokenMeaning>,
        answer: TokenMeaning,
    ) -> Self {
        assert!(words.len() <= tokens, "the question does not fit");
        let padding = (words.len()..tokens).map(|_| filler(rng));
        // Filler first, because the last token must be the one that asks.
        let tokens = padding.collect::<Vec<_>>().into_iter().chain(words);
        Self { tokens: tokens.map(TokenMeaning::token).collect(), answer: answer.token() }
    }
}

fn draw_facts(rng: &mut Rng, count: usize) -> Vec<(u8, u8)> {
    let mut keys: Vec<u8> = (0..=u8::MAX).collect();
    rng.shuffle(&mut keys);
    keys.truncate(count);
    keys.into_iter().map(|key| (key, rng.below(KEYS) as u8)).collect()
}

fn fact(key: u8, value: u8) -> Vec<TokenMeaning> {
    vec![
        TokenMeaning::Open,
        TokenMeaning::Key(key),
        TokenMeaning::Value(value),
        TokenMeaning::Close,
    ]
}

/// Some kinds are more frequent than others: the n-th of N as 1 / √(n·N).
fn filler(rng: &mut Rng) -> TokenMeaning {
    let uniform = rng.next_f64();
    TokenMeaning::Filler((uniform * uniform * FILLERS as f64) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_what_their_size_says() {
        for seed in 0..20 {
            let size = Size::of(2_000);
            let majority = Symbol::ALL[seed as usize % 2];
            let document = Document::new(&mut Rng::new(seed), size, majority);
            let words: Vec<TokenMeaning> =
                document.tokens.iter().map(|id| TokenMeaning::of(*id)).collect();
            let count = |word| words.iter().filter(|other| **other == word).count();
            assert_eq!((words.len(), words[0]), (size.tokens, TokenMeaning::Start));
            assert_eq!(document.facts.len(), size.facts);
            for &(key, value) in &document.facts {
                let at = words.iter().position(|word| *word == TokenMeaning::Key(key));
                assert_eq!(words[at.unwrap() + 1], TokenMeaning::Value(value), "seed {seed}");
                assert_eq!(count(TokenMeaning::Key(key)), 1, "seed {seed}");
            }
            let more = count(TokenMeaning::Symbol(document.majority));
            let fewer = count(TokenMeaning::Symbol(document.majority.other()));
            assert_eq!(more + fewer, size.symbols);
            assert!(more > fewer, "seed {seed}: {more} {fewer}");
        }
    }

    #[test]
    fn questions_end_with_what_they_ask_and_do_not_hold_the_answer() {
        let mut rng = Rng::new(3);
        let document = Document::new(&mut rng, Size::of(400), Symbol::Quiet);
        for _ in 0..200 {
            let question = document.ask_value(&mut rng, 16);
            let (TokenMeaning::Key(key), TokenMeaning::Value(value)) =
                (TokenMeaning::of(question.tokens[15]), TokenMeaning::of(question.answer))
            else {
                panic!("{question:?} asks for no value");
            };
            assert!(document.facts.contains(&(key, value)));
            let asked = question.tokens.iter().filter(|id| **id == TokenMeaning::Key(key).token());
            assert_eq!((question.tokens.len(), asked.count()), (16, 1));
        }
    }
}
