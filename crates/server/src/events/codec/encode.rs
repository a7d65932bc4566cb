//! From events to bytes: the map form that vLLM writes since June 2026.

use headstart_core::event::StoredBlocks;
use headstart_core::{BlockHash, CacheEvent, Tier};
use rmpv::Value;

/// Writes one payload: `timestamp_s` is seconds since 1970, `rank` the data-parallel rank.
#[must_use]
pub fn encode_batch(timestamp_s: f64, events: &[CacheEvent], rank: Option<u32>) -> Vec<u8> {
    let batch = Value::Array(vec![
        Value::F64(timestamp_s),
        events.iter().map(event).collect(),
        rank.map_or(Value::Nil, Value::from),
    ]);
    let mut payload = Vec::new();
    rmpv::encode::write_value(&mut payload, &batch).expect("a vector takes every write");
    payload
}

fn event(event: &CacheEvent) -> Value {
    match event {
        CacheEvent::Stored(stored) => block_stored(stored),
        CacheEvent::Removed { blocks, tier } => map([
            ("type", "BlockRemoved".into()),
            ("block_hashes", blocks.iter().map(block_hash).collect()),
            ("medium", medium(*tier).into()),
            ("group_idx", 0.into()),
        ]),
        CacheEvent::Cleared => map([("type", "AllBlocksCleared".into())]),
    }
}

fn block_stored(stored: &StoredBlocks) -> Value {
    let hashes = stored.blocks.iter().map(block_hash);
    let tokens = stored.tokens.iter().map(|&token| Value::from(token));
    map([
        ("type", "BlockStored".into()),
        ("block_hashes", hashes.collect()),
        (
            "parent_block_hash",
            stored.parent.as_ref().map_or(Value::Nil, block_hash),
        ),
        ("token_ids", tokens.collect()),
        ("block_size", stored.block_size.into()),
        ("lora_id", Value::Nil),
        ("medium", medium(stored.tier).into()),
        ("lora_name", text(stored.adapter.as_deref())),
        ("extra_keys", extra_keys(stored)),
        ("group_idx", 0.into()),
        ("kv_cache_spec_kind", "full_attention".into()),
    ])
}

fn map<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    Value::Map(pairs.map(|(name, value)| (name.into(), value)).into())
}

fn text(text: Option<&str>) -> Value {
    text.map_or(Value::Nil, Value::from)
}

/// A number where 64 bits hold it, as engines with integer hashes send; bytes otherwise.
fn block_hash(hash: &BlockHash) -> Value {
    match u64::try_from(u128::from_be_bytes(hash.0)) {
        Ok(number) => number.into(),
        Err(_) => hash.0.as_slice().into(),
    }
}

/// One element per block: the adapter's name, and on the first block of a prompt the salt.
fn extra_keys(stored: &StoredBlocks) -> Value {
    let salt = stored.salt.as_deref().filter(|_| stored.parent.is_none());
    let adapter = stored.adapter.as_deref();
    if salt.is_none() && adapter.is_none() {
        return Value::Nil;
    }
    let first = adapter.into_iter().chain(salt).map(Value::from).collect();
    let other = adapter.map_or(Value::Nil, |name| Value::Array(vec![name.into()]));
    let others = stored.blocks.iter().skip(1).map(|_| other.clone());
    std::iter::once(first).chain(others).collect()
}

fn medium(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "GPU",
        Tier::Host => "CPU",
        Tier::Disk => "STORAGE",
        Tier::Remote => "EXTERNAL",
    }
}
