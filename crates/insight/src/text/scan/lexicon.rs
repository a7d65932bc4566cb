//! Words that say what stands beside them, without regard to capitals.

mod entries;

use std::sync::LazyLock;

use crate::text::word::Class;
use entries::GROUPS;

/// Longest entry, bytes.
const LEN_MAX: usize = 16;

struct Lexicon {
    /// All entries as numbers, ascending, with their class and whether they need a capital.
    sorted: Vec<(u128, Class, bool)>,
    /// By first letter, the lengths that entries have: one bit each.
    lengths: [u32; 32],
}

static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| {
    let mut lexicon = Lexicon { sorted: Vec::new(), lengths: [0; 32] };
    for group in GROUPS {
        for word in group.words.split(' ').map(str::as_bytes) {
            assert!(word.len() <= LEN_MAX, "an entry has at most 16 letters");
            lexicon.sorted.push((packed(word), group.class, group.capital));
            // The lower five bits of a letter do not depend on its case. Other bytes may share a
            // place, which only costs a search.
            lexicon.lengths[usize::from(word[0] & 31)] |= 1 << word.len();
        }
    }
    lexicon.sorted.sort_unstable_by_key(|entry| entry.0);
    lexicon
});

/// Up to 16 letters as a number, small letters for capitals.
fn packed(word: &[u8]) -> u128 {
    word.iter().fold(0, |number, byte| number << 8 | u128::from(byte.to_ascii_lowercase()))
}

/// The class of `word`, where it has an entry.
pub(super) fn class(word: &[u8]) -> Option<Class> {
    let (first, len) = (*word.first()?, word.len());
    let Lexicon { sorted, lengths } = &*LEXICON;
    // Most words fail here and need no search. `len` is at most 16, so the shift fits.
    if len > LEN_MAX || lengths[usize::from(first & 31)] & (1 << len) == 0 {
        return None;
    }
    let found = sorted.binary_search_by_key(&packed(word), |entry| entry.0).ok()?;
    let (_, class, capital) = sorted[found];
    (!capital || first.is_ascii_uppercase()).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_entries_are_found_once() {
        for group in GROUPS {
            for word in group.words.split(' ') {
                let title = if word.is_char_boundary(1) {
                    word[..1].to_uppercase() + &word[1..]
                } else {
                    word.to_owned()
                };
                for word in [title, word.to_ascii_uppercase()] {
                    assert_eq!(class(word.as_bytes()), Some(group.class), "{word}");
                }
            }
        }
        assert!(LEXICON.sorted.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn other_words_have_none() {
        for word in ["", "may", "sat", "sun", "mon", "use", "users", "a", "zzzzzzzzzzzzzzzzzzzz"] {
            assert_eq!(class(word.as_bytes()), None, "{word}");
        }
        assert_eq!(class(b"monday"), Some(Class::Weekday));
    }
}
