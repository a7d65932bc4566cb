//! Texts of strangers on a terminal: what it would obey, or show in another order than it stands,
//! is shown by its number. The one place that knows which letters these are.

/// Whether a letter is an order and not a sign: control characters, those that turn or isolate the
/// direction of a text (U+202E, U+2066 …), line separators and other invisible ones. Joiners, which
/// scripts need, are signs.
#[must_use]
pub fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{061c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// A text on one line: white space as one blank each, what is hidden as `\u{…}`.
#[must_use]
pub fn one_line(text: &str) -> String {
    // Line breaks go first: a text must not add lines to the terminal.
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut line = String::new();
    for letter in words.join(" ").chars() {
        if is_hidden(letter) {
            line.extend(letter.escape_unicode());
        } else {
            line.push(letter);
        }
    }
    line
}

/// A text with its lines and blanks as they are, and what is hidden as `\u{…}`.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_hidden(letter) && !matches!(letter, '\n' | '\t') {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_shown_by_its_number() {
        for (text, expected) in [
            ("a\tb\r\n c", "a b c"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("pay \u{202e}100", "pay \\u{202e}100"),
            ("\u{2066}a\u{2069}\u{feff}", "\\u{2066}a\\u{2069}\\u{feff}"),
            ("\u{85}\u{9b}", "\\u{9b}"),
            ("it's \"é\", नि, 👩\u{200d}💻", "it's \"é\", नि, 👩\u{200d}💻"),
        ] {
            assert_eq!(one_line(text), expected);
        }
    }
}
