//! Rule: a Rust file has at most 500 lines before its tests.

use super::Violation;
use super::tree::Tree;

pub(super) const RULE: &str = "file-length";

/// Lines; from the style guide, which aims at 100 to 250.
const MAX_LINES: usize = 500;

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    let lengths = tree.rust.iter().map(|file| (file, file.lines_before_tests()));
    let too_long = lengths.filter(|&(_, lines)| lines > MAX_LINES);
    too_long
        .map(|(file, lines)| {
            let message = format!(
                "{lines} lines before the tests, at most {MAX_LINES}; give a second idea a file of \
                 its own"
            );
            Violation::new(RULE, &file.path, MAX_LINES + 1, message)
        })
        .collect()
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
    fn five_hundred_lines_pass_and_one_more_does_not() {
        check(&"a;\n".repeat(500), &[]);
        check(&"a;\n".repeat(501), &[501]);
    }

    #[test]
    fn tests_at_the_end_do_not_count() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "a;\n".repeat(100));
        check(&format!("{}{tests}", "a;\n".repeat(450)), &[]);
        check(&format!("{tests}{}", "a;\n".repeat(450)), &[501]);
    }
}
