//! Operators of templates of which Python knows more than minijinja does.
//!
//! Before a template is compiled, they become filters. Filters, unlike functions, cannot be
//! replaced by a request's variables.
//!
//! | expression | Python | filter |
//! |---|---|---|
//! | `"%02d %s" % (1, x)` | a format with its values; for numbers the remainder | `__percent` |
//! | `x ~ 1e100` | `1e+100`, and not all its digits | `string` |

use minijinja::machinery::ast::{BinOp, BinOpKind, Expr, Spanned};
use minijinja::machinery::{Span, parse};
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value};

use crate::python_format::{format, integer};
use crate::python_number::is_marked;
use crate::syntax_tree::visit;
use crate::template::syntax;

/// Gives `environment` the filter for `%`.
pub(crate) fn install(environment: &mut Environment<'_>) {
    environment.add_filter("__percent", percent);
}

/// `source` with filters for the operators of which minijinja knows less. A template that does
/// not parse stays as it is.
pub(crate) fn as_filters(source: String) -> String {
    let mut edits = Vec::new();
    match parse(&source, "chat_template", syntax()) {
        Ok(root) => visit(&root, &mut |expr| {
            if let Expr::BinOp(operation) = expr {
                edits.extend(edits_of(operation, &source).into_iter().flatten());
            }
        }),
        Err(_) => return source,
    }
    // The sort is stable: at one place the edits of the outer operation come first, as visited.
    edits.sort_by_key(|edit| edit.at);
    let (mut output, mut copied) = (String::with_capacity(source.len() * 2), 0);
    for edit in edits {
        output += &source[copied..edit.at];
        output += edit.text;
        copied = edit.at + edit.replaced;
    }
    output + &source[copied..]
}

/// A change of the source.
struct Edit {
    at: usize,
    /// Bytes that `text` replaces.
    replaced: usize,
    text: &'static str,
}

/// Returns the edits that turn `operation` into filters; `None` if its place in `source` is not
/// clear.
fn edits_of(operation: &Spanned<BinOp<'_>>, source: &str) -> Option<Vec<Edit>> {
    let range = |span: Span| {
        let offset = |offset: u32| usize::try_from(offset).ok();
        Some(offset(span.start_offset)?..offset(span.end_offset)?)
    };
    let edit = |at, replaced, text| Edit { at, replaced, text };
    match operation.op {
        BinOpKind::Rem => {
            let all = range(operation.span())?;
            // Between the operands are parentheses, space and the operator.
            let right = range(operation.right.span())?;
            let operator = all.start + source.get(all.start..right.start)?.rfind('%')?;
            Some(vec![
                edit(all.start, 0, "(("),
                edit(operator, 1, ")|__percent("),
                edit(all.end, 0, "))"),
            ])
        }
        BinOpKind::Concat => {
            let is_float = |operand: &&Expr<'_>| match operand {
                Expr::Const(constant) => constant.value.is_number() && !constant.value.is_integer(),
                _ => false,
            };
            let floats = [&operation.left, &operation.right];
            let floats = floats.into_iter().filter(is_float);
            let edits = floats.filter_map(|float| {
                let float = range(float.span())?;
                Some([edit(float.start, 0, "("), edit(float.end, 0, "|string)")])
            });
            Some(edits.flatten().collect())
        }
        _ => None,
    }
}

/// Python's `left % right`.
fn percent(left: &Value, right: &Value) -> Result<Value, Error> {
    match left.as_str() {
        // The type of a marked number is not that of its text.
        Some(text) if !is_marked(text) => format(text, right).map(Value::from),
        _ => remainder(left, right),
    }
}

/// The remainder of the division that rounds down, with the sign of `right`.
fn remainder(left: &Value, right: &Value) -> Result<Value, Error> {
    let is_number = |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool);
    if !is_number(left) || !is_number(right) {
        let message = format!("unsupported types for %: {} and {}", left.kind(), right.kind());
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let zero = || Error::new(ErrorKind::InvalidOperation, "the remainder of a division by zero");
    if let (Some(left), Some(right)) = (integer(left), integer(right)) {
        let remainder = left.checked_rem(right).ok_or_else(zero)?;
        // Python's remainder has the sign of the divisor, Rust's that of the dividend.
        let is_other_sign = remainder != 0 && (remainder < 0) != (right < 0);
        // Their signs differ, so this sum cannot overflow.
        return Ok(Value::from(remainder + if is_other_sign { right } else { 0 }));
    }
    let float = |value: &Value| match value.kind() {
        ValueKind::Bool => Ok(f64::from(u8::from(value.is_true()))),
        _ => f64::try_from(value.clone()),
    };
    let (left, right) = (float(left)?, float(right)?);
    if right == 0.0 {
        return Err(zero());
    }
    let remainder = left % right;
    let is_other_sign = remainder != 0.0 && (remainder < 0.0) != (right < 0.0);
    Ok(Value::from(match (remainder == 0.0, is_other_sign) {
        // A remainder of 0 has the sign of the divisor as well.
        (true, _) => 0f64.copysign(right),
        (false, true) => remainder + right,
        (false, false) => remainder,
    }))
}
