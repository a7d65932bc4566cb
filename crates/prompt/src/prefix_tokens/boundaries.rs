//! Positions where a tokenizer's texts may be cut without changing a token.
//!
//! | kind | cut | for |
//! |---|---|---|
//! | [`Separators`] | before added tokens such as `<\|im_start\|>` | any tokenizer |
//! | [`Gaps`] | between a word and the space behind it | recognised byte-level ones |
//!
//! Both are derived from what the tokenizer says of itself, and argued in their modules. Then the
//! argument is tested with that very tokenizer, by the implementation that will serve: texts of
//! the probe and mixtures of them, cut at every boundary at once, must have the same tokens as in
//! one piece. Where one differs nothing is ever cut.

use headstart_core::{Rng, TokenId};
use tokenizers::{AddedToken, ModelWrapper};

use super::gaps::Gaps;
use super::separators::Separators;
use crate::{SpecialTokensIn, Tokenizer, probe};

/// Mixtures asked about, beside the probe's texts.
const MIXTURES: usize = 64;
/// Fragments of a mixture; with up to 12 characters each it is about as long as the samples.
const FRAGMENTS: usize = 32;

/// Kind of positions where texts are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundaryKind {
    /// Nowhere: whole texts are tokenized, and nothing is kept.
    Off,
    /// Before added tokens: long messages count as one segment.
    AddedTokens,
    /// Also inside of messages, behind words.
    Words,
}

/// The boundaries of one tokenizer.
#[derive(Clone, Debug)]
pub(super) struct Boundaries {
    /// `None`: nowhere.
    separators: Option<Separators>,
    gaps: Option<Gaps>,
}

/// The tokens that [`SpecialTokensIn::AddBosEos`] puts around any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Around {
    pub(super) before: Vec<TokenId>,
    pub(super) after: Vec<TokenId>,
}

impl Around {
    /// None at all.
    pub(super) const NOTHING: Self = Self { before: Vec::new(), after: Vec::new() };

    fn put(&self, tokens: &[TokenId]) -> Vec<TokenId> {
        [&self.before, tokens, &self.after].concat()
    }
}

/// The boundaries of `tokenizer`, after the self-test, and what it puts around texts.
pub(super) fn tested(tokenizer: &Tokenizer) -> (Boundaries, Option<Around>) {
    let added = added_tokens(tokenizer);
    let texts = texts(&added);
    let derived = Boundaries::of(tokenizer, &added);
    let boundaries = if derived.hold(tokenizer, &texts) { derived } else { Boundaries::OFF };
    (boundaries, around(tokenizer, &texts))
}

impl Boundaries {
    const OFF: Self = Self { separators: None, gaps: None };

    fn of(tokenizer: &Tokenizer, added: &[AddedToken]) -> Self {
        let reference = tokenizer.reference();
        if draws_lots(reference.get_model()) {
            return Self::OFF;
        }
        let separators = Separators::of(added);
        let gaps = Gaps::of(reference, added);
        // `None` means off, so an empty set is kept where there are gaps.
        Self { separators: (gaps.is_some() || !separators.is_empty()).then_some(separators), gaps }
    }

    pub(super) fn kind(&self) -> BoundaryKind {
        match (&self.separators, &self.gaps) {
            (None, _) => BoundaryKind::Off,
            (Some(_), None) => BoundaryKind::AddedTokens,
            (Some(_), Some(_)) => BoundaryKind::Words,
        }
    }

    /// Yields the offsets that cut `text` into segments of `least` bytes or somewhat more. Linear
    /// in its length.
    pub(super) fn cuts<'a>(&'a self, text: &'a str, least: usize) -> impl Iterator<Item = usize> {
        let mut from = least;
        // The first gap at `from` or behind it, once that is known; kept while separators are
        // found before it, so that no stretch is searched twice.
        let mut gap = Some(0);
        std::iter::from_fn(move || {
            let separators = self.separators.as_ref()?;
            if gap.is_some_and(|gap| gap < from) {
                gap = self.gaps.as_ref().and_then(|gaps| gaps.next(text, from));
            }
            let to = gap.unwrap_or(text.len());
            // A separator in front of the gap comes first: cuts ascend.
            let cut = separators.next(text, from, to).or(gap)?;
            from = cut + least;
            Some(cut)
        })
    }

    /// Whether each text has the same tokens in one piece and cut at every boundary.
    fn hold(&self, tokenizer: &Tokenizer, texts: &[String]) -> bool {
        let encode = |text: &str| tokenizer.encode(text, SpecialTokensIn::ParseOnly).ok();
        texts.iter().all(|text| {
            let parts = self.parts(text).map(encode);
            let parts: Option<Vec<Vec<TokenId>>> = parts.collect();
            encode(text) == parts.map(|parts| parts.concat())
        })
    }

    /// `text` cut at every boundary.
    fn parts<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a str> {
        let mut start = 0;
        let ends = self.cuts(text, 1).chain([text.len()]);
        ends.map(move |end| &text[std::mem::replace(&mut start, end)..end])
    }
}

/// All added tokens, in the order of ids.
fn added_tokens(tokenizer: &Tokenizer) -> Vec<AddedToken> {
    let added = tokenizer.reference().get_added_tokens_decoder();
    let mut added: Vec<(u32, AddedToken)> = added.into_iter().collect();
    // The map has no order, and of too many added tokens only the first ones are used.
    added.sort_unstable_by_key(|(id, _)| *id);
    added.into_iter().map(|(_, token)| token).collect()
}

/// Whether the model answers by chance, as some do in training.
fn draws_lots(model: &ModelWrapper) -> bool {
    match model {
        ModelWrapper::BPE(model) => model.dropout.is_some_and(|dropout| dropout > 0.0),
        ModelWrapper::Unigram(model) => model.alpha.is_some_and(|alpha| alpha != 0.0),
        _ => false,
    }
}

