//! Every dialect, round trips, and the reader by definition on payloads that someone damaged.
//!
//! Values are built with `rmpv`, which is also what the reader by definition stands on.

use std::sync::Arc;

use headstart_core::block::media_extra;
use headstart_core::event::{Attention, CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Rng, Tier};
use headstart_router::stream::{Damage, StreamBatch};
use rmpv::Value;

use super::*;

#[path = "../../tests/corpus/mutate.rs"]
mod mutate;

mod definition;
mod groups;
mod reference;
mod set_apart;

/// A batch and what was left out of it.
#[derive(Debug, Default, PartialEq)]
struct ToldBatch {
    batch: StreamBatch,
    skipped: Vec<SkippedEvent>,
}

impl std::ops::Deref for ToldBatch {
    type Target = StreamBatch;

    fn deref(&self) -> &StreamBatch {
        &self.batch
    }
}

/// Reads a payload, and what is left out of it.
fn told(payload: &[u8]) -> Result<ToldBatch, DecodeError> {
    let mut skipped = Vec::new();
    let batch = decode_and_tell(payload, &mut |event| skipped.push(event))?;
    assert_eq!(decode_batch(payload).as_ref(), Ok(&batch));
    Ok(ToldBatch { batch, skipped })
}

/// Whether a removal may be among what was left out.
fn may_have_removed(batch: &StreamBatch) -> bool {
    matches!(batch.damage, Damage::Skipped { may_have_removed: true, .. })
}

/// Encodes `value` and reads it as a batch.
fn read(value: &Value) -> Result<ToldBatch, DecodeError> {
    let mut payload = Vec::new();
    rmpv::encode::write_value(&mut payload, value).unwrap();
    told(&payload)
}

/// Reads a batch of the one event `value`.
fn check(value: &Value, expected: &CacheEvent) {
    let batch = read(&batch_of(vec![value.clone()])).expect("a batch");
    assert_eq!(batch.skipped, [], "{value}");
    assert_eq!(batch.events, std::slice::from_ref(expected), "{value}");
}

/// Reads a batch of the one event `value`, which cannot be used.
fn check_skipped(value: &Value, reason: SkipReason) {
    let batch = read(&batch_of(vec![value.clone()])).expect("a batch");
    assert_eq!(batch.events, [], "{value}");
    let reasons: Vec<_> = batch.skipped.iter().map(|skipped| skipped.reason).collect();
    assert_eq!(reasons, [reason], "{value}");
}

fn batch_of(events: Vec<Value>) -> Value {
    Value::Array(vec![1.5.into(), events.into(), 0.into()])
}

fn map(pairs: &[(&str, Value)]) -> Value {
    let pairs = pairs.iter().map(|(name, value)| ((*name).into(), value.clone()));
    Value::Map(pairs.collect())
}

fn numbers(numbers: impl IntoIterator<Item = u64>) -> Value {
    numbers.into_iter().map(Value::from).collect()
}

/// Two blocks of two tokens, under number hashes 10 and 11.
fn two_blocks() -> StoredBlocks {
    StoredBlocks {
        blocks: vec![BlockHash::from_u64(10), BlockHash::from_u64(11)],
        parent: None,
        tokens: vec![1, 2, 3, 4],
        block_size: 2,
        extras: Vec::new(),
        tier: Tier::Device,
        group: CacheGroup::default(),
        salt: None,
        adapter: None,
    }
}

/// [`two_blocks`] in positional form, with `rest` behind the block size.
fn positional(rest: impl IntoIterator<Item = Value>) -> Value {
    let head = ["BlockStored".into(), numbers([10, 11]), Value::Nil, numbers(1..=4), 2.into()];
    head.into_iter().chain(rest).collect()
}

/// An event of two blocks with these fields behind the block size: no adapter by number, the
/// usual tier, `name` for the adapter's, and `first` and `second` for the blocks' extra keys.
fn with_keys(name: impl Into<Value>, first: &[Value], second: &[Value]) -> Value {
    let keys = [first, second].map(|keys| match keys {
        [] => Value::Nil,
        keys => keys.to_vec().into(),
    });
    positional([Value::Nil, Value::Nil, name.into(), keys.to_vec().into()])
}

