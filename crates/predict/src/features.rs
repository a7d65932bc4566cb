//! The row that the classifier reads.
//!
//! ```text
//! [ embedding of the joined text | embedding of the current prompt | turn | behaviour ]
//!   published                      ours, optional                    published  ours, optional
//! ```
//!
//! Source: Yang et al., "Learned Prefix Caching", NeurIPS 2025: embedding and turn count, raw and
//! capped at 20. What a user does (lengths, gaps) is what the authors leave to future work.

use serde::{Deserialize, Serialize};

use crate::text::{self, TextOptions};
use crate::{Encoder, Situation};

/// Turn counts from here on are one value.
const TURN_CAP: u16 = 20;
/// Columns of behaviour: see [`behaviour`].
const BEHAVIOUR_COLUMNS: usize = 7;
/// Situations whose texts are encoded together, to bound the memory of their texts.
const BATCH: usize = 64;

/// Selection of the texts to encode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parts {
    /// The window, joined: the published choice.
    Joined,
    /// The joined window, and the current prompt by itself: in one vector for both the earlier
    /// prompts drown what the current one says.
    #[default]
    CurrentAndJoined,
}

impl Parts {
    /// Texts per situation.
    #[must_use]
    pub fn count(self) -> usize {
        match self {
            Self::Joined => 1,
            Self::CurrentAndJoined => 2,
        }
    }
}

/// Definition of a row. It is stored with the classifier, which accepts only rows made by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The encoder's [`Encoder::identity`].
    pub encoder: String,
    /// Its values per text.
    pub dims: usize,
    /// Texts read from a conversation.
    pub text: TextOptions,
    /// Selection of the texts to encode.
    pub parts: Parts,
    /// Whether lengths and gaps are columns too.
    pub behaviour: bool,
    /// Turn counts from here on are one value.
    pub turn_cap: u16,
}

impl Definition {
    /// The published definition with this encoder, but with the current prompt by itself as well.
    #[must_use]
    pub fn new(encoder: &dyn Encoder) -> Self {
        Self {
            encoder: encoder.identity().to_owned(),
            dims: encoder.dims(),
            text: TextOptions::default(),
            parts: Parts::default(),
            behaviour: false,
            turn_cap: TURN_CAP,
        }
    }

    /// Columns of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        let behaviour = if self.behaviour { BEHAVIOUR_COLUMNS } else { 0 };
        self.embedding_width() + 1 + behaviour
    }

    /// Columns that come from the encoder.
    fn embedding_width(&self) -> usize {
        self.parts.count() * self.dims
    }

    /// The turn count in a row, capped; 0 where the row holds no number.
    pub(crate) fn turn(&self, row: &[f32]) -> u16 {
        row[self.embedding_width()] as u16
    }

    /// The texts to encode, `parts.count()` of them.
    #[must_use]
    pub fn texts(&self, situation: &Situation) -> Vec<String> {
        let joined = text::compose(situation, &self.text);
        match self.parts {
            Parts::Joined => vec![joined],
            Parts::CurrentAndJoined => vec![joined, text::current(situation, &self.text)],
        }
    }

    /// The row of `situation`, whose [`Self::texts`] have these `embeddings`, one after another.
    ///
    /// # Panics
    /// When there are not `parts.count() · dims` of them.
    #[must_use]
    pub fn row(&self, embeddings: &[f32], situation: &Situation) -> Vec<f32> {
        let expected = self.embedding_width();
        assert_eq!(embeddings.len(), expected, "one embedding for each text");
        let mut row = Vec::with_capacity(self.width());
        row.extend_from_slice(embeddings);
        row.push(f32::from(situation.turn.min(self.turn_cap)));
        if self.behaviour {
            row.extend(behaviour(situation));
        }
        row
    }

    /// The rows of `situations`, one after another: `[situations, width]`.
    ///
    /// # Panics
    /// When `encoder` is not the definition's.
    #[must_use]
    pub fn rows(&self, encoder: &dyn Encoder, situations: &[Situation]) -> Vec<f32> {
        // Another encoder of the same width would give rows without meaning, and no error.
        assert_eq!(encoder.identity(), self.encoder, "rows need their encoder");
        let mut rows = Vec::with_capacity(situations.len() * self.width());
        for situations in situations.chunks(BATCH) {
            let texts: Vec<String> = situations.iter().flat_map(|s| self.texts(s)).collect();
            let embeddings = encode_once(encoder, &texts);
            let each = embeddings.chunks_exact(self.embedding_width());
            for (situation, embeddings) in situations.iter().zip(each) {
                rows.extend(self.row(embeddings, situation));
            }
        }
        rows
    }
}

