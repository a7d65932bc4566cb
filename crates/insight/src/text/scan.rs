//! A text cut into words, each with its class. One pass, no allocation, every byte in one word.
//!
//! Longest first: a UUID, a date, a time and a tag are one word each. Characters of scripts that
//! are written without spaces are words of their own.

mod letters;
mod lexicon;
mod markup;
mod signs;
mod temporal;

use super::word::{Class, WORD_BYTES_MAX};

/// A word of the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScannedWord {
    /// Its first byte.
    pub(super) start: usize,
    /// The byte behind it.
    pub(super) end: usize,
    pub(super) class: Class,
    /// Of ASCII punctuation, the character; of white space, `\n` where it holds a line end.
    pub(super) character: u8,
}

/// The kind of word that a byte may begin or continue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteKind {
    Other,
    Space,
    /// A letter, a digit, `_`, or a byte of a longer character that is a letter.
    Letter,
    Digit,
    /// The first byte of a character that is a word of its own.
    Alone,
}

static KINDS: [ByteKind; 256] = {
    let mut kinds = [ByteKind::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        kinds[byte] = match byte as u8 {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C => ByteKind::Space,
            b'0'..=b'9' => ByteKind::Digit,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80..=0xBF | 0xC3..=0xE1 => ByteKind::Letter,
            0xC0..=0xC2 | 0xE2..=0xFF => ByteKind::Alone,
            _ => ByteKind::Other,
        };
        byte += 1;
    }
    kinds
};

/// Words that the name of a speaker may have.
const NAMES_MAX: usize = 3;

/// Walks over a text.
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Nothing but white space, punctuation and times stands before on this line.
    is_line_start: bool,
    /// Words that stand before on this line, if all are as names are.
    names: usize,
    /// Class and start of the word before.
    before: Option<(Class, usize)>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, is_line_start: true, names: 0, before: None }
    }

    /// The next word, or nothing at the end.
    #[inline]
    pub(super) fn next(&mut self) -> Option<ScannedWord> {
        let start = self.at;
        let first = *self.bytes.get(start)?;
        let scanned = match KINDS[usize::from(first)] {
            ByteKind::Space => self.space(),
            ByteKind::Letter | ByteKind::Digit => self.letters(first),
            ByteKind::Alone => self.alone(),
            ByteKind::Other => self.sign(first),
        };
        self.at = scanned.end;
        match scanned.class {
            Class::Space if scanned.character == b'\n' => {
                (self.is_line_start, self.names) = (true, 0);
            }
            Class::Space | Class::Punctuation => {}
            Class::Date | Class::Time | Class::Epoch => {}
            _ => {
                self.is_line_start = false;
                let is_name = is_capital(&self.bytes[start..]);
                // A word that is no name uses up all places for names on this line.
                self.names += if is_name { 1 } else { NAMES_MAX };
            }
        }
        self.before = Some((scanned.class, start));
        Some(scanned)
    }

    fn word(&self, end: usize, class: Class) -> ScannedWord {
        ScannedWord { start: self.at, end, class, character: 0 }
    }

    fn space(&self) -> ScannedWord {
        let rest = &self.bytes[self.at..];
        let mut len = 0;
        let mut character = b' ';
        while len < rest.len().min(WORD_BYTES_MAX)
            && KINDS[usize::from(rest[len])] == ByteKind::Space
        {
            if matches!(rest[len], b'\n' | b'\r') {
                character = b'\n';
            }
            len += 1;
        }
        ScannedWord { character, ..self.word(self.at + len, Class::Space) }
    }

    fn letters(&self, first: u8) -> ScannedWord {
        let rest = &self.bytes[self.at..];
        // Without this, the dots would cut `p.m.` into four words.
        if let [_, b'.', b'm' | b'M', b'.', ..] = rest
            && matches!(first | 0x20, b'a' | b'p')
        {
            return self.word(self.at + 4, Class::Zone);
        }
        // A UUID begins with a hexadecimal digit, a date with a decimal one: other words skip both.
        if first.is_ascii_hexdigit() {
            let special = if first.is_ascii_digit() {
                temporal::scan(rest).or_else(|| letters::uuid(rest))
            } else {
                letters::uuid(rest)
            };
            if let Some((len, class)) = special {
                return self.word(self.at + len, class);
            }
        }
        let most = rest.len().min(WORD_BYTES_MAX);
        let (mut len, mut traits) = (0, 0);
        for byte in &rest[..most] {
            let its = letters::TRAITS[usize::from(*byte)];
            if its == 0 {
                break;
            }
            traits |= its;
            len += 1;
        }
        // A long word may be cut inside of a character; the cut then moves back to its first byte.
        if len == WORD_BYTES_MAX {
            while rest.get(len).is_some_and(|byte| byte & 0xC0 == 0x80) {
                len -= 1;
            }
        }
        let class = letters::class(&rest[..len], traits);
        let class = self.in_place(class, &rest[..len], rest.get(len).copied());
        self.word(self.at + len, class)
    }

    /// Returns the class of a word in its context: the words before it and the byte behind it.
    fn in_place(&self, class: Class, word: &[u8], next: Option<u8>) -> Class {
        let before = self.before;
        match class {
            Class::Role => {
                let is_behind_marker = before.is_some_and(|(class, _)| class == Class::Marker);
                let is_speaker = self.is_line_start && matches!(next, Some(b':' | b'*'));
                let is_named = || markup::names_role(&self.bytes[..self.at], next);
                if is_behind_marker || is_speaker || is_named() {
                    Class::Role
                } else {
                    Class::Plain
                }
            }
            Class::Plain if self.is_line_start && self.announces_thoughts(word, next) => {
                Class::ThinkOpen
            }
            Class::Plain | Class::Identifier if markup::names_thoughts(word) => match before {
                Some((Class::Marker, start)) if markup::is_channel(&self.bytes[start..self.at]) => {
                    Class::ThinkOpen
                }
                // `"type": "thinking"`, and the like.
                Some((Class::Punctuation, start)) if self.bytes[start] == b'"' => match next {
                    Some(b'"') => Class::ThinkOpen,
                    _ => class,
                },
                _ => class,
            },
            Class::Plain | Class::Identifier if self.is_speaker(word, next) => Class::Speaker,
            class => class,
        }
    }

    /// Whether a word that begins a line begins a thought: `Thought:`, or a heading.
    fn announces_thoughts(&self, word: &[u8], next: Option<u8>) -> bool {
        let is_heading = || self.bytes[..self.at].ends_with(b"# ");
        let is_label = match next {
            Some(b':') => true,
            Some(b'\n') => is_heading(),
            _ => false,
        };
        is_label && markup::announces_thoughts(word)
    }

    /// Whether a word ends a name at the start of a line that has a colon and a space behind it.
    fn is_speaker(&self, word: &[u8], next: Option<u8>) -> bool {
        if next != Some(b':') {
            return false;
        }
        let is_name = self.is_line_start || (self.names < NAMES_MAX && is_capital(word));
        let behind = self.bytes.get(self.at + word.len() + 1);
        is_name && behind.is_none_or(|byte| KINDS[usize::from(*byte)] == ByteKind::Space)
    }

    /// A character beyond ASCII that is a word of its own.
    fn alone(&self) -> ScannedWord {
        let rest = &self.bytes[self.at..];
        if let Some((len, class)) = markup::triangles(rest) {
            return self.word(self.at + len, class);
        }
        let behind = rest[1..].iter().take_while(|byte| *byte & 0xC0 == 0x80);
        let character = &rest[..1 + behind.count()];
        let class = match character {
            // A space that does not break or has no width, or is as wide as a character; a soft
            // hyphen; signs of direction, of lines and of paragraphs; a BOM.
            [0xC2, 0x85 | 0xA0 | 0xAD]
            | [0xE2, 0x80, 0x80..=0x8F | 0xA8..=0xAF]
            | [0xE2, 0x81, 0x9F..=0xA9]
            | [0xE3, 0x80, 0x80]
            | [0xEF, 0xBB, 0xBF] => Class::Space,
            // A zero: 〇.
            [0xE3, 0x80, 0x87] => Class::Spelled,
            [0xC2, ..] | [0xE2, ..] | [0xE3, 0x80, ..] | [0xEF, ..] => Class::Punctuation,
            _ => signs::class(self.bytes, self.at, character.len()).unwrap_or(Class::Plain),
        };
        self.word(self.at + character.len(), class)
    }

    fn sign(&self, first: u8) -> ScannedWord {
        if matches!(first, b'<' | b'[' | b']')
            && let Some((len, class)) = markup::scan(&self.bytes[self.at..])
        {
            return self.word(self.at + len, class);
        }
        ScannedWord { character: first, ..self.word(self.at + 1, Class::Punctuation) }
    }
}

