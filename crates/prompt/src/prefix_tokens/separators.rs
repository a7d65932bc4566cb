//! Boundaries between messages: right before an added token that is always one.
//!
//! Every tokenizer of the Hugging Face kind first looks for the added tokens that are spelled out
//! in the raw text, from the left, the longest first, and from then on works on what is between
//! them: normalizer, pre-tokenizer and model never see two of these parts together. A *separator*
//! is an added token for which cutting before each of its occurrences changes nothing:
//!
//! 1. It is looked up in the raw text (`normalized` is false), has no flags, and starts with
//!    neither white space nor a letter or digit: neighbours with `rstrip` or `single_word` are
//!    the same before it and before the end of a text.
//! 2. No raw added token can reach across its start: none contains it, and none ends with its
//!    beginning. So at its start nothing else is being matched, and it is matched.
//!
//! Cut *before* it, not behind: then the right part starts with a token, and its first text does
//! not stand at the start of the input, which `Metaspace` may treat in its own way.

use tokenizers::AddedToken;

/// Separators used. Some vocabularies reserve thousands of tokens that no template writes; those
/// with the lowest ids are kept, and others only cost boundaries.
const SEPARATORS_MAX: usize = 1024;

/// The separators of a tokenizer.
#[derive(Clone, Debug)]
pub(super) struct Separators {
    /// Sorted; none is the beginning of another.
    contents: Vec<String>,
    /// By byte, whether a separator starts with it.
    starts: [bool; 256],
}

impl Separators {
    /// Collects the separators among `added`, which is in the order of ids.
    pub(super) fn of(added: &[AddedToken]) -> Self {
        let raw: Vec<&AddedToken> = added.iter().filter(|token| !token.normalized).collect();
        // Their number is limited before the comparison below, whose work grows with it.
        let mut contents: Vec<String> = raw
            .iter()
            .filter(|token| is_plain(token))
            .take(SEPARATORS_MAX)
            .map(|token| token.content.clone())
            .collect();
        contents.sort_unstable();
        contents.dedup();
        let mut stands_alone = vec![true; contents.len()];
        for token in &raw {
            mark_reached(&token.content, &contents, &mut stands_alone);
        }
        let mut keep = stands_alone.into_iter();
        contents.retain(|_| keep.next().unwrap_or(false));
        let mut starts = [false; 256];
        for content in &contents {
            // `is_plain` saw a first character, so no content is empty.
            starts[content.as_bytes()[0] as usize] = true;
        }
        Self { contents, starts }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    /// The first start of a separator in `from..to`.
    pub(super) fn next(&self, text: &str, from: usize, to: usize) -> Option<usize> {
        if self.contents.is_empty() {
            return None;
        }
        let bytes = text.as_bytes();
        let starts = |&at: &usize| self.starts[bytes[at] as usize];
        (from..to).filter(starts).find(|&at| self.is_at(&bytes[at..]))
    }

    /// Whether `text` starts with a separator. That one would be the last in order that is not
    /// behind `text`: anything between the two would start with it.
    fn is_at(&self, text: &[u8]) -> bool {
        let behind = self.contents.partition_point(|content| content.as_bytes() <= text);
        behind.checked_sub(1).is_some_and(|last| text.starts_with(self.contents[last].as_bytes()))
    }
}

/// The first condition.
fn is_plain(token: &AddedToken) -> bool {
    let plain_start = |character: char| character.is_ascii_punctuation() && character != '_';
    !token.single_word && !token.lstrip && !token.rstrip && token.content.starts_with(plain_start)
}

/// Unmarks the `contents`, sorted, whose start `token` could reach across, or that it continues.
fn mark_reached(token: &str, contents: &[String], stands_alone: &mut [bool]) {
    for at in 0..token.len() {
        // Contents begin with ASCII, so a byte inside of a character matches no beginning.
        let rest = &token.as_bytes()[at..];
        // Those with the same first byte are neighbours.
        let first = contents.partition_point(|content| content.as_bytes()[0] < rest[0]);
        let same_start =
            contents[first..].iter().take_while(|content| content.as_bytes()[0] == rest[0]);
        for (content, alone) in same_start.zip(&mut stands_alone[first..]) {
            let content = content.as_bytes();
            let itself = at == 0 && rest == content;
            let reaches = rest.starts_with(content) || at > 0 && content.starts_with(rest);
            *alone &= itself || !reaches;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(contents: &[&str], expected: &[&str]) {
        let added: Vec<AddedToken> =
            contents.iter().map(|&content| AddedToken::from(content, true)).collect();
        assert_eq!(Separators::of(&added).contents, expected);
    }

    #[test]
    fn tokens_that_others_reach_into_separate_nothing() {
        check(&["<s>", "</s>"], &["</s>", "<s>"]);
        check(&["<a>", "<a><b>"], &["<a><b>"]);
        check(&["<a>", "x<a>"], &[]);
        check(&["<a>", "x<"], &[]);
        check(&["<a", "<a>"], &["<a>"]);
        check(&["<|", "|<"], &[]);
        check(&["<>", "<<<"], &[]);
        check(&["<x<"], &[]);
        check(&["word", " <a>", "_b", "\u{2581}"], &[]);
    }

    #[test]
    fn flags_and_normalized_tokens_separate_nothing() {
        let token = || AddedToken::from("<a>", true);
        for token in [
            token().single_word(true),
            token().lstrip(true),
            token().rstrip(true),
            token().normalized(true),
        ] {
            assert!(Separators::of(&[token]).is_empty());
        }
        assert!(!Separators::of(&[token()]).is_empty());
    }

    /// Many reserved tokens that differ late, as in real vocabularies.
    #[test]
    fn separators_are_found_where_they_start() {
        let added: Vec<AddedToken> = (0..300)
            .map(|number| AddedToken::from(format!("<|reserved_{number}|>"), true))
            .collect();
        let separators = Separators::of(&added);
        assert_eq!(separators.contents.len(), 300);
        let text = "<|reserved_300|> <|reserved_7|><|reserved_299|><|reserved_";
        let next = |from| separators.next(text, from, text.len());
        assert_eq!([next(0), next(17), next(18), next(32)], [Some(17), Some(17), Some(31), None]);
        assert_eq!(separators.next(text, 0, 17), None);
    }
}
