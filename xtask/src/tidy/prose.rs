//! Rule: what users read is plain English, in the words of the field, in short sentences.
//!
//! It holds for the documents of [`VISIBLE`] and for the string literals of all crates: help,
//! errors, logs, reports. Code in Markdown and tests are left out. [`shares`] counts how many doc
//! comments of each crate open with a relative clause.

use super::Violation;
use super::tree::Tree;

pub(super) const RULE: &str = "prose";

/// Files and folders whose text is checked.
const VISIBLE: [&str; 2] = ["README.md", "docs/"];

/// Longest sentence, words.
const WORDS_MAX: usize = 40;

/// Banned phrases, each with a replacement.
const BANNED: [(&str, &str); 18] = [
    ("at hand", "available"),
    ("anew", "again"),
    ("as it were", "leave it out"),
    ("by lot", "random"),
    ("computed again", "recomputed"),
    ("foretold", "predicted"),
    ("goes on", "continues"),
    ("how-maniest", "the number of"),
    ("in the mean", "on average"),
    ("is none", "say what is absent"),
    ("is told", "say who does what"),
    ("nobody", "name the subject"),
    ("reckon", "estimate"),
    ("reckoned", "estimated"),
    ("so many", "a number"),
    ("somebody", "name the subject"),
    ("unharmed", "ok"),
    ("whoever", "name the subject"),
];

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    let is_visible = |path: &str| VISIBLE.iter().any(|visible| path.starts_with(visible));
    let mut violations = Vec::new();
    for file in tree.texts.iter().filter(|file| is_visible(&file.path)) {
        let mut is_code = false;
        for (index, line) in file.text.lines().enumerate() {
            if line.starts_with("```") {
                is_code = !is_code;
                continue;
            }
            if is_code {
                continue;
            }
            let text = without_code(line);
            let message = banned(&text).chain(long_sentences(&text));
            let of_line = |message| Violation::new(RULE, &file.path, index + 1, message);
            violations.extend(message.map(of_line));
        }
    }
    for file in tree
        .rust
        .iter()
        .filter(|file| has_visible_strings(&file.path))
    {
        let literals = file
            .strings
            .iter()
            .filter(|text| !file.is_test(text.offset));
        for literal in literals {
            let text = joined(&literal.text);
            let line = file.line(literal.offset);
            let of_line = |message| Violation::new(RULE, &file.path, line, message);
            violations.extend(banned(&text).map(of_line));
        }
    }
    violations
}

/// Texts that are generated on purpose, and the list of this rule, are left out.
fn has_visible_strings(path: &str) -> bool {
    let is_source = path.starts_with("crates/") && path.contains("/src/");
    is_source && !path.starts_with("crates/trace/src/synth/planted")
}

/// A literal whose lines are joined as the compiler joins them.
fn joined(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start())
}

/// Words with which a doc comment opens that is a relative clause.
const CLAUSES: [&str; 5] = ["What", "Who", "Whose", "Where", "How"];

/// Of each crate, the doc comments that open with a relative clause, and all of them. ripgrep has
/// 0.1 %, foyer none.
pub(crate) fn shares(tree: &Tree) -> Vec<(String, usize, usize)> {
    let mut shares: Vec<(String, usize, usize)> = Vec::new();
    for file in tree.rust.iter().filter(|file| file.path.contains("/src/")) {
        let name = file.path.trim_start_matches("crates/");
        let name = name.split('/').next().unwrap_or_default();
        if shares.last().is_none_or(|(last, ..)| last != name) {
            shares.push((name.to_owned(), 0, 0));
        }
        let Some((_, clauses, all)) = shares.last_mut() else {
            continue;
        };
        let mut is_inside = false;
        for line in file.comments.lines() {
            let text = line.trim_start();
            let doc = text.strip_prefix("///").or(text.strip_prefix("//!"));
            if let Some(doc) = doc.filter(|_| !is_inside) {
                let word = doc.split_whitespace().next().unwrap_or_default();
                *clauses += usize::from(CLAUSES.contains(&word));
                *all += 1;
            }
            is_inside = doc.is_some();
        }
    }
    shares
}

/// A line without what stands between backticks.
fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts
        .map(|(nth, part)| if nth % 2 == 0 { part } else { "code" })
        .collect()
}

fn banned(text: &str) -> impl Iterator<Item = String> {
    let text = text.to_lowercase();
    BANNED
        .into_iter()
        .filter(move |(phrase, _)| has_words(&text, phrase))
        .map(|(phrase, instead)| format!("\"{phrase}\"; write: {instead}"))
}

fn has_words(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let behind = text[at + phrase.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !behind.is_some_and(char::is_alphanumeric)
    })
}

/// Sentences of a paragraph or a list item; cells of a table are sentences of their own.
fn long_sentences(text: &str) -> impl Iterator<Item = String> {
    let ends = |text: &str| -> Vec<String> {
        let sentences = text
            .split(['|', ';', ':'])
            .flat_map(|part| part.split(". "));
        sentences.map(str::to_owned).collect()
    };
    let counts = ends(text).into_iter().map(|sentence| {
        let words = sentence.split_whitespace().count();
        (words, sentence)
    });
    counts
        .filter(|(words, _)| *words > WORDS_MAX)
        .map(|(words, sentence)| {
            let start: Vec<&str> = sentence.split_whitespace().take(5).collect();
            format!(
                "a sentence of {words} words (\"{} …\"), at most {WORDS_MAX}; make two of it",
                start.join(" ")
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expected: &[usize]) {
        let found = violations(&Tree::of(&[(path, text)]));
        let found: Vec<usize> = found.iter().map(|found| found.line).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn banned_words_are_found_outside_of_code() {
        check("README.md", "It is plain.\nNobody is told.", &[2, 2]);
        check(
            "docs/a.md",
            "`nobody` and renobodyd\n```\nnobody\n```\nby lot",
            &[5],
        );
        check("tools/a.md", "nobody", &[]);
    }

    #[test]
    fn string_literals_are_checked_outside_of_tests() {
        let source = "// nobody\nfn f() { g(\"nobody\"); g(\"so \\\n     many\"); }\n\
                      #[cfg(test)]\nmod tests { const A: &str = \"nobody\"; }\n";
        check("crates/a/src/lib.rs", source, &[2, 2]);
        check("crates/a/tests/a.rs", source, &[]);
    }

    #[test]
    fn openings_are_counted_once_a_comment() {
        let source = "//! What it is.\n//! Where it is.\n\n/// A thing.\nstruct A;\n";
        let tree = Tree::of(&[("crates/a/src/lib.rs", source)]);
        assert_eq!(shares(&tree), [("a".to_owned(), 1, 2)]);
    }

    #[test]
    fn long_sentences_are_found() {
        let long = "word ".repeat(WORDS_MAX + 1);
        check("README.md", &long, &[1]);
        check(
            "README.md",
            &format!("{}. {}", "word ".repeat(30).trim(), "word ".repeat(30)),
            &[],
        );
        check(
            "README.md",
            &format!("| {} | {} |", "word ".repeat(30), "word ".repeat(30)),
            &[],
        );
    }
}
