//! JSON values as templates see them: lists and dictionaries that print themselves as Python's do,
//! also where an operator such as `~` makes a text of them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Enumerator, Object, ObjectExt, ObjectRepr};

use crate::json_dumps::float_repr;
use crate::python_number::marked_float;
use crate::python_repr::str_of;

/// Entries that a dictionary searches one by one.
const SEARCHED_MAX: usize = 16;

/// `json` as a template's value. Costs its size.
pub(crate) fn value_of(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(is_true) => Value::from(*is_true),
        serde_json::Value::Number(number) => number_of(number),
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => {
            Value::from_object(PythonList(items.iter().map(value_of).collect()))
        }
        serde_json::Value::Object(fields) => {
            let entries = fields.iter();
            Value::from_object(Dictionary::new(
                entries.map(|(key, value)| (Arc::from(key.as_str()), value_of(value))),
            ))
        }
    }
}

/// Floats that Python writes with an exponent are marked: operators would write all their digits.
fn number_of(number: &serde_json::Number) -> Value {
    if let Some(integer) = number.as_i64() {
        return Value::from(integer);
    }
    if let Some(integer) = number.as_u64() {
        return Value::from(integer);
    }
    let float = number.as_f64().unwrap_or(f64::NAN);
    match float_repr(float) {
        text if text.contains('e') => Value::from(marked_float(&text)),
        _ => Value::from(float),
    }
}

#[derive(Debug)]
struct PythonList(Vec<Value>);

impl Object for PythonList {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(Value::from_dyn_object(self.clone()), f)
    }
}

#[derive(Debug)]
struct Dictionary {
    entries: Vec<(Arc<str>, Value)>,
    /// Places of the entries, where there are many.
    places: HashMap<Arc<str>, usize>,
}

impl Dictionary {
    fn new(entries: impl Iterator<Item = (Arc<str>, Value)>) -> Self {
        let entries: Vec<_> = entries.collect();
        let places = match entries.len() {
            0..=SEARCHED_MAX => HashMap::new(),
            _ => {
                (entries.iter().enumerate()).map(|(place, (key, _))| (key.clone(), place)).collect()
            }
        };
        Self { entries, places }
    }
}

impl Object for Dictionary {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let place = match self.entries.len() {
            // The same limit as in `new`, which builds no table for fewer entries.
            0..=SEARCHED_MAX => self.entries.iter().position(|(name, _)| **name == *key),
            _ => self.places.get(key).copied(),
        };
        Some(self.entries[place?].1.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_key_value_enumerator(|this| {
            let pair = |(key, value): &(Arc<str>, Value)| (Value::from(key.clone()), value.clone());
            Box::new(this.entries.iter().map(pair))
        })
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.entries.len())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(Value::from_dyn_object(self.clone()), f)
    }
}

fn print(value: Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(&str_of(&value).map_err(|_| fmt::Error)?)
}
