//! Differences of Python and Jinja2 from minijinja, as far as chat templates notice.
//!
//! Found by rendering some 600 expressions with both. Each entry is one that published
//! templates use, or that a message's content can reach:
//!
//! | expression | Jinja2 | minijinja alone |
//! |---|---|---|
//! | `none is iterable` | false | true |
//! | `'text' is sequence`, of a map too | true | false |
//! | `undefined \| length` | 0 | an error |
//! | `x \| default('', boolean=true)` | allowed | an error |
//! | `{{ 1e20 }}`, `{{ ['it''s'] }}`, and as `string` | see `python_repr` | otherwise |
//! | `strip()`, `trim` of `\x1c` to `\x1f` | stripped | kept |
//! | `removeprefix`, `removesuffix`, `rsplit` | methods | none |
//! | `partition`, `rpartition`, `index` | methods | none |
//! | `splitlines` at U+2028 and its like | split | kept |
//!
//! Left as they are, for want of a template that needs them: `varargs` and `kwargs` of macros,
//! `\N{…}` and `\U…` in string literals, the filters `wordcount`, `truncate`, `urlencode`,
//! `center`, `striptags`, and attributes such as `schema.items`, which are the method there and
//! the key's value here (`schema['items']` and `schema.items()` agree). Nor does
//! `'text' | safe + x` escape `x` for HTML, as it does there by accident.

use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value, escape_formatter, filters};
use minijinja_contrib::pycompat::unknown_method_callback;

use crate::limited_filters;
use crate::python_number::{is_marked, is_marked_integer};
use crate::python_repr::str_of;
use crate::size_limit::check_fields;

/// Makes `environment` behave as Jinja2's.
pub(crate) fn install(environment: &mut Environment<'_>) {
    environment.set_formatter(print);
    environment.set_unknown_method_callback(call_method);
    limited_filters::install(environment);
    let is_marked_number = |value: &Value| value.as_str().is_some_and(is_marked);
    let is_integer = |value: &Value| value.as_str().is_some_and(is_marked_integer);
    environment.add_test("string", move |value: &Value| {
        value.kind() == ValueKind::String && !is_marked_number(value)
    });
    environment.add_test("number", move |value: &Value| {
        // Python takes booleans for numbers, and so does Jinja2.
        value.is_number() || value.kind() == ValueKind::Bool || is_marked_number(value)
    });
    environment.add_test("integer", move |value: &Value| value.is_integer() || is_integer(value));
    environment.add_test("float", move |value: &Value| {
        (value.is_number() && !value.is_integer())
            || (is_marked_number(value) && !is_integer(value))
    });
    environment.add_test("iterable", move |value: &Value| {
        !value.is_none() && !is_marked_number(value) && value.try_iter().is_ok()
    });
    environment.add_test("sequence", move |value: &Value| match value.kind() {
        ValueKind::String => !is_marked_number(value),
        kind => matches!(kind, ValueKind::Seq | ValueKind::Map),
    });
    environment.add_filter("string", str_of);
    environment.add_filter("trim", |value: &Value, set: Option<&str>| {
        Ok::<_, Error>(trim(&str_of(value)?, set, Sides::Both))
    });
    for name in ["length", "count"] {
        environment.add_filter(name, length);
    }
    for name in ["default", "d"] {
        environment.add_filter(name, |value: Value, args: Rest<Value>, named: Kwargs| {
            default(value, &args, &named)
        });
    }
}

fn print(output: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Number | ValueKind::Seq | ValueKind::Map => {
            Ok(output.write_str(&str_of(value)?)?)
        }
        _ => escape_formatter(output, state, value),
    }
}

fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() { Ok(0) } else { filters::length(value) }
}

/// `value | default(default_value='', boolean=False)`.
fn default(value: Value, args: &[Value], named: &Kwargs) -> Result<Value, Error> {
    let argument = |index: usize, name: &str| match args.get(index) {
        Some(value) => Ok(Some(value.clone())),
        None if named.has(name) => named.get(name).map(Some),
        None => Ok(None),
    };
    let other = argument(0, "default_value")?.unwrap_or_else(|| Value::from(""));
    let replaces_false = argument(1, "boolean")?.is_some_and(|value| value.is_true());
    named.assert_all_used()?;
    let is_replaced = value.is_undefined() || (replaces_false && !value.is_true());
    Ok(if is_replaced { other } else { value })
}

fn call_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match value.as_str().map(|text| call_str_method(text, method, args)) {
        // Methods that are not defined here are left to `minijinja_contrib`.
        Some(Err(error)) if error.kind() == ErrorKind::UnknownMethod => {}
        Some(outcome) => return outcome,
        None => {}
    }
    unknown_method_callback(state, value, method, args)
}

