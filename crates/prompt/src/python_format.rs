//! Python's `format % values` for texts.
//!
//! ```text
//! %[(key)][flags][width][.precision][h|l|L]conversion     flags: # 0 - space +
//! ```
//!
//! Source: the Python Library Reference, "printf-style String Formatting". Integers have 128 bits.

use std::iter::Peekable;
use std::str::Chars;

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use crate::python_number::{is_marked, printed};
use crate::python_repr::{repr_of, str_of};
use crate::size_limit::{check_length, limited_width};

/// `format` with `values`: a tuple's items, the entries of a dictionary by name, or one value.
///
/// # Errors
/// Where Python has one: too few or too many values, wrong types, unknown conversions; also for
/// fields wider than 10,000 characters, and for texts longer than 64 MiB.
pub(crate) fn format(format: &str, values: &Value) -> Result<String, Error> {
    let mut values = Values::new(values)?;
    let (mut output, mut rest) = (String::with_capacity(format.len()), format.chars().peekable());
    while let Some(character) = rest.next() {
        match character {
            '%' => {
                output += &convert(&mut rest, &mut values)?;
                check_length(output.len())?;
            }
            _ => output.push(character),
        }
    }
    if values.are_all_used() {
        Ok(output)
    } else {
        Err(error("not all arguments converted during string formatting"))
    }
}

fn error(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// The values on the right of the operator.
struct Values<'v> {
    all: &'v Value,
    next: std::vec::IntoIter<Value>,
    /// Whether values may stay unused: Python checks only what cannot be looked up by a key.
    may_stay: bool,
}

impl<'v> Values<'v> {
    fn new(all: &'v Value) -> Result<Self, Error> {
        let is_tuple = all.downcast_object_ref::<Tuple>().is_some();
        let next: Vec<_> = if is_tuple { all.try_iter()?.collect() } else { vec![all.clone()] };
        Ok(Self {
            all,
            next: next.into_iter(),
            may_stay: !is_tuple
                && matches!(all.kind(), ValueKind::Map | ValueKind::Seq | ValueKind::Undefined),
        })
    }

    fn next(&mut self) -> Result<Value, Error> {
        let missing = || error("not enough arguments for format string");
        self.next.next().ok_or_else(missing)
    }

    fn get(&mut self, key: &str) -> Result<Value, Error> {
        if self.all.kind() != ValueKind::Map {
            return Err(error("format requires a mapping"));
        }
        // What is not looked up by a key has no value from here on.
        self.next = Vec::new().into_iter();
        let value = self.all.get_item(&Value::from(key))?;
        if value.is_undefined() {
            Err(error("the format names a key that the mapping lacks"))
        } else {
            Ok(value)
        }
    }

    fn are_all_used(&self) -> bool {
        self.may_stay || self.next.len() == 0
    }
}

/// Flags, width and precision between `%` and the conversion.
#[derive(Default)]
struct Field {
    is_alternate: bool,
    is_zero_filled: bool,
    is_left: bool,
    is_spaced: bool,
    is_signed: bool,
    width: usize,
    precision: Option<usize>,
}

/// The text of the field behind a `%`.
fn convert(rest: &mut Peekable<Chars<'_>>, values: &mut Values<'_>) -> Result<String, Error> {
    if rest.next_if_eq(&'%').is_some() {
        return Ok("%".to_owned());
    }
    let incomplete = || error("incomplete format");
    let mut of_key = None;
    if rest.next_if_eq(&'(').is_some() {
        let key = key(rest).ok_or_else(incomplete)?;
        of_key = Some(values.get(&key)?);
    }
    let mut field = Field::default();
    while let Some(flag) = rest.next_if(|flag| "#0- +".contains(*flag)) {
        match flag {
            '#' => field.is_alternate = true,
            '0' => field.is_zero_filled = true,
            '-' => field.is_left = true,
            ' ' => field.is_spaced = true,
            _ => field.is_signed = true,
        }
    }
    let width = number(rest, values)?.unwrap_or(0);
    // A width from `*` may be negative, which means left-aligned.
    field.is_left |= width < 0;
    field.width = limited_width(width.unsigned_abs())?;
    if rest.next_if_eq(&'.').is_some() {
        let precision = number(rest, values)?.unwrap_or(0);
        // Python takes a negative precision for 0.
        field.precision = Some(limited_width(precision.max(0).unsigned_abs())?);
    }
    // Sizes of C are allowed and change nothing.
    rest.next_if(|size| "hlL".contains(*size));
    let conversion = rest.next().ok_or_else(incomplete)?;
    let value = match of_key {
        Some(value) => value,
        None => values.next()?,
    };
    field.write(conversion, &value)
}

