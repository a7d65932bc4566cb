//! Rule: no parameter of a closure is named `it`. The name says nothing; the thing has one.
//!
//! Applies to all Rust files, tests included.

use std::ops::Range;

use super::Violation;
use super::mask::is_identifier_byte;
use super::rust_file::{RustFile, find_words};
use super::tree::Tree;

pub(super) const RULE: &str = "closure-it";

/// Words in front of a closure. Behind any other word a bar is an operator.
const WORDS_BEFORE: [&str; 8] =
    ["move", "return", "else", "in", "break", "static", "async", "yield"];

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    tree.rust.iter().flat_map(violations_in).collect()
}

fn violations_in(file: &RustFile) -> Vec<Violation> {
    let message = "a closure's parameter is named `it`; name it after the thing that it is";
    let is_named_it =
        |parameters: &Range<usize>| find_words(&file.code[parameters.clone()], "it").count() > 0;
    let closures = closure_parameters(&file.code).into_iter().filter(is_named_it);
    closures
        .map(|parameters| Violation::new(RULE, &file.path, file.line(parameters.start), message))
        .collect()
}

/// The text between the bars of each closure.
fn closure_parameters(code: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(length) = code[at..].find('|') {
        let start = at + length + 1;
        at = start;
        if opens_closure(&code[..start - 1]) {
            let end = closing_bar(code, start);
            found.push(start..end);
            at = (end + 1).min(code.len());
        }
    }
    found
}

/// Whether a bar behind this code opens a closure's parameters, and is no operator.
fn opens_closure(before: &str) -> bool {
    let before = before.trim_end();
    let word = before.rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_').next();
    match before.bytes().last() {
        Some(last) if is_identifier_byte(last) => {
            word.is_some_and(|word| WORDS_BEFORE.contains(&word))
        }
        Some(last) => b"(,={;>[:&".contains(&last),
        None => false,
    }
}

/// The bar that ends the parameters that begin at `start`, or the end of the code.
fn closing_bar(code: &str, start: usize) -> usize {
    code[start..].find('|').map_or(code.len(), |length| start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &[usize]) {
        let found = violations(&Tree::of(&[("crates/core/tests/laws.rs", source)]));
        let found: Vec<usize> = found.iter().map(|found| found.line).collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn every_pattern_with_the_name_is_found() {
        check("a.map(|it| it.b);\nc.find(|&it| it);", &[1, 2]);
        check("a.map(move |(it, _)| it);\nlet f = |a, mut it: u8| it;", &[1, 2]);
        check("a.map(\n    |A { it, .. }| it,\n)", &[2]);
        check("a(|b| c(b, |it| it))", &[1]);
    }

    #[test]
    fn other_bars_and_names_are_free() {
        check("a.map(|item| item); b(|| it); c(|bit, its| bit)", &[]);
        check("let a = b | it | c; let d = e() | it | 1;", &[]);
        check("match a { A(it) | B(it) => it, C | D => it }", &[]);
        check("// |it|\nlet a = \"[that|it|x]\"; if a || it || b {}", &[]);
    }
}