/// The vectors of `texts`, a text that equals the one before it encoded only once: that is every
/// first prompt's, and the transformer's time is worth it.
fn encode_once(encoder: &dyn Encoder, texts: &[String]) -> Vec<f32> {
    let mut distinct: Vec<&str> = texts.iter().map(String::as_str).collect();
    // Neighbours only: a first prompt's two texts follow each other.
    distinct.dedup();
    let vectors = encoder.encode(&distinct);
    let mut embeddings = Vec::with_capacity(texts.len() * encoder.dims());
    let mut at = 0;
    for (index, text) in texts.iter().enumerate() {
        at += usize::from(index > 0 && *text != texts[index - 1]);
        embeddings.extend_from_slice(&vectors[at * encoder.dims()..][..encoder.dims()]);
    }
    embeddings
}

/// Columns of user behaviour: logarithms of the prompt's length, the mean length of known earlier
/// prompts, the latest answer's length and the gap in seconds. Each of the last three has a column
/// beside it that is 1 if the value is known.
fn behaviour(situation: &Situation) -> [f32; BEHAVIOUR_COLUMNS] {
    let (current, earlier) = match situation.prompts.split_last() {
        Some((current, earlier)) => (current.len(), earlier),
        None => (0, [].as_slice()),
    };
    let total: usize = earlier.iter().map(String::len).sum();
    let mean = (!earlier.is_empty()).then(|| total as f32 / earlier.len() as f32);
    let [mean, has_mean] = logarithm(mean);
    let [answer, has_answer] = logarithm(situation.answer_chars.map(|chars| chars as f32));
    let [gap, has_gap] = logarithm(situation.gap_s);
    let current = (current as f32).ln_1p();
    [current, mean, has_mean, answer, has_answer, gap, has_gap]
}

/// `ln(1 + value)` and 1, or two zeros where there is no value that is a number.
fn logarithm(value: Option<f32>) -> [f32; 2] {
    // A damaged value must not put NaN into a row.
    let value = value.filter(|value| value.is_finite());
    value.map_or([0.0, 0.0], |value| [value.max(0.0).ln_1p(), 1.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two values: the text's length in bytes and its words.
    struct Counting;

    impl Encoder for Counting {
        fn identity(&self) -> &str {
            "counting"
        }

        fn dims(&self) -> usize {
            2
        }

        fn encode(&self, texts: &[&str]) -> Vec<f32> {
            let values = |text: &&str| [text.len() as f32, text.split(' ').count() as f32];
            texts.iter().flat_map(values).collect()
        }
    }

    fn situation() -> Situation {
        Situation {
            prompts: vec!["one two".to_owned(), "three".to_owned()],
            turn: 30,
            answer_chars: Some(0),
            gap_s: Some(f32::NAN),
            ..Situation::default()
        }
    }

    fn check(change: impl Fn(&mut Definition), expected: &[f32]) {
        let mut definition = Definition::new(&Counting);
        change(&mut definition);
        let rows = definition.rows(&Counting, &[situation(), situation()]);
        assert_eq!(rows.len(), 2 * definition.width());
        assert_eq!(&rows[..definition.width()], expected);
        assert_eq!(&rows[definition.width()..], expected);
    }

    #[test]
    fn a_row_is_the_embeddings_the_capped_turn_and_the_behaviour_asked_for() {
        let joined = "one two\nThe next user query is: three";
        let joined = [joined.len() as f32, joined.split(' ').count() as f32];
        let published = [joined[0], joined[1], 20.0];
        check(|d| d.parts = Parts::Joined, &published);
        let both = [joined[0], joined[1], 5.0, 1.0, 20.0];
        check(|_| (), &both);
        let logs = [6.0f32.ln(), 8.0f32.ln(), 1.0, 0.0, 1.0, 0.0, 0.0];
        let row: Vec<f32> = both.into_iter().chain(logs).collect();
        let mut definition = Definition::new(&Counting);
        definition.behaviour = true;
        let rows = definition.rows(&Counting, &[situation()]);
        let near = rows.iter().zip(&row).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(near && rows.len() == row.len(), "{rows:?} {row:?}");
    }

    #[test]
    fn a_text_that_is_there_twice_has_its_vector_twice() {
        let prompt = |prompts: &[&str]| Situation {
            prompts: prompts.iter().map(|&prompt| prompt.to_owned()).collect(),
            turn: 1,
            ..Situation::default()
        };
        let situations = [prompt(&["a b c"]), prompt(&["a", "b c"]), prompt(&["b c"]), prompt(&[])];
        let definition = Definition::new(&Counting);
        let together = definition.rows(&Counting, &situations);
        let apart =
            situations.each_ref().map(|one| definition.rows(&Counting, std::slice::from_ref(one)));
        assert_eq!(together, apart.concat());
        assert_eq!(together[..5], [5.0, 3.0, 5.0, 3.0, 1.0]);
    }
}
