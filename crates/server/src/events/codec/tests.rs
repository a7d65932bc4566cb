//! Golden messages, round trips, and payloads that someone damaged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use headstart_core::event::StoredBlocks;
use headstart_core::{BlockHash, CacheEvent, Rng, Tier};
use rmpv::Value;

use super::*;

/// Encodes `value` and reads it as a batch.
fn read(value: &Value) -> Result<Batch, DecodeError> {
    let mut payload = Vec::new();
    rmpv::encode::write_value(&mut payload, value).unwrap();
    decode_batch(&payload)
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
    assert_eq!(batch.skipped, [Skipped { index: 0, reason }], "{value}");
}

fn batch_of(events: Vec<Value>) -> Value {
    Value::Array(vec![1.5.into(), events.into(), 0.into()])
}

fn map(pairs: &[(&str, Value)]) -> Value {
    let pairs = pairs
        .iter()
        .map(|(name, value)| ((*name).into(), value.clone()));
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
        tier: Tier::Device,
        salt: None,
        adapter: None,
    }
}

/// [`two_blocks`] in positional form, with `rest` behind the block size.
fn positional(rest: impl IntoIterator<Item = Value>) -> Value {
    let head = [
        "BlockStored".into(),
        numbers([10, 11]),
        Value::Nil,
        numbers(1..=4),
        2.into(),
    ];
    head.into_iter().chain(rest).collect()
}

/// The message that vLLM v0.26.0 sent in a public report (kthena #1535).
#[test]
fn a_message_of_vllm_is_understood() {
    let event = map(&[
        ("type", "BlockStored".into()),
        ("block_hashes", numbers([15_760_518_052_499_183_552])),
        ("parent_block_hash", Value::Nil),
        (
            "token_ids",
            numbers([151_644, 872].into_iter().chain(1..=14)),
        ),
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
        tier: Tier::Device,
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
    };
    let mut expected = vec![0x93, 0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0x92, 0x84, 0xa4];
    expected.extend(b"type\xacBlockRemoved\xacblock_hashes\x92\x07\xc4\x10");
    expected.extend([0x11; 16]);
    expected.extend(b"\xa6medium\xa3CPU\xa9group_idx\x00");
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
    let removed = CacheEvent::Removed {
        blocks: vec![BlockHash::from_u64(10)],
        tier: Tier::Device,
    };
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
        let removed = CacheEvent::Removed {
            blocks: vec![BlockHash(expected)],
            tier: Tier::Device,
        };
        check(&Value::Array(event), &removed);
    }
}

#[test]
fn the_salt_is_told_from_the_adapter() {
    let with = |adapter: Option<&str>, salt: Option<&str>| {
        CacheEvent::Stored(StoredBlocks {
            adapter: adapter.map(Arc::from),
            salt: salt.map(Arc::from),
            ..two_blocks()
        })
    };
    let event = |name: Value, first: &[Value]| {
        let keys = Value::Array(vec![first.to_vec().into(), Value::Nil]);
        positional([Value::Nil, Value::Nil, name, keys])
    };
    let image = Value::Array(vec!["image".into(), 3.into()]);
    check(&event(Value::Nil, &["s".into()]), &with(None, Some("s")));
    check(&event("a".into(), &["a".into()]), &with(Some("a"), None));
    let both = ["a".into(), image.clone(), "s".into(), vec![1u8].into()];
    check(&event("a".into(), &both), &with(Some("a"), Some("s")));
    let alike = ["a".into(), "a".into()];
    check(&event("a".into(), &alike), &with(Some("a"), Some("a")));
    check(&event(Value::Nil, &[image]), &with(None, None));
    let salted = map(&[("cache_salt", "s".into())]);
    check(&event(salted, &[]), &with(None, Some("s")));
    let mut child = event(Value::Nil, &["s".into()]);
    if let Value::Array(fields) = &mut child {
        fields[2] = 9.into();
    }
    let behind = StoredBlocks {
        parent: Some(BlockHash::from_u64(9)),
        ..two_blocks()
    };
    check(&child, &CacheEvent::Stored(behind));
    check(&positional([7.into()]), &with(Some("7"), None));
    check(&positional([0.into()]), &with(None, None));
}

#[test]
fn token_pairs_are_flattened_and_no_tokens_change_the_tier() {
    let pairs = [[1, 2], [2, 3], [3, 4], [4, 5]].map(numbers);
    let mut event = positional([Value::Nil, "CPU_PINNED".into()]);
    let Value::Array(fields) = &mut event else {
        unreachable!("an array")
    };
    fields[3] = pairs.to_vec().into();
    let host = StoredBlocks {
        tier: Tier::Host,
        ..two_blocks()
    };
    check(&event, &CacheEvent::Stored(host.clone()));
    let Value::Array(fields) = &mut event else {
        unreachable!("an array")
    };
    fields[3] = Value::Array(vec![]);
    let moved = StoredBlocks {
        tokens: vec![],
        ..host
    };
    check(&event, &CacheEvent::Stored(moved));
}

