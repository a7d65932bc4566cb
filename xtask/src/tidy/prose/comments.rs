//! Comments of a Rust file, as paragraphs.

use super::super::rust_file::RustFile;

/// Words with which a doc comment opens that is a relative clause.
const CLAUSES: [&str; 6] = ["What", "Who", "Whose", "Where", "How", "Which"];

/// Some lines of comment that belong together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Paragraph {
    /// Line of its start, counted from one.
    pub(super) line: usize,
    /// Its text, without the comment signs.
    pub(super) text: String,
    /// Whether it begins a doc comment.
    pub(super) opens_doc: bool,
}

impl Paragraph {
    pub(super) fn first_word(&self) -> &str {
        let mut words = self.text.split(|letter: char| !letter.is_alphabetic());
        words.next().unwrap_or_default()
    }

    /// Whether it begins a doc comment with a relative clause.
    pub(super) fn opens_clause(&self) -> bool {
        self.opens_doc && CLAUSES.contains(&self.first_word())
    }
}

/// All paragraphs of a file's comments, without code blocks, drawings and tables.
pub(super) fn paragraphs(file: &RustFile) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let (mut is_inside_doc, mut is_code, mut continues) = (false, false, false);
    let lines = file.comments.lines().zip(file.code.lines());
    for (index, (comment, code)) in lines.enumerate() {
        let comment = comment.trim();
        let doc = comment.strip_prefix("///").or(comment.strip_prefix("//!"));
        let Some(text) = doc.or(comment.strip_prefix("//")) else {
            (is_inside_doc, is_code, continues) = (false, false, false);
            continue;
        };
        let text = text.trim();
        let opens_doc = doc.is_some() && !is_inside_doc;
        is_inside_doc = doc.is_some();
        is_code ^= text.starts_with("```");
        if is_code || text.is_empty() || text.starts_with(['`', '|', '#']) {
            continues = false;
            continue;
        }
        let is_item =
            text.starts_with(['-', '*']) || text.starts_with(|c: char| c.is_ascii_digit());
        match paragraphs.last_mut().filter(|_| continues && !is_item && !opens_doc) {
            Some(last) => {
                last.text.push(' ');
                last.text.push_str(text);
            }
            None => {
                paragraphs.push(Paragraph { line: index + 1, text: text.to_owned(), opens_doc });
            }
        }
        // A comment behind code is alone.
        continues = code.trim().is_empty();
    }
    paragraphs
}
