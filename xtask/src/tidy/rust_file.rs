//! A Rust file as the rules see it: code without strings, and which of it is test code.
//!
//! Test code is whatever lies in a `tests` folder or a file `tests.rs`, and every item behind
//! `#[cfg(test)]`, `#[cfg(all(test, …))]` or `#[test]`.

use std::iter;
use std::ops::Range;

use super::mask::{Literal, is_identifier_byte, mask};
use super::tree::TextFile;

/// Attributes that make the item behind them test code.
const TEST_ATTRIBUTES: [&str; 3] = ["#[cfg(test)]", "#[cfg(all(test", "#[test]"];

/// A scanned Rust file. All offsets are bytes and mean the same in code and comments.
#[derive(Debug)]
pub(super) struct RustFile {
    pub(super) path: String,
    /// The source with comments and the contents of literals blanked.
    pub(super) code: String,
    /// The source with everything but comments blanked.
    pub(super) comments: String,
    pub(super) strings: Vec<Literal>,
    /// Items that are test code, in order; the whole file, if it is all test code.
    test_items: Vec<Range<usize>>,
}

impl RustFile {
    /// Scans one file.
    pub(super) fn parse(file: &TextFile) -> Self {
        let masked = mask(&file.text);
        let test_items = if is_test_path(&file.path) || masked.code.contains("#![cfg(test)]") {
            iter::once(0..masked.code.len()).collect()
        } else {
            test_items(&masked.code)
        };
        Self {
            path: file.path.clone(),
            code: masked.code,
            comments: masked.comments,
            strings: masked.strings,
            test_items,
        }
    }

    /// The line of an offset, counted from one.
    pub(super) fn line(&self, offset: usize) -> usize {
        self.code.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count() + 1
    }

    /// Whether the offset lies in test code.
    pub(super) fn is_test(&self, offset: usize) -> bool {
        self.test_items.iter().any(|item| item.contains(&offset))
    }

    /// Lines of the file, without the test items that end it.
    pub(super) fn lines_before_tests(&self) -> usize {
        let mut end = self.code.len();
        for item in self.test_items.iter().rev() {
            let is_last = self.code[item.end.min(end)..end].trim().is_empty();
            if !is_last || item.start == 0 {
                break;
            }
            end = item.start;
        }
        self.code[..end].lines().count()
    }
}

/// Finds the offsets of `word` in `text`, not as part of a longer identifier.
pub(super) fn find_words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    let ends_in_identifier = word.bytes().last().is_some_and(is_identifier_byte);
    text.match_indices(word).map(|(start, _)| start).filter(move |&start| {
        let end = start + word.len();
        let starts_word = start == 0 || !is_identifier_byte(bytes[start - 1]);
        let goes_on = ends_in_identifier && bytes.get(end).copied().is_some_and(is_identifier_byte);
        starts_word && !goes_on
    })
}

/// The identifier behind `at`, such as a function's behind `fn`. A function pointer's type and a
/// macro's `$name` have none.
pub(super) fn identifier_at(code: &str, at: usize) -> Option<&str> {
    let rest = code[at..].trim_start();
    let rest = rest.strip_prefix("r#").unwrap_or(rest);
    let length = rest.bytes().take_while(|&byte| is_identifier_byte(byte)).count();
    (length > 0).then_some(&rest[..length])
}

/// The offset behind the bracket that closes the one at `open`, or the end of the code.
pub(super) fn behind_closing(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

fn test_items(code: &str) -> Vec<Range<usize>> {
    let starts = TEST_ATTRIBUTES.iter().flat_map(|attribute| code.match_indices(attribute));
    let mut items: Vec<_> = starts.map(|(start, _)| start..item_end(code, start)).collect();
    items.sort_by_key(|item| item.start);
    let mut end = 0;
    items.retain(|item| {
        let is_outer = item.start >= end;
        end = end.max(item.end);
        is_outer
    });
    items
}

/// The end of the item whose first attribute is at `start`: behind its body or its semicolon.
fn item_end(code: &str, start: usize) -> usize {
    let mut at = start;
    while let Some(&byte) = code.as_bytes().get(at) {
        match byte {
            b'{' => return behind_closing(code, at),
            b';' => return at + 1,
            // An attribute on a field or a variant: what it belongs to ends here.
            b'}' => return at,
            b'(' | b'[' => at = behind_closing(code, at),
            _ => at += 1,
        }
    }
    code.len()
}

#[cfg(test)]
impl RustFile {
    /// The file with this path and source.
    pub(super) fn of(path: &str, source: &str) -> Self {
        Self::parse(&TextFile { path: path.to_owned(), text: source.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks which of the words beginning with `t_` (tests) and `p_` (not) are test code.
    fn check(path: &str, source: &str) {
        let file = RustFile::of(path, source);
        for (prefix, expected) in [("t_", true), ("p_", false)] {
            for (at, _) in file.code.match_indices(prefix) {
                assert_eq!(file.is_test(at), expected, "offset {at} of {source}");
            }
        }
    }

    #[test]
    fn items_behind_test_attributes_are_test_code() {
        check("src/a.rs", "fn p_a() {}\n#[cfg(test)]\nmod t_tests { fn t_b() {} }\nfn p_c() {}");
        check("src/a.rs", "#[cfg(test)] #[path = \"x\"] mod t_a;\nfn p_b() {}");
        check("src/a.rs", "#[test] fn t_a([t_b]: [u8; 1]) { t_c[0]; }\nfn p_d() {}");
        check("src/a.rs", "struct P { #[cfg(test)] t_a: u8 }\nfn p_b() {}");
        check("src/a.rs", "#[cfg(all(test, unix))] use t_a::b; use p_c::d;");
    }

    #[test]
    fn files_of_tests_are_test_code() {
        check("crates/core/tests/laws.rs", "fn t_a() {}");
        check("crates/core/src/block/tests.rs", "fn t_a() {}");
        check("crates/core/src/tests_of_time.rs", "fn p_a() {}");
    }

    #[test]
    fn lines_end_where_the_tests_begin() {
        let lines = |source| RustFile::of("src/a.rs", source).lines_before_tests();
        assert_eq!(lines("a;\nb;\n"), 2);
        assert_eq!(lines("a;\n#[cfg(test)]\nmod tests {\n}\n"), 1);
        assert_eq!(lines("a;\n#[cfg(test)]\nmod tests {\n}\nb;\n"), 5);
        assert_eq!(lines("a;\n#[cfg(test)]\nmod x {\n}\n\n#[cfg(test)]\nmod tests {\n}\n"), 1);
    }

    #[test]
    fn words_are_whole() {
        let found: Vec<usize> =
            find_words("unsafe unsafe_code xunsafe unsafe{", "unsafe").collect();
        assert_eq!(found, [0, 27]);
        assert_eq!(find_words("tokio::x mytokio::x", "tokio::").count(), 1);
    }
}
