//! Rule: what users read is plain English, in the words of the field, in short sentences.
//!
//! It holds for the files of [`VISIBLE`], a list that grows. Code in Markdown is left out.

use super::Violation;
use super::tree::Tree;

pub(super) const RULE: &str = "prose";

/// Files and folders whose text is checked.
const VISIBLE: [&str; 2] = ["README.md", "docs/"];

/// Longest sentence, words.
const WORDS_MAX: usize = 40;

/// What is not written, and what to write in its place.
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
    violations
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
