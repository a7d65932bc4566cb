//! Python's literals in the text logs of engines.

/// The text of the literal at the start of `source`, in either kind of quotes. `None` for anything
/// else, and for a literal without an end.
pub(super) fn text(source: &str) -> Option<String> {
    let mut chars = source.chars();
    let quote = chars.next().filter(|first| matches!(first, '\'' | '"'))?;
    let mut text = String::new();
    loop {
        match chars.next()? {
            '\\' => {
                let kind = chars.next()?;
                let digits = match kind {
                    'x' => 2,
                    'u' => 4,
                    'U' => 8,
                    _ => 0,
                };
                if digits > 0 {
                    let code: String = chars.by_ref().take(digits).collect();
                    let code = u32::from_str_radix(&code, 16).ok()?;
                    // Half of a surrogate pair is no character.
                    text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                    continue;
                }
                text.push(match kind {
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    other => other,
                });
            }
            end if end == quote => return Some(text),
            other => text.push(other),
        }
    }
}

/// The token ids of the list at the start of `source`.
pub(super) fn ids(source: &str) -> Option<Vec<u32>> {
    let (inner, _) = source.strip_prefix('[')?.split_once(']')?;
    inner.split(',').map(|id| id.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_read_as_python_writes_them() {
        for (literal, expected) in [
            (r"'a\nb', c", Some("a\nb")),
            (r#""it's""#, Some("it's")),
            (r"'it\'s \\n \x1b \u4f60 \U0001f600'", Some("it's \\n \u{1b} 你 😀")),
            (r"'\ud800'", Some("\u{fffd}")),
            ("''", Some("")),
            ("None", None),
            ("'torn", None),
            (r"'torn\", None),
            (r"'\xz'", None),
        ] {
            assert_eq!(text(literal).as_deref(), expected, "{literal}");
        }
        assert_eq!(ids("[1, 2], x"), Some(vec![1, 2]));
        assert_eq!((ids("[1, a]"), ids("None"), ids("[1")), (None, None, None));
    }
}
