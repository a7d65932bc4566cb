//! The same text in other tokens: where an answer was generated and where it was tokenized again.

use std::ops::Range;

use headstart_core::TokenId;

/// Tokens on either side that a seam may span.
const SEAM_TOKENS_MAX: usize = 64;

/// Equal tokens behind a seam, or the end of either prompt.
const AGREES_TOKENS: usize = 4;

/// Token ranges in which two prompts spell the same text with different tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seam {
    /// Tokens of the older prompt.
    pub old: Range<usize>,
    /// Tokens of the newer prompt for the same text.
    pub new: Range<usize>,
}

/// The seam at which two prompts part, if that is what parts them. `is_same_text` says whether
/// tokens of the older prompt and tokens of the newer one spell the same text.
///
/// The shortest stretch behind which both agree again is looked at, up to 64 tokens long.
pub fn seam(
    old: &[TokenId],
    new: &[TokenId],
    is_same_text: impl Fn(&[TokenId], &[TokenId]) -> bool,
) -> Option<Seam> {
    let pairs = old.iter().zip(new);
    let first = pairs.take_while(|(one, other)| one == other).count();
    let (one, other) = (&old[first..], &new[first..]);
    // One prompt begins the other, so nothing parts them.
    if one.is_empty() || other.is_empty() {
        return None;
    }
    let most = one.len().min(SEAM_TOKENS_MAX) + other.len().min(SEAM_TOKENS_MAX);
    // In order of the total length, so that the first match is the shortest stretch.
    for total in 2..=most {
        for left in 1..total.min(one.len() + 1) {
            let right = total - left;
            if right <= other.len()
                // The ids are compared first, because `is_same_text` may have to decode.
                && agree(&one[left..], &other[right..])
                && is_same_text(&one[..left], &other[..right])
            {
                return Some(Seam { old: first..first + left, new: first..first + right });
            }
        }
    }
    None
}

fn agree(one: &[TokenId], other: &[TokenId]) -> bool {
    let len = one.len().min(other.len()).min(AGREES_TOKENS);
    one[..len] == other[..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each token spells its decimal digits.
    fn spelled(tokens: &[TokenId]) -> String {
        tokens.iter().map(ToString::to_string).collect()
    }

    fn check(old: &[TokenId], new: &[TokenId], expected: Option<(Range<usize>, Range<usize>)>) {
        let found = seam(old, new, |one, other| spelled(one) == spelled(other));
        assert_eq!(found.map(|seam| (seam.old, seam.new)), expected);
    }

    #[test]
    fn the_same_text_in_other_tokens_is_a_seam() {
        check(&[9, 12, 3, 7, 7, 7, 7], &[9, 1, 23, 7, 7, 7, 7], Some((1..3, 1..3)));
        check(&[9, 12, 34], &[9, 1, 2, 34, 5], Some((1..2, 1..3)));
        check(&[123], &[1, 2, 3], Some((0..1, 0..3)));
    }

    #[test]
    fn another_text_is_none() {
        check(&[9, 12, 3, 7], &[9, 1, 24, 7], None);
        check(&[9, 12], &[9, 12, 3], None);
        check(&[9, 12], &[9, 12], None);
        check(&[], &[1], None);
    }
}
