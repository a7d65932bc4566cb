//! Rule: which documents there are, and how long they may be.

use super::Violation;
use super::tree::{TextFile, Tree};

pub(super) const RULE: &str = "documents";

/// Documents that may be at the top.
const TOP: [&str; 5] = ["CHANGELOG.md", "CONTRIBUTING.md", "PRIVACY.md", "README.md", "STYLE.md"];

/// Most words of the README.
const README_WORDS_MAX: usize = 1200;

/// Most words of the page on the architecture.
const ARCHITECTURE_WORDS_MAX: usize = 3000;

/// Most lines of a crate's README.
const CRATE_LINES_MAX: usize = 20;

/// The list of the book's pages.
const SUMMARY: &str = "docs/SUMMARY.md";

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let listed = tree.texts.iter().find(|file| file.path == SUMMARY);
    for file in tree.texts.iter().filter(|file| file.path.ends_with(".md")) {
        let mut found = |message: String| {
            violations.push(Violation::new(RULE, &file.path, 1, message));
        };
        let is_top = !file.path.contains('/');
        if is_top && !TOP.contains(&file.path.as_str()) {
            found("a page at the top; put it in docs/".to_owned());
        }
        let page = file.path.strip_prefix("docs/").filter(|_| file.path != SUMMARY);
        let is_listed =
            |page: &str| listed.is_some_and(|all| all.text.contains(&format!("({page})")));
        if page.is_some_and(|page| !is_listed(page)) {
            found(format!("no entry in {SUMMARY}"));
        }
        if let Some((unit, length, most)) = length(file).filter(|(_, length, most)| length > most) {
            found(format!("{length} {unit}, at most {most}"));
        }
    }
    violations
}

/// The unit, length and limit of a document that has a limit.
fn length(file: &TextFile) -> Option<(&'static str, usize, usize)> {
    let words = || file.text.split_whitespace().count();
    match file.path.as_str() {
        "README.md" => Some(("words", words(), README_WORDS_MAX)),
        "docs/architecture.md" => Some(("words", words(), ARCHITECTURE_WORDS_MAX)),
        path if path.starts_with("crates/") && path.ends_with("/README.md") => {
            Some(("lines", file.text.lines().count(), CRATE_LINES_MAX))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let found = violations(&Tree::of(files));
        let found: Vec<_> = found.iter().map(|found| found.message.as_str()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn pages_have_their_places() {
        check(&[("README.md", "x"), ("docs/SUMMARY.md", "- [A](a.md)"), ("docs/a.md", "x")], &[]);
        check(&[("NOTES.md", "x")], &["a page at the top; put it in docs/"]);
        check(&[("docs/b.md", "x")], &["no entry in docs/SUMMARY.md"]);
    }

    #[test]
    fn long_documents_are_found() {
        let words = "word ".repeat(README_WORDS_MAX + 1);
        check(&[("README.md", &words)], &["1201 words, at most 1200"]);
        let lines = "line\n".repeat(CRATE_LINES_MAX + 1);
        check(&[("crates/core/README.md", &lines)], &["21 lines, at most 20"]);
    }
}
