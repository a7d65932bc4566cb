//! The fields of one event, by position or by name, and the values in them.

use headstart_core::{BlockHash, TokenId};

use super::cursor::{Cursor, CutOff, Items, Value, ValueHead};

/// A field of an event that we read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventField {
    Tag,
    BlockHashes,
    Parent,
    TokenIds,
    BlockSize,
    LoraId,
    Medium,
    LoraName,
    ExtraKeys,
    Group,
    SpecKind,
    SpecWindow,
    Salt,
    Lookahead,
}

use EventField::{
    BlockHashes, BlockSize, ExtraKeys, Group, Lookahead, LoraId, LoraName, Medium, Parent, Salt,
    SpecKind, SpecWindow, Tag, TokenIds,
};

/// Fields of a stored event's positional form, in order.
const STORED: &[EventField] = &[
    Tag,
    BlockHashes,
    Parent,
    TokenIds,
    BlockSize,
    LoraId,
    Medium,
    LoraName,
    ExtraKeys,
    Group,
    SpecKind,
    SpecWindow,
];

/// The same of a removal.
const REMOVED: &[EventField] = &[Tag, BlockHashes, Medium, Group];

const NUM_FIELDS: usize = Lookahead as usize + 1;

/// All fields in their order, each with its name in the map form.
const NAMES: [(&str, EventField); NUM_FIELDS] = [
    ("type", Tag),
    ("block_hashes", BlockHashes),
    ("parent_block_hash", Parent),
    ("token_ids", TokenIds),
    ("block_size", BlockSize),
    ("lora_id", LoraId),
    ("medium", Medium),
    ("lora_name", LoraName),
    ("extra_keys", ExtraKeys),
    ("group_idx", Group),
    ("kv_cache_spec_kind", SpecKind),
    ("kv_cache_spec_sliding_window", SpecWindow),
    ("cache_salt", Salt),
    ("lookahead_token_ids", Lookahead),
];

impl EventField {
    fn of(key: Value<'_>) -> Option<Self> {
        let Value::Text(key) = key else {
            return None;
        };
        NAMES.iter().find(|(name, _)| name.as_bytes() == key).map(|&(_, field)| field)
    }

    /// The field's name in the map form.
    pub(super) fn text(self) -> &'static str {
        NAMES[self as usize].0
    }
}

/// Fields of an event, not yet interpreted.
#[derive(Debug, Default)]
pub(super) struct EventFields<'a> {
    slots: [Option<Value<'a>>; NUM_FIELDS],
}

impl<'a> EventFields<'a> {
    /// Reads an event in one of the two forms; `None` where it is neither. The cursor is behind
    /// it in any case.
    pub(super) fn read(cursor: &mut Cursor<'a>) -> Result<Option<Self>, CutOff> {
        let mut fields = Self::default();
        match cursor.head()? {
            ValueHead::Array(0) => {}
            ValueHead::Array(length) => {
                fields.set(Tag, cursor.value()?);
                fields.read_positions(cursor, length)?;
            }
            ValueHead::Map(pairs) => {
                for _ in 0..pairs {
                    match EventField::of(cursor.value()?) {
                        Some(name) => fields.set(name, cursor.value()?),
                        None => cursor.skip(1)?,
                    }
                }
            }
            ValueHead::Whole(_) => return Ok(None),
        }
        Ok(Some(fields))
    }

    fn read_positions(&mut self, cursor: &mut Cursor<'a>, length: usize) -> Result<(), CutOff> {
        let names = match self.tag() {
            // vLLM only appends fields, so older engines send a prefix of the list.
            Some("BlockStored") => STORED,
            Some("BlockRemoved") => REMOVED,
            _ => &[Tag],
        };
        for name in names.iter().take(length).skip(1) {
            self.set(*name, cursor.value()?);
        }
        cursor.skip(length.saturating_sub(names.len()))
    }

    /// The first one of a name counts.
    fn set(&mut self, name: EventField, value: Value<'a>) {
        self.slots[name as usize].get_or_insert(value);
    }

    /// Type name of the event.
    pub(super) fn tag(&self) -> Option<&'a str> {
        self.get(Tag)?.text()
    }

    /// The field `name`; `None` where absent or nil, which engines do not tell apart.
    pub(super) fn get(&self, name: EventField) -> Option<Value<'a>> {
        self.slots[name as usize].and_then(Value::present)
    }
}

/// The low 128 bits of a hash sent as bytes (shorter ones padded on the left), or a 64-bit
/// integer, signed or not.
pub(super) fn block_hash(value: Value<'_>) -> Option<BlockHash> {
    match value {
        Value::Unsigned(number) => Some(BlockHash::from_u64(number)),
        // The same 64 bits: an engine in Python may send a hash as a signed integer.
        Value::Signed(number) => Some(BlockHash::from_u64(number as u64)),
        Value::Bytes(bytes) | Value::Text(bytes) => low_16(bytes).map(BlockHash),
        _ => None,
    }
}

fn low_16(bytes: &[u8]) -> Option<[u8; 16]> {
    if bytes.is_empty() {
        // An empty hash would be the same handle as the number 0.
        return None;
    }
    let low = &bytes[bytes.len().saturating_sub(16)..];
    let mut hash = [0; 16];
    // Padding on the left gives bytes and the integer of the same value one handle.
    hash[16 - low.len()..].copy_from_slice(low);
    Some(hash)
}

/// A token id. SGLang's speculative mode sends overlapping pairs, whose first elements are the
/// tokens.
#[inline]
pub(super) fn token(value: Value<'_>) -> Option<TokenId> {
    match value {
        // Two elements exactly: a longer array is no pair of SGLang's.
        Value::Array(mut pair) if pair.len() == 2 => unsigned_32(pair.next()?),
        _ => unsigned_32(value),
    }
}

/// A number of 32 bits.
#[inline]
pub(super) fn unsigned_32(value: Value<'_>) -> Option<u32> {
    value.unsigned().and_then(|number| u32::try_from(number).ok())
}

/// Returns all elements of an array; `None` if `value` is no array or an element is bad. Allocates
/// once.
#[inline]
pub(super) fn list<'a, T>(
    value: Value<'a>,
    element: impl Fn(Value<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let items: Items<'a> = value.array()?;
    let mut list = Vec::with_capacity(items.len());
    for item in items {
        list.push(element(item)?);
    }
    Some(list)
}