/// Whether a word begins with a capital, as far as a byte tells.
fn is_capital(word: &[u8]) -> bool {
    word.first().is_some_and(|byte| byte.is_ascii_uppercase() || *byte >= 0xC3)
}

/// Whether a word may end before `next`.
fn is_boundary(next: Option<&u8>) -> bool {
    next.is_none_or(|byte| !matches!(KINDS[usize::from(*byte)], ByteKind::Letter | ByteKind::Digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ink of `text`, with its classes.
    fn check(text: &str, expected: &[(&str, Class)]) {
        let mut scanner = Scanner::new(text.as_bytes());
        let mut words = Vec::new();
        while let Some(word) = scanner.next() {
            if word.class != Class::Space {
                words.push((&text[word.start..word.end], word.class));
            }
        }
        assert_eq!(words, expected, "{text}");
    }

    #[test]
    fn roles_are_told_by_their_place() {
        use Class::{Marker, Plain, Punctuation, Role};
        check(
            "<|im_start|>user\nthe user",
            &[("<|im_start|>", Marker), ("user", Role), ("the", Plain), ("user", Plain)],
        );
        check(
            "### Human: hi\nAssistant: ho\nsystem of",
            &[
                ("#", Punctuation),
                ("#", Punctuation),
                ("#", Punctuation),
                ("Human", Role),
                (":", Punctuation),
                ("hi", Plain),
                ("Assistant", Role),
                (":", Punctuation),
                ("ho", Plain),
                ("system", Plain),
                ("of", Plain),
            ],
        );
    }

    #[test]
    fn thoughts_are_told_from_other_markup() {
        use Class::{Marker, Plain, Tag, ThinkClose, ThinkOpen};
        check(
            "<think>so</think><|channel|>analysis<|message|>analysis<document>",
            &[
                ("<think>", ThinkOpen),
                ("so", Plain),
                ("</think>", ThinkClose),
                ("<|channel|>", Marker),
                ("analysis", ThinkOpen),
                ("<|message|>", Marker),
                ("analysis", Plain),
                ("<document>", Tag),
            ],
        );
    }

    #[test]
    fn scripts_without_spaces_are_cut_by_character() {
        use Class::{Number, Plain, Punctuation, TimeSign};
        check(
            "東京、2026年 naïve",
            &[
                ("東", Plain),
                ("京", Plain),
                ("、", Punctuation),
                ("2026", Number),
                ("年", TimeSign),
                ("naïve", Plain),
            ],
        );
    }
}
