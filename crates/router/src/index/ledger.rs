//! Compaction of one replica's updates into fewer updates with the same effect on any index.
//!
//! ```text
//! updates ──► Ledger ──► write_out ──► updates ──► an index that comes late
//! ```
//!
//! It remembers each block's tokens and parent as events brought them, until the replica is
//! cleared. It does not know keys, prompts or other replicas, and it is slow and unbounded: for
//! now and then, not for look-ups.
//!
//! Invariant: an index that applies what is written out answers from then on as one that applied
//! everything, with two exceptions. It does not know the handles that
//! [`DepartedHandles::Dropped`] leaves out, nor which doubt came last: [`Update::Trust`] then finds
//! none.

mod write_out;

use std::collections::BTreeMap;
use std::sync::Arc;

use headstart_core::event::StoredBlocks;
use headstart_core::{BlockHash, CacheEvent, Nanos, TokenId};

use super::Update;
use super::replica::GroupLayout;
use super::standing::{BlockPlace, HoldingRecord, is_over, since_doubt};

pub use write_out::DepartedHandles;

/// The sum of one replica's updates.
#[derive(Debug, Default)]
pub struct Ledger {
    groups: BTreeMap<u8, GroupLayout>,
    links: BTreeMap<BlockHash, BlockIntroduction>,
    held: BTreeMap<(BlockPlace, BlockHash), HoldingRecord>,
    /// Since when that is doubtful which was doubted last, all at once.
    doubted: Option<Nanos>,
}

/// Tokens and predecessor that introduced a block.
#[derive(Clone, Debug)]
struct BlockIntroduction {
    parent: Option<BlockHash>,
    adapter: Option<Arc<str>>,
    salt: Option<Arc<str>>,
    block_size: u32,
    tokens: Vec<TokenId>,
    extra: Option<Arc<[u8]>>,
}

impl Ledger {
    /// Takes over an update. Assumptions are each router's own and are left out.
    pub fn apply(&mut self, update: Update<'_>, now: Nanos) {
        match update {
            Update::Track { .. } | Update::Forget => *self = Self::default(),
            Update::Events(events) => events.iter().for_each(|event| self.apply_event(event, now)),
            Update::Doubt => self.doubt(now),
            Update::Trust => self.trust(now),
            Update::Assume(_) => {}
        }
    }

    /// Handles that are remembered: what a ledger's memory and time go with.
    #[must_use]
    pub fn num_handles(&self) -> usize {
        self.links.len().max(self.held.len())
    }

    fn apply_event(&mut self, event: &CacheEvent, now: Nanos) {
        match event {
            CacheEvent::Stored(stored) => self.store(stored),
            CacheEvent::Removed { blocks, tier, group } => {
                let place = BlockPlace { group: *group, tier: *tier };
                for &block in blocks {
                    let released = self.held.remove(&(place, block));
                    if let Some(record) = released.and_then(|record| record.released(now)) {
                        self.held.insert((place, block), record);
                    }
                }
            }
            CacheEvent::Cleared => *self = Self::default(),
        }
    }

    fn store(&mut self, stored: &StoredBlocks) {
        if !stored.tokens.is_empty() {
            if !stored.is_filled() {
                return;
            }
            self.link(stored);
        }
        if let Some(layout) = GroupLayout::news(&self.groups, stored) {
            self.groups.insert(stored.group.index, layout);
        }
        let place = BlockPlace { group: stored.group.index, tier: stored.tier };
        for &block in &stored.blocks {
            let before = self.held.get(&(place, block)).copied();
            self.held.insert((place, block), HoldingRecord::held_after(before));
        }
    }

    /// A handle means what the first event that brought its tokens says.
    fn link(&mut self, stored: &StoredBlocks) {
        let mut parent = stored.parent;
        let tokens = stored.tokens.chunks_exact(stored.block_size as usize);
        for (index, (&block, tokens)) in stored.blocks.iter().zip(tokens).enumerate() {
            self.links.entry(block).or_insert(BlockIntroduction {
                parent,
                adapter: stored.adapter.clone(),
                salt: stored.salt.clone(),
                block_size: stored.block_size,
                tokens: tokens.to_vec(),
                extra: stored.extras.get(index).cloned().flatten(),
            });
            parent = Some(block);
        }
    }

    fn doubt(&mut self, now: Nanos) {
        let since = since_doubt(now, self.doubted);
        self.doubted = Some(since);
        self.held.values_mut().for_each(|record| record.doubt(since));
    }

    fn trust(&mut self, now: Nanos) {
        let doubted = self.doubted.take();
        if let Some(since) = doubted.filter(|&since| !is_over(since, now)) {
            for record in self.held.values_mut() {
                record.trust(since);
            }
        }
    }
}