/// [`two_blocks`] set apart.
fn apart(adapter: Option<&str>, salt: Option<&str>, media: [&[(&[u8], i64)]; 2]) -> CacheEvent {
    let extra = |items: &[(&[u8], i64)]| {
        let extra = media_extra(items.iter().copied());
        (!extra.is_empty()).then(|| Arc::from(extra))
    };
    let is_plain = media.iter().all(|items| items.is_empty());
    CacheEvent::Stored(StoredBlocks {
        adapter: adapter.map(Arc::from),
        salt: salt.map(Arc::from),
        extras: if is_plain { vec![] } else { media.map(extra).into() },
        ..two_blocks()
    })
}

fn pair(name: impl Into<Value>, place: i64) -> Value {
    Value::Array(vec![name.into(), place.into()])
}

/// [`positional`] in group `index`, of the kind and window that follow.
fn in_group(index: impl Into<Value>, rest: impl IntoIterator<Item = Value>) -> Value {
    let head = [Value::Nil, Value::Nil, Value::Nil, Value::Nil, index.into()];
    positional(head.into_iter().chain(rest))
}

/// The message that vLLM v0.26.0 sent in a public report (kthena #1535).
#[test]
fn a_message_of_vllm_is_understood() {
    let event = map(&[
        ("type", "BlockStored".into()),
        ("block_hashes", numbers([15_760_518_052_499_183_552])),
        ("parent_block_hash", Value::Nil),
        ("token_ids", numbers([151_644, 872].into_iter().chain(1..=14))),
        ("block_size", 16.into()),
        ("lora_id", Value::Nil),
        ("medium", "GPU".into()),
        ("lora_name", Value::Nil),
        ("extra_keys", Value::Array(vec![Value::Nil])),
        ("group_idx", 0.into()),
        ("kv_cache_spec_kind", "full_attention".into()),
    ]);
    let outer = vec![1_789_095_808.837_884_7.into(), vec![event].into(), 0.into()];
    let batch = read(&Value::Array(outer)).unwrap();
    let stored = StoredBlocks {
        blocks: vec![BlockHash::from_u64(15_760_518_052_499_183_552)],
        parent: None,
        tokens: [151_644, 872].into_iter().chain(1..=14).collect(),
        block_size: 16,
        extras: Vec::new(),
        tier: Tier::Device,
        group: CacheGroup::default(),
        salt: None,
        adapter: None,
    };
    assert_eq!(batch.events, [CacheEvent::Stored(stored)]);
    assert_eq!((batch.skipped.len(), batch.rank), (0, Some(0)));
}

/// Bytes, not our own encoder's opinion of them.
#[test]
fn what_we_write_is_pinned() {
    let removed = CacheEvent::Removed {
        blocks: vec![BlockHash::from_u64(7), BlockHash([0x11; 16])],
        tier: Tier::Host,
        group: 0,
    };
    let mut expected = vec![0x93, 0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0x92, 0x83, 0xa4];
    expected.extend(b"type\xacBlockRemoved\xacblock_hashes\x92\x07\xc4\x10");
    expected.extend([0x11; 16]);
    expected.extend(b"\xa6medium\xa3CPU");
    expected.extend(b"\x81\xa4type\xb0AllBlocksCleared\xc0");
    let written = encode_batch(1.0, &[removed, CacheEvent::Cleared], None);
    assert_eq!(written, expected);
}

#[test]
fn positional_events_may_end_early_or_go_on() {
    let plain = CacheEvent::Stored(two_blocks());
    check(&positional([]), &plain);
    check(&positional([Value::Nil, "gpu".into()]), &plain);
    let all = [
        Value::Nil,
        "GPU".into(),
        Value::Nil,
        Value::Nil,
        0.into(),
        "mla_attention".into(),
        Value::Nil,
        "from the future".into(),
    ];
    check(&positional(all), &plain);
    let removed =
        CacheEvent::Removed { blocks: vec![BlockHash::from_u64(10)], tier: Tier::Device, group: 0 };
    let event = Value::Array(vec!["BlockRemoved".into(), numbers([10])]);
    check(&event, &removed);
    let cleared = Value::Array(vec!["AllBlocksCleared".into()]);
    check(&cleared, &CacheEvent::Cleared);
}

