//! Limits on sizes that a template asks for by a number.
//!
//! ```text
//! tojson(indent=n), indent(n), '%nd', '{:n}'     WIDTH_MAX
//! batch(n), slice(n)                             COUNT_MAX
//! texts of these, and the rendered text          TEXT_MAX
//! ```
//!
//! minijinja itself limits `range` to 100,000 numbers, and `*` to texts of 100 MB. What a template
//! builds by other means, such as `x ~ x` in a loop, has no limit here.

use std::io::{self, Write};

use minijinja::{Error, ErrorKind};

/// Widest field, indentation and precision, in characters: a template may ask for a billion.
const WIDTH_MAX: usize = 10_000;

/// Most lists that a list is cut into, and most items that fill one up.
const COUNT_MAX: usize = 10_000;

/// Most bytes of a text: four times the longest request that a server takes by default.
pub(crate) const TEXT_MAX: usize = 64 << 20;

/// `width`, where it is one that a field or an indentation may have.
pub(crate) fn limited_width(width: u128) -> Result<usize, Error> {
    let width = usize::try_from(width).ok().filter(|width| *width <= WIDTH_MAX);
    width.ok_or_else(|| too_large("a width is more than 10,000 characters"))
}

/// Checks the length of a text that is being made.
pub(crate) fn check_length(bytes: usize) -> Result<(), Error> {
    if bytes <= TEXT_MAX { Ok(()) } else { Err(too_large(TOO_LONG)) }
}

const TOO_LONG: &str = "a text is longer than 64 MiB";

/// `count`, where it is one of lists or items that a filter may make.
pub(crate) fn limited_count(count: usize) -> Result<usize, Error> {
    let is_small = count <= COUNT_MAX;
    is_small.then_some(count).ok_or_else(|| too_large("a count is more than 10,000"))
}

