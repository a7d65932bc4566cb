//! Any bytes through the decoder of KV events, and what it understood through the encoder.
//!
//! Seeds, from the repository's root: `python tools/kv_events/make.py --seeds FOLDER`. Then, in
//! `crates/kv-events/fuzz`: `cargo +nightly fuzz run decode corpus FOLDER -- -max_len=65536`.
//! libFuzzer watches for panics, time and memory; the test `kv_events` of the crate, which needs
//! no nightly compiler and runs in CI, holds memory against the payload's length as well.

#![no_main]

use headstart_core::CacheEvent;
use headstart_core::event::Attention;
use headstart_kv_events::{decode_batch, encode_batch};
use headstart_router::stream::Damage;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(batch) = decode_batch(bytes) else {
        return;
    };
    let skipped: u64 = match &batch.damage {
        Damage::Skipped { reasons, .. } => reasons.iter().map(|(_, count)| count).sum(),
        _ => 0,
    };
    assert!(batch.events.len() as u64 + skipped <= bytes.len() as u64);
    let written = encode_batch(batch.ts.unwrap_or(0.0), &batch.events, batch.rank);
    let again = decode_batch(&written).expect("what we write is a batch");
    assert_eq!(again.damage, Damage::None);
    assert_eq!(again.rank, batch.rank);
    assert_eq!(
        again.events.iter().map(kind).collect::<Vec<_>>(),
        batch.events.iter().map(kind).collect::<Vec<_>>()
    );
});

/// The facts that all spellings of an event share. Names are left out: a salt in another place may
/// be taken for an image.
fn kind(event: &CacheEvent) -> (usize, usize, u8, Attention) {
    match event {
        CacheEvent::Stored(stored) => {
            let group = stored.group;
            (
                stored.blocks.len(),
                stored.tokens.len(),
                group.index,
                group.attention,
            )
        }
        CacheEvent::Removed { blocks, group, .. } => (blocks.len(), 0, *group, Attention::Full),
        CacheEvent::Cleared => (0, 0, 0, Attention::Full),
    }
}
