//! Taking a JSON object apart, field by field: whatever is not taken is refused by name.

use http::StatusCode;
use serde_json::{Map, Value};

use super::ApiError;

/// The fields of a request that are not taken yet.
#[derive(Debug)]
pub struct Fields {
    fields: Map<String, Value>,
    /// Prefix of field names in errors.
    path: String,
}

impl Fields {
    /// Parses a request body.
    ///
    /// # Errors
    /// When it is not a JSON object.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self { fields, path: String::new() }),
            Ok(_) => Err(bad("the body is valid JSON but not an object".to_owned())),
            Err(error) => Err(no_json(&error.to_string())),
        }
    }

    /// Takes apart an object inside a request. Its fields are named as in `options.include_usage`.
    ///
    /// # Errors
    /// When `value` is not an object.
    pub fn of(value: Value, name: &str) -> Result<Self, ApiError> {
        let Value::Object(fields) = value else {
            return Err(ApiError::invalid(name, format!("`{name}` must be an object")));
        };
        Ok(Self { fields, path: format!("{name}.") })
    }

    /// A field that stays.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// Drops fields, whatever they hold.
    pub fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.fields.shift_remove(*name);
        }
    }

    /// Takes a field; absent and `null` are the same.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        // Keeps the order of the others: an error names the first field that is left.
        self.fields.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Takes a string.
    ///
    /// # Errors
    /// When it is something else.
    pub fn string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        self.taken(name, "a string", |value| match value {
            Value::String(text) => Some(text),
            _ => None,
        })
    }

    /// Takes a boolean.
    ///
    /// # Errors
    /// When it is something else.
    pub fn boolean(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        self.taken(name, "true or false", |value| value.as_bool())
    }

    /// Takes an integer of `range`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn integer(
        &mut self,
        name: &str,
        range: std::ops::RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        let expected = format!("an integer from {} to {}", range.start(), range.end());
        self.taken(name, &expected, |value| value.as_i64().filter(|number| range.contains(number)))
    }

    /// Takes a number of `range`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn number(
        &mut self,
        name: &str,
        range: std::ops::RangeInclusive<f64>,
    ) -> Result<Option<f64>, ApiError> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        self.taken(name, &expected, |value| value.as_f64().filter(|number| range.contains(number)))
    }

    /// Refuses whatever is left, unless it says nothing: `null`, or a value in `neutral`.
    ///
    /// # Errors
    /// Names the first field left.
    pub fn refuse_rest(self, neutral: &[(&str, &[Value])]) -> Result<(), ApiError> {
        for (name, value) in self.fields {
            let known = neutral.iter().find(|(known, _)| *known == name);
            let name = format!("{}{name}", self.path);
            match known {
                _ if value.is_null() => {}
                Some((_, values)) if values.iter().any(|neutral| same(neutral, &value)) => {}
                Some((_, values)) => {
                    let allowed: Vec<_> = values.iter().map(Value::to_string).collect();
                    let hint = format!(" beyond {}", allowed.join(" or "));
                    return Err(ApiError::unsupported(&name, &hint));
                }
                None => return Err(ApiError::unsupported(&name, "")),
            }
        }
        Ok(())
    }

    fn taken<T>(
        &mut self,
        name: &str,
        expected: &str,
        convert: impl FnOnce(Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let name = format!("{}{name}", self.path);
        let wrong = || ApiError::invalid(&name, format!("`{name}` must be {expected}"));
        convert(value).map(Some).ok_or_else(wrong)
    }
}

/// The error for a body that is not JSON at all.
pub(crate) fn no_json(error: &str) -> ApiError {
    bad(format!("the body is not valid JSON: {error}"))
}

fn bad(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", message)
}

/// Equal, where 0 and 0.0 are.
fn same(a: &Value, b: &Value) -> bool {
    a == b || (a.is_number() && a.as_f64() == b.as_f64())
}