#[test]
fn hashes_are_bytes_or_numbers() {
    let digest: Vec<u8> = (0..32).collect();
    let cases: [(Value, [u8; 16]); 5] = [
        (digest.into(), std::array::from_fn(|index| index as u8 + 16)),
        (vec![1u8, 2].into(), 0x0102u128.to_be_bytes()),
        (u64::MAX.into(), u128::from(u64::MAX).to_be_bytes()),
        ((-1i64).into(), u128::from(u64::MAX).to_be_bytes()),
        (0.into(), [0; 16]),
    ];
    for (hash, expected) in cases {
        let event = vec!["BlockRemoved".into(), Value::Array(vec![hash])];
        let removed =
            CacheEvent::Removed { blocks: vec![BlockHash(expected)], tier: Tier::Device, group: 0 };
        check(&Value::Array(event), &removed);
    }
}

#[test]
fn a_parent_of_zero_is_a_parent() {
    for (parent, expected) in [
        (Value::Nil, None),
        (0.into(), Some(BlockHash([0; 16]))),
        ((-1).into(), Some(BlockHash::from_u64(u64::MAX))),
        (vec![0u8; 32].into(), Some(BlockHash([0; 16]))),
    ] {
        let mut event = positional([]);
        if let Value::Array(fields) = &mut event {
            fields[2] = parent;
        }
        let expected = StoredBlocks { parent: expected, ..two_blocks() };
        check(&event, &CacheEvent::Stored(expected));
    }
}

#[test]
fn token_pairs_are_flattened_and_no_tokens_change_the_tier() {
    let pairs = [[1, 2], [2, 3], [3, 4], [4, 5]].map(numbers);
    let mut event = positional([Value::Nil, "CPU_PINNED".into()]);
    let Value::Array(fields) = &mut event else { unreachable!("an array") };
    fields[3] = pairs.to_vec().into();
    let host = StoredBlocks { tier: Tier::Host, ..two_blocks() };
    check(&event, &CacheEvent::Stored(host.clone()));
    let Value::Array(fields) = &mut event else { unreachable!("an array") };
    fields[3] = Value::Array(vec![]);
    let moved = StoredBlocks { tokens: vec![], ..host };
    check(&event, &CacheEvent::Stored(moved));
}

#[test]
fn one_bad_event_is_named_and_never_drops_its_batch() {
    let mut unfilled = positional([]);
    if let Value::Array(fields) = &mut unfilled {
        fields[4] = 0.into();
    }
    let removal = |rest: &[Value]| {
        let head = ["BlockRemoved".into(), numbers([7])];
        Value::Array(head.iter().chain(rest).cloned().collect())
    };
    let tape = SkipReason::UnknownTier;
    // The event, why it is skipped, and whether it may have removed something.
    let bad = [
        (3.into(), SkipReason::NotAnEvent, true),
        (map(&[]), SkipReason::NotAnEvent, true),
        (Value::Array(vec![]), SkipReason::NotAnEvent, true),
        (Value::Array(vec!["Snapshot".into()]), SkipReason::UnknownTag, true),
        (map(&[("type", "BlockMoved".into())]), SkipReason::UnknownTag, true),
        (in_group(1000, []), SkipReason::OtherGroup, false),
        (positional([Value::Nil, "TAPE".into()]), tape, false),
        (positional([Value::Nil, 3.into()]), SkipReason::Invalid("medium"), false),
        (unfilled, SkipReason::Invalid("block_size"), false),
        (map(&[("type", "BlockRemoved".into())]), SkipReason::Missing("block_hashes"), true),
        (removal(&["TAPE".into()]), tape, false),
        (removal(&[3.into()]), SkipReason::Invalid("medium"), true),
        (removal(&[Value::Nil, 1000.into()]), SkipReason::OtherGroup, false),
        (removal(&[Value::Nil, "1".into()]), SkipReason::Invalid("group_idx"), true),
    ];
    for (event, reason, may_have_removed) in &bad {
        check_skipped(event, *reason);
        let batch = read(&batch_of(vec![event.clone()])).unwrap();
        assert_eq!(self::may_have_removed(&batch), *may_have_removed, "{event}");
    }
    let good = positional([]);
    let events = bad.iter().flat_map(|(event, ..)| [event.clone(), good.clone()]);
    let batch = read(&batch_of(events.collect())).unwrap();
    assert_eq!((batch.events.len(), batch.skipped.len()), (bad.len(), bad.len()));
    for (number, (skipped, (_, reason, may_have_removed))) in
        batch.skipped.iter().zip(&bad).enumerate()
    {
        let expected = SkippedEvent {
            index: 2 * number,
            reason: *reason,
            may_have_removed: *may_have_removed,
        };
        assert_eq!(*skipped, expected);
    }
}

