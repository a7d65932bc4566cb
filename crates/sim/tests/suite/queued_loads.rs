//! Prompts that wait while the device is too small for all of them: what lower tiers hold is not
//! recomputed, even if the device held it when the prompt came.

use std::time::Duration;

use headstart_cache::PrefixCache;
use headstart_cache::policy::Lru;
use headstart_cache::tiers::{
    Admission, AssumedSpeed, LoadWhen, Shares, TierConfig, Tiers, TiersConfig, WriteWhen,
};
use headstart_core::cost::roofline::{Gpu, ModelShape};
use headstart_core::{EngineModel, Tier, TokenId};
use headstart_scheduler::{QueueOrder, SchedulerConfig};
use headstart_sim::{Channel, SimMover, TieredOutcome, TieredReplica, TieredRequest};

const BLOCK_TOKENS: usize = 16;
const UNIT_TOKENS: usize = 64;
const DOCUMENT_TOKENS: usize = 2_048;
const DOCUMENTS: u32 = 3;
const UNIT_BYTES: u64 = 8 << 20;

/// Room for one document and a half, above a fast disk for all.
fn replica() -> TieredReplica {
    let model = ModelShape::find("llama-3.1-8b").expect("a known model");
    let gpu = Gpu::find("l4").expect("a known GPU");
    let engine = EngineModel::derived(&model, &gpu, 1).expect("it fits");
    let units = DOCUMENTS as usize * 2 * DOCUMENT_TOKENS / UNIT_TOKENS;
    let config = TiersConfig {
        unit_blocks: UNIT_TOKENS / BLOCK_TOKENS,
        block_tokens: BLOCK_TOKENS,
        unit_bytes: UNIT_BYTES,
        most_at_hand: units,
        engine,
        load: LoadWhen::Faster,
    };
    let disk = TierConfig {
        tier: Tier::Disk,
        capacity_units: units,
        policy: Box::new(Lru::new(units)),
        admission: Admission::Always,
        write: WriteWhen::Through,
        shares: Shares::default(),
        assumed: AssumedSpeed { latency_s: 1e-4, bytes_per_s: 5e9 },
    };
    let scheduler = SchedulerConfig {
        max_batched_tokens: engine.max_batched_tokens,
        max_sequences: 8,
        max_waiting: 64,
        max_context: 1 << 20,
        block_size: BLOCK_TOKENS,
        order: QueueOrder::FirstCome,
    };
    let blocks = DOCUMENT_TOKENS * 3 / 2 / BLOCK_TOKENS;
    let channel = Channel { latency: Duration::from_micros(100), bytes_per_s: 5e9 };
    TieredReplica::new(
        scheduler,
        PrefixCache::new(blocks, Box::new(Lru::new(blocks))),
        engine.cost,
        Tiers::new(config, vec![disk]),
        SimMover::new(UNIT_BYTES, &[(Tier::Disk, channel)]),
    )
}

/// A question about a document, in which nothing was asked before.
fn question(replica: &TieredReplica, document: u32, number: u32) -> TieredRequest {
    let text = (0..DOCUMENT_TOKENS as TokenId).map(|at| document * 100_000 + at);
    let new = (0..40).map(|at| 10_000_000 + number * 100 + at);
    TieredRequest {
        arrival: replica.now(),
        prompt: text.chain(new).collect(),
        answer_tokens: 1,
        session: None,
    }
}

fn found(outcome: &TieredOutcome) -> usize {
    outcome.device_tokens + outcome.loaded_tokens.values().sum::<usize>()
}

#[test]
fn what_the_device_loses_while_a_prompt_waits_is_loaded() {
    let mut replica = replica();
    for document in 0..DOCUMENTS {
        let first = question(&replica, document, document);
        replica.serve(&[first]);
    }
    let all: Vec<TieredRequest> =
        (0..12).map(|number| question(&replica, number % DOCUMENTS, 10 + number)).collect();
    for (number, outcome) in replica.serve(&all).iter().enumerate() {
        assert!(outcome.is_answered);
        // Some of it may be computed while the rest is loaded.
        let is_found = found(outcome) > DOCUMENT_TOKENS * 3 / 4;
        assert!(is_found, "request {number}: {outcome:?}");
    }
}
