//! A text cut into words, each with its class. One pass, no allocation, every byte in one word.
//!
//! Longest first: a UUID, a date, a time and a tag are one word each. Characters of scripts that
//! are written without spaces are words of their own.

mod letters;
mod lexicon;
mod markup;
mod temporal;

use super::word::{Class, WORD_BYTES_MAX};

/// A word of the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scanned {
    /// Its first byte.
    pub(super) start: usize,
    /// The byte behind it.
    pub(super) end: usize,
    pub(super) class: Class,
    /// Of ASCII punctuation, the character; of white space, `\n` where it holds a line end.
    pub(super) character: u8,
}

/// What a byte may begin or continue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Other,
    Space,
    /// A letter, a digit, `_`, or a byte of a longer character that is a letter.
    Letter,
    Digit,
    /// The first byte of a character that is a word of its own.
    Alone,
}

static KINDS: [Kind; 256] = {
    let mut kinds = [Kind::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        kinds[byte] = match byte as u8 {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C => Kind::Space,
            b'0'..=b'9' => Kind::Digit,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80..=0xBF | 0xC3..=0xE1 => Kind::Letter,
            0xC0..=0xC2 | 0xE2..=0xFF => Kind::Alone,
            _ => Kind::Other,
        };
        byte += 1;
    }
    kinds
};

/// Walks over a text.
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Nothing but white space and punctuation stands before on this line.
    is_line_start: bool,
    /// Class and start of the word before.
    before: Option<(Class, usize)>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            is_line_start: true,
            before: None,
        }
    }

    /// The next word, or nothing at the end.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Scanned> {
        let start = self.at;
        let first = *self.bytes.get(start)?;
        let scanned = match KINDS[usize::from(first)] {
            Kind::Space => self.space(),
            Kind::Letter | Kind::Digit => self.letters(first),
            Kind::Alone => self.alone(),
            Kind::Other => self.sign(first),
        };
        self.at = scanned.end;
        match scanned.class {
            Class::Space => self.is_line_start |= scanned.character == b'\n',
            Class::Punctuation => {}
            _ => self.is_line_start = false,
        }
        self.before = Some((scanned.class, start));
        Some(scanned)
    }

    fn word(&self, end: usize, class: Class) -> Scanned {
        Scanned {
            start: self.at,
            end,
            class,
            character: 0,
        }
    }

    fn space(&self) -> Scanned {
        let rest = &self.bytes[self.at..];
        let mut len = 0;
        let mut character = b' ';
        while len < rest.len().min(WORD_BYTES_MAX) && KINDS[usize::from(rest[len])] == Kind::Space {
            if matches!(rest[len], b'\n' | b'\r') {
                character = b'\n';
            }
            len += 1;
        }
        Scanned {
            character,
            ..self.word(self.at + len, Class::Space)
        }
    }

    fn letters(&self, first: u8) -> Scanned {
        let rest = &self.bytes[self.at..];
        if first.is_ascii_hexdigit() {
            let special = match first.is_ascii_digit() {
                true => temporal::scan(rest).or_else(|| letters::uuid(rest)),
                false => letters::uuid(rest),
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
        if len == WORD_BYTES_MAX {
            while rest.get(len).is_some_and(|byte| byte & 0xC0 == 0x80) {
                len -= 1;
            }
        }
        let class = letters::class(&rest[..len], traits);
        let class = self.in_place(class, &rest[..len], rest.get(len).copied());
        self.word(self.at + len, class)
    }

    /// What the words before and behind make of a word of some class.
    fn in_place(&self, class: Class, word: &[u8], next: Option<u8>) -> Class {
        let before = self.before;
        match class {
            Class::Role => {
                let is_behind_marker = before.is_some_and(|(class, _)| class == Class::Marker);
                let is_speaker = self.is_line_start && matches!(next, Some(b':' | b'*'));
                match is_behind_marker || is_speaker {
                    true => Class::Role,
                    false => Class::Plain,
                }
            }
            Class::Plain
                if self.is_line_start
                    && matches!(next, Some(b':'))
                    && markup::announces_thoughts(word) =>
            {
                Class::ThinkOpen
            }
            Class::Plain if markup::names_thoughts(word) => match before {
                Some((Class::Marker, start)) if markup::is_channel(&self.bytes[start..self.at]) => {
                    Class::ThinkOpen
                }
                // `"type": "thinking"`, and the like.
                Some((Class::Punctuation, start)) if self.bytes[start] == b'"' => match next {
                    Some(b'"') => Class::ThinkOpen,
                    _ => Class::Plain,
                },
                _ => Class::Plain,
            },
            class => class,
        }
    }

    /// A character beyond ASCII that is a word of its own.
    fn alone(&self) -> Scanned {
        let rest = &self.bytes[self.at..];
        let behind = rest[1..].iter().take_while(|byte| *byte & 0xC0 == 0x80);
        let character = &rest[..1 + behind.count()];
        let class = match character {
            // A space that does not break or has no width, or is as wide as a character; a BOM.
            [0xC2, 0xA0]
            | [0xE2, 0x80, 0x80..=0x8B | 0xAF]
            | [0xE3, 0x80, 0x80]
            | [0xEF, 0xBB, 0xBF] => Class::Space,
            [0xC2, ..] | [0xE2, ..] | [0xE3, 0x80, ..] | [0xEF, ..] => Class::Punctuation,
            _ if temporal::is_unit(character) => Class::TimeUnit,
            _ => Class::Plain,
        };
        self.word(self.at + character.len(), class)
    }

    fn sign(&self, first: u8) -> Scanned {
        if matches!(first, b'<' | b'[')
            && let Some((len, class)) = markup::scan(&self.bytes[self.at..])
        {
            return self.word(self.at + len, class);
        }
        Scanned {
            character: first,
            ..self.word(self.at + 1, Class::Punctuation)
        }
    }
}

/// Whether a word may end before `next`.
fn is_boundary(next: Option<&u8>) -> bool {
    next.is_none_or(|byte| !matches!(KINDS[usize::from(*byte)], Kind::Letter | Kind::Digit))
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
            &[
                ("<|im_start|>", Marker),
                ("user", Role),
                ("the", Plain),
                ("user", Plain),
            ],
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
        use Class::{Number, Plain, Punctuation, TimeUnit};
        check(
            "東京、2026年 naïve",
            &[
                ("東", Plain),
                ("京", Plain),
                ("、", Punctuation),
                ("2026", Number),
                ("年", TimeUnit),
                ("naïve", Plain),
            ],
        );
    }
}
