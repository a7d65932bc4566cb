//! Rule: no `match` whose arms are `true` and `false`; that is an `if`.
//!
//! Applies to all Rust files. A `match` on a tuple with a `bool`, or with a guard, is free.

use super::Violation;
use super::rust_file::{RustFile, behind_closing, find_words};
use super::tree::Tree;

pub(super) const RULE: &str = "match-bool";

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    tree.rust.iter().flat_map(violations_in).collect()
}

fn violations_in(file: &RustFile) -> Vec<Violation> {
    let message = "`match` on a `bool`; write `if` and `else`";
    find_words(&file.code, "match")
        .filter(|&start| body(&file.code, start).is_some_and(is_on_bool))
        .map(|start| Violation::new(RULE, &file.path, file.line(start), message))
        .collect()
}

/// The text between the braces of the `match` at `start`.
fn body(code: &str, start: usize) -> Option<&str> {
    let mut at = start;
    loop {
        match code.as_bytes().get(at)? {
            b'(' | b'[' => at = behind_closing(code, at),
            b'{' => return code.get(at + 1..behind_closing(code, at) - 1),
            // No `match` after all, but a part of a macro's pattern.
            b';' | b'}' | b')' => return None,
            _ => at += 1,
        }
    }
}

fn is_on_bool(body: &str) -> bool {
    let mut patterns = patterns(body).into_iter().peekable();
    patterns.peek().is_some_and(|first| *first != "_")
        && patterns.all(|pattern| ["true", "false", "_"].contains(&pattern))
}

/// The patterns of all arms, each with its guard.
fn patterns(body: &str) -> Vec<&str> {
    let mut patterns = Vec::new();
    let mut rest = body.trim_start();
    while let Some(arrow) = find_outside(rest, "=>") {
        patterns.push(rest[..arrow].trim());
        let value = rest[arrow + "=>".len()..].trim_start();
        let end = if value.starts_with('{') {
            behind_closing(value, 0)
        } else {
            find_outside(value, ",").unwrap_or(value.len())
        };
        rest = value[end..].trim_start().trim_start_matches(',').trim_start();
    }
    patterns
}

/// The offset of `sign` outside of brackets.
fn find_outside(text: &str, sign: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(&byte) = text.as_bytes().get(at) {
        if text.as_bytes()[at..].starts_with(sign.as_bytes()) {
            return Some(at);
        }
        match byte {
            b'(' | b'[' | b'{' => at = behind_closing(text, at),
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &[usize]) {
        let found = violations(&Tree::of(&[("crates/core/src/lib.rs", source)]));
        let found: Vec<usize> = found.iter().map(|found| found.line).collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn arms_of_true_and_false_are_found() {
        check("match a { true => b, false => c }", &[1]);
        check("let a =\n    match b(|c| { c }) {\n false => { d }\n true => e(f, g),\n};", &[2]);
        check("match a { true => b, _ => c }", &[1]);
        check("match a { A => match b { true => c, false => d }, B => e }", &[1]);
    }

    #[test]
    fn other_arms_are_free() {
        check("match a { Some(true) => b, Some(false) => c, None => d }", &[]);
        check("match (a, b) { (true, c) if c => d, _ => e }", &[]);
        check("match a { true if b => c, true => d, false => e }", &[]);
        check("match a {} match b { _ => true } match c { A => true, B => false }", &[]);
        check("matches!(a, A { .. }); // match a { true => b }", &[]);
    }
}
