//! The language of the constructed models: what a token id means.

use headstart_core::TokenId;

/// Vocabulary entries: as many as the toy's tokenizer knows, so that it may stand in where text
/// is needed.
pub const VOCAB: usize = 4096;

/// Keys there are, and values.
pub const KEYS: usize = 256;

/// Ids of the first of a kind; single words come before. From 256 on the toy's tokenizer has a text
/// for each id, by which answers can be told apart.
const FIRST_KEY: TokenId = 256;
const FIRST_VALUE: TokenId = FIRST_KEY + KEYS as TokenId;
const FIRST_FILLER: TokenId = FIRST_VALUE + KEYS as TokenId;

/// Filler tokens there are.
pub const FILLERS: usize = VOCAB - FIRST_FILLER as usize;

/// One of the two symbols that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// The more salient one.
    Loud,
    /// The other.
    Quiet,
}

impl Symbol {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Loud, Self::Quiet];

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Loud => Self::Quiet,
            Self::Quiet => Self::Loud,
        }
    }
}

/// Meaning of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenMeaning {
    /// The first token of a document.
    Start,
    /// Begins a fact.
    Open,
    /// Ends a fact.
    Close,
    /// Announces the key that is asked for.
    Ask,
    /// Asks which symbol the prompt holds more of.
    Most,
    /// To be counted.
    Symbol(Symbol),
    /// The subject of a fact.
    Key(u8),
    /// The value of a fact.
    Value(u8),
    /// Nothing, the n-th kind of it.
    Filler(u16),
}

impl TokenMeaning {
    /// The meaning of `token`; ids without one are filler.
    #[must_use]
    pub fn of(token: TokenId) -> Self {
        match token {
            0 => Self::Start,
            1 => Self::Open,
            2 => Self::Close,
            3 => Self::Ask,
            4 => Self::Most,
            5 => Self::Symbol(Symbol::Loud),
            6 => Self::Symbol(Symbol::Quiet),
            FIRST_KEY..FIRST_VALUE => Self::Key((token - FIRST_KEY) as u8),
            FIRST_VALUE..FIRST_FILLER => Self::Value((token - FIRST_VALUE) as u8),
            _ => Self::Filler((token.saturating_sub(FIRST_FILLER)) as u16),
        }
    }

    /// Its token.
    #[must_use]
    pub fn token(self) -> TokenId {
        match self {
            Self::Start => 0,
            Self::Open => 1,
            Self::Close => 2,
            Self::Ask => 3,
            Self::Most => 4,
            Self::Symbol(Symbol::Loud) => 5,
            Self::Symbol(Symbol::Quiet) => 6,
            Self::Key(key) => FIRST_KEY + TokenId::from(key),
            Self::Value(value) => FIRST_VALUE + TokenId::from(value),
            Self::Filler(kind) => FIRST_FILLER + TokenId::from(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_words_are_the_same() {
        let named = (0..7).chain(FIRST_KEY..VOCAB as TokenId);
        for token in named {
            assert_eq!(TokenMeaning::of(token).token(), token);
        }
        assert_eq!(
            TokenMeaning::of(VOCAB as TokenId - 1),
            TokenMeaning::Filler(FILLERS as u16 - 1)
        );
    }
}
