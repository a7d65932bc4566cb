//! Rule: texts are plain English, in the words of the field, in short sentences.
//!
//! It holds for the documents of [`VISIBLE`], for pages and scripts that browsers show, for the
//! string literals of all crates (help, errors, logs, reports), for help texts in files, and for
//! all comments. Code in Markdown and literals of tests are left out.

mod comments;
mod report;
mod sentences;

use super::Violation;
use super::rust_file::RustFile;
use super::tree::{TextFile, Tree};
use comments::paragraphs;
use sentences::{banned, complaints, texts_of_html, without_code};

pub(crate) use report::report;

pub(super) const RULE: &str = "prose";

/// Documents that are checked.
const VISIBLE: [&str; 2] = ["README.md", "docs/"];

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    let is_visible = |path: &str| VISIBLE.iter().any(|visible| path.starts_with(visible));
    let mut violations = Vec::new();
    for file in &tree.texts {
        let path = &file.path[..];
        let found = match path.rsplit('.').next().unwrap_or_default() {
            "md" if is_visible(path) => in_document(file),
            "html" if path.starts_with("crates/") => in_page(file),
            "js" if path.starts_with("crates/") => in_script(file),
            "txt" if path.ends_with(".help.txt") => in_script(file),
            _ => continue,
        };
        violations.extend(found);
    }
    for file in &tree.rust {
        violations.extend(in_literals(file));
        violations.extend(in_comments(file));
    }
    violations
}

fn at(path: &str, line: usize, text: &str) -> Vec<Violation> {
    let complaints = complaints(text).into_iter();
    let violation = |complaint| Violation::new(RULE, path, line, complaint);
    complaints.map(violation).collect()
}

fn in_document(file: &TextFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut is_code = false;
    for (index, line) in file.text.lines().enumerate() {
        is_code ^= line.starts_with("```");
        if !is_code {
            violations.extend(at(&file.path, index + 1, &without_code(line)));
        }
    }
    violations
}

fn in_page(file: &TextFile) -> Vec<Violation> {
    let texts = texts_of_html(&file.text).into_iter();
    texts.flat_map(|(line, text)| at(&file.path, line, &text)).collect()
}

fn in_script(file: &TextFile) -> Vec<Violation> {
    let lines = file.text.lines().enumerate();
    lines.flat_map(|(index, line)| at(&file.path, index + 1, line)).collect()
}

fn in_literals(file: &RustFile) -> Vec<Violation> {
    let is_source = file.path.starts_with("crates/") && file.path.contains("/src/");
    // Logs that are generated on purpose have any text.
    if !is_source || file.path.starts_with("crates/trace/src/synth/planted") {
        return Vec::new();
    }
    let literals = file.strings.iter();
    let literals = literals.filter(|literal| !file.is_test(literal.offset));
    let mut violations = Vec::new();
    for literal in literals {
        let line = file.line(literal.offset);
        let text = joined(&literal.text).replace("\\n", "\n");
        // Lists of words and code are no sentences.
        let is_prose = |text: &&str| text.contains(" the ") || banned(text).next().is_some();
        for text in text.lines().filter(is_prose) {
            violations.extend(at(&file.path, line, text));
        }
    }
    violations
}

fn in_comments(file: &RustFile) -> Vec<Violation> {
    // These files quote the words that they look for.
    if file.path.starts_with("xtask/src/tidy/prose") {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for paragraph in paragraphs(file) {
        violations.extend(at(&file.path, paragraph.line, &without_code(&paragraph.text)));
        if paragraph.opens_clause() {
            let word = paragraph.first_word();
            let message = format!("a doc comment opens with \"{word}\"; name the thing first");
            violations.push(Violation::new(RULE, &file.path, paragraph.line, message));
        }
    }
    violations
}

/// A literal whose lines are joined as the compiler joins them.
fn joined(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start())
}

#[cfg(test)]
mod tests {
    use super::sentences::WORDS_MAX;
    use super::*;

    fn check(path: &str, text: &str, expected: &[usize]) {
        let found = violations(&Tree::of(&[(path, text)]));
        let found: Vec<usize> = found.iter().map(|found| found.line).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn banned_words_are_found_outside_of_code() {
        check("README.md", "It is plain.\nNobody is told.", &[2, 2]);
        check("docs/a.md", "`nobody` and renobodyd\n```\nnobody\n```\nby lot", &[5]);
        check("tools/a.md", "nobody", &[]);
    }

    #[test]
    fn string_literals_are_checked_outside_of_tests() {
        let source = "fn f() { g(\"nobody\"); g(\"so \\\n     many\"); }\n\
                      #[cfg(test)]\nmod tests { const A: &str = \"nobody\"; }\n";
        check("crates/a/src/lib.rs", source, &[1, 1]);
        check("crates/a/tests/a.rs", source, &[]);
        check("xtask/src/main.rs", source, &[]);
    }

    #[test]
    fn comments_are_checked_by_paragraph() {
        let source = "//! Fine.\n//!\n//! So\n//! many.\n\nfn f() {\n    g(); // nobody\n}\n";
        check("crates/a/tests/a.rs", source, &[3, 7]);
        let words = "word ".repeat(30);
        let alone = format!("// {words}\n\n// {words}\nf();\n");
        check("xtask/src/main.rs", &alone, &[]);
        check("xtask/src/main.rs", &format!("f();\n// {words}\n// {words}\n"), &[2]);
        let lists = format!("// - {words}\n// - {words}\n// | {words}{words} |\n");
        check("xtask/src/main.rs", &lists, &[]);
        let code = format!("//! ```\n//! nobody {words}{words}\n//! ```\n");
        check("xtask/src/main.rs", &code, &[]);
    }

    #[test]
    fn a_doc_comment_opens_with_the_thing() {
        let source = "//! What it is.\n//! Where it is.\n\n/// A thing.\nstruct A;\n/// How.\n";
        check("crates/a/src/lib.rs", source, &[1, 6]);
        check("crates/a/src/lib.rs", "// What it is.\n", &[]);
    }

    #[test]
    fn long_sentences_are_found() {
        let long = "word ".repeat(WORDS_MAX + 1);
        check("README.md", &long, &[1]);
        check("README.md", &format!("{}. {}", "word ".repeat(30).trim(), "word ".repeat(30)), &[]);
        check("README.md", &format!("| {} | {} |", "word ".repeat(30), "word ".repeat(30)), &[]);
    }

    #[test]
    fn pages_are_read_without_tags_and_scripts() {
        let half = "word ".repeat(25);
        let page = format!(
            "<script>\nnobody\n</script><p>\n{half}<b>\n{half}</b></p>\n<p>{half}</p>{half}\n"
        );
        check("crates/a/src/page.html", &page, &[3]);
        check("crates/a/src/page.js", "// fine\nshow('nobody');", &[2]);
    }
}
