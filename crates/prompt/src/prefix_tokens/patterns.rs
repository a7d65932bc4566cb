//! Pre-tokenizers that end a piece between a word and what follows it.
//!
//! Byte-level tokenizers split a text with a regular expression, an alternation of a few dozen
//! forms that models borrow from each other. A *word character* here is a letter or digit of
//! [`gaps`](super::gaps), a *follower* one of the characters listed there: white space or
//! punctuation. Each form in [`FORMS`] was checked by hand for this:
//!
//! 1. No text that it matches holds a word character right before a follower.
//! 2. It looks at nothing outside of what it matches, except `(?!\S)` behind white space.
//!
//! Let a word character and a follower stand left and right of `p`. By 1 no match of an
//! alternation of such forms reaches across `p`. By 2 matches that start before `p` are the same
//! if the text ends at `p`: a look-ahead happens behind white space only, and no white space is
//! right before `p`. Those that start at or behind `p` never look back. So with `Isolated`
//! splits, the pieces of the two parts are the pieces of the whole, but for one that may lie
//! across `p` because nothing matched there. Where the forms take every letter and every digit,
//! the character before `p` is always matched, and no piece lies across `p`.
//!
//! In a sequence the argument holds stage by stage, and it is enough that each letter and digit
//! is taken by one of them. Whatever is not recognised here has no such ends; its texts are cut at
//! added tokens only.

use tokenizers::SplitDelimiterBehavior;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::split::SplitPattern;

/// Letters that are lower case or have no case.
const LOWER: u8 = 1;
/// Letters that are upper case or have no case.
const UPPER: u8 = 2;
const DIGITS: u8 = 4;
const LETTERS: u8 = LOWER | UPPER;
const WORDS: u8 = LETTERS | DIGITS;

