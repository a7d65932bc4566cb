//! Memory of the index beside the KV caches that it describes, for three shapes of model.
//!
//! `cargo bench -p headstart-router --bench index_memory`
//!
//! Sixteen replicas with a cache of 40 GiB each are filled with conversations of 8,192 tokens, one
//! in four of which begins with one of eight system prompts of 2,048 tokens; of the others each is
//! its replica's own. The index is built by events of 512 tokens each. Its bytes are its own
//! count, which the benchmark beside the peers holds against a counting allocator.

use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Nanos, ReplicaId, Rng, Tier, TokenId};
use headstart_router::PrefixIndex;
use headstart_router::index::{Limits, RunIndex, Update};

const REPLICAS: u32 = 16;
const KV_BYTES_PER_REPLICA: u64 = 40 << 30;
const CONVERSATION_TOKENS: usize = 8192;
const SYSTEM_TOKENS: usize = 2048;
const SYSTEM_PROMPTS: usize = 8;
const EVENT_TOKENS: usize = 512;

/// Bytes of KV per token: two tensors, layers, KV heads, values per head, bytes per value; or with
/// multi-head latent attention one vector per layer.
const SHAPES: [(&str, u64); 3] = [
    ("Llama 3.1 8B, bf16", 2 * 32 * 8 * 128 * 2),
    ("Llama 3.1 70B, bf16", 2 * 80 * 8 * 128 * 2),
    ("DeepSeek-V3 (MLA), bf16", 61 * (512 + 64) * 2),
];

fn main() {
    println!(
        "| model | KV per token, KiB | block | blocks held | index, MiB | bytes per block and \
         replica | index bytes per GiB of KV | KV : index |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for (name, token_bytes) in SHAPES {
        for block_size in [16, 64, 128] {
            measure(name, token_bytes, block_size);
        }
    }
}

fn measure(name: &str, token_bytes: u64, block_size: usize) {
    let index = RunIndex::with_limits("m", Limits::default());
    let mut rng = Rng::new(1);
    for replica in (0..REPLICAS).map(ReplicaId) {
        let track = Update::Track { block_size: Some(block_size as u32) };
        index.update(replica, track, Nanos(0));
        let num_conversations = KV_BYTES_PER_REPLICA / token_bytes / CONVERSATION_TOKENS as u64;
        for conversation in 0..num_conversations as u32 {
            let tokens = conversation_tokens(&mut rng, replica, conversation);
            let events = events(&tokens, block_size);
            for event in events {
                index.update(replica, Update::Events(&[event]), Nanos(0));
            }
        }
    }
    let stats = index.stats();
    let kv_bytes = stats.entries as u64 * block_size as u64 * token_bytes;
    let index_bytes = stats.bytes as f64;
    println!(
        "| {name} | {:.1} | {block_size} | {} | {:.1} | {:.1} | {:.0} | {:.0} |",
        token_bytes as f64 / 1024.0,
        stats.entries,
        index_bytes / f64::from(1 << 20),
        index_bytes / stats.entries as f64,
        index_bytes / (kv_bytes as f64 / f64::from(1 << 30)),
        kv_bytes as f64 / index_bytes,
    );
}

fn conversation_tokens(rng: &mut Rng, replica: ReplicaId, conversation: u32) -> Vec<TokenId> {
    let system = (rng.below(4) == 0).then(|| rng.below(SYSTEM_PROMPTS) as u32);
    let own = |at: usize| replica.0 << 24 ^ conversation << 13 ^ at as u32;
    let token = |at: usize| match system {
        Some(system) if at < SYSTEM_TOKENS => 1 << 31 | system << 12 | at as u32,
        _ => own(at),
    };
    (0..CONVERSATION_TOKENS).map(token).collect()
}

fn events(tokens: &[TokenId], block_size: usize) -> Vec<CacheEvent> {
    let mut name = 0;
    let names = tokens.chunks_exact(block_size).map(|block| {
        let mix = |name: u64, &token: &TokenId| {
            (name ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        };
        name = block.iter().fold(name, mix);
        BlockHash::from_u64(name)
    });
    let names: Vec<BlockHash> = names.collect();
    let per_event = EVENT_TOKENS / block_size;
    let event = |(number, blocks): (usize, &[BlockHash])| {
        let first = number * per_event;
        let tokens = &tokens[first * block_size..(first + blocks.len()) * block_size];
        CacheEvent::Stored(StoredBlocks {
            blocks: blocks.to_vec(),
            parent: first.checked_sub(1).map(|last| names[last]),
            tokens: tokens.to_vec(),
            block_size: block_size as u32,
            extras: Vec::new(),
            tier: Tier::Device,
            group: CacheGroup::default(),
            salt: None,
            adapter: None,
        })
    };
    names.chunks(per_event).enumerate().map(event).collect()
}
