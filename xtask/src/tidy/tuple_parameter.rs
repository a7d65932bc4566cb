//! Rule: a function of production code takes no tuple apart in its parameters,
//! `fn f((a, b): (A, B))`. Its callers see a pair of types without names: give it named
//! parameters, or a struct. Closures, whose callers say what the tuple is, are exempt.

use super::Violation;
use super::architecture::split_crate;
use super::rust_file::{RustFile, behind_closing, find_words, identifier_at};
use super::tree::Tree;

pub(super) const RULE: &str = "tuple-parameter";

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    tree.rust.iter().filter(|file| is_production(&file.path)).flat_map(violations_in).collect()
}

fn is_production(path: &str) -> bool {
    split_crate(path).is_some_and(|(_, inside)| inside.starts_with("src/"))
}

fn violations_in(file: &RustFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    for start in find_words(&file.code, "fn").filter(|&start| !file.is_test(start)) {
        let behind = start + "fn".len();
        let Some(name) = identifier_at(&file.code, behind) else {
            continue;
        };
        let parameters = parameters(&file.code, behind);
        if !parameters.into_iter().any(is_tuple) {
            continue;
        }
        let message = format!(
            "`{name}` takes a tuple apart; give it named parameters, or a struct with named fields"
        );
        let violation = Violation::new(RULE, &file.path, file.line(start), message);
        violations.push(Violation { item: name.to_owned(), ..violation });
    }
    violations
}

/// The parameters of the function whose name begins at `start`.
fn parameters(code: &str, start: usize) -> Vec<&str> {
    let Some(open) = code[start..].find(['(', '<', '{']).map(|length| start + length) else {
        return Vec::new();
    };
    let open = if code[open..].starts_with('<') { behind_generics(code, open) } else { open };
    let rest = code[open..].trim_start();
    if !rest.starts_with('(') {
        return Vec::new();
    }
    split(&rest[1..behind_closing(rest, 0).max(2) - 1])
}

/// The offset behind the `>` that closes the `<` at `open`.
fn behind_generics(code: &str, open: usize) -> usize {
    let (mut at, mut depth) = (open, 0_usize);
    while let Some(&byte) = code.as_bytes().get(at) {
        match byte {
            b'(' | b'[' | b'{' => {
                at = behind_closing(code, at);
                continue;
            }
            b'<' => depth += 1,
            b'>' if !code[..at].ends_with('-') => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// The parts between the commas that lie in no bracket.
fn split(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while let Some(&byte) = list.as_bytes().get(at) {
        match byte {
            b'(' | b'[' | b'{' => at = behind_closing(list, at),
            b'<' => at = behind_generics(list, at),
            b',' => {
                parts.push(&list[start..at]);
                at += 1;
                start = at;
            }
            _ => at += 1,
        }
    }
    parts.push(&list[start..]);
    parts
}

/// Whether the parameter's pattern is a tuple, perhaps behind attributes and references.
fn is_tuple(parameter: &str) -> bool {
    let mut pattern = parameter.trim_start();
    while pattern.starts_with("#[") {
        pattern = pattern[behind_closing(pattern, 1)..].trim_start();
    }
    pattern.trim_start_matches('&').trim_start().starts_with('(')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_in(path: &str, source: &str, expected: &[(&str, usize)]) {
        let found = violations(&Tree::of(&[(path, source)]));
        let found: Vec<_> = found.iter().map(|found| (found.item.as_str(), found.line)).collect();
        assert_eq!(found, expected, "{source}");
    }

    fn check(source: &str, expected: &[(&str, usize)]) {
        check_in("crates/core/src/lib.rs", source, expected);
    }

    #[test]
    fn tuples_are_found_anywhere_among_the_parameters() {
        check("fn f((a, b): (A, B)) {}", &[("f", 1)]);
        check("impl A {\n    fn f(&self, a: u8, &(b, _): &(B, C)) {}\n}", &[("f", 2)]);
        check("fn f<'a, F: Fn(A) -> B>(\n    #[cfg(x)] (a, b): (A, B),\n) {}", &[("f", 1)]);
        check("fn f(a: HashMap<A, (B, C)>, (b, c): (B, C)) {}", &[("f", 1)]);
    }

    #[test]
    fn tuples_as_types_and_other_patterns_are_free() {
        check("fn f(a: (A, B), b: HashMap<A, (B, C)>, c: impl Fn(A, (B, C)) -> D) {}", &[]);
        check("fn f(&self, [a, b]: [A; 2], A { b, .. }: A) {}", &[]);
        check("type F = fn((A, B), C); const A: fn() = a;", &[]);
        check("fn f<F>() where F: Fn((A, B)) { a.map(|(a, b)| a) }", &[]);
    }

    #[test]
    fn tests_and_benches_are_free() {
        check("#[cfg(test)]\nmod tests { fn f((a, b): (A, B)) {} }", &[]);
        check_in("crates/core/benches/a.rs", "fn f((a, b): (A, B)) {}", &[]);
    }
}
