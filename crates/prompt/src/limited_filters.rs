//! Filters that make texts and lists of any size, within the limits of [`size_limit`].
//!
//! All but `format`, which is [`python_format`]'s, are minijinja's own behind a check.
//!
//! [`size_limit`]: crate::size_limit

use minijinja::value::{Kwargs, Rest, StringInput, Tuple};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};

use crate::size_limit::{check_length, limited_count, limited_width};
use crate::{json_dumps, python_format};

/// Gives `environment` filters with limits.
pub(crate) fn install(environment: &mut Environment<'_>) {
    environment.add_filter("indent", indent);
    environment.add_filter("format", format);
    environment.add_filter("tojson", tojson);
    // `list | batch(count, fill_with=None)` and `list | slice(count, fill_with=None)`.
    environment.add_filter("batch", |state: &State<'_, '_>, list: Value, count, fill| {
        filters::batch(state, list, limited_count(count)?, fill)
    });
    environment.add_filter("slice", |state: &State<'_, '_>, list: Value, count, fill| {
        filters::slice(state, list, limited_count(count)?, fill)
    });
}

/// `text | indent(width=4, first=False, blank=False)`.
fn indent(
    text: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    named: Kwargs,
) -> Result<Value, Error> {
    let asked = match width {
        Some(width) => Some(width),
        None => named.get("width")?,
    };
    let width = limited_width(asked.unwrap_or(0) as u128)?;
    let lines = text.as_str().split('\n').count();
    check_length(lines.saturating_mul(width).saturating_add(text.as_str().len()))?;
    filters::indent(text, asked, first, blank, named)
}

/// `text | format(*args, **kwargs)`: Python's operator `%`.
fn format(text: &str, args: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    if named.args().next().is_none() {
        return python_format::format(text, &Value::from(Tuple::from(args.0)));
    }
    if args.is_empty() {
        return python_format::format(text, &Value::from(named));
    }
    let message = "format takes positional or keyword arguments, and not both";
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// Jinja2's own `value | tojson(indent=None)`, which `json_dumps` replaces for engines' prompts.
fn tojson(value: &Value, indent: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let asked = match &indent {
        Some(indent) => Some(indent.clone()),
        None => named.get("indent")?,
    };
    // minijinja's serializer has no limit, so ours makes the text first.
    if !value.is_undefined() {
        let options = Kwargs::from_iter(asked.map(|indent| ("indent", indent)));
        json_dumps::tojson(value, &options)?;
    }
    filters::tojson(value, indent, named)
}
