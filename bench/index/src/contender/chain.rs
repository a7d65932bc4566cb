//! `kv_index`'s chain index: at most 1,024 replicas a shard, one map of blocks per replica that
//! the caller keeps for it.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

use headstart_core::{BlockHash, CacheEvent, TokenId};
use kv_index::{
    ChainBlockMap, ContentHash, SequenceHash, ShardedChainIndex, StoredBlock,
    compute_request_content_hashes,
};

use super::beside::two_threads;
use super::{Beside, Contender, FleetShape, Pace, time_all, time_each};
use crate::replay::{Message, engine_hash};

/// Replicas that one chain index has room for.
const SHARD_REPLICAS: u32 = 1024;

pub(super) struct Sharded {
    index: ShardedChainIndex,
    /// By replica: its number in the index, and what it holds.
    replicas: Vec<(u32, ChainBlockMap)>,
    prepared: VecDeque<Vec<Change>>,
    block_size: u32,
    prompts: Vec<Vec<ContentHash>>,
}

enum Change {
    Stored(Option<SequenceHash>, Vec<StoredBlock>),
    Removed(Vec<SequenceHash>),
    Cleared,
}

impl Sharded {
    pub(super) fn new(fleet: FleetShape) -> Self {
        let shards = fleet.replicas.div_ceil(SHARD_REPLICAS);
        let most = fleet.replicas.min(SHARD_REPLICAS);
        let index = ShardedChainIndex::new(shards as usize, most as usize);
        let replica = |replica: u32| {
            let shard = (replica / SHARD_REPLICAS) as usize;
            let id = index.intern_worker_in(shard, &format!("replica-{replica}"));
            (
                id.expect("there are shards enough"),
                ChainBlockMap::default(),
            )
        };
        let replicas = (0..fleet.replicas).map(replica).collect();
        Self {
            index,
            replicas,
            prepared: VecDeque::new(),
            block_size: fleet.block_size,
            prompts: Vec::new(),
        }
    }
}

fn ask<'a>(
    index: &'a ShardedChainIndex,
    prompts: &'a [Vec<ContentHash>],
) -> impl FnMut(usize) + Send + 'a {
    let mut answer: Vec<(u32, u32)> = Vec::new();
    move |prompt| {
        answer.clear();
        let report = |replica, blocks| answer.push((replica, blocks));
        index.score_into(&prompts[prompt], |hash| hash.0, false, report);
        black_box(&answer);
    }
}

/// Events that it refuses change nothing; the comparison of answers finds what that did.
fn apply(
    index: &ShardedChainIndex,
    (id, map): &mut (u32, ChainBlockMap),
    changes: Option<Vec<Change>>,
) {
    for change in changes.into_iter().flatten() {
        match change {
            Change::Stored(parent, blocks) => {
                let _ = index.apply_stored(*id, &blocks, parent, map);
            }
            Change::Removed(hashes) => index.apply_removed(*id, &hashes, map),
            Change::Cleared => index.apply_cleared(*id, map),
        }
    }
}

fn sequence(block: BlockHash) -> SequenceHash {
    SequenceHash(engine_hash(block))
}

fn change(event: &CacheEvent) -> Change {
    match event {
        CacheEvent::Stored(stored) => {
            let size = stored.block_size as usize;
            let contents = compute_request_content_hashes(&stored.tokens, size);
            let block = |(&block, content_hash)| StoredBlock {
                seq_hash: sequence(block),
                content_hash,
            };
            let blocks = stored.blocks.iter().zip(contents).map(block).collect();
            Change::Stored(stored.parent.map(sequence), blocks)
        }
        CacheEvent::Removed { blocks, .. } => {
            Change::Removed(blocks.iter().map(|&block| sequence(block)).collect())
        }
        CacheEvent::Cleared => Change::Cleared,
    }
}

impl Contender for Sharded {
    fn prepare(&mut self, messages: &[Message]) {
        let changes = |message: &Message| message.events.iter().map(change).collect();
        self.prepared.extend(messages.iter().map(changes));
    }

    fn apply(&mut self, message: &Message) {
        let replica = &mut self.replicas[message.replica as usize];
        apply(&self.index, replica, self.prepared.pop_front());
    }

    fn hash(&mut self, prompts: &[&[TokenId]]) {
        let size = self.block_size as usize;
        let hashes = prompts
            .iter()
            .map(|tokens| compute_request_content_hashes(tokens, size));
        self.prompts = hashes.collect();
    }

    fn look_up_all(&mut self) -> Duration {
        time_all(self.prompts.len(), ask(&self.index, &self.prompts))
    }

    fn look_up_each(&mut self, nanos: &mut Vec<u64>) {
        time_each(self.prompts.len(), nanos, ask(&self.index, &self.prompts));
    }

    fn look_up_beside(&mut self, messages: &[Message], pace: Pace) -> Beside {
        let Self {
            index,
            replicas,
            prepared,
            prompts,
            ..
        } = self;
        let index = &*index;
        two_threads(messages, pace, prompts.len(), ask(index, prompts), |due| {
            for message in due {
                let replica = &mut replicas[message.replica as usize];
                apply(index, replica, prepared.pop_front());
            }
        })
    }

    fn num_prompts(&self) -> usize {
        self.prompts.len()
    }

    fn trim(&mut self) {
        self.prepared.shrink_to_fit();
    }

    fn overlaps(&mut self, prompt: usize) -> Vec<(u32, u32)> {
        let mut held = Vec::new();
        let report = |id, blocks| held.push((id, blocks));
        self.index
            .score_into(&self.prompts[prompt], |hash| hash.0, false, report);
        for (id, _) in &mut held {
            let shard = ShardedChainIndex::shard_of(*id) as u32;
            *id = shard * SHARD_REPLICAS + ShardedChainIndex::local_id(*id);
        }
        held.retain(|&(_, blocks)| blocks > 0);
        held.sort_unstable();
        held
    }

    fn untouched_bytes(&self) -> usize {
        let stats = self.index.stats();
        let arena = stats.arena_chunk_bytes.saturating_sub(stats.arena_bytes);
        arena + stats.slab_bytes.saturating_sub(stats.header_bytes)
    }
}