#[test]
fn one_bad_event_is_named_and_never_drops_its_batch() {
    let group = [Value::Nil, Value::Nil, Value::Nil, Value::Nil, 1.into()];
    let kind = [
        Value::Nil,
        Value::Nil,
        Value::Nil,
        Value::Nil,
        Value::Nil,
        "mamba".into(),
    ];
    let mut short = positional([]);
    if let Value::Array(fields) = &mut short {
        fields[3] = numbers([1, 2, 3]);
    }
    let length = SkipReason::Length {
        tokens: 3,
        blocks: 2,
        block_size: 2,
    };
    let bad = [
        (3.into(), SkipReason::NotAnEvent),
        (map(&[]), SkipReason::NotAnEvent),
        (
            Value::Array(vec!["Snapshot".into()]),
            SkipReason::UnknownTag,
        ),
        (positional(group), SkipReason::OtherGroup),
        (positional(kind), SkipReason::OtherAttention),
        (
            positional([Value::Nil, "TAPE".into()]),
            SkipReason::Invalid("medium"),
        ),
        (short, length),
        (
            map(&[("type", "BlockRemoved".into())]),
            SkipReason::Missing("block_hashes"),
        ),
    ];
    for (event, reason) in &bad {
        check_skipped(event, *reason);
    }
    let good = positional([]);
    let events = bad
        .iter()
        .flat_map(|(event, _)| [event.clone(), good.clone()]);
    let batch = read(&batch_of(events.collect())).unwrap();
    assert_eq!(batch.events.len(), bad.len());
    let places: Vec<usize> = batch.skipped.iter().map(|skipped| skipped.index).collect();
    assert_eq!(
        places,
        (0..bad.len()).map(|index| 2 * index).collect::<Vec<_>>()
    );
}

#[test]
fn the_outer_form_may_be_short_long_or_a_map() {
    let events = Value::Array(vec![positional([])]);
    let outer = |elements: &[Value]| Value::Array(elements.to_vec());
    let named = map(&[
        ("ts", 1.5.into()),
        ("events", events.clone()),
        ("data_parallel_rank", 3.into()),
    ]);
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
    for value in [
        Value::Nil,
        outer(&[1.5.into()]),
        outer(&[1.5.into(), 3.into()]),
    ] {
        assert!(
            matches!(read(&value), Err(DecodeError::NotABatch)),
            "{value}"
        );
    }
}

#[test]
fn hostile_sizes_cost_nothing() {
    let claims = [
        &[0x93, 0xc0, 0xdd, 0xff, 0xff, 0xff, 0xff][..],
        &[0xdd, 0xff, 0xff, 0xff, 0xff],
        &[0xdf, 0xff, 0xff, 0xff, 0xff],
        &[0xc6, 0xff, 0xff, 0xff, 0xff],
        &[0xdb, 0xff, 0xff, 0xff, 0xff],
        &[0x91; 100_000],
    ];
    for claim in claims {
        let result = decode_batch(claim);
        assert!(
            matches!(result, Err(DecodeError::Malformed(_))),
            "{result:?}"
        );
    }
    let large = vec![0; PAYLOAD_BYTES_MAX + 1];
    assert!(matches!(
        decode_batch(&large),
        Err(DecodeError::TooLarge { .. })
    ));
}

#[test]
fn what_is_written_is_read_back() {
    for seed in 0..2_000 {
        let mut rng = Rng::new(seed);
        let events: Vec<_> = (0..rng.below(6)).map(|_| random_event(&mut rng)).collect();
        let rank = (rng.below(2) == 0).then_some(seed as u32);
        let batch = decode_batch(&encode_batch(rng.next_f64(), &events, rank)).unwrap();
        let expected = Batch {
            events,
            skipped: vec![],
            rank,
        };
        assert_eq!(batch, expected, "seed {seed}");
    }
}

/// A debug build may take a second over all of it; one payload that takes that long is a bug.
#[test]
fn damaged_payloads_never_panic_and_never_take_long() {
    let mut rng = Rng::new(11);
    for round in 0..20_000 {
        let events: Vec<_> = (0..3).map(|_| random_event(&mut rng)).collect();
        let mut payload = encode_batch(1.0, &events, Some(1));
        for _ in 0..=rng.below(8) {
            let place = rng.below(payload.len());
            payload[place] ^= 1 << rng.below(8);
        }
        if rng.below(2) == 0 {
            payload.truncate(rng.below(payload.len()));
        }
        let start = Instant::now();
        let result = decode_batch(&payload);
        assert!(start.elapsed() < Duration::from_secs(1), "round {round}");
        if let Ok(batch) = result {
            assert!(batch.events.len() + batch.skipped.len() <= payload.len());
        }
    }
}

fn random_event(rng: &mut Rng) -> CacheEvent {
    let tiers = [Tier::Device, Tier::Host, Tier::Disk, Tier::Remote];
    let tier = tiers[rng.below(4)];
    let blocks: Vec<_> = (0..=rng.below(3)).map(|_| random_hash(rng)).collect();
    match rng.below(8) {
        0 => CacheEvent::Cleared,
        1 | 2 => CacheEvent::Removed { blocks, tier },
        _ => CacheEvent::Stored(random_stored(rng, blocks, tier)),
    }
}

fn random_stored(rng: &mut Rng, blocks: Vec<BlockHash>, tier: Tier) -> StoredBlocks {
    let block_size = 1 + rng.below(16);
    let num_tokens = blocks.len() * block_size * rng.below(2);
    let parent = (rng.below(2) == 0).then(|| random_hash(rng));
    let names = ["", "a", "tenant-7", "ünïcode"];
    let mut name = || (rng.below(2) == 0).then(|| Arc::from(names[rng.below(4)]));
    StoredBlocks {
        salt: name().filter(|_| parent.is_none()),
        adapter: name(),
        tokens: (0..num_tokens).map(|_| rng.next_u64() as u32).collect(),
        block_size: block_size as u32,
        blocks,
        parent,
        tier,
    }
}

fn random_hash(rng: &mut Rng) -> BlockHash {
    let low = rng.next_u64() >> rng.below(64);
    match rng.below(2) {
        0 => BlockHash::from_u64(low),
        _ => BlockHash((u128::from(rng.next_u64()) << 64 | u128::from(low)).to_be_bytes()),
    }
}
