//! From bytes to events.

use std::sync::Arc;

use headstart_core::event::StoredBlocks;
use headstart_core::{BlockHash, CacheEvent, Tier};
use rmpv::Value;

use super::fields::{Fields, block_hash, list, token, unsigned};
use super::{Batch, DEPTH_MAX, DecodeError, PAYLOAD_BYTES_MAX, SkipReason, Skipped};

/// Reads one payload. Linear in its size; allocates for elements that are there, never for
/// those that a header merely claims.
///
/// # Errors
/// When nothing of it can be used.
pub fn decode_batch(payload: &[u8]) -> Result<Batch, DecodeError> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(DecodeError::TooLarge {
            bytes: payload.len(),
        });
    }
    let value = rmpv::decode::read_value_with_max_depth(&mut &payload[..], DEPTH_MAX)?;
    let outer = Fields::of(&value).ok_or(DecodeError::NotABatch)?;
    let events = outer.get(1, "events").and_then(Value::as_array);
    let mut batch = Batch {
        rank: outer.get(2, "data_parallel_rank").and_then(unsigned),
        ..Batch::default()
    };
    for (index, value) in events.ok_or(DecodeError::NotABatch)?.iter().enumerate() {
        match event(value) {
            Ok(event) => batch.events.push(event),
            Err(reason) => batch.skipped.push(Skipped { index, reason }),
        }
    }
    Ok(batch)
}

fn event(value: &Value) -> Result<CacheEvent, SkipReason> {
    let fields = Fields::of(value).ok_or(SkipReason::NotAnEvent)?;
    let tag = fields.get(0, "type").and_then(Value::as_str);
    match tag.ok_or(SkipReason::NotAnEvent)? {
        "BlockStored" => stored(fields).map(CacheEvent::Stored),
        "BlockRemoved" => removed(fields),
        "AllBlocksCleared" => Ok(CacheEvent::Cleared),
        _ => Err(SkipReason::UnknownTag),
    }
}

fn stored(fields: Fields<'_>) -> Result<StoredBlocks, SkipReason> {
    only_first_group(fields.get(9, "group_idx"))?;
    only_full_attention(fields.get(10, "kv_cache_spec_kind"))?;
    let blocks = block_hashes(fields)?;
    let parent = parent(fields)?;
    let tokens = required(fields, 3, "token_ids", |value| list(value, token))?;
    let block_size = required(fields, 4, "block_size", unsigned)?;
    check_length(tokens.len(), blocks.len(), block_size)?;
    let adapter = adapter(fields);
    Ok(StoredBlocks {
        salt: salt(fields, adapter.as_deref()).filter(|_| parent.is_none()),
        tier: tier(fields.get(6, "medium"))?,
        blocks,
        parent,
        tokens,
        block_size,
        adapter,
    })
}

fn removed(fields: Fields<'_>) -> Result<CacheEvent, SkipReason> {
    only_first_group(fields.get(3, "group_idx"))?;
    Ok(CacheEvent::Removed {
        blocks: block_hashes(fields)?,
        tier: tier(fields.get(2, "medium"))?,
    })
}

fn block_hashes(fields: Fields<'_>) -> Result<Vec<BlockHash>, SkipReason> {
    let some = |hashes: &Vec<_>| !hashes.is_empty();
    required(fields, 1, "block_hashes", |value| {
        list(value, block_hash).filter(some)
    })
}

fn parent(fields: Fields<'_>) -> Result<Option<BlockHash>, SkipReason> {
    let name = "parent_block_hash";
    let hash = fields.get(2, name).map(block_hash);
    match hash {
        None => Ok(None),
        Some(hash) => hash.map(Some).ok_or(SkipReason::Invalid(name)),
    }
}

fn required<T>(
    fields: Fields<'_>,
    index: usize,
    name: &'static str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<T, SkipReason> {
    let value = fields.get(index, name).ok_or(SkipReason::Missing(name))?;
    read(value).ok_or(SkipReason::Invalid(name))
}

/// A block holds a token at least. No tokens at all is a change of tier of known blocks.
fn check_length(tokens: usize, blocks: usize, block_size: u32) -> Result<(), SkipReason> {
    if block_size == 0 {
        return Err(SkipReason::Invalid("block_size"));
    }
    if tokens == 0 || tokens as u64 == blocks as u64 * u64::from(block_size) {
        return Ok(());
    }
    Err(SkipReason::Length {
        tokens,
        blocks,
        block_size,
    })
}

fn tier(medium: Option<&Value>) -> Result<Tier, SkipReason> {
    let Some(medium) = medium else {
        return Ok(Tier::Device);
    };
    let name = medium.as_str().map(str::to_ascii_uppercase);
    match name.as_deref() {
        Some("GPU") => Ok(Tier::Device),
        Some("CPU" | "CPU_PINNED") => Ok(Tier::Host),
        Some("DISK" | "STORAGE") => Ok(Tier::Disk),
        Some("EXTERNAL") => Ok(Tier::Remote),
        _ => Err(SkipReason::Invalid("medium")),
    }
}

fn only_first_group(group: Option<&Value>) -> Result<(), SkipReason> {
    match group.map(Value::as_u64) {
        None | Some(Some(0)) => Ok(()),
        Some(_) => Err(SkipReason::OtherGroup),
    }
}

fn only_full_attention(kind: Option<&Value>) -> Result<(), SkipReason> {
    match kind.map(Value::as_str) {
        None | Some(Some("full_attention" | "mla_attention")) => Ok(()),
        Some(_) => Err(SkipReason::OtherAttention),
    }
}

/// The adapter's name. Engines that send only a number, above 0, get that as a name: their
/// blocks must not pass for the base model's.
fn adapter(fields: Fields<'_>) -> Option<Arc<str>> {
    let name = fields.get(7, "lora_name").and_then(Value::as_str);
    let number = || fields.get(5, "lora_id").and_then(Value::as_u64);
    let number = || {
        number()
            .filter(|&id| id > 0)
            .map(|id| Arc::from(id.to_string()))
    };
    name.map(Arc::from).or_else(number)
}

/// The tenant salt: SGLang names it; vLLM puts it last among the texts of the first block's
/// extra keys, behind the adapter's name.
fn salt(fields: Fields<'_>, adapter: Option<&str>) -> Option<Arc<str>> {
    let in_place_of_adapter = fields.get(7, "lora_name").and_then(Fields::of);
    let named = fields
        .named("cache_salt")
        .or_else(|| in_place_of_adapter?.named("cache_salt"));
    if let Some(salt) = named.and_then(Value::as_str) {
        return Some(Arc::from(salt));
    }
    let blocks = fields.get(8, "extra_keys")?.as_array()?;
    let keys = blocks.first()?.as_array()?;
    let mut texts = keys.iter().filter_map(Value::as_str);
    let first = texts.next()?;
    match texts.next_back() {
        Some(last) => Some(Arc::from(last)),
        None => Some(Arc::from(first)).filter(|_| Some(first) != adapter),
    }
}
