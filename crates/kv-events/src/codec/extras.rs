//! Extra keys of blocks besides their tokens: adapter, salt, images.
//!
//! ```text
//! extra_keys   [ [adapter, (image, 0), salt], [adapter, (image, -12)], nil, … ]     per block
//! ```
//!
//! vLLM's list has no labels. What stands in it, in order: the adapter's name, which another
//! field repeats; an identifier and its place for each image or the like, or in older releases
//! the identifier alone; on the first block of a prompt the salt; a digest of embeddings that
//! came in place of text. A text that is not the adapter's name may so be a salt or an
//! identifier: the last one on a prompt's first block is taken for the salt, unless the second
//! block has it as well, which only images do. Whatever is taken for something else still sets
//! the block apart, so a mistake costs a match and never makes one up.
//!
//! Values of any other kind count as identifiers, spelled as they came.
//!
//! Source: vLLM `v1/core/kv_cache_utils.py` for the order, its #44701 for the ambiguity; SGLang
//! names the salt.

use std::sync::Arc;

use headstart_core::block::media_extra;

use super::cursor::{Items, Value};
use super::fields::{EventField, EventFields};

/// Most keys of one block that are distinguished; a longer list counts as one key, its raw bytes.
/// No block has that many images, and a long list must not take more memory than it has bytes.
pub(super) const KEYS_MAX: usize = 256;

/// The tenant salt, and its place in the first block's list if it stands there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Salt<'a> {
    pub(super) text: Option<&'a str>,
    place: Option<usize>,
}

/// The adapter's name. Engines that send only a number, above 0, get that as a name: their
/// blocks must not pass for the base model's.
pub(super) fn adapter(fields: &EventFields<'_>) -> Option<Arc<str>> {
    // A map in this field is SGLang's salt, so only a text counts as a name.
    let name = fields.get(EventField::LoraName).and_then(Value::text);
    let number = || fields.get(EventField::LoraId).and_then(Value::unsigned);
    // vLLM numbers adapters from 1: 0 is the base model.
    let number = || number().filter(|&id| id > 0).map(|id| Arc::from(id.to_string()));
    name.map(Arc::from).or_else(number)
}

/// The salt of an event that begins a prompt.
pub(super) fn salt<'a>(fields: &EventFields<'a>, adapter: Option<&str>) -> Salt<'a> {
    // SGLang puts a map with it where vLLM has the adapter's name.
    let in_place_of_name = || fields.get(EventField::LoraName)?.named("cache_salt");
    let named = fields.get(EventField::Salt).or_else(in_place_of_name);
    let named = named.and_then(Value::text);
    let mut blocks = BlockExtrasIter::of(fields, adapter);
    let (first, second) = (blocks.next(), blocks.next());
    let is_again =
        |text: &str| second.is_some_and(|block| block.texts().any(|(_, other)| other == text));
    let last = first.and_then(|block| block.texts().last());
    // With a label the place is sure. Without one, a text that the second block repeats is an
    // image.
    let found = last.filter(|&(_, text)| match named {
        Some(named) => text == named,
        None => !is_again(text),
    });
    Salt { text: named.or(found.map(|(_, text)| text)), place: found.map(|(place, _)| place) }
}

/// Encodes all other keys with [`media_extra`]: one element per block, or none if no block has any.
pub(super) fn media(
    fields: &EventFields<'_>,
    num_blocks: usize,
    adapter: Option<&str>,
    salt: Salt<'_>,
) -> Vec<Option<Arc<[u8]>>> {
    let mut media = Vec::new();
    for (index, block) in BlockExtrasIter::of(fields, adapter).take(num_blocks).enumerate() {
        let Some(extra) = block.media(salt.place.filter(|_| index == 0)) else {
            continue;
        };
        // Most events have no such keys, so the list is made for the first one only.
        if media.is_empty() {
            media = vec![None; num_blocks];
        }
        media[index] = Some(extra);
    }
    media
}

/// The extra keys, block for block.
#[derive(Clone, Copy)]
struct BlockExtrasIter<'a, 'b> {
    keys: Option<Items<'a>>,
    adapter: Option<&'b str>,
}

impl<'a, 'b> BlockExtrasIter<'a, 'b> {
    fn of(fields: &EventFields<'a>, adapter: Option<&'b str>) -> Self {
        let keys = fields.get(EventField::ExtraKeys).and_then(Value::array);
        Self { keys, adapter }
    }
}

impl<'a> Iterator for BlockExtrasIter<'a, '_> {
    type Item = BlockExtras<'a>;

    fn next(&mut self) -> Option<BlockExtras<'a>> {
        let alone = self.keys.as_mut()?.next_alone()?;
        let mut block = alone;
        // An element that is no list counts as a list of one: its bytes still set the block apart.
        let keys = block.next()?.array().unwrap_or(alone);
        // vLLM puts the adapter's name first. The same text further back is a salt or an image.
        let is_adapter = |&(_, text): &(usize, &str)| Some(text) == self.adapter;
        let first = texts(keys).next().filter(is_adapter);
        Some(BlockExtras { keys, adapter: first.map(|(place, _)| place) })
    }
}

/// The extra keys of one block.
#[derive(Clone, Copy)]
struct BlockExtras<'a> {
    keys: Items<'a>,
    /// The place of the adapter's name.
    adapter: Option<usize>,
}

impl<'a> BlockExtras<'a> {
    /// Its texts, without the adapter's name.
    fn texts(self) -> impl Iterator<Item = (usize, &'a str)> {
        texts(self.keys).filter(move |&(place, _)| Some(place) != self.adapter)
    }

    fn media(self, salt: Option<usize>) -> Option<Arc<[u8]>> {
        let mut keys = self.keys;
        if keys.len() > KEYS_MAX {
            return Some(Arc::from(media_extra([(keys.bytes(), 0)])));
        }
        let keys = std::iter::from_fn(|| keys.next_alone()).enumerate();
        let others = keys.filter(|&(place, _)| ![self.adapter, salt].contains(&Some(place)));
        let bytes = media_extra(others.filter_map(|(_, key)| identifier(key)));
        (!bytes.is_empty()).then(|| Arc::from(bytes))
    }
}

fn texts<'a>(keys: Items<'a>) -> impl Iterator<Item = (usize, &'a str)> {
    let text = |(place, key): (usize, Value<'a>)| Some((place, key.text()?));
    keys.enumerate().filter_map(text)
}

/// An identifier and its place. `key` is a list of one.
fn identifier(mut key: Items<'_>) -> Option<(&[u8], i64)> {
    let spelled = key.bytes();
    match key.next()? {
        Value::Nil => None,
        Value::Text(text) | Value::Bytes(text) => (!text.is_empty()).then_some((text, 0)),
        Value::Array(pair) => Some(placed(pair).unwrap_or((spelled, 0))),
        _ => Some((spelled, 0)),
    }
}

fn placed(mut pair: Items<'_>) -> Option<(&[u8], i64)> {
    let (2, Value::Text(name) | Value::Bytes(name)) = (pair.len(), pair.next()?) else {
        return None;
    };
    Some((name, pair.next()?.signed()?))
}

/// The identifiers and places behind `extra`; `None` if [`media_extra`] did not write it.
pub(super) fn media_items(extra: &[u8]) -> Option<Vec<(&[u8], i64)>> {
    let mut items = Vec::new();
    let mut rest = extra;
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (name, behind) = behind.split_at_checked(length)?;
        let (place, behind) = behind.split_first_chunk()?;
        items.push((name, i64::from_le_bytes(*place)));
        rest = behind;
    }
    Some(items)
}
