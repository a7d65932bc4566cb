//! Access to the fields of one event, by position or by name, and the values in them.

use headstart_core::{BlockHash, TokenId};
use rmpv::Value;

/// The fields of a batch or an event in one of the two forms.
#[derive(Clone, Copy)]
pub(super) enum Fields<'a> {
    Positional(&'a [Value]),
    Named(&'a [(Value, Value)]),
}

impl<'a> Fields<'a> {
    pub(super) fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::Array(elements) => Some(Self::Positional(elements)),
            Value::Map(pairs) => Some(Self::Named(pairs)),
            _ => None,
        }
    }

    /// The field at `index` of the positional form, `name` of the map form; `None` where absent
    /// or nil, which engines do not tell apart.
    pub(super) fn get(self, index: usize, name: &str) -> Option<&'a Value> {
        match self {
            Self::Positional(elements) => elements.get(index).filter(|value| !value.is_nil()),
            Self::Named(_) => self.named(name),
        }
    }

    /// A field that only the map form has.
    pub(super) fn named(self, name: &str) -> Option<&'a Value> {
        let Self::Named(pairs) = self else {
            return None;
        };
        let pair = pairs.iter().find(|(key, _)| key.as_str() == Some(name));
        pair.map(|(_, value)| value).filter(|value| !value.is_nil())
    }
}

/// The low 128 bits of a hash sent as bytes (shorter ones padded on the left), or a 64-bit
/// integer, signed or not.
pub(super) fn block_hash(value: &Value) -> Option<BlockHash> {
    if let Some(bytes) = value.as_slice() {
        return low_16(bytes).map(BlockHash);
    }
    let number = value
        .as_u64()
        .or_else(|| value.as_i64().map(|number| number as u64))?;
    Some(BlockHash::from_u64(number))
}

fn low_16(bytes: &[u8]) -> Option<[u8; 16]> {
    if bytes.is_empty() {
        return None;
    }
    let low = &bytes[bytes.len().saturating_sub(16)..];
    let mut hash = [0; 16];
    hash[16 - low.len()..].copy_from_slice(low);
    Some(hash)
}

/// A token id. SGLang's speculative mode sends overlapping pairs, whose first elements are the
/// tokens.
pub(super) fn token(value: &Value) -> Option<TokenId> {
    match value {
        Value::Array(pair) if pair.len() == 2 => unsigned(&pair[0]),
        _ => unsigned(value),
    }
}

/// A number of 32 bits.
pub(super) fn unsigned(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

/// All elements of an array; `None` if it is none or an element is bad.
pub(super) fn list<T>(value: &Value, element: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(element).collect()
}
