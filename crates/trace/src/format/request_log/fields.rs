//! The fields of a JSON object, each parsed on demand.
//!
//! A field that is not what was hoped for counts as absent: what stands beside a prompt must not
//! make a log unreadable.

use std::collections::HashMap;

use headstart_core::Nanos;
use headstart_core::shown::one_line;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::super::azure::nanos_since_1970;

/// One object, not yet parsed further than its names.
#[derive(Default)]
pub(super) struct RawFields<'a>(HashMap<String, &'a RawValue>);

impl<'a> RawFields<'a> {
    /// The fields of the object `text`.
    ///
    /// # Errors
    /// Why it is no object.
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        // Not in its own words: they repeat what stands there, and that may be a prompt.
        serde_json::from_str(text).map(Self).map_err(|error| match error.classify() {
            Category::Data => "it is JSON, and no object".to_owned(),
            Category::Eof => "it ends too early".to_owned(),
            _ => format!("no JSON from column {} on", error.column()),
        })
    }

    /// The fields' names, some of them, for a message.
    pub(super) fn named(&self) -> String {
        const SHOWN: usize = 8;
        let mut names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        names.sort_unstable();
        let shown = names.iter().take(SHOWN);
        // A name is a client's to choose, and is shown in terminals.
        let quoted = |name: &&str| {
            let front: String = name.chars().take(24).collect();
            format!("`{}`", one_line(&front))
        };
        let shown: Vec<String> = shown.map(quoted).collect();
        match names.len() {
            0 => "no field".to_owned(),
            count if count > SHOWN => {
                format!("{} and {} more", shown.join(", "), count - SHOWN)
            }
            _ => shown.join(", "),
        }
    }

    /// Returns the JSON text of a field; `null` counts as absent.
    pub(super) fn raw(&self, name: &str) -> Option<&'a str> {
        let text = self.0.get(name)?.get();
        (text != "null").then_some(text)
    }

    /// A field as it stands.
    pub(super) fn value<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.raw(name)?).ok()
    }

    /// A field that is an object.
    pub(super) fn object(&self, name: &str) -> Option<Self> {
        Self::parse(self.raw(name).filter(|text| text.starts_with('{'))?).ok()
    }

    /// A text, or a number as one; an empty text says as little as none.
    pub(super) fn name(&self, name: &str) -> Option<String> {
        let text = self.raw(name)?;
        if text.starts_with('"') {
            return self.value::<String>(name).filter(|text| !text.is_empty());
        }
        let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        // As written: a long id would lose digits as an `f64`.
        is_number.then(|| text.to_owned())
    }

    /// A number, also one that is written as a text.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.name(name)?.parse().ok()
    }

    /// A count of tokens.
    pub(super) fn count(&self, name: &str) -> Option<u32> {
        let number = self.number(name)?;
        // A fraction is cut. A NaN or a negative number counts as absent.
        (0.0..=f64::from(u32::MAX)).contains(&number).then_some(number as u32)
    }

    /// A point in time.
    pub(super) fn time(&self, name: &str) -> Option<Nanos> {
        time(&self.name(name)?)
    }

    /// A list, also one that stands as JSON within a text, as databases keep them.
    pub(super) fn list(&self, name: &str) -> Option<Value> {
        let value: Value = self.value(name)?;
        let value = match value {
            Value::String(text) if text.trim_start().starts_with('[') => {
                serde_json::from_str(&text).ok()?
            }
            value => value,
        };
        value.is_array().then_some(value)
    }
}

/// A text as in RFC 3339, or a number since 1970, in the unit by which it falls between 1973 and
/// 5138; smaller ones are seconds since whatever the log counts from.
fn time(text: &str) -> Option<Nanos> {
    /// Seconds in the year 5138; as milliseconds, in 1973.
    const SECONDS_MAX: f64 = 1e11;
    let nanos = match text.parse::<f64>() {
        Ok(number) => {
            let units = [1e9, 1e6, 1e3, 1.0];
            // The bound grows by a thousand with each finer unit.
            let unit = units.into_iter().enumerate().find_map(|(index, unit)| {
                (number < SECONDS_MAX * 1e3_f64.powi(index as i32)).then_some(unit)
            })?;
            exact(text, number, unit)?
        }
        Err(_) => nanos_since_1970(text)?,
    };
    u64::try_from(nanos).ok().map(Nanos)
}

/// `number`, written as `text`, in nanoseconds: whole numbers keep all their digits. None of one
/// that is too large.
fn exact(text: &str, number: f64, unit: f64) -> Option<i128> {
    // Nanoseconds since 1970 need 61 bits, and an `f64` has 53.
    match text.parse::<i128>() {
        Ok(whole) => whole.checked_mul(unit as i128),
        Err(_) => Some((number * unit).round() as i128),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_time(text: &str, expected_ns: Option<u64>) {
        assert_eq!(time(text), expected_ns.map(Nanos), "{text}");
    }

    #[test]
    fn the_size_of_a_time_tells_its_unit() {
        let ns = 1_760_995_776_640_783_000;
        check_time("1760995776640783000", Some(ns));
        check_time("1760995776640783", Some(ns));
        check_time("1760995776640", Some(ns / 1_000_000 * 1_000_000));
        check_time("1760995776", Some(ns / 1_000_000_000 * 1_000_000_000));
        check_time("1760995776.5", Some(1_760_995_776_500_000_000));
        check_time("12.25", Some(12_250_000_000));
        check_time("2025-10-20T21:29:36Z", Some(1_760_995_776_000_000_000));
        check_time("2025-10-20 21:29:36.640783", Some(ns));
        for none in ["-5", "yesterday", "NaN", "inf", "1e40", ""] {
            check_time(none, None);
        }
        // The least that an `i128` holds, and one whose nanoseconds it does not.
        check_time("-170141183460469231731687303715884105728", None);
        check_time("-170141183460469231731687303715884105", None);
    }

    #[test]
    fn names_are_shown_without_what_a_terminal_would_obey() {
        let text = "{\"b\u{202e}c\\u001b[2J\": 1, \"a\": 2}";
        let fields = RawFields::parse(text).expect("an object");
        assert_eq!(fields.named(), "`a`, `b\\u{202e}c\\u{1b}[2J`");
    }

    #[test]
    fn what_is_not_as_hoped_is_absent() {
        let text = r#"{"a": "", "b": null, "c": [1], "d": {"x": 1}, "e": "5", "f": -1, "g": "["}"#;
        let fields = RawFields::parse(text).expect("an object");
        for absent in ["a", "b", "c", "d", "z"] {
            assert_eq!(fields.name(absent), None, "{absent}");
        }
        assert_eq!(fields.count("e"), Some(5));
        assert_eq!(fields.count("f"), None);
        assert_eq!(fields.name("f"), Some("-1".to_owned()));
        assert_eq!(fields.object("d").and_then(|d| d.count("x")), Some(1));
        assert!(fields.object("c").is_none() && fields.raw("b").is_none());
        assert_eq!(fields.list("c"), Some(serde_json::json!([1])));
        assert_eq!((fields.list("g"), fields.list("d")), (None, None));
    }
}
