//! Cache effects as events: the scheduler knows the tokens and parents that the cache does not.
//!
//! It stands here rather than in the engine so that a simulated replica announces exactly what
//! a real one would.

mod lower;

use std::sync::Arc;

use headstart_cache::Effect;
use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Tier};

use crate::sequence::Sequence;

pub(crate) use lower::{DeviceUnit, LowerTiers};

/// Adds one `Removed` for the evictions among `effects`.
pub(crate) fn evictions(effects: impl Iterator<Item = Effect>, events: &mut Vec<CacheEvent>) {
    let removed = effects.filter_map(|effect| match effect {
        Effect::Evicted { hash, .. } => Some(hash),
        Effect::Stored { .. } => None,
    });
    let blocks: Vec<BlockHash> = removed.collect();
    if !blocks.is_empty() {
        events.push(CacheEvent::Removed { blocks, tier: Tier::Device, group: 0 });
    }
}

/// Adds a `Stored` for each unbroken run of `sequence`'s blocks among `effects`, which come in
/// the order of its tokens. Blocks that another sequence stored first leave gaps.
pub(crate) fn commits(
    sequence: &Sequence,
    first_position: usize,
    effects: impl Iterator<Item = Effect>,
    events: &mut Vec<CacheEvent>,
) {
    let mut position = first_position;
    let mut run: Option<(usize, StoredBlocks)> = None;
    for effect in effects {
        let Effect::Stored { hash, .. } = effect else {
            continue;
        };
        // Adopted blocks have no effect. The stored ones come in order, so the search ends.
        while sequence.hashes[position] != hash {
            position += 1;
        }
        match &mut run {
            Some((next, stored)) if *next == position => append(sequence, position, stored),
            _ => {
                let parent = position.checked_sub(1).map(|before| sequence.hashes[before]);
                let salt = sequence.new.salt.clone();
                let mut stored = empty(Tier::Device, parent, sequence.block_size(), salt);
                append(sequence, position, &mut stored);
                events.extend(run.take().map(|(_, done)| CacheEvent::Stored(done)));
                run = Some((position, stored));
            }
        }
        position += 1;
        if let Some((next, _)) = &mut run {
            *next = position;
        }
    }
    events.extend(run.map(|(_, done)| CacheEvent::Stored(done)));
}

fn empty(
    tier: Tier,
    parent: Option<BlockHash>,
    block_size: usize,
    salt: Option<Arc<str>>,
) -> StoredBlocks {
    StoredBlocks {
        blocks: Vec::new(),
        parent,
        tokens: Vec::new(),
        block_size: block_size as u32,
        extras: Vec::new(),
        tier,
        group: CacheGroup::default(),
        salt,
        adapter: None,
    }
}

fn append(sequence: &Sequence, position: usize, stored: &mut StoredBlocks) {
    let size = sequence.block_size();
    stored.blocks.push(sequence.hashes[position]);
    stored.tokens.extend(&sequence.tokens[position * size..(position + 1) * size]);
}
