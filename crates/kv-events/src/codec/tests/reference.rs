//! The decoder by definition: the whole payload as a tree of values, then look-ups in it. Takes
//! up to forty times the payload's memory, and its time; for tests.

use headstart_core::block::{lookahead_extra, media_extra};
use headstart_core::event::{Attention, CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Tier};
use headstart_router::stream::StreamBatch;
use rmpv::Value;

use super::ToldBatch;
use crate::codec::extras::KEYS_MAX;
use crate::codec::{DecodeError, SkipReason, SkippedEvent, TYPE_CHARS_MAX};

/// Deepest nesting that is read; recursion needs a bound.
const DEPTH_MAX: usize = 600;

/// Reads one payload; `None` where it is nested too deeply for this reader.
pub(super) fn decode_batch(payload: &[u8]) -> Option<Result<ToldBatch, DecodeError>> {
    let value = match rmpv::decode::read_value_with_max_depth(&mut &payload[..], DEPTH_MAX) {
        Ok(value) => value,
        Err(rmpv::decode::Error::DepthLimitExceeded) => return None,
        Err(_) => return Some(Err(DecodeError::CutOff)),
    };
    Some(batch(&value).ok_or(DecodeError::NotABatch))
}

fn batch(value: &Value) -> Option<ToldBatch> {
    let ts = field(value, Some(0), "ts").and_then(Value::as_f64);
    let mut skipped = Vec::new();
    let mut batch = StreamBatch {
        ts: ts.filter(|ts| ts.is_finite()),
        rank: field(value, Some(2), "data_parallel_rank").and_then(unsigned),
        ..StreamBatch::default()
    };
    for (index, value) in field(value, Some(1), "events")?.as_array()?.iter().enumerate() {
        match event(value) {
            Ok(event) => batch.events.push(event),
            Err(reason) => {
                let tag = field(value, Some(0), "type").and_then(Value::as_str);
                let is_left_out =
                    [SkipReason::OtherGroup, SkipReason::UnknownTier].contains(&reason);
                let may_have_removed = tag != Some("BlockStored") && !is_left_out;
                if let (Some(tag), SkipReason::UnknownTag, None) =
                    (tag, reason, &batch.unknown_type)
                {
                    let kept = tag.chars().take(TYPE_CHARS_MAX).collect::<String>();
                    let dots = ["...", ""][usize::from(kept == tag)];
                    let name = format!("{}{dots}", kept.escape_default());
                    batch.unknown_type = Some(name.into());
                }
                batch.damage.add(reason.label(), may_have_removed);
                skipped.push(SkippedEvent { index, reason, may_have_removed });
            }
        }
    }
    Some(ToldBatch { batch, skipped })
}

/// The element at `index` of an array or the value of `name` in a map, unless it is nil.
fn field<'a>(value: &'a Value, index: Option<usize>, name: &str) -> Option<&'a Value> {
    let found = match value {
        Value::Array(elements) => elements.get(index?)?,
        Value::Map(pairs) => {
            let mut pairs = pairs.iter();
            &pairs.find(|(key, _)| key.as_str() == Some(name))?.1
        }
        _ => return None,
    };
    (!found.is_nil()).then_some(found)
}

fn event(value: &Value) -> Result<CacheEvent, SkipReason> {
    match field(value, Some(0), "type").and_then(Value::as_str) {
        Some("BlockStored") => stored(value).map(CacheEvent::Stored),
        Some("BlockRemoved") => Ok(CacheEvent::Removed {
            group: group_index(field(value, Some(3), "group_idx"))?,
            tier: tier(field(value, Some(2), "medium"))?,
            blocks: hashes(value)?,
        }),
        Some("AllBlocksCleared") => Ok(CacheEvent::Cleared),
        Some(_) => Err(SkipReason::UnknownTag),
        None => Err(SkipReason::NotAnEvent),
    }
}

