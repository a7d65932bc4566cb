//! The class of a run of letters, digits and `_`.

use super::lexicon;
use crate::text::word::Class;

/// Figures that make a segment of an id: shorter ones number things.
const ID_DIGITS: usize = 6;

/// Shortest hexadecimal number that is taken for one.
const HEX_DIGITS: usize = 5;

/// Shortest hexadecimal number that is taken for one even if all its figures stand together.
const LONG_HEX_DIGITS: usize = 8;

/// A digit is among the characters.
const DIGIT: u8 = 1;

/// A capital is.
const CAPITAL: u8 = 2;

/// Another letter or `_` is.
const OTHER: u8 = 4;

/// Per byte what it adds to a word; 0 for those that stand in none.
pub(super) static TRAITS: [u8; 256] = {
    let mut traits = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        traits[byte] = match byte as u8 {
            b'0'..=b'9' => DIGIT,
            b'A'..=b'Z' => CAPITAL,
            b'a'..=b'z' | b'_' | 0x80..=0xBF | 0xC3..=0xE1 => OTHER,
            _ => 0,
        };
        byte += 1;
    }
    traits
};

/// A UUID at the start of `rest`, with its length.
pub(super) fn uuid(rest: &[u8]) -> Option<(usize, Class)> {
    const LEN: usize = 36;
    let bytes = rest.get(..LEN)?;
    // Most words are ruled out here.
    if bytes[8] != b'-' {
        return None;
    }
    let fits = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    let is_uuid = bytes.iter().enumerate().all(fits) && super::is_boundary(rest.get(LEN));
    is_uuid.then_some((LEN, Class::Uuid))
}

/// The class of `word`, whose bytes together have `traits`, as far as it can be told without its
/// neighbours.
pub(super) fn class(word: &[u8], traits: u8) -> Class {
    if traits & DIGIT == 0 {
        return match lexicon::class(word) {
            Some(class) => class,
            None if word.len() >= 4 && word.iter().all(u8::is_ascii_hexdigit) => Class::HexLetters,
            None if traits & CAPITAL != 0 && is_scrambled(word) => Class::Random,
            None if is_identifier(word) => Class::Identifier,
            None => Class::Plain,
        };
    }
    if traits == DIGIT {
        return Class::Number;
    }
    let digits = word.iter().filter(|byte| byte.is_ascii_digit()).count();
    if is_ordinal(word, digits) {
        return Class::Number;
    }
    if is_duration(word, digits) {
        return Class::TimeUnit;
    }
    // An id is often one segment of a name, such as `req_8f3a2b1c`.
    let segments = word.split(|byte| *byte == b'_');
    let classes = segments.map(|segment| segment_class(segment, word.len()));
    let strongest = |one: Class, other: Class| match (one, other) {
        (Class::Random, _) | (_, Class::Random) => Class::Random,
        (Class::Hex, _) | (_, Class::Hex) => Class::Hex,
        _ => Class::Mixed,
    };
    classes.fold(Class::Mixed, strongest)
}

/// A segment of a word that has letters and figures.
fn segment_class(segment: &[u8], word_len: usize) -> Class {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let digits = segment.iter().filter(|byte| is_digit(byte)).count();
    if digits == segment.len() {
        // A whole word of figures is a number; only as a segment of a name may it be an id.
        return if digits >= ID_DIGITS && segment.len() < word_len {
            Class::Random
        } else {
            Class::Mixed
        };
    }
    if digits == 0 {
        return Class::Mixed;
    }
    let changes = segment.windows(2).filter(|pair| is_digit(&pair[0]) != is_digit(&pair[1]));
    let changes = changes.count();
    // `Dee14` is a name.
    let is_shuffled = changes >= 2 || segment.len() >= LONG_HEX_DIGITS;
    let is_hex = segment.len() >= HEX_DIGITS && segment.iter().all(u8::is_ascii_hexdigit);
    if is_hex && is_shuffled {
        return Class::Hex;
    }
    match (changes, segment.len()) {
        (3.., 6..) | (2, 8..) => Class::Random,
        _ => Class::Mixed,
    }
}

