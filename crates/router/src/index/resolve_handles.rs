//! Resolution of handles: the part of [`TrackedReplica`] that turns tokens into keys and spots.
//!
//! A handle means what the first event that brought its tokens says: they follow the parent's
//! block, or what stands before a prompt. One whose parent has no block yet, or one of another
//! size, waits; a block that gets its spot takes all along that wait for it.

use std::sync::Arc;

use headstart_core::block::Namespace;
use headstart_core::event::StoredBlocks;
use headstart_core::{RouteHasher, RouteKey, TokenId};

use super::forest::Forest;
use super::names::{ResolvedHandle, handle};
use super::replica::TrackedReplica;
use super::spot::{Span, Spot};
use super::standing::{HoldingRecord, PlacedHandle, Records};
use super::waiting::ParentLink;

/// Predecessor of a block.
#[derive(Clone, Copy)]
enum Predecessor {
    Root(RouteKey),
    Block(Spot),
    Handle(u64),
}

/// One block's content.
struct BlockContent<'a> {
    tokens: &'a [TokenId],
    extra: Option<Arc<[u8]>>,
}

impl TrackedReplica {
    /// Says what the blocks' handles stand for, as far as that is not settled.
    pub(super) fn introduce_all(
        &mut self,
        forest: &mut Forest<'_>,
        hasher: &RouteHasher,
        stored: &StoredBlocks,
    ) {
        let mut before = match stored.parent {
            Some(parent) => Predecessor::Handle(handle(parent)),
            None => Predecessor::Root(hasher.root(Namespace {
                adapter: stored.adapter.as_deref(),
                salt: stored.salt.as_deref(),
            })),
        };
        let contents = stored.tokens.chunks_exact(hasher.block_size());
        for (index, (&block, tokens)) in stored.blocks.iter().zip(contents).enumerate() {
            let extra = stored.extras.get(index).cloned().flatten();
            let block = handle(block);
            // Lists that grow now make room for the whole event at once.
            forest.coming = (stored.blocks.len() - index - 1) as u32;
            let spot =
                self.introduce(forest, hasher, block, before, BlockContent { tokens, extra });
            before = spot.map_or(Predecessor::Handle(block), Predecessor::Block);
        }
    }

    fn introduce(
        &mut self,
        forest: &mut Forest<'_>,
        hasher: &RouteHasher,
        block: u64,
        before: Predecessor,
        content: BlockContent<'_>,
    ) -> Option<Spot> {
        // The first meaning of a handle stays until the replica is cleared.
        if let Some(known) = self.names.find(block) {
            return Some(known.spot);
        }
        // It waits with its first tokens already.
        if self.waiting.is_linked(block) {
            return None;
        }
        let block_size = hasher.block_size() as u32;
        let parent = match before {
            Predecessor::Root(key) => Ok((None, key)),
            Predecessor::Block(spot) => Ok((Some(spot), forest.key(spot))),
            Predecessor::Handle(parent) => match self.names.find(parent) {
                // A key of one block size cannot follow a key of another.
                Some(ResolvedHandle { spot, .. }) if forest.block_size(spot) == block_size => {
                    Ok((Some(spot), forest.key(spot)))
                }
                _ => Err(parent),
            },
        };
        match parent {
            Ok((parent, key)) => {
                let key = hasher.next_with(key, content.tokens, content.extra.as_deref());
                Some(self.place(forest, hasher, block, parent, key))
            }
            Err(parent) => {
                let link = ParentLink {
                    parent,
                    block_size,
                    tokens: content.tokens.into(),
                    extra: content.extra,
                };
                self.counters.orphans += self.waiting.link(block, link);
                None
            }
        }
    }

    /// Gives `block` its spot, and theirs to all who wait for it. A loop, because chains are long.
    fn place(
        &mut self,
        forest: &mut Forest<'_>,
        hasher: &RouteHasher,
        block: u64,
        parent: Option<Spot>,
        key: RouteKey,
    ) -> Spot {
        let block_size = hasher.block_size() as u32;
        let first = forest.locate(parent, key, block_size);
        self.name(forest, block, first);
        // Nearly always none waits, and then neither records nor children are looked for.
        if self.waiting.len() == 0 {
            return first;
        }
        self.take_over_records(forest, block, first);
        let mut due = vec![(block, first)];
        while let Some((parent, spot)) = due.pop() {
            let key = forest.key(spot);
            // Only children of this block size: the others wait until the replica is cleared.
            for child in self.waiting.children(parent, block_size) {
                let Some(link) = self.waiting.link_of(child).cloned() else {
                    continue;
                };
                let key = hasher.next_with(key, &link.tokens, link.extra.as_deref());
                let spot = forest.locate(Some(spot), key, block_size);
                self.seat(forest, child, spot);
                due.push((child, spot));
            }
        }
        first
    }

    /// Lets a handle that waited stand for a block.
    fn seat(&mut self, forest: &mut Forest<'_>, block: u64, spot: Spot) {
        if self.waiting.holds(block) {
            self.name(forest, block, spot);
        } else {
            // Removed while it waited: it is remembered as a departure, as if it had been known in
            // time.
            self.names.insert_idle(forest.land, block, spot);
            self.departed.push(block);
        }
        self.take_over_records(forest, block, spot);
    }

    /// Lets a handle that holds a block, or is about to, stand for it.
    pub(super) fn name(&mut self, forest: &mut Forest<'_>, block: u64, spot: Spot) {
        self.names.insert(forest.land, block, spot);
        self.tell_apart(forest, block, spot);
    }

    /// Lets what a handle held while it waited count.
    fn take_over_records(&mut self, forest: &mut Forest<'_>, block: u64, spot: Spot) {
        let Some(waiter) = self.waiting.take(block) else {
            return;
        };
        for (place, record) in waiter.records.iter() {
            self.tell_stored(forest, spot, place);
            let held = PlacedHandle { handle: block, spot, place };
            if self.put(forest, held, record)
                && record == (HoldingRecord::Confirmed { again: true })
            {
                self.mark(spot, place);
            }
        }
    }

    /// Takes over a record of a handle that stands for a block. Returns whether that block has no
    /// crowd.
    pub(super) fn put(
        &mut self,
        forest: &mut Forest<'_>,
        held: PlacedHandle,
        record: HoldingRecord,
    ) -> bool {
        let put = |records: &mut Records| records.put(held.place, record);
        let is_alone = self.crowds.change(forest, held, put).is_none();
        if is_alone {
            forest.set(Span::one(held.spot), self.slot, held.place, Some(record.into()));
        }
        is_alone
    }
}
