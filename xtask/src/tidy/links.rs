//! Rule: links between documents lead somewhere: the file exists, and so does the heading.
//!
//! Links to the web are not fetched, and paths in backticks are not links.

use std::collections::BTreeMap;

use super::Violation;
use super::markdown::{Link, Markdown};
use super::tree::Tree;

pub(super) const RULE: &str = "dead-link";

type Documents<'a> = BTreeMap<&'a str, Markdown>;

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    let documents: Documents<'_> = tree
        .with_suffix(".md")
        .map(|file| (file.path.as_str(), Markdown::parse(&file.text)))
        .collect();
    let mut violations = Vec::new();
    for (path, document) in &documents {
        for link in document.links.iter().filter(|link| !has_scheme(&link.target)) {
            if let Some(problem) = problem(tree, &documents, path, link) {
                let message = format!("`{}`: {problem}", link.target);
                violations.push(Violation::new(RULE, path, link.line, message));
            }
        }
    }
    violations
}

fn problem(tree: &Tree, documents: &Documents<'_>, path: &str, link: &Link) -> Option<String> {
    let (file, anchor) = match link.target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (link.target.as_str(), None),
    };
    let Some(target) = resolve(path, file) else {
        return Some("leads out of the repository; link to the web instead".to_owned());
    };
    if !tree.exists(&target) {
        return Some(format!("there is no {target}; correct the path or remove the link"));
    }
    let anchor = anchor?;
    let headings = &documents.get(target.as_str())?.anchors;
    (!headings.contains(anchor))
        .then(|| format!("{target} has no heading for #{anchor}; correct the anchor"))
}

/// The path that a link in the document at `from` means, relative to the root.
fn resolve(from: &str, target: &str) -> Option<String> {
    if target.is_empty() {
        return Some(from.to_owned());
    }
    let target = target.replace("%20", " ");
    let mut parts: Vec<&str> =
        if target.starts_with('/') { Vec::new() } else { from.split('/').collect() };
    // The document's own name.
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// `https:`, `mailto:` and the like; `//host` borrows the scheme of the page.
fn has_scheme(target: &str) -> bool {
    let is_scheme = |scheme: &str| {
        !scheme.is_empty() && scheme.chars().all(|character| character.is_ascii_alphanumeric())
    };
    target.starts_with("//") || target.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expected: &[&str]) {
        let found = violations(&Tree::of(&[
            (path, text),
            ("docs/guide.md", "# A guide\n## Step one\n"),
            ("crates/core/src/lib.rs", ""),
        ]));
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.message.contains(expected), "{found}");
        }
    }

    #[test]
    fn files_and_folders_are_found() {
        check("README.md", "[a](docs/guide.md) [b](crates/core) [c](/crates/core/src/)", &[]);
        check("docs/other.md", "[a](guide.md) [b](../crates/core/src/lib.rs#L1) [c](..)", &[]);
        check("README.md", "[a](docs/gone.md)", &["there is no docs/gone.md"]);
        check("docs/other.md", "[a](docs/guide.md)", &["there is no docs/docs/guide.md"]);
        check("README.md", "[a](../elsewhere.md)", &["leads out of the repository"]);
    }

    #[test]
    fn headings_are_found() {
        check("README.md", "# Here\n[a](#here) [b](docs/guide.md#step-one)", &[]);
        check("README.md", "# Here\n[a](#there)", &["README.md has no heading for #there"]);
        check("README.md", "[b](docs/guide.md#step-two)", &["has no heading for #step-two"]);
    }

    #[test]
    fn the_web_is_left_alone() {
        check("README.md", "[a](https://example.org/x) [b](mailto:a@example.org) `[c](d)`", &[]);
    }
}