/// A key behind its opening parenthesis; parentheses within it are balanced.
fn key(rest: &mut Peekable<Chars<'_>>) -> Option<String> {
    let (mut key, mut depth) = (String::new(), 1);
    loop {
        let character = rest.next()?;
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(key);
        }
        key.push(character);
    }
}

/// A width or precision: digits, or `*` for the next value.
fn number(rest: &mut Peekable<Chars<'_>>, values: &mut Values<'_>) -> Result<Option<i128>, Error> {
    if rest.next_if_eq(&'*').is_some() {
        let value = values.next()?;
        let number = integer(&value).ok_or_else(|| error("* wants int"))?;
        return Ok(Some(number));
    }
    let mut number = None;
    while let Some(digit) = rest.peek().and_then(|digit| digit.to_digit(10)) {
        rest.next();
        let so_far: i128 = number.unwrap_or(0);
        // A number that saturates is refused by `limited_width`.
        number = Some(so_far.saturating_mul(10).saturating_add(i128::from(digit)));
    }
    Ok(number)
}

/// The integer, where Python takes `value` for one.
pub(crate) fn integer(value: &Value) -> Option<i128> {
    match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        _ if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    }
}

/// The number as a float.
fn float(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        ValueKind::String => {
            let text = value.as_str().filter(|text| is_marked(text))?;
            printed(text.to_owned()).parse().ok()
        }
        _ => None,
    }
}

