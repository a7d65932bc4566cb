//! Costs of the index: look-ups, updates and memory, for small and large fleets.
//!
//! `cargo bench -p headstart-router --bench index`
//!
//! Conversations that share a few system prompts arrive in turns; each is stored on the replica
//! that a hash of it names, in events of one turn, and asked for before. Hashing is not timed.

use std::time::Instant;

use headstart_core::block::Namespace;
use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Nanos, ReplicaId, Rng, Tier, TokenId};
use headstart_router::index::{Overlaps, PromptKeys, RunIndex, Update};
use headstart_router::{PrefixIndex, Prompt};

const BLOCK_SIZE: u32 = 16;
/// Turns of all conversations together.
const TURNS: usize = 12_000;
const TURNS_PER_CONVERSATION: usize = 4;
/// Tokens of a system prompt and of a turn.
const SYSTEM_TOKENS: usize = 2048;
const TURN_TOKENS: usize = 1024;
const SYSTEM_PROMPTS: usize = 8;
/// Every look-up is done so often, one round after the other.
const ROUNDS: usize = 5;

fn main() {
    println!(
        "| replicas | look-ups/s | p50 µs | p99 µs | events/s | blocks/s | entries | B per entry |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for replicas in [16, 256, 4096] {
        measure(replicas);
    }
}

fn measure(replicas: u32) {
    let index = RunIndex::new("bench");
    for replica in 0..replicas {
        let block_size = Some(BLOCK_SIZE);
        index.update(ReplicaId(replica), Update::Track { block_size }, Nanos(0));
    }
    let work = turns(replicas);
    let prompts: Vec<PromptKeys> = work
        .iter()
        .map(|turn| {
            let namespace = Namespace::default();
            index.hash(Prompt { tokens: &turn.tokens, namespace, ..Prompt::default() })
        })
        .collect();

    let num_blocks: usize = work.iter().map(|turn| turn.num_blocks).sum();
    let start = Instant::now();
    for turn in &work {
        index.update(turn.replica, Update::Events(&turn.events), Nanos(0));
    }
    let apply_s = start.elapsed().as_secs_f64();

    let mut answer = Overlaps::default();
    let mut micros = Vec::new();
    let mut found = 0;
    for _ in 0..ROUNDS {
        for prompt in &prompts {
            let start = Instant::now();
            index.overlaps(prompt, Nanos(0), &mut answer);
            micros.push(start.elapsed().as_secs_f64() * 1e6);
            found += answer.len();
        }
    }
    assert!(found > 0, "prompts are found");
    let total_s = micros.iter().sum::<f64>() / 1e6;
    micros.sort_by(f64::total_cmp);
    let stats = index.stats();
    println!(
        "| {replicas} | {:.0} | {:.2} | {:.2} | {:.0} | {:.0} | {} | {:.1} |",
        micros.len() as f64 / total_s,
        micros[micros.len() / 2],
        micros[micros.len() * 99 / 100],
        work.len() as f64 / apply_s,
        num_blocks as f64 / apply_s,
        stats.entries,
        stats.bytes as f64 / stats.entries as f64,
    );
}

struct Turn {
    replica: ReplicaId,
    tokens: Vec<TokenId>,
    events: Vec<CacheEvent>,
    num_blocks: usize,
}

/// All turns, each conversation's in order and one conversation after the other.
fn turns(replicas: u32) -> Vec<Turn> {
    let mut rng = Rng::new(1);
    let mut turns = Vec::new();
    let mut known = std::collections::HashSet::new();
    for _ in 0..TURNS / TURNS_PER_CONVERSATION {
        let system = rng.below(SYSTEM_PROMPTS) as TokenId;
        let replica = ReplicaId(rng.below(replicas as usize) as u32);
        let mut tokens: Vec<TokenId> =
            (0..SYSTEM_TOKENS as TokenId).map(|token| (system << 16) + token).collect();
        for _ in 0..TURNS_PER_CONVERSATION {
            tokens.extend((0..TURN_TOKENS).map(|_| rng.next_u64() as TokenId));
            let stored = new_blocks(&tokens, replica, &mut known);
            turns.push(Turn {
                replica,
                tokens: tokens.clone(),
                num_blocks: stored.blocks.len(),
                events: vec![CacheEvent::Stored(stored)],
            });
        }
    }
    turns
}

/// Blocks of the prompt that the replica lacks, as it stores them.
fn new_blocks(
    tokens: &[TokenId],
    replica: ReplicaId,
    known: &mut std::collections::HashSet<(ReplicaId, u64)>,
) -> StoredBlocks {
    let mut name = 1u64;
    let names: Vec<u64> = tokens
        .chunks_exact(BLOCK_SIZE as usize)
        .map(|block| {
            for &token in block {
                name = (name ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                name ^= name >> 29;
            }
            name
        })
        .collect();
    let is_new = |name: &u64| known.insert((replica, *name));
    let first = names.iter().position(is_new).unwrap_or(names.len());
    known.extend(names[first..].iter().map(|&name| (replica, name)));
    StoredBlocks {
        blocks: names[first..].iter().map(|&name| BlockHash::from_u64(name)).collect(),
        parent: first.checked_sub(1).map(|last| BlockHash::from_u64(names[last])),
        tokens: tokens[first * BLOCK_SIZE as usize..names.len() * BLOCK_SIZE as usize].to_vec(),
        block_size: BLOCK_SIZE,
        extras: Vec::new(),
        tier: Tier::Device,
        group: CacheGroup::default(),
        salt: None,
        adapter: None,
    }
}