/// The texts of the self-test: samples and added tokens as they are, and mixed.
fn texts(added: &[AddedToken]) -> Vec<String> {
    let mut texts = probe::texts(added.iter().map(|token| token.content.as_str()));
    let source: Vec<char> = texts.iter().flat_map(|text| text.chars()).collect();
    // A fixed seed: a tokenizer passes or fails the self-test in every process alike.
    let mut rng = Rng::new(1);
    for _ in 0..MIXTURES {
        let mut text = String::new();
        for _ in 0..FRAGMENTS {
            let start = rng.below(source.len());
            let fragment = &source[start..source.len().min(start + 1 + rng.below(12))];
            text.extend(fragment);
            match rng.below(8) {
                0 => text.push(' '),
                1 => text.push('\n'),
                2 if !added.is_empty() => text += &added[rng.below(added.len())].content,
                _ => {}
            }
        }
        texts.push(text);
    }
    texts
}

/// Returns the tokens that the tokenizer puts around each of `texts`, if they are always the same.
fn around(tokenizer: &Tokenizer, texts: &[String]) -> Option<Around> {
    let encode = |text: &str, special| tokenizer.encode(text, special).ok();
    let pair = |text: &str| {
        let bare = encode(text, SpecialTokensIn::ParseOnly)?;
        Some((bare, encode(text, SpecialTokensIn::AddBosEos)?))
    };
    let (bare, full) = pair(probe::PLAIN)?;
    // A tokenizer that knows no word of it says nothing about where the text stands.
    let at = if bare.is_empty() {
        return None;
    } else {
        full.windows(bare.len()).position(|window| window == bare)?
    };
    let around = Around { before: full[..at].to_vec(), after: full[at + bare.len()..].to_vec() };
    // One text is not enough: a post-processor may treat another one differently.
    let same = |text: &String| pair(text).is_some_and(|(bare, full)| around.put(&bare) == full);
    texts.iter().all(same).then_some(around)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PromptModel;

    #[test]
    fn the_toy_tokenizer_is_cut_at_words() {
        let tokenizer = PromptModel::toy().tokenizer;
        let (boundaries, around) = tested(&tokenizer);
        assert_eq!(boundaries.kind(), BoundaryKind::Words);
        assert_eq!(around, Some(Around::NOTHING));
        let parts: Vec<&str> = boundaries.parts("<|im_start|>user\nOne two.<|im_end|>").collect();
        assert_eq!(parts, ["<|im_start|>user", "\nOne", " two.", "<|im_end|>"]);
        assert_eq!(boundaries.parts("").collect::<Vec<_>>(), [""]);
    }

    /// The cuts, each searched for from scratch.
    fn plain_cuts(boundaries: &Boundaries, text: &str, least: usize) -> Vec<usize> {
        let mut cuts = Vec::new();
        let mut from = least;
        let is_cut = |at: usize| {
            let gaps = boundaries.gaps.as_ref();
            gaps.is_some_and(|gaps| gaps.next(text, at) == Some(at))
                || boundaries.separators.as_ref().unwrap().next(text, at, at + 1) == Some(at)
        };
        while let Some(cut) = (from..text.len()).find(|&at| is_cut(at)) {
            cuts.push(cut);
            from = cut + least;
        }
        cuts
    }

    #[test]
    fn cuts_are_the_first_boundaries_and_stay_as_a_text_grows() {
        let tokenizer = PromptModel::toy().tokenizer;
        let added = added_tokens(&tokenizer);
        let mut boundaries = Boundaries::of(&tokenizer, &added);
        for gaps in [boundaries.gaps.clone(), None] {
            boundaries.gaps = gaps;
            for (number, text) in texts(&added).iter().enumerate() {
                let least = [1, 5, 60][number % 3];
                let cuts: Vec<usize> = boundaries.cuts(text, least).collect();
                assert_eq!(cuts, plain_cuts(&boundaries, text, least), "{text:?}");
                let middle = text.len() / 2;
                let half = &text[..text.ceil_char_boundary(middle)];
                let early: Vec<usize> = boundaries.cuts(half, least).collect();
                assert!(cuts.starts_with(&early), "{text:?}");
            }
        }
    }

    /// A model whose tokens reach across spaces, and boundaries that deny it.
    #[test]
    fn the_self_test_finds_boundaries_that_do_not_hold() {
        let json = r#"{"added_tokens": [{"id": 4, "content": "<x>", "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
            "model": {"type": "BPE", "unk_token": "?", "merges": [["e", " "]],
                "vocab": {"e": 0, " ": 1, "e ": 2, "?": 3}}}"#;
        let tokenizer = Tokenizer::from_bytes(json.as_bytes()).unwrap();
        let derived = Boundaries::of(&tokenizer, &added_tokens(&tokenizer));
        assert_eq!(derived.kind(), BoundaryKind::AddedTokens);
        let texts = texts(&added_tokens(&tokenizer));
        assert!(derived.hold(&tokenizer, &texts));
        let gaps = Some(Gaps::unchecked());
        let wrong = Boundaries { gaps, ..derived };
        assert!(!wrong.hold(&tokenizer, &texts));
    }

    #[test]
    fn a_model_that_draws_lots_is_never_cut() {
        let toy = include_str!("../../../../data/toy-tokenizer/tokenizer.json");
        let mut json: serde_json::Value = serde_json::from_str(toy).unwrap();
        json["model"]["dropout"] = 0.5.into();
        let tokenizer = Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap();
        assert_eq!(tested(&tokenizer).0.kind(), BoundaryKind::Off);
    }
}
