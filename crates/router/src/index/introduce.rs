//! What a handle stands for: the part of [`Replica`] that turns tokens into keys and spots.
//!
//! A handle means what the first event that brought its tokens says: they follow the parent's
//! block, or what stands before a prompt. One whose parent has no block yet, or one of another
//! size, waits; a block that gets its spot takes all along that wait for it.

use std::sync::Arc;

use headstart_core::block::Namespace;
use headstart_core::event::StoredBlocks;
use headstart_core::{RouteHasher, RouteKey, TokenId};

use super::forest::Forest;
use super::names::handle;
use super::replica::{Replica, one};
use super::standing::Record;
use super::view::Spot;
use super::waiting::Link;

/// What a block follows.
#[derive(Clone, Copy)]
enum Before {
    Root(RouteKey),
    Block(Spot),
    Handle(u64),
}

/// One block's content.
struct Content<'a> {
    tokens: &'a [TokenId],
    extra: Option<Arc<[u8]>>,
}

impl Replica {
    /// Says what the blocks' handles stand for, as far as that is not settled. Returns the spots
    /// of those that have one.
    pub(super) fn introduce_all(
        &mut self,
        forest: &mut Forest<'_>,
        hasher: &RouteHasher,
        stored: &StoredBlocks,
    ) -> Vec<Option<Spot>> {
        let mut before = match stored.parent {
            Some(parent) => Before::Handle(handle(parent)),
            None => Before::Root(hasher.root(Namespace {
                adapter: stored.adapter.as_deref(),
                salt: stored.salt.as_deref(),
            })),
        };
        let contents = stored.tokens.chunks_exact(hasher.block_size());
        let mut spots = Vec::with_capacity(stored.blocks.len());
        for (index, (&block, tokens)) in stored.blocks.iter().zip(contents).enumerate() {
            let extra = stored.extras.get(index).cloned().flatten();
            let block = handle(block);
            forest.coming = (stored.blocks.len() - index - 1) as u32;
            let spot = self.introduce(forest, hasher, block, before, Content { tokens, extra });
            before = spot.map_or(Before::Handle(block), Before::Block);
            spots.push(spot);
        }
        spots
    }

    fn introduce(
        &mut self,
        forest: &mut Forest<'_>,
        hasher: &RouteHasher,
        block: u64,
        before: Before,
        content: Content<'_>,
    ) -> Option<Spot> {
        if let Some(spot) = self.names.find(forest.land, block) {
            return Some(spot);
        }
        if self.waiting.is_linked(block) {
            return None;
        }
        let block_size = hasher.block_size() as u32;
        let parent = match before {
            Before::Root(key) => Ok((None, key)),
            Before::Block(spot) => Ok((Some(spot), forest.key(spot))),
            Before::Handle(parent) => match self.names.find(forest.land, parent) {
                Some(spot) if forest.block_size(spot) == block_size => {
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
                let link = Link {
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
        let first = self.seat(forest, hasher, block, parent, key);
        if self.waiting.len() == 0 {
            return first;
        }
        let block_size = hasher.block_size() as u32;
        let mut due = vec![(block, first)];
        while let Some((parent, spot)) = due.pop() {
            let key = forest.key(spot);
            self.take_over_records(forest, parent, spot);
            for child in self.waiting.children(parent, block_size) {
                let Some(link) = self.waiting.link_of(child).cloned() else {
                    continue;
                };
                let key = hasher.next_with(key, &link.tokens, link.extra.as_deref());
                due.push((child, self.seat(forest, hasher, child, Some(spot), key)));
            }
        }
        first
    }

    fn seat(
        &mut self,
        forest: &mut Forest<'_>,
        hasher: &RouteHasher,
        block: u64,
        parent: Option<Spot>,
        key: RouteKey,
    ) -> Spot {
        let spot = forest.locate(parent, key, hasher.block_size() as u32);
        self.name(forest, block, spot);
        spot
    }

    /// Lets a handle stand for a block.
    pub(super) fn name(&mut self, forest: &mut Forest<'_>, block: u64, spot: Spot) {
        if forest.land.num_names(spot) > 0 {
            let occupant = self.names.occupant(forest.land, spot);
            let again = &mut self.again;
            self.crowds
                .join(forest, self.slot, spot, block, occupant, again);
        }
        self.names.insert(forest.land, block, spot);
    }

    /// Lets what a handle held while it waited count.
    fn take_over_records(&mut self, forest: &mut Forest<'_>, block: u64, spot: Spot) {
        let Some(waiter) = self.waiting.take(block) else {
            return;
        };
        for (place, record) in waiter.records.iter() {
            if self
                .crowds
                .put(forest, self.slot, spot, block, place, record)
            {
                continue;
            }
            forest.set(one(spot), self.slot, place, Some(record.into()));
            if record == (Record::Confirmed { again: true }) {
                self.mark(spot, place);
            }
        }
    }
}
