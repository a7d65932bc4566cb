//! A prompt of a log: as text, or as the token ids that it came as.
//!
//! Whatever counts bytes of a text counts ids of the other: nothing is tokenized that is tokens.

use std::borrow::Cow;
use std::ops::Range;

use headstart_core::TokenId;
use headstart_insight::text::{PromptDivergence, Sketch, Sketcher};
use headstart_trace::format::request_log::{LoggedRequest, PromptPart};

use crate::rendering::Rendering;

/// Longest name of a request that is kept without its prompt, characters.
const NAME_CHARS_MAX: usize = 512;

/// Content of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PromptBody {
    /// A text, special tokens spelled out.
    Text(String),
    /// Token ids.
    Ids(Vec<TokenId>),
}

/// A prompt of the log.
#[derive(Debug)]
pub struct PromptRecord {
    /// The request's id, or the number of its line.
    pub name: String,
    /// As the model reads it.
    pub body: PromptBody,
    /// Its length in tokens as the log has it.
    pub logged_tokens: Option<u32>,
}

impl PromptBody {
    /// Takes token ids as they are, and renders everything else.
    pub(crate) fn of(prompt: &PromptPart, rendering: &Rendering) -> Self {
        match prompt {
            PromptPart::Tokens(ids) => Self::Ids(ids.clone()),
            other => Self::Text(rendering.text(other)),
        }
    }

    pub(crate) fn sketch(&self, sketcher: &Sketcher) -> Sketch {
        match self {
            Self::Text(text) => sketcher.sketch(text),
            Self::Ids(ids) => sketcher.sketch_tokens(ids),
        }
    }

    /// Bytes of a text, or how many ids there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Ids(ids) => ids.len(),
        }
    }

    /// Returns the unit of its length.
    pub(crate) fn unit(&self) -> &'static str {
        match self {
            Self::Text(_) => "bytes",
            Self::Ids(_) => "token ids",
        }
    }

    /// The part in `range`; as much of it as there is, on boundaries of characters.
    pub(crate) fn cut(&self, range: Range<usize>) -> Self {
        // Both ends are clipped on their own, so a range beyond the text is empty.
        let (start, end) = (self.boundary(range.start), self.boundary(range.end));
        match self {
            Self::Text(text) => Self::Text(text[start..end.max(start)].to_owned()),
            Self::Ids(ids) => Self::Ids(ids[start..end.max(start)].to_vec()),
        }
    }

    /// Returns the length of the common prefix, in [`Self::unit`].
    pub(crate) fn common(&self, other: &Self) -> usize {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => {
                let bytes = alike(one.as_bytes(), other.as_bytes());
                // Bytes may agree within a character that differs.
                self.boundary(bytes)
            }
            (Self::Ids(one), Self::Ids(other)) => alike(one, other),
            // A text and ids share no unit, so nothing is comparable.
            _ => 0,
        }
    }

    /// As bytes, for hashes.
    pub(crate) fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Text(text) => text.as_bytes().into(),
            Self::Ids(ids) => ids.iter().flat_map(|id| id.to_le_bytes()).collect(),
        }
    }

    /// Returns the number of tokens; estimated at four bytes each if the tokenizer fails.
    pub(crate) fn count(&self, rendering: &Rendering) -> u64 {
        // Four bytes are about a token of English.
        let tokens = self.tokens(rendering);
        tokens.map_or(self.len().div_ceil(4), |tokens| tokens.len()) as u64
    }

    fn tokens(&self, rendering: &Rendering) -> Option<Cow<'_, [TokenId]>> {
        match self {
            Self::Text(text) => Some(rendering.tokens(text).ok()?.into()),
            Self::Ids(ids) => Some(ids.into()),
        }
    }

    /// The last place up to `at` that can be cut at.
    fn boundary(&self, at: usize) -> usize {
        let at = at.min(self.len());
        // A cut inside a character would panic.
        match self {
            Self::Text(text) => text.floor_char_boundary(at),
            Self::Ids(_) => at,
        }
    }
}

/// For people and programs: ids as numbers with blanks between.
impl std::fmt::Display for PromptBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Ids(ids) => {
                let numbers: Vec<String> = ids.iter().map(TokenId::to_string).collect();
                f.write_str(&numbers.join(" "))
            }
        }
    }
}

