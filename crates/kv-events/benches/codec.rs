//! Throughput of decoding and encoding KV events.
//!
//! `cargo bench -p headstart-kv-events --bench codec`
//!
//! Beside the decoder stands `rmpv::decode::read_value` alone, which only builds the tree of
//! values: what a decoder on top of it costs at least. One thread; the best of several rounds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Rng, Tier};
use headstart_kv_events::{decode_batch, encode_batch};

/// Time per figure.
const TIME: Duration = Duration::from_millis(400);

/// Rounds, of which the best counts.
const ROUNDS: usize = 5;

fn main() {
    println!(
        "| batch | bytes | events | read_value, MB/s | decode, MB/s | events/s | tokens/s | \
         encode, MB/s |\n|---|---|---|---|---|---|---|---|"
    );
    for (name, events) in batches() {
        let payload = encode_batch(1_789_095_808.8, &events, Some(0));
        let value = rate(|| {
            let value = rmpv::decode::read_value(&mut black_box(&payload[..]));
            drop(black_box(value));
        });
        let decode = rate(|| drop(black_box(decode_batch(black_box(&payload)))));
        let encode = rate(|| drop(black_box(encode_batch(1.5, black_box(&events), Some(0)))));
        let megabytes = payload.len() as f64 / 1e6;
        println!(
            "| {name} | {} | {} | {:.0} | {:.0} | {:.2e} | {:.2e} | {:.0} |",
            payload.len(),
            events.len(),
            value * megabytes,
            decode * megabytes,
            decode * events.len() as f64,
            decode * num_tokens(&events) as f64,
            encode * megabytes,
        );
    }
}

/// Calls per second.
fn rate(mut call: impl FnMut()) -> f64 {
    let mut best = 0.0_f64;
    for _ in 0..ROUNDS {
        let (start, mut calls) = (Instant::now(), 0_u64);
        while start.elapsed() < TIME / ROUNDS as u32 {
            for _ in 0..16 {
                call();
            }
            calls += 16;
        }
        best = best.max(calls as f64 / start.elapsed().as_secs_f64());
    }
    best
}

fn num_tokens(events: &[CacheEvent]) -> usize {
    let tokens = |event: &CacheEvent| match event {
        CacheEvent::Stored(stored) => stored.tokens.len(),
        _ => 0,
    };
    events.iter().map(tokens).sum()
}

fn batches() -> Vec<(&'static str, Vec<CacheEvent>)> {
    let mut rng = Rng::new(1);
    let mut stored = |num_blocks| {
        CacheEvent::Stored(StoredBlocks {
            blocks: hashes(&mut rng, num_blocks),
            parent: Some(BlockHash::from_u64(rng.next_u64())),
            tokens: (0..num_blocks * 16).map(|_| rng.below(150_000) as u32).collect(),
            block_size: 16,
            extras: Vec::new(),
            tier: Tier::Device,
            group: CacheGroup::default(),
            salt: None,
            adapter: None,
        })
    };
    let one = vec![stored(1)];
    let decoding: Vec<_> = (0..64).map(|_| stored(1)).collect();
    let prefill = vec![stored(512)];
    let removals = (0..256).map(|_| CacheEvent::Removed {
        blocks: hashes(&mut rng, 1),
        tier: Tier::Device,
        group: 0,
    });
    vec![
        ("one block", one),
        ("64 blocks of 64 sequences", decoding),
        ("8,192 tokens of one prompt", prefill),
        ("256 removals", removals.collect()),
    ]
}

fn hashes(rng: &mut Rng, count: usize) -> Vec<BlockHash> {
    (0..count).map(|_| BlockHash::from_u64(rng.next_u64())).collect()
}
