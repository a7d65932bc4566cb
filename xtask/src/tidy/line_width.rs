//! Rule: a line of Rust has at most 100 columns. rustfmt gives up on long strings and comments;
//! this rule does not, except where the line holds a URL.

use super::Violation;
use super::tree::Tree;

pub(super) const RULE: &str = "line-width";

/// Columns, rustfmt's default. One character is one column.
const MAX_COLUMNS: usize = 100;

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in tree.with_suffix(".rs") {
        for (index, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > MAX_COLUMNS && !has_url(line) {
                let message = format!("{columns} columns; break the line at {MAX_COLUMNS}");
                violations.push(Violation::new(RULE, &file.path, index + 1, message));
            }
        }
    }
    violations
}

fn has_url(line: &str) -> bool {
    line.contains("http://") || line.contains("https://")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &[usize]) {
        let tree = Tree::of(&[("crates/core/src/lib.rs", source)]);
        let found: Vec<usize> = violations(&tree).iter().map(|found| found.line).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_hundred_characters_pass_and_one_more_does_not() {
        check(&format!("{}\n{}\n", "x".repeat(100), "x".repeat(101)), &[2]);
        check(&"é".repeat(100), &[]);
    }

    #[test]
    fn lines_with_a_url_may_be_longer() {
        check(&format!("// https://example.org/{}", "x".repeat(100)), &[]);
    }
}