/// The error of a template that asks for too much.
fn too_large(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Checks the widths and precisions in the fields of `text.format(…)`.
pub(crate) fn check_fields(text: &str) -> Result<(), Error> {
    let (mut length, mut rest) = (text.len(), text);
    while let Some((_, field)) = rest.split_once('{') {
        // Two braces stand for one.
        if let Some(behind) = field.strip_prefix('{') {
            rest = behind;
            continue;
        }
        let (spec, behind) = spec_of(field);
        let numbers = spec.split(|character: char| !character.is_ascii_digit());
        for number in numbers.filter(|number| !number.is_empty()) {
            // A number of too many digits is above any limit.
            length += limited_width(number.parse().unwrap_or(u128::MAX))?;
        }
        rest = behind;
    }
    check_length(length)
}

/// The format of a field, without a character to fill with, and the text behind the field.
fn spec_of(field: &str) -> (&str, &str) {
    let mut rest = field;
    while let Some(at) = rest.find(['[', ':', '}']) {
        let behind = &rest[at + 1..];
        match rest.as_bytes()[at] {
            // A key may hold any other character.
            b'[' => rest = behind.split_once(']').map_or("", |(_, behind)| behind),
            b':' => {
                let mut characters = behind.chars();
                let has_fill = characters.nth(1).is_some_and(|align| "<>^".contains(align));
                // Only the character to fill with may be a brace.
                let spec = if has_fill { characters.as_str() } else { behind };
                return spec.split_once('}').unwrap_or((spec, ""));
            }
            _ => return ("", behind),
        }
    }
    ("", "")
}

/// A text as it is written, up to its limit.
#[derive(Default)]
pub(crate) struct LimitedText {
    bytes: Vec<u8>,
}

impl LimitedText {
    /// The whole text.
    pub(crate) fn into_string(self) -> String {
        String::from_utf8(self.bytes).expect("only texts were written")
    }
}

impl Write for LimitedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > TEXT_MAX {
            return Err(io::Error::other(TOO_LONG));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use crate::{ChatTemplate, GenerationPrompt, RenderInput, SpecialTokens};

    const WIDE: &str = "a width is more than 10,000 characters";
    const MANY: &str = "a count is more than 10,000";
    const LONG: &str = "a text is longer than 64 MiB";

    fn render(source: &str, messages: &Value) -> Result<String, String> {
        let template = ChatTemplate::from_request(source, SpecialTokens::default());
        let rendered = template.expect("it compiles").render(&RenderInput {
            messages,
            tools: None,
            generation_prompt: GenerationPrompt::Add,
            now_unix_s: 0,
            extra: &Map::new(),
        });
        rendered.map_err(|error| error.to_string())
    }

    fn check(expression: &str, expected: Result<&str, &str>) {
        let rendered = render(&format!("{{{{ {expression} }}}}"), &json!([]));
        match (&rendered, expected) {
            (Ok(text), Ok(expected)) => assert_eq!(text, expected, "{expression}"),
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
            _ => panic!("{expression}: {rendered:?}"),
        }
    }

    #[test]
    fn numbers_that_ask_for_too_much_are_refused() {
        for expression in [
            "messages | tojson(indent=100000000000)",
            "[1] | tojson(indent='a' * 10001)",
            "'a\\nb' | indent(100000000000)",
            "'a\\nb' | indent(width=100000000000)",
            "'%100000000000d' % 1",
            "'%.100000000000f' % 1",
            "'%100000000000d' | format(1)",
            "'%(n).100000000000f' | format(n=1.5)",
            "'{:100000000000}'.format(1)",
            "'{0:.100000000000f}'.format(1.5)",
            "'{:}<100000000000}'.format(1)",
            "'{0[}]:100000000000}'.format({'}': 1})",
            "'{n:,.1f} {n:>+#0100000000000,.1f}'.format(n=1.5)",
            "'{:99999999999999999999999999999999999999999}'.format(1)",
        ] {
            check(expression, Err(WIDE));
        }
        for expression in [
            "[1] | batch(100000000000, 0)",
            "[1] | slice(100000000000)",
            "[1] | slice(100000000000, 0)",
        ] {
            check(expression, Err(MANY));
        }
        // minijinja's own limits, and filters that it does not have.
        check("'a' * 10 ** 9", Err("repeated string is too large"));
        check("([0] * 10 ** 9) | length", Err("repeated sequence is too large"));
        check("((0,) * 10 ** 9) | length", Err("repeated sequence is too large"));
        check("range(10 ** 9) | list", Err("range has too many elements"));
        check("'a' | center(100000000000)", Err("center"));
        check("'a'.center(100000000000)", Err("center"));
        check("'a'.ljust(100000000000)", Err("ljust"));
        check("'a'.zfill(100000000000)", Err("zfill"));
        check("'a'.expandtabs(100000000000)", Err("expandtabs"));
        check("strftime_now('%100000000000d')", Err("the chat template failed"));
    }

    #[test]
    fn texts_are_bounded_where_many_widths_add_up() {
        check("('%9999d' * 10000) % ((1,) * 10000)", Err(LONG));
        check("('{0:9999}' * 10000).format(1)", Err(LONG));
        check("('a\\n' * 10000) | indent(9999)", Err(LONG));
        check("([0] * 10000) | list | tojson(indent=9999)", Err(LONG));
        // Small numbers do it too, where a request nests deep.
        let deep = (0..100).fold(json!(vec![0; 200_000]), |inner, _| json!([inner]));
        let error = render("{{ messages | tojson(indent=4) }}", &deep).unwrap_err();
        assert!(error.contains(LONG), "{error}");
        let error = render("{% for i in range(7) %}{{ 'a' * 10000000 }}{% endfor %}", &json!([]));
        assert!(error.as_ref().is_err_and(|error| error.contains(LONG)));
    }

    #[test]
    fn what_templates_ask_for_is_done() {
        check("[1] | tojson(indent=2)", Ok("[\n  1\n]"));
        check("[1] | tojson(indent='\\t')", Ok("[\n\t1\n]"));
        check("'a\\nb' | indent", Ok("a\n    b"));
        check("'a\\nb' | indent(2, true)", Ok("  a\n  b"));
        check("'a\\nb' | indent(width=1, first=true)", Ok(" a\n b"));
        check("'a\\n\\nb' | indent(1, blank=true)", Ok("a\n \n b"));
        check("[1, 2, 3] | batch(2, 0) | list", Ok("[[1, 2], [3, 0]]"));
        check("[1, 2, 3] | slice(2) | list", Ok("[[1, 2], [3]]"));
        check("'%05.2f %s' | format(3.14159, 'x')", Ok("03.14 x"));
        check("'%(a)s-%(b)3d' | format(a='x', b=7)", Ok("x-  7"));
        check("'%s' | format(1, a=2)", Err("and not both"));
        check("'{:>4}|{a[k]:<3}|{{20240101}}'.format(7, a={'k': 1})", Ok("   7|1  |{20240101}"));
        check("'{} at: 65536 {{\"port\": 65536}}'.format(1)", Ok("1 at: 65536 {\"port\": 65536}"));
        check("'a' * 3", Ok("aaa"));
    }
}
