//! Engines' events as `dynamo_kv_router` takes them, for its three indexes.

use dynamo_kv_router::protocols::{
    BlockHashOptions, ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData,
    KvCacheStoreData, KvCacheStoredBlockData, LocalBlockHash, OverlapScores, RouterEvent,
    compute_block_hash_for_seq,
};
use headstart_core::event::StoredBlocks;
use headstart_core::{BlockHash, CacheEvent, TokenId};

use crate::replay::{Message, engine_hash};

/// The events of one message.
pub(super) fn router_events(message: &Message) -> Vec<RouterEvent> {
    let of = |event| {
        let event = KvCacheEvent {
            event_id: 0,
            data: data(event),
            dp_rank: 0,
        };
        RouterEvent::new(u64::from(message.replica), event)
    };
    message.events.iter().map(of).collect()
}

fn data(event: &CacheEvent) -> KvCacheEventData {
    match event {
        CacheEvent::Stored(stored) => KvCacheEventData::Stored(store(stored)),
        CacheEvent::Removed { blocks, .. } => KvCacheEventData::Removed(KvCacheRemoveData {
            block_hashes: blocks.iter().map(|&block| external(block)).collect(),
        }),
        CacheEvent::Cleared => KvCacheEventData::Cleared,
    }
}

fn store(stored: &StoredBlocks) -> KvCacheStoreData {
    let local = prompt_hashes(&stored.tokens, stored.block_size);
    let block = |(&block, tokens_hash)| KvCacheStoredBlockData {
        block_hash: external(block),
        tokens_hash,
        mm_extra_info: None,
    };
    KvCacheStoreData {
        parent_hash: stored.parent.map(external),
        start_position: None,
        blocks: stored.blocks.iter().zip(local).map(block).collect(),
    }
}

fn external(block: BlockHash) -> ExternalSequenceBlockHash {
    ExternalSequenceBlockHash(engine_hash(block))
}

/// Returns the hashes of a prompt with which its indexes are queried.
pub(super) fn prompt_hashes(tokens: &[TokenId], block_size: u32) -> Vec<LocalBlockHash> {
    compute_block_hash_for_seq(tokens, block_size, BlockHashOptions::default())
}

/// Its answer, as all are compared.
pub(super) fn by_replica(scores: &OverlapScores) -> Vec<(u32, u32)> {
    let scores = scores.scores.iter();
    let held = scores.map(|(worker, &blocks)| (worker.worker_id as u32, blocks));
    let mut held: Vec<_> = held.filter(|&(_, blocks)| blocks > 0).collect();
    held.sort_unstable();
    held
}