fn stored(value: &Value) -> Result<StoredBlocks, SkipReason> {
    let index = group_index(field(value, Some(9), "group_idx"))?;
    let kind = field(value, Some(10), "kv_cache_spec_kind");
    let kind = kind.map(|kind| kind.as_str().unwrap_or("of another type"));
    let window = field(value, Some(11), "kv_cache_spec_sliding_window").and_then(unsigned);
    if let Some("encoder_only_attention" | "cross_attention") = kind {
        return Err(SkipReason::OtherAttention);
    }
    let is_window = matches!(kind, Some("sliding_window" | "sliding_window_mla"));
    let attention = match (kind, window) {
        (Some("mamba"), _) => Attention::State,
        (_, Some(tokens)) if is_window && tokens > 0 => Attention::Window { tokens },
        _ => Attention::Full,
    };
    let keeps_all = match kind {
        None => index == 0,
        Some(kind) => ["full_attention", "mla_attention", "sink_full_attention"].contains(&kind),
    };
    let blocks = hashes(value)?;
    if blocks.is_empty() {
        return Err(SkipReason::Invalid("block_hashes"));
    }
    let parent = match field(value, Some(2), "parent_block_hash") {
        None => None,
        Some(parent) => Some(hash(parent).ok_or(SkipReason::Invalid("parent_block_hash"))?),
    };
    let tokens = field(value, Some(3), "token_ids").ok_or(SkipReason::Missing("token_ids"))?;
    let token = |value: &Value| match value.as_array() {
        Some(pair) if pair.len() == 2 => unsigned(&pair[0]),
        _ => unsigned(value),
    };
    let tokens: Option<Vec<_>> =
        tokens.as_array().and_then(|tokens| tokens.iter().map(token).collect());
    let mut tokens = tokens.ok_or(SkipReason::Invalid("token_ids"))?;
    let block_size =
        field(value, Some(4), "block_size").ok_or(SkipReason::Missing("block_size"))?;
    let block_size = unsigned(block_size).ok_or(SkipReason::Invalid("block_size"))?;
    if !tokens.is_empty() && block_size == 0 {
        return Err(SkipReason::Invalid("block_size"));
    }
    let filled = blocks.len() as u128 * u128::from(block_size);
    if !tokens.is_empty() && tokens.len() as u128 != filled {
        if keeps_all {
            return Err(SkipReason::Length {
                tokens: tokens.len(),
                blocks: blocks.len(),
                block_size,
            });
        }
        tokens.clear();
    }
    let (adapter, salt, mut extras) = apart(value, blocks.len(), parent.is_none());
    let ahead = lookahead(value, blocks.len())?;
    let lookahead = ahead.first().map_or(0, |tokens| tokens.len() as u32);
    if lookahead > 0 && !tokens.is_empty() {
        extras.resize(blocks.len(), None);
        for (extra, tokens) in extras.iter_mut().zip(&ahead) {
            let media = extra.take().unwrap_or_default();
            *extra = Some(lookahead_extra(&media, tokens));
        }
    }
    Ok(StoredBlocks {
        adapter: adapter.map(Into::into),
        salt: salt.map(Into::into),
        extras: extras.into_iter().map(|extra| extra.map(Into::into)).collect(),
        tier: tier(field(value, Some(6), "medium"))?,
        group: CacheGroup { index, attention, lookahead },
        blocks,
        parent,
        tokens,
        block_size,
    })
}

/// The tokens behind each block; empty where the engine does not say.
fn lookahead(value: &Value, num_blocks: usize) -> Result<Vec<Vec<u32>>, SkipReason> {
    let Some(lists) = field(value, None, "lookahead_token_ids") else {
        return Ok(Vec::new());
    };
    let token = |value: &Value| match value.as_array() {
        Some(pair) if pair.len() == 2 => unsigned(&pair[0]),
        _ => unsigned(value),
    };
    let list = |list: &Value| -> Option<Vec<u32>> { list.as_array()?.iter().map(token).collect() };
    let lists = lists.as_array().map(|lists| lists.iter().map(list));
    let lists: Option<Vec<_>> = lists.and_then(Iterator::collect);
    let is_even = |lists: &Vec<Vec<u32>>| {
        let mut lengths = lists.iter().map(Vec::len);
        let first = lengths.next();
        lists.len() == num_blocks
            && first <= Some(64)
            && lengths.all(|length| Some(length) == first)
    };
    lists.filter(is_even).ok_or(SkipReason::Invalid("lookahead_token_ids"))
}

/// Adapter, salt, and what else sets each block apart.
type Apart = (Option<String>, Option<String>, Vec<Option<Vec<u8>>>);

