//! Rule: a function has at most 70 lines, from `fn` to its closing brace. Tests are exempt.

use std::ops::Range;

use super::Violation;
use super::rust_file::{RustFile, behind_closing, find_words, identifier_at};
use super::tree::Tree;

pub(super) const RULE: &str = "function-length";

/// Lines; from the style guide, which aims at 25.
const MAX_LINES: usize = 70;

/// A function with a body.
struct Function<'a> {
    name: &'a str,
    /// From `fn` to behind the closing brace, in bytes.
    span: Range<usize>,
}

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    tree.rust.iter().flat_map(violations_in).collect()
}

fn violations_in(file: &RustFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    for Function { name, span } in functions(&file.code) {
        let lines = file.code[span.clone()].lines().count();
        if lines <= MAX_LINES || file.is_test(span.start) {
            continue;
        }
        let message = format!(
            "`{name}` has {lines} lines, at most {MAX_LINES}; let it keep the control flow and \
             move computations out"
        );
        let violation = Violation::new(RULE, &file.path, file.line(span.start), message);
        violations.push(Violation { item: name.to_owned(), ..violation });
    }
    violations
}

fn functions(code: &str) -> impl Iterator<Item = Function<'_>> {
    find_words(code, "fn").filter_map(|start| {
        let name = identifier_at(code, start + "fn".len())?;
        Some(Function { name, span: start..body_end(code, start)? })
    })
}

/// The offset behind the body of the function whose signature begins at `start`; none if a
/// semicolon comes first, as in a trait.
fn body_end(code: &str, start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        match code.as_bytes().get(at)? {
            b';' => return None,
            b'(' | b'[' => at = behind_closing(code, at),
            b'{' => {
                let end = behind_closing(code, at);
                // `Array<{ N + 1 }>` is part of the signature, not the body.
                if !code[end..].trim_start().starts_with(['>', ',']) {
                    return Some(end);
                }
                at = end;
            }
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &[(&str, usize)]) {
        let tree = Tree::of(&[("crates/core/src/lib.rs", source)]);
        let found = violations(&tree);
        let found: Vec<_> = found.iter().map(|found| (found.item.as_str(), found.line)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn seventy_lines_pass_and_one_more_does_not() {
        let function = |lines: usize| format!("\nfn f() {{\n{}}}\n", "a;\n".repeat(lines - 2));
        check(&function(70), &[]);
        check(&function(71), &[("f", 2)]);
    }

    #[test]
    fn braces_that_are_not_code_do_not_count() {
        let body = "a('{', \"}}\"); // }\n".repeat(71);
        check(&format!("fn f<'a>() {{\n{body}}}\nfn g() {{}}"), &[("f", 1)]);
        check(&format!("fn f() {{}}\n{}", "// {\n".repeat(80)), &[]);
    }

    #[test]
    fn signatures_are_not_bodies() {
        let lines = "a;\n".repeat(80);
        check(&format!("trait T {{ fn f(); }}\nmod m {{\n{lines}}}"), &[]);
        check(&format!("type F = fn(u8);\nmod m {{\n{lines}}}"), &[]);
        check(&format!("fn f(a: [u8; 1]) -> A<{{ N }}> {{\n{lines}}}"), &[("f", 1)]);
        check(&format!("fn f() where A: B,\n{{\n{lines}}}"), &[("f", 1)]);
    }

    #[test]
    fn tests_are_exempt() {
        check(&format!("#[test]\nfn f() {{\n{}}}", "a;\n".repeat(80)), &[]);
    }
}
