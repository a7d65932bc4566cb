//! White space of the system prompt in one form.

use serde_json::Value;

use super::system;

/// Line ends become `\n`, blanks at the ends of lines go, of blank lines in a row one stays, and
/// at both ends of a message none. Indentation stays, because it can carry meaning; so does, but
/// for line ends, what stands between fences of three backquotes.
pub(super) fn tidy(request: &mut Value) -> bool {
    system::each_text(request, |said| {
        let text = said.text.replace("\r\n", "\n").replace('\r', "\n");
        if said.is_whole {
            return Some(tidied(&text));
        }
        // White space at the ends of a part touches the next part, so it stays.
        let inner = text.trim();
        let (front, _) = text.split_at(text.len() - text.trim_start().len());
        let end = &text[front.len() + inner.len()..];
        Some(format!("{front}{}{end}", tidied(inner)))
    })
}

fn tidied(text: &str) -> String {
    let mut tidied = String::with_capacity(text.len());
    let mut blank_lines = 0;
    let mut is_fenced = false;
    for line in text.split('\n') {
        let is_fence = line.trim_start().starts_with("```");
        let line = if is_fenced { line } else { line.trim_end() };
        is_fenced ^= is_fence;
        if line.trim().is_empty() && !is_fenced {
            blank_lines += 1;
            continue;
        }
        // A line break is written in front of a line, so blank lines at the end leave nothing.
        if !tidied.is_empty() {
            tidied.push('\n');
            if blank_lines > 0 {
                tidied.push('\n');
            }
        }
        blank_lines = 0;
        tidied.push_str(line);
    }
    tidied
}

#[cfg(test)]
mod tests {
    use super::super::{Normalizer, check, check_system};
    use serde_json::json;

    #[test]
    fn white_space_of_system_prompts_has_one_form() {
        let check = |text: &str, expected: &str| {
            check_system(Normalizer::WhiteSpace, text, expected);
        };
        check("a\r\nb\rc\n", "a\nb\nc");
        check("a  \nb\t\n", "a\nb");
        check("a\n\n\n\nb\n \n\nc", "a\n\nb\n\nc");
        check("\n\n  a\n    b", "  a\n    b");
        check("a\nb\n\nc", "a\nb\n\nc");
    }

    #[test]
    fn parts_keep_their_ends() {
        let request = |texts: [&str; 2]| {
            let parts = texts.map(|text| json!({"type": "text", "text": text}));
            json!({"messages": [{"role": "system", "content": parts}]})
        };
        let (from, to) = (["a \nName: ", "\r\n\nb\n\n\n\nc\n"], ["a\nName: ", "\n\nb\n\nc\n"]);
        check(Normalizer::WhiteSpace, request(from), request(to));
    }

    #[test]
    fn what_is_fenced_keeps_its_blanks() {
        let check = |text: &str, expected: &str| {
            check_system(Normalizer::WhiteSpace, text, expected);
        };
        check("a \n```\nx  \n\n\n y\n```  \nb ", "a\n```\nx  \n\n\n y\n```  \nb");
        check("```\r\nx\r\n```", "```\nx\n```");
    }
}