fn call_str_method(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let one = || from_args::<(&str,)>(args).map(|(text,)| text);
    let set = || from_args::<(Option<&str>,)>(args).map(|(set,)| set);
    Ok(match method {
        "strip" => Value::from(trim(text, set()?, Sides::Both)),
        "lstrip" => Value::from(trim(text, set()?, Sides::Left)),
        "rstrip" => Value::from(trim(text, set()?, Sides::Right)),
        "removeprefix" => Value::from(text.strip_prefix(one()?).unwrap_or(text)),
        "removesuffix" => Value::from(text.strip_suffix(one()?).unwrap_or(text)),
        "rsplit" => rsplit(text, args)?,
        "splitlines" => splitlines(text, args)?,
        "partition" => match text.split_once(one()?) {
            Some((before, after)) => triple([before, one()?, after]),
            None => triple([text, "", ""]),
        },
        "rpartition" => match text.rsplit_once(one()?) {
            Some((before, after)) => triple([before, one()?, after]),
            None => triple(["", "", text]),
        },
        "index" => match text.find(one()?) {
            // Python counts characters.
            Some(start) => Value::from(text[..start].chars().count()),
            None => {
                return Err(Error::new(ErrorKind::InvalidOperation, "substring not found"));
            }
        },
        "format" => {
            check_fields(text)?;
            return Err(Error::from(ErrorKind::UnknownMethod));
        }
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    })
}

fn triple(parts: [&str; 3]) -> Value {
    Value::from(Tuple::from(parts.map(Value::from)))
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, limit): (&str, Option<i64>) = from_args(args)?;
    let pieces = match limit.map(usize::try_from) {
        // Python limits the number of splits, Rust that of pieces.
        Some(Ok(limit)) => text.rsplitn(limit + 1, separator).collect::<Vec<_>>(),
        // A negative limit means all splits, as an absent one does.
        _ => text.rsplit(separator).collect(),
    };
    Ok(pieces.into_iter().rev().map(Value::from).collect())
}

/// Python's `text.strip()`.
pub(crate) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Python's `text.rstrip()`.
pub(crate) fn strip_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

/// Returns whether Python treats `character` as white space.
fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\x1c'..='\x1f')
}

/// `text.splitlines(keepends=False)`, at all that Python takes for the end of a line.
fn splitlines(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (keeps_ends,): (Option<bool>,) = from_args(args)?;
    let is_end = |character: char| {
        matches!(
            character,
            '\n'..='\r' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_end).unwrap_or(rest.len());
        let behind = &rest[end..];
        // `\r\n` is one line end, although each of its characters is one as well.
        let end_length = if behind.starts_with("\r\n") {
            2
        } else {
            behind.chars().next().map_or(0, char::len_utf8)
        };
        let kept = if keeps_ends == Some(true) { end_length } else { 0 };
        lines.push(Value::from(&rest[..end + kept]));
        rest = &rest[end + end_length..];
    }
    Ok(lines.into())
}

#[derive(Clone, Copy)]
enum Sides {
    Both,
    Left,
    Right,
}

/// Without characters of `set`, by default Python's white space, at the ends named.
fn trim(text: &str, set: Option<&str>, sides: Sides) -> String {
    let matches = |character: char| match set {
        Some(set) => set.contains(character),
        None => is_space(character),
    };
    let trimmed = match sides {
        Sides::Both => text.trim_matches(matches),
        Sides::Left => text.trim_start_matches(matches),
        Sides::Right => text.trim_end_matches(matches),
    };
    trimmed.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected texts are Jinja2 3.1's.
    fn check(expression: &str, expected: &str) {
        let mut environment = Environment::new();
        install(&mut environment);
        let template = format!("{{{{ {expression} }}}}");
        let text = environment.render_str(&template, ());
        assert_eq!(text.unwrap(), expected, "{expression}");
    }

    #[test]
    fn types_are_named_as_in_python() {
        check(
            "[none is iterable, 'a' is iterable, {} is iterable, 3 is iterable]",
            "[False, True, True, False]",
        );
        check(
            "['a' is sequence, {} is sequence, [] is sequence, none is sequence]",
            "[True, True, True, False]",
        );
    }

    #[test]
    fn filters_take_what_python_takes() {
        check("x | length", "0");
        check("'你好' | count", "2");
        check("x | default('d')", "d");
        check("x | default(none) ~ x | default(default_value=none)", "NoneNone");
        check("none | default('d')", "None");
        check("none | d('d', true)", "d");
        check("'' | default('d', boolean=true)", "d");
        check("'' | default(default_value='d', boolean=false)", "");
    }

    #[test]
    fn floats_are_printed_as_in_python() {
        check("1e20", "1e+20");
        check("1.0", "1.0");
        check("(0.00001) | string ~ 1", "1e-051");
        check("100000000000000000", "100000000000000000");
    }

    #[test]
    fn text_is_cut_as_in_python() {
        check("'\\x1c a\\u00a0\\x1f'.strip() ~ '|'", "a|");
        check("'\\x1ca '.lstrip() ~ '|' ~ 'xax'.rstrip('x')", "a |xa");
        check("'\\x1c a ' | trim ~ 'xax' | trim('x')", "aa");
        check(
            "'abc'.removeprefix('a') ~ 'abc'.removesuffix('c') ~ 'abc'.removeprefix('c')",
            "bcababc",
        );
        check("'a,b,,c'.rsplit(',', 1)", "['a,b,', 'c']");
        check("'a,b,,c'.rsplit(',')", "['a', 'b', '', 'c']");
        check("'a,b'.partition(',')", "('a', ',', 'b')");
        check("['a'.partition(','), 'a'.rpartition(',')]", "[('a', '', ''), ('', '', 'a')]");
        check("'你好'.index('好')", "1");
        check("'a\\r\\nb\\u2028\\nc'.splitlines()", "['a', 'b', '', 'c']");
        check("'a\\n\\n'.splitlines(true)", r"['a\n', '\n']");
    }
}