fn apart(value: &Value, num_blocks: usize, begins_prompt: bool) -> Apart {
    let name = field(value, Some(7), "lora_name");
    let id = field(value, Some(5), "lora_id").and_then(Value::as_u64);
    let id = id.filter(|&id| id > 0).map(|id| id.to_string());
    let adapter = name.and_then(Value::as_str).map(str::to_owned).or(id);
    let keys = field(value, Some(8), "extra_keys").and_then(Value::as_array);
    let mut blocks: Vec<Vec<Value>> = keys
        .into_iter()
        .flatten()
        .map(|block| match block {
            Value::Array(keys) => keys.clone(),
            other => vec![other.clone()],
        })
        .collect();
    let spelled = |keys: &Vec<Value>| {
        let bytes: Vec<u8> = keys.iter().flat_map(spelled).collect();
        (keys.len() > KEYS_MAX).then(|| media_extra([(&bytes[..], 0)]))
    };
    let too_long: Vec<_> = blocks.iter().map(spelled).collect();
    for keys in &mut blocks {
        let first = keys.iter().position(|key| key.as_str().is_some());
        if let Some(first) = first.filter(|&at| keys[at].as_str() == adapter.as_deref()) {
            keys.remove(first);
        }
    }
    let mut salt = None;
    if begins_prompt {
        let named = field(value, None, "cache_salt").or_else(|| match name? {
            map @ Value::Map(_) => field(map, None, "cache_salt"),
            _ => None,
        });
        salt = named.and_then(Value::as_str).map(str::to_owned);
        let is_in_second = |text: &str| {
            let second = blocks.get(1).into_iter().flatten();
            second.into_iter().any(|key| key.as_str() == Some(text))
        };
        let first = blocks.first().into_iter().flatten();
        let last = first.enumerate().filter(|(_, key)| key.as_str().is_some()).last();
        let found = last.and_then(|(at, key)| {
            let text = key.as_str()?;
            let is_salt = match &salt {
                Some(salt) => salt == text,
                None => !is_in_second(text),
            };
            is_salt.then(|| (at, text.to_owned()))
        });
        if let Some((at, text)) = found {
            blocks[0].remove(at);
            salt = Some(text);
        }
    }
    blocks.resize(num_blocks, Vec::new());
    let too_long = too_long.into_iter().chain(std::iter::repeat(None));
    let extras = blocks.iter().zip(too_long);
    let extras: Vec<_> = extras.map(|(keys, spelled)| spelled.or_else(|| media(keys))).collect();
    if extras.iter().all(Option::is_none) {
        (adapter, salt, Vec::new())
    } else {
        (adapter, salt, extras)
    }
}

fn media(keys: &[Value]) -> Option<Vec<u8>> {
    let items = keys.iter().filter_map(|key| match key {
        Value::Nil => None,
        Value::String(_) | Value::Binary(_) => {
            let bytes = key.as_slice().expect("bytes").to_vec();
            (!bytes.is_empty()).then_some((bytes, 0))
        }
        Value::Array(pair) if pair.len() == 2 => match (pair[0].as_slice(), pair[1].as_i64()) {
            (Some(name), Some(place)) => Some((name.to_vec(), place)),
            _ => Some((spelled(key), 0)),
        },
        other => Some((spelled(other), 0)),
    });
    let items: Vec<_> = items.collect();
    let extra = media_extra(items.iter().map(|(name, place)| (&name[..], *place)));
    (!extra.is_empty()).then_some(extra)
}

/// A value's bytes, at their shortest.
pub(super) fn spelled(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).expect("a vector takes every write");
    bytes
}

fn hashes(value: &Value) -> Result<Vec<BlockHash>, SkipReason> {
    let name = "block_hashes";
    let hashes = field(value, Some(1), name).ok_or(SkipReason::Missing(name))?;
    let hashes: Option<_> = hashes.as_array().and_then(|hashes| hashes.iter().map(hash).collect());
    hashes.ok_or(SkipReason::Invalid(name))
}

fn hash(value: &Value) -> Option<BlockHash> {
    if let Some(bytes) = value.as_slice() {
        let padded: Vec<u8> = [0; 16].iter().chain(bytes).copied().collect();
        let low = padded.last_chunk().filter(|_| !bytes.is_empty())?;
        return Some(BlockHash(*low));
    }
    let number = value.as_u64().or_else(|| value.as_i64().map(|number| number as u64));
    number.map(BlockHash::from_u64)
}

fn tier(medium: Option<&Value>) -> Result<Tier, SkipReason> {
    let Some(medium) = medium else {
        return Ok(Tier::Device);
    };
    let name = medium.as_str().ok_or(SkipReason::Invalid("medium"))?;
    match &*name.to_ascii_uppercase() {
        "GPU" => Ok(Tier::Device),
        "CPU" | "CPU_PINNED" => Ok(Tier::Host),
        "DISK" | "STORAGE" => Ok(Tier::Disk),
        "EXTERNAL" => Ok(Tier::Remote),
        _ => Err(SkipReason::UnknownTier),
    }
}

fn group_index(group: Option<&Value>) -> Result<u8, SkipReason> {
    match group.map(Value::as_u64) {
        None => Ok(0),
        Some(None) => Err(SkipReason::Invalid("group_idx")),
        Some(Some(index)) => u8::try_from(index).map_err(|_| SkipReason::OtherGroup),
    }
}

fn unsigned(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}