/// `3rd`, `21st`.
fn is_ordinal(word: &[u8], digits: usize) -> bool {
    let ending = &word[word.len() - (word.len() - digits).min(word.len())..];
    digits <= 2 && matches!(ending, b"st" | b"nd" | b"rd" | b"th")
}

/// `350ms`, `12s`: figures and then a unit of time; `3d4h`: several of these.
fn is_duration(word: &[u8], digits: usize) -> bool {
    if word[0].is_ascii_digit() && is_long_duration(word) {
        return true;
    }
    let unit = &word[digits..];
    let is_in_front = word[..digits].iter().all(u8::is_ascii_digit);
    is_in_front && matches!(unit, b"s" | b"ms" | b"us" | b"sec" | b"min" | b"h" | b"hr" | b"hrs")
}

/// Days, hours, minutes and seconds, in this order.
fn is_long_duration(mut word: &[u8]) -> bool {
    let mut parts = 0;
    for unit in b"dhms" {
        let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 && word.get(digits) == Some(unit) {
            word = &word[digits + 1..];
            parts += 1;
        }
    }
    word.is_empty() && parts >= 2
}

/// `read_file`, `readFile`: letters joined by `_`, or a capital behind a small letter.
fn is_identifier(word: &[u8]) -> bool {
    let is_joint = |pair: &[u8]| match (pair[0], pair[1]) {
        (b'_', next) => next.is_ascii_alphabetic(),
        (before, next) => before.is_ascii_lowercase() && next.is_ascii_uppercase(),
    };
    word.first().is_some_and(u8::is_ascii_alphabetic) && word.windows(2).any(is_joint)
}

/// Letters of both cases as no name has them: more than every third is a capital behind a small
/// letter.
fn is_scrambled(word: &[u8]) -> bool {
    let is_rise = |pair: &&[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
    word.len() >= 8 && word.windows(2).filter(is_rise).count() * 3 > word.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str], expected: Class) {
        for word in words {
            let traits = word.bytes().fold(0, |all, byte| all | TRAITS[usize::from(byte)]);
            assert_eq!(class(word.as_bytes(), traits), expected, "{word}");
        }
    }

    #[test]
    fn ids_are_told_from_names() {
        let random = [
            "req_01XyCdEf23",
            "toolu_01A09q90qw90lq917835lq9",
            "req_17323832",
            "01HXYZ8KQ2M4",
            "V1StGXR8",
            "kXjQpWzR",
        ];
        check(&random, Class::Random);
        check(&["ad3f1", "8f3a2b1c", "550e8400", "run_8f3a2b", "req_01AbCdEf23"], Class::Hex);
        check(
            &[
                "base64_utf8",
                "x86_64",
                "int32",
                "sha256",
                "doc_17",
                "user42",
                "Dee14",
                "gpt4o",
                "getURL2",
            ],
            Class::Mixed,
        );
        check(&["Plainly", "HTML", "__init__", "naïve"], Class::Plain);
        check(&["getUserNameById", "read_file", "JavaScript"], Class::Identifier);
        check(&["3d4h", "1h23m", "2m30s"], Class::TimeUnit);
        check(&["3d4x", "4h3d", "3d"], Class::Mixed);
        check(&["cefed", "faced", "DEADBEEF"], Class::HexLetters);
        check(&["17", "3rd", "21st", "123456789"], Class::Number);
        check(&["350ms", "12s"], Class::TimeUnit);
    }

    #[test]
    fn a_uuid_is_one_word() {
        let id = b"550e8400-e29b-41d4-a716-446655440000";
        assert_eq!(uuid(id), Some((36, Class::Uuid)));
        assert_eq!(uuid(b"550e8400-e29b-41d4-a716-44665544000x"), None);
        assert_eq!(uuid(b"550e8400-e29b"), None);
    }
}