impl PromptRecord {
    pub(crate) fn new(request: &LoggedRequest, body: PromptBody) -> Self {
        Self { name: request.name(), body, logged_tokens: request.prompt_tokens }
    }

    /// Returns its name, cut to a readable length.
    pub(crate) fn short_name(&self) -> String {
        self.name.chars().take(NAME_CHARS_MAX).collect()
    }

    /// Its length in tokens: the log's own count, or the tokenizer's.
    pub fn tokens(&self, rendering: &Rendering) -> u64 {
        let counted = || self.body.count(rendering);
        self.logged_tokens.map_or_else(counted, u64::from)
    }

    /// Tokens that `divergence` cost it: of a text by the average of its bytes.
    pub(crate) fn lost(&self, divergence: &PromptDivergence, rendering: &Rendering) -> u64 {
        let share = divergence.lost_bytes as f64 / self.body.len().max(1) as f64;
        (self.tokens(rendering) as f64 * share).round() as u64
    }

    /// Tokens that it has in common with `old` from the start, as the log counts tokens if it does.
    pub(crate) fn shared_tokens(&self, old: &Self, rendering: &Rendering) -> u64 {
        let (one, other) = (&old.body, &self.body);
        // A cache matches tokens, and equal bytes at the end of a prefix may belong to other
        // tokens.
        let (shared, all) = match (one.tokens(rendering), other.tokens(rendering)) {
            (Some(one), Some(other)) => (alike(&one, &other) as u64, other.len() as u64),
            // One of both has no tokens: the common bytes give an estimate.
            _ => (other.common(one) as u64 / 4, other.count(rendering)),
        };
        match self.logged_tokens.map(u64::from) {
            // The log counts with its own tokenizer, so the shared part is scaled to its count.
            Some(logged) if logged != all => in_counting(shared, all, logged),
            _ => shared,
        }
    }
}

/// Returns the length of the common prefix, in items.
fn alike<T: PartialEq>(one: &[T], other: &[T]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(one, other)| one == other).count()
}

/// `shared` of `all` tokens, where another tokenizer counts `logged`: the same share of them.
fn in_counting(shared: u64, all: u64, logged: u64) -> u64 {
    let share = shared as f64 / all.max(1) as f64;
    // Rounding must not make the shared part longer than the prompt.
    ((share * logged as f64).round() as u64).min(logged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_one_counting() {
        assert_eq!(in_counting(311, 311, 310), 310);
        assert_eq!(in_counting(100, 200, 310), 155);
        assert_eq!(in_counting(0, 0, 310), 0);
    }

    #[test]
    fn texts_are_cut_on_characters_and_ids_anywhere() {
        let text = PromptBody::Text("aé".to_owned());
        assert_eq!(text.cut(0..2), PromptBody::Text("a".to_owned()));
        assert_eq!(text.cut(5..9), PromptBody::Text(String::new()));
        assert_eq!(text.common(&PromptBody::Text("aè".to_owned())), 1);
        let ids = PromptBody::Ids(vec![7, 300_000, 9]);
        assert_eq!(ids.cut(1..9).to_string(), "300000 9");
        assert_eq!((ids.common(&PromptBody::Ids(vec![7, 9])), ids.common(&text)), (1, 0));
        assert_eq!((ids.bytes().len(), ids.len(), ids.unit()), (12, 3, "token ids"));
    }

    #[test]
    fn token_ids_are_counted_without_a_tokenizer() {
        let rendering = Rendering::of(None).expect("the toy");
        let prompt = |ids: &[TokenId]| PromptRecord {
            name: "r".to_owned(),
            body: PromptBody::Ids(ids.to_vec()),
            logged_tokens: None,
        };
        let (old, new) = (prompt(&[1, 2, 3, 4]), prompt(&[1, 2, 9, 4, 5]));
        assert_eq!(new.tokens(&rendering), 5);
        assert_eq!(new.shared_tokens(&old, &rendering), 2);
        assert!(rendering.remarks().is_empty(), "nothing was tokenized");
    }
}