/// Forms of alternatives, with the word characters that each matches wherever one stands.
/// Line ends are spelled `\r` and `\n`.
#[rustfmt::skip]
const FORMS: &[(&str, u8)] = &[
    // English contractions: an apostrophe and letters.
    ("'s", 0), ("'t", 0), ("'re", 0), ("'ve", 0), ("'m", 0), ("'ll", 0), ("'d", 0),
    (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", 0),
    (r"'(?i:[sdmt]|ll|ve|re)", 0),
    // Words: at most one other character, then letters (and marks) to the end, or the
    // contraction behind them. What may stand before the letters stands at the start.
    (r" ?\p{L}+", LETTERS),
    (r"[^\r\n\p{L}\p{N}]?\p{L}+", LETTERS),
    (r"[^\r\n\p{L}\p{N}]?+\p{L}+", LETTERS),
    (r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", LETTERS),
    (r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+", LETTERS),
    (r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##, 0),
    (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+", LOWER),
    (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*", UPPER),
    (concat!(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"), LOWER),
    (concat!(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"), UPPER),
    (r"[一-龥぀-ゟ゠-ヿ]+", 0),
    // Numbers.
    (r"\p{N}", DIGITS), (r"\p{N}+", DIGITS), (r" ?\p{N}+", DIGITS), (r"\p{N}{1,3}", DIGITS),
    // Punctuation, perhaps with line ends behind it: neither letters nor digits.
    (r" ?[^\s\p{L}\p{N}]+", 0),
    (r" ?[^\s\p{L}\p{N}]+[\r\n]*", 0),
    (r" ?[^\s\p{L}\p{N}]++[\r\n]*", 0),
    (r" ?[^\s\p{L}\p{N}]+[\r\n/]*", 0),
    (r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", 0),
    (r" ?[\p{P}\p{S}]+", 0),
    (r" ?[\p{P}\p{S}]+[\r\n]*", 0),
    // White space.
    (r"\s", 0), (r"\s+", 0), (r"\s+(?!\S)", 0), (r"\s*[\r\n]", 0), (r"\s*[\r\n]+", 0),
    (r"[\r\n]", 0), (r"[\r\n]+", 0),
];

/// Whether this pre-tokenizer ends a piece between every word character and follower.
pub(super) fn ends_words(pre_tokenizer: &PreTokenizerWrapper) -> bool {
    let mut stages = Vec::new();
    flatten(pre_tokenizer, &mut stages);
    let Some((last, before)) = stages.split_last() else {
        return false;
    };
    // Behind a byte-level stage the text is spelled in other characters.
    if before.iter().any(|stage| is_byte_level(stage)) || !is_byte_level(last) {
        return false;
    }
    // Each word character needs one stage that takes it.
    let taken = stages.into_iter().try_fold(0, |taken, stage| Some(taken | takes(stage)?));
    taken == Some(WORDS)
}

fn flatten<'a>(stage: &'a PreTokenizerWrapper, stages: &mut Vec<&'a PreTokenizerWrapper>) {
    match stage {
        PreTokenizerWrapper::Sequence(sequence) => {
            for stage in sequence.as_ref() {
                flatten(stage, stages);
            }
        }
        stage => stages.push(stage),
    }
}

fn is_byte_level(stage: &PreTokenizerWrapper) -> bool {
    matches!(stage, PreTokenizerWrapper::ByteLevel(_))
}

/// The word characters that a stage always matches; `None` for a stage without the two
/// properties.
fn takes(stage: &PreTokenizerWrapper) -> Option<u8> {
    match stage {
        // It puts the space before any piece, also where we cut.
        PreTokenizerWrapper::ByteLevel(stage) if stage.add_prefix_space => None,
        // GPT-2's own expression, of the forms above.
        PreTokenizerWrapper::ByteLevel(stage) if stage.use_regex => Some(WORDS),
        PreTokenizerWrapper::ByteLevel(_) => Some(0),
        PreTokenizerWrapper::Digits(_) => Some(0),
        PreTokenizerWrapper::Split(split) => match &split.pattern {
            SplitPattern::Regex(pattern)
                if split.behavior == SplitDelimiterBehavior::Isolated && !split.invert =>
            {
                pattern_takes(pattern)
            }
            _ => None,
        },
        _ => None,
    }
}

/// The same for a regular expression. One that is known forms joined by `|`, letter by letter,
/// is their alternation, since each form is complete by itself.
fn pattern_takes(pattern: &str) -> Option<u8> {
    let pattern = pattern.replace('\r', r"\r").replace('\n', r"\n");
    let mut rest = pattern.as_str();
    let mut taken = 0;
    loop {
        let (behind, takes) = FORMS.iter().find_map(|(form, takes)| {
            let behind = rest.strip_prefix(form)?;
            // One form may begin another, such as `\p{N}` and `\p{N}+`: it must end here.
            (behind.is_empty() || behind.starts_with('|')).then_some((behind, takes))
        })?;
        taken |= takes;
        match behind.strip_prefix('|') {
            Some(next) => rest = next,
            None => return Some(taken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: bool) {
        let pre_tokenizer: PreTokenizerWrapper = serde_json::from_str(json).unwrap();
        assert_eq!(ends_words(&pre_tokenizer), expected, "{json}");
    }

    fn sequence(stages: &[&str]) -> String {
        let stages = stages.join(",");
        format!(r#"{{"type": "Sequence", "pretokenizers": [{stages}]}}"#)
    }

    fn split(pattern: &str) -> String {
        serde_json::json!({"type": "Split", "pattern": {"Regex": pattern},
            "behavior": "Isolated", "invert": false})
        .to_string()
    }

    const BYTES: &str = r#"{"type": "ByteLevel", "add_prefix_space": false,
        "trim_offsets": true, "use_regex": false}"#;
    const LLAMA: &str = concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    );

    #[test]
    fn known_expressions_end_words() {
        let gpt2 = BYTES.replace("\"use_regex\": false", "\"use_regex\": true");
        check(&gpt2, true);
        check(&sequence(&[&split(LLAMA), BYTES]), true);
        check(&sequence(&[&split(&LLAMA.replace("{1,3}", "")), BYTES]), true);
        let line_ends = LLAMA.replace(r"\r", "\r").replace(r"\n", "\n");
        check(&sequence(&[&split(&line_ends), BYTES]), true);
        let digits = r#"{"type": "Digits", "individual_digits": true}"#;
        check(&sequence(&[digits, &gpt2]), true);
    }

    #[test]
    fn anything_else_does_not() {
        for pattern in [
            LLAMA.replace(r"\s+(?!\S)", r"\s+(?=\S)"),
            LLAMA.replace(r"\p{N}{1,3}| ", " "),
            format!("(?i){LLAMA}"),
            format!(r"\w+ \w+|{LLAMA}"),
            format!("{LLAMA}|"),
            String::new(),
        ] {
            check(&sequence(&[&split(&pattern), BYTES]), false);
        }
        let merged = split(LLAMA).replace("Isolated", "MergedWithNext");
        check(&sequence(&[&merged, BYTES]), false);
        let inverted = split(LLAMA).replace("false", "true");
        check(&sequence(&[&inverted, BYTES]), false);
        check(&sequence(&[BYTES, &split(LLAMA)]), false);
        check(&sequence(&[BYTES]), false);
        check(&sequence(&[]), false);
        check(&split(LLAMA), false);
        let prefix = BYTES.replace("space\": false", "space\": true");
        check(&sequence(&[&split(LLAMA), &prefix]), false);
        check(r#"{"type": "Whitespace"}"#, false);
    }
}