impl Field {
    fn write(&self, conversion: char, value: &Value) -> Result<String, Error> {
        match conversion {
            's' => Ok(self.text(&printed(str_of(value)?))),
            'r' => Ok(self.text(&printed(repr_of(value)?))),
            'a' => Ok(self.text(&ascii(&printed(repr_of(value)?)))),
            'c' => self.character(value),
            'd' | 'i' | 'u' => {
                let (is_negative, digits) = decimal(value)?;
                Ok(self.integer(is_negative, "", digits))
            }
            'o' | 'x' | 'X' => {
                let number = integer(value).ok_or_else(|| wrong_type(conversion, "an integer"))?;
                let size = number.unsigned_abs();
                let (prefix, digits) = match conversion {
                    'o' => ("0o", format!("{size:o}")),
                    'x' => ("0x", format!("{size:x}")),
                    _ => ("0X", format!("{size:X}")),
                };
                let prefix = if self.is_alternate { prefix } else { "" };
                Ok(self.integer(number < 0, prefix, digits))
            }
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                let number = float(value).ok_or_else(|| wrong_type(conversion, "a number"))?;
                let digits = self.float(conversion.to_ascii_lowercase(), number.abs());
                let digits = if conversion.is_ascii_uppercase() {
                    digits.to_ascii_uppercase()
                } else {
                    digits
                };
                // Python writes no sign for NaN.
                let is_negative = number.is_sign_negative() && !number.is_nan();
                Ok(self.number(is_negative, "", &digits))
            }
            _ => Err(error(format!("unsupported format character {conversion:?}"))),
        }
    }

    fn text(&self, text: &str) -> String {
        let kept = self.precision.unwrap_or(usize::MAX);
        self.padded(text.chars().take(kept).collect())
    }

    fn character(&self, value: &Value) -> Result<String, Error> {
        let wrong = || wrong_type('c', "an integer or a character");
        let character = match value.as_str() {
            Some(text) => {
                let mut characters = text.chars();
                let first = characters.next().ok_or_else(wrong)?;
                characters.next().is_none().then_some(first)
            }
            None => {
                integer(value).and_then(|code| u32::try_from(code).ok()).and_then(char::from_u32)
            }
        };
        Ok(self.padded(character.ok_or_else(wrong)?.to_string()))
    }

    fn integer(&self, is_negative: bool, prefix: &str, digits: String) -> String {
        let least = self.precision.unwrap_or(0);
        let zeros = "0".repeat(least.saturating_sub(digits.len()));
        self.number(is_negative, prefix, &(zeros + &digits))
    }

    /// A number's sign, prefix and digits in a field of the width, zeros behind the prefix.
    fn number(&self, is_negative: bool, prefix: &str, digits: &str) -> String {
        let sign = match (is_negative, self.is_signed, self.is_spaced) {
            (true, _, _) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            (false, false, false) => "",
        };
        let taken = sign.len() + prefix.len() + digits.len();
        // Left alignment switches zeros off.
        let zeros = if self.is_zero_filled && !self.is_left {
            "0".repeat(self.width.saturating_sub(taken))
        } else {
            String::new()
        };
        self.padded([sign, prefix, &zeros, digits].concat())
    }

    fn padded(&self, text: String) -> String {
        let padding = " ".repeat(self.width.saturating_sub(text.chars().count()));
        if self.is_left { text + &padding } else { padding + &text }
    }

    /// A number that is not negative by `e`, `f` or `g`.
    fn float(&self, conversion: char, number: f64) -> String {
        let precision = self.precision.unwrap_or(6);
        match conversion {
            _ if number.is_nan() => "nan".to_owned(),
            _ if number.is_infinite() => "inf".to_owned(),
            'f' => self.with_point(format!("{number:.precision$}")),
            'e' => {
                let (digits, exponent) = scientific(number, precision);
                with_exponent(&self.with_point(digits), exponent)
            }
            _ => self.general(number, precision.max(1)),
        }
    }

    /// `precision` digits: fixed where the exponent is small, else with an exponent.
    fn general(&self, number: f64, precision: usize) -> String {
        // Callers pass a precision of 1 at least.
        let (digits, exponent) = scientific(number, precision - 1);
        let places = i64::try_from(precision).unwrap_or(i64::MAX) - 1 - i64::from(exponent);
        let trimmed = |digits: String| {
            if self.is_alternate || !digits.contains('.') {
                self.with_point(digits)
            } else {
                digits.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
        };
        match usize::try_from(places) {
            Ok(places) if exponent >= -4 => trimmed(format!("{number:.places$}")),
            // A negative number of places means an exponent beyond the precision.
            _ => with_exponent(&trimmed(digits), exponent),
        }
    }

    /// The alternate form has a point in any case.
    fn with_point(&self, digits: String) -> String {
        if self.is_alternate && !digits.contains('.') { digits + "." } else { digits }
    }
}

fn wrong_type(conversion: char, wanted: &str) -> Error {
    error(format!("%{conversion} format: {wanted} is required"))
}

/// The sign and digits of a number that `%d` writes; floats lose their fraction.
fn decimal(value: &Value) -> Result<(bool, String), Error> {
    if let Some(number) = integer(value) {
        return Ok((number < 0, number.unsigned_abs().to_string()));
    }
    if let Some(text) = value.as_str().filter(|text| is_marked(text)) {
        let text = printed(text.to_owned());
        let digits = text.strip_prefix('-').unwrap_or(&text);
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok((text.starts_with('-'), digits.to_owned()));
        }
    }
    match float(value).filter(|float| float.is_finite()) {
        // A number that is cut to 0 has no sign.
        Some(float) => Ok((float <= -1.0, format!("{:.0}", float.abs().trunc()))),
        None => Err(wrong_type('d', "a finite number")),
    }
}

/// The digits of `number` with `precision` places, and its power of ten.
fn scientific(number: f64, precision: usize) -> (String, i32) {
    let text = format!("{number:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.to_owned(), exponent.parse().unwrap_or(0))
}

fn with_exponent(digits: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// `text` with what is not ASCII escaped.
fn ascii(text: &str) -> String {
    let escaped = |character: char| match u32::from(character) {
        0..=0x7f => character.to_string(),
        code @ 0x80..=0xff => format!("\\x{code:02x}"),
        code @ 0x100..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    };
    text.chars().map(escaped).collect()
}