/// A name from outside goes into a log: short, and no control characters.
#[test]
fn an_unknown_type_is_kept_in_short() {
    let long = "é".repeat(TYPE_CHARS_MAX + 1);
    let whole = "x".repeat(TYPE_CHARS_MAX);
    let in_short = format!("{}...", r"\u{e9}".repeat(TYPE_CHARS_MAX));
    let event = |name: &str| Value::Array(vec![name.into()]);
    for (names, expected) in [
        (&["BlockMoved", "Snapshot"][..], Some("BlockMoved")),
        (&["AllBlocksCleared", "a\n\u{1b}[2J`"], Some(r"a\n\u{1b}[2J`")),
        (&["AllBlocksCleared"], None),
        (&[""], Some("")),
        (&[&whole], Some(&whole)),
        (&[&long], Some(&in_short)),
    ] {
        let events = names.iter().map(|name| event(name)).collect();
        let batch = read(&batch_of(events)).expect("a batch");
        assert_eq!(batch.unknown_type.as_deref(), expected, "{names:?}");
    }
}

#[test]
fn skipped_events_are_counted_by_reason() {
    let bad = positional([Value::Nil, "TAPE".into()]);
    let mut events = vec![bad; 512];
    events.push(positional([]));
    let batch = read(&batch_of(events.clone())).unwrap();
    assert_eq!((batch.events.len(), batch.skipped.len()), (1, 512));
    let reasons = vec![("unknown_tier", 512)];
    assert_eq!(batch.damage, Damage::Skipped { reasons, may_have_removed: false });
    events.push("?".into());
    let reasons = vec![("unknown_tier", 512), ("not_an_event", 1)];
    let damage = read(&batch_of(events)).unwrap().batch.damage;
    assert_eq!(damage, Damage::Skipped { reasons, may_have_removed: true });
}

#[test]
fn a_batch_has_a_time_if_it_is_one() {
    for (ts, expected) in [
        (1.5.into(), Some(1.5)),
        (2.into(), Some(2.0)),
        (Value::F32(0.25), Some(0.25)),
        (f64::NAN.into(), None),
        (f64::INFINITY.into(), None),
        (Value::Nil, None),
        ("now".into(), None),
    ] {
        let batch = read(&Value::Array(vec![ts.clone(), Value::Array(vec![])])).unwrap();
        assert_eq!(batch.ts, expected, "{ts}");
    }
}

#[test]
fn the_outer_form_may_be_short_long_or_a_map() {
    let events = Value::Array(vec![positional([])]);
    let outer = |elements: &[Value]| Value::Array(elements.to_vec());
    let named =
        map(&[("ts", 1.5.into()), ("events", events.clone()), ("data_parallel_rank", 3.into())]);
    let cases = [
        (named, Some(3)),
        (outer(&[1.5.into(), events.clone()]), None),
        (outer(&[1.5.into(), events.clone(), Value::Nil]), None),
        (outer(&[1.into(), events, 2.into(), 9.into()]), Some(2)),
    ];
    for (value, rank) in cases {
        let batch = read(&value).unwrap();
        assert_eq!((batch.events.len(), batch.rank), (1, rank), "{value}");
    }
    for value in [Value::Nil, outer(&[1.5.into()]), outer(&[1.5.into(), 3.into()])] {
        assert!(matches!(read(&value), Err(DecodeError::NotABatch)), "{value}");
    }
}
