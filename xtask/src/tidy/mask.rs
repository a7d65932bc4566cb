//! Separates a Rust source into code, comments and string literals.
//!
//! ```text
//! source    let path = "a // b"; // why
//! code      let path = "      ";
//! comments                       // why
//! strings   a // b
//! ```
//!
//! Invariant: code and comments have the length of the source and its line ends, so that an
//! offset means the same in all three. Strings keep their quotes in the code, character literals
//! do not. Nested block comments, raw strings, raw identifiers and lifetimes are understood;
//! macros are not expanded.

/// A source, taken apart.
#[derive(Debug)]
pub(super) struct Masked {
    /// The source with comments and the contents of literals blanked.
    pub(super) code: String,
    /// The source with everything but comments blanked.
    pub(super) comments: String,
    /// The string literals.
    pub(super) strings: Vec<Literal>,
}

/// A string literal, its escapes left as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Literal {
    /// Start of its contents in the source, bytes.
    pub(super) offset: usize,
    /// Text between the quotes.
    pub(super) text: String,
}

/// Kind of the text that begins at some offset of a source.
enum Piece {
    Code,
    Comment { end: usize },
    Character { end: usize },
    Text { contents: (usize, usize) },
}

/// Takes `source` apart, in one pass.
pub(super) fn mask(source: &str) -> Masked {
    let bytes = source.as_bytes();
    let (mut code, mut comments) = (blank(bytes), blank(bytes));
    let mut strings = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        at = match piece_at(bytes, at) {
            Piece::Code => {
                code[at] = bytes[at];
                at + 1
            }
            Piece::Comment { end } => {
                comments[at..end].copy_from_slice(&bytes[at..end]);
                end
            }
            Piece::Character { end } => end,
            Piece::Text { contents: (start, end) } => {
                code[at..start].copy_from_slice(&bytes[at..start]);
                strings.push(Literal { offset: start, text: text_of(&bytes[start..end]) });
                // The closing quote is code, without opening a string of its own.
                if let Some(quote) = code.get_mut(end) {
                    *quote = b'"';
                }
                end + 1
            }
        };
    }
    Masked { code: text_of(&code), comments: text_of(&comments), strings }
}

/// Whether `byte` can be part of an identifier.
pub(super) fn is_identifier_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

fn blank(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }).collect()
}

/// The slices of this module begin and end beside ASCII, so nothing is ever replaced.
fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn piece_at(bytes: &[u8], at: usize) -> Piece {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return Piece::Comment { end: line_end(bytes, at) };
    }
    if rest.starts_with(b"/*") {
        return Piece::Comment { end: block_comment_end(bytes, at) };
    }
    match rest[0] {
        b'\'' => character_end(bytes, at).map_or(Piece::Code, |end| Piece::Character { end }),
        b'"' => quoted(bytes, at + 1),
        b'r' | b'b' | b'c' if at == 0 || !is_identifier_byte(bytes[at - 1]) => {
            prefixed_string(bytes, at).unwrap_or(Piece::Code)
        }
        _ => Piece::Code,
    }
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |length| at + length)
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// The end of the character literal at `at`, if it is one and not a lifetime.
fn character_end(bytes: &[u8], at: usize) -> Option<usize> {
    let first = *bytes.get(at + 1)?;
    if first == b'\\' {
        let close = bytes.get(at + 3..)?.iter().position(|&byte| byte == b'\'')?;
        return Some(at + 3 + close + 1);
    }
    let width = match first {
        0..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    (bytes.get(at + 1 + width) == Some(&b'\'')).then_some(at + 2 + width)
}

/// A string that begins with `b`, `c`, `r`, `br` or `cr`, with any number of `#`.
fn prefixed_string(bytes: &[u8], at: usize) -> Option<Piece> {
    let letters = bytes[at..].iter().take_while(|byte| b"bcr".contains(byte)).count();
    let is_raw = match &bytes[at..at + letters] {
        b"r" | b"br" | b"cr" => true,
        b"b" | b"c" => false,
        _ => return None,
    };
    let hashes = bytes[at + letters..].iter().take_while(|&&byte| byte == b'#').count();
    let quote = at + letters + hashes;
    match (bytes.get(quote), is_raw, hashes) {
        (Some(b'"'), true, _) => Some(raw(bytes, quote + 1, hashes)),
        (Some(b'"'), false, 0) => Some(quoted(bytes, quote + 1)),
        _ => None,
    }
}

fn quoted(bytes: &[u8], start: usize) -> Piece {
    let mut at = start;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    Piece::Text { contents: (start, at.min(bytes.len())) }
}

fn raw(bytes: &[u8], start: usize, hashes: usize) -> Piece {
    let is_close = |at: &usize| {
        let tail = &bytes[*at..];
        tail[0] == b'"' && tail[1..].iter().take_while(|&&byte| byte == b'#').count() >= hashes
    };
    let end = (start..bytes.len()).find(is_close).unwrap_or(bytes.len());
    Piece::Text { contents: (start, end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, code: &str, strings: &[&str]) {
        let masked = mask(source);
        assert_eq!(masked.code.trim_end(), code, "for {source}");
        assert_eq!(masked.code.len(), source.len(), "for {source}");
        assert_eq!(masked.comments.len(), source.len(), "for {source}");
        let found: Vec<&str> = masked.strings.iter().map(|literal| literal.text.as_str()).collect();
        assert_eq!(found, strings, "for {source}");
    }

    #[test]
    fn comments_are_blanked() {
        check("a // \"b\" {\nc", "a         \nc", &[]);
        check("a /* b /* c */ \" */ d", "a                   d", &[]);
        check("a / b", "a / b", &[]);
        assert_eq!(mask("a // why").comments, "  // why");
    }

    #[test]
    fn strings_are_blanked_and_collected() {
        check(r#"f("a // b", c)"#, r#"f("      ", c)"#, &["a // b"]);
        check(r#"f("\"{\\", b"x")"#, r#"f("     ", b" ")"#, &[r#"\"{\\"#, "x"]);
        check("f(\"open", "f(\"", &["open"]);
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        check(r##"f(r#"a " b"#) {"##, r##"f(r#"     "#) {"##, &[r#"a " b"#]);
        check(r#"f(r"\") {"#, r#"f(r" ") {"#, &[r"\"]);
        check("r#fn + bar", "r#fn + bar", &[]);
    }

    #[test]
    fn characters_are_not_lifetimes() {
        check(r"f('{', '\'', b'\x7f', 'é')", "f(   ,     , b      ,     )", &[]);
        check(
            "fn f<'a>(b: &'a str, c: &'static str)",
            "fn f<'a>(b: &'a str, c: &'static str)",
            &[],
        );
        check("'\"' + x", "    + x", &[]);
    }
}
