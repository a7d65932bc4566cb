//! Words that say what stands beside them, without regard to capitals.

mod entries;

use crate::text::word::Class;
use entries::GROUPS;

/// Longest entry, bytes.
const LEN_MAX: usize = 16;

/// Number of entries: one more than spaces, in each group.
const COUNT: usize = {
    let mut count = 0;
    let mut group = 0;
    while group < GROUPS.len() {
        let text = GROUPS[group].words.as_bytes();
        let mut at = 0;
        count += 1;
        while at < text.len() {
            count += (text[at] == b' ') as usize;
            at += 1;
        }
        group += 1;
    }
    count
};

/// All entries as numbers, ascending, with their class and whether they need a capital.
static SORTED: [(u128, Class, bool); COUNT] = {
    let mut sorted = [(0u128, Class::Plain, false); COUNT];
    let (mut filled, mut group) = (0, 0);
    while group < GROUPS.len() {
        let text = GROUPS[group].words.as_bytes();
        let mut start = 0;
        while start < text.len() {
            let end = word_end(text, start);
            let number = packed(text, start, end);
            let mut at = filled;
            // An insertion sort, because `const` code cannot call `sort`; it runs at compile time.
            while at > 0 && sorted[at - 1].0 > number {
                sorted[at] = sorted[at - 1];
                at -= 1;
            }
            sorted[at] = (number, GROUPS[group].class, GROUPS[group].capital);
            filled += 1;
            start = end + 1;
        }
        group += 1;
    }
    sorted
};

/// By first letter, the lengths that entries have: one bit each.
static LENGTHS: [u32; 32] = {
    let mut lengths = [0; 32];
    let mut group = 0;
    while group < GROUPS.len() {
        let text = GROUPS[group].words.as_bytes();
        let mut start = 0;
        while start < text.len() {
            let end = word_end(text, start);
            // The lower five bits of a letter do not depend on its case. Other bytes may share a
            // place, which only costs a search.
            lengths[(text[start] & 31) as usize] |= 1 << (end - start);
            start = end + 1;
        }
        group += 1;
    }
    lengths
};

/// Returns the end of the word that begins at `start`.
const fn word_end(text: &[u8], start: usize) -> usize {
    let mut end = start;
    while end < text.len() && text[end] != b' ' {
        end += 1;
    }
    end
}

/// Up to 16 letters as a number, small letters for capitals.
const fn packed(text: &[u8], start: usize, end: usize) -> u128 {
    assert!(end - start <= LEN_MAX, "an entry has at most 16 letters");
    let mut number = 0;
    let mut at = start;
    while at < end {
        number = number << 8 | text[at].to_ascii_lowercase() as u128;
        at += 1;
    }
    number
}

/// The class of `word`, where it has an entry.
pub(super) fn class(word: &[u8]) -> Option<Class> {
    let (first, len) = (*word.first()?, word.len());
    // Most words fail here and need no search. `len` is at most 16, so the shift fits.
    if len > LEN_MAX || LENGTHS[usize::from(first & 31)] & (1 << len) == 0 {
        return None;
    }
    let number = packed(word, 0, len);
    let found = SORTED.binary_search_by_key(&number, |entry| entry.0).ok()?;
    let (_, class, capital) = SORTED[found];
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
        assert!(SORTED[0].0 > 0, "all are filled");
        assert!(SORTED.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn other_words_have_none() {
        for word in ["", "may", "sat", "sun", "mon", "use", "users", "a", "zzzzzzzzzzzzzzzzzzzz"] {
            assert_eq!(class(word.as_bytes()), None, "{word}");
        }
        assert_eq!(class(b"monday"), Some(Class::Weekday));
    }
}
