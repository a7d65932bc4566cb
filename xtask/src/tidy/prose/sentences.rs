//! Words that are not written, and sentences that are too long.

/// Longest sentence, words.
pub(super) const WORDS_MAX: usize = 40;

/// Banned words and phrases, each with its replacement.
const BANNED: [(&str, &str); 19] = [
    ("are told", "say who does what"),
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

/// Inline tags of HTML: they end no sentence.
const INLINE: [&str; 7] = ["a", "b", "code", "em", "i", "span", "strong"];

/// Complaints about a text without code.
pub(super) fn complaints(text: &str) -> Vec<String> {
    banned(text).chain(long_sentences(text)).collect()
}

/// Complaints about the banned words of a text.
pub(super) fn banned(text: &str) -> impl Iterator<Item = String> {
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
        let sentences = text.split(['|', ';', ':']).flat_map(|part| part.split(". "));
        sentences.map(str::to_owned).collect()
    };
    let counts = ends(text).into_iter().map(|sentence| {
        let words = sentence.split_whitespace().count();
        (words, sentence)
    });
    counts.filter(|(words, _)| *words > WORDS_MAX).map(|(words, sentence)| {
        let start: Vec<&str> = sentence.split_whitespace().take(5).collect();
        format!(
            "a sentence of {words} words (\"{} …\"), at most {WORDS_MAX}; make two of it",
            start.join(" ")
        )
    })
}

/// A line of Markdown or of a comment, with each span of code as one word.
pub(super) fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts.map(|(nth, part)| if nth % 2 == 0 { part } else { "code" }).collect()
}

/// The texts of an HTML page between tags that end a sentence, each with the line of its start.
pub(super) fn texts_of_html(page: &str) -> Vec<(usize, String)> {
    let mut texts = vec![(1, String::new())];
    let mut line = 1;
    let mut hidden: Option<&str> = None;
    for (nth, piece) in page.split('<').enumerate() {
        let (tag, text) = match nth {
            0 => ("", piece),
            _ => piece.split_once('>').unwrap_or((piece, "")),
        };
        let name = tag.trim_start_matches('/').split_whitespace().next();
        let name = name.unwrap_or_default();
        line += tag.matches('\n').count();
        if hidden.is_some_and(|hidden| tag.strip_prefix('/') == Some(hidden)) {
            hidden = None;
        }
        if ["script", "style"].contains(&name) && !tag.starts_with('/') {
            hidden = Some(name);
        }
        if !INLINE.contains(&name) {
            texts.push((line, String::new()));
        }
        if let Some((_, last)) = texts.last_mut().filter(|_| hidden.is_none()) {
            last.push_str(text);
        }
        line += text.matches('\n').count();
    }
    texts.retain(|(_, text)| !text.trim().is_empty());
    texts
}
