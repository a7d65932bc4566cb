//! One replica's block hashes: what each stands for, and in which tiers its block lies.
//!
//! An engine's hash is a *handle*: it means what the event that introduced it says, its tokens
//! behind its parent. From these the block's [`RouteKey`] is derived again, so neither the
//! engine's hash function nor its seed matters.
//!
//! ```text
//!                      parent placed, or none
//! unknown ──stored──────────────────────────────────► placed ──► in tiers ⇄ departed
//!    │                                                   ▲
//!    ├──stored, parent unknown──► waiting for parent ────┤ parent placed
//!    └──tier change only────────► nameless ──────────────┘ stored
//! ```
//!
//! | state | counts as held by the replica | bounded by |
//! |---|---|---|
//! | placed, in some tier | yes | the replica's own capacity |
//! | placed, departed (in no tier) | no | [`MAX_DEPARTED_BLOCKS`] |
//! | waiting or nameless | no | [`MAX_HELD_BLOCKS`] |
//!
//! Departed handles are kept for a while because an engine may announce a demotion's two halves
//! in either order: what left the device may turn up in host memory next, without tokens.
//! Removals reach waiting blocks too; otherwise a block that came and went while its parent was
//! missing would be taken for held once the parent arrives.
//!
//! Source: the dual keys of llm-d. Differences: events with an unknown parent or without tokens
//! wait instead of being dropped, and every handle covers exactly one block.

use headstart_core::block::Namespace;
use headstart_core::event::StoredBlocks;
use headstart_core::{BlockHash, RouteHasher, RouteKey, Tier, TokenId};

use super::handle::{Handle, Name, Queue, Seat};
use crate::lookup::Map;

/// Waiting and nameless blocks per replica: 64 thousand tokens at the usual 16, one long prompt
/// whose first event was lost. The oldest goes first.
const MAX_HELD_BLOCKS: usize = 4096;

/// Departed blocks remembered per replica. A demotion's second half follows within a few steps of
/// the engine, which evicts fewer blocks than this in that time. The oldest goes first.
const MAX_DEPARTED_BLOCKS: usize = 4096;

/// All that one replica's events told.
#[derive(Debug, Default)]
pub(super) struct Handles {
    known: Map<BlockHash, Handle>,
    /// From a missing parent to the blocks that wait for it.
    waiting: Map<BlockHash, Vec<BlockHash>>,
    held: Queue,
    departed: Queue,
    dropped: Dropped,
}

/// A change of what the replica holds, in terms of route keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Gained(RouteKey, Tier),
    Lost(RouteKey, Tier),
}

/// Blocks that could not be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) orphans: u64,
    pub(super) unknown_removals: u64,
}

/// What a block follows.
#[derive(Clone, Copy)]
enum Before {
    Root(RouteKey),
    Block(BlockHash),
}

impl Handles {
    /// Takes over blocks that bring their tokens, one block's worth each. What a handle stands for
    /// is settled by the first event that says so.
    pub(super) fn store(&mut self, hasher: &RouteHasher, stored: &StoredBlocks) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut before = match stored.parent {
            Some(parent) => Before::Block(parent),
            None => Before::Root(hasher.root(Namespace {
                adapter: stored.adapter.as_deref(),
                salt: stored.salt.as_deref(),
            })),
        };
        let tokens = stored.tokens.chunks_exact(hasher.block_size());
        for (&block, tokens) in stored.blocks.iter().zip(tokens) {
            self.enter(block, stored.tier, &mut changes);
            if matches!(self.known[&block].name, Name::Nameless) {
                self.introduce(hasher, block, before, tokens, &mut changes);
            }
            self.settle(block);
            before = Before::Block(block);
        }
        changes
    }

    /// Takes over that `blocks`, introduced earlier or yet to be, are now in `tier` as well.
    pub(super) fn change_tier(&mut self, blocks: &[BlockHash], tier: Tier) -> Vec<Change> {
        let mut changes = Vec::new();
        for &block in blocks {
            self.enter(block, tier, &mut changes);
            self.settle(block);
        }
        changes
    }

    /// Takes over that `blocks` left `tier`.
    pub(super) fn remove(&mut self, blocks: &[BlockHash], tier: Tier) -> Vec<Change> {
        let mut changes = Vec::new();
        for &block in blocks {
            let handle = self.known.get_mut(&block);
            let Some(handle) = handle.filter(|handle| !handle.tiers.is_empty()) else {
                self.dropped.unknown_removals += 1;
                continue;
            };
            if !handle.tiers.remove(tier) {
                self.dropped.unknown_removals += 1;
            } else if let Name::Placed(key) = handle.name {
                changes.push(Change::Lost(key, tier));
            }
            self.settle(block);
        }
        changes
    }

    /// Forgets everything but the counters. O(own blocks).
    pub(super) fn clear(&mut self) -> Vec<Change> {
        let old = std::mem::take(self);
        self.dropped = old.dropped;
        let placed = old.known.values().filter_map(Handle::placed);
        placed
            .flat_map(|(key, tiers)| tiers.iter().map(move |tier| Change::Lost(key, tier)))
            .collect()
    }

    /// Whether the replica holds nothing that the index knows of.
    pub(super) fn is_vacant(&self) -> bool {
        self.known.len() == self.held.len() + self.departed.len()
    }

    /// Blocks waiting for their parent or for their tokens.
    pub(super) fn num_held(&self) -> usize {
        self.held.len()
    }

    /// What could not be used so far.
    pub(super) fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// What the replica holds: one entry per handle and tier, in no order.
    pub(super) fn residents(&self) -> impl Iterator<Item = (RouteKey, Tier)> {
        let placed = self.known.values().filter_map(Handle::placed);
        placed.flat_map(|(key, tiers)| tiers.iter().map(move |tier| (key, tier)))
    }

    /// Asserts that every handle stands where its state says. O(size).
    pub(super) fn check(&self) {
        let mut num_waiting = 0;
        for (block, handle) in &self.known {
            let is_right = match handle.seat {
                Seat::Unqueued => handle.is_resident(),
                Seat::Held(ticket) => handle.is_held() && self.held.has(ticket, *block),
                Seat::Departed(ticket) => handle.is_departed() && self.departed.has(ticket, *block),
            };
            assert!(is_right, "{block:?} is queued by its state: {handle:?}");
            if let Name::Waiting { parent, .. } = handle.name {
                num_waiting += 1;
                let siblings = self.waiting.get(&parent);
                let is_listed = siblings.is_some_and(|siblings| siblings.contains(block));
                assert!(is_listed, "{block:?} waits at its parent");
                assert!(
                    self.key_of(parent).is_none(),
                    "nobody waits for a placed parent"
                );
            }
        }
        let num_listed: usize = self.waiting.values().map(Vec::len).sum();
        assert_eq!(num_listed, num_waiting, "only waiting blocks wait");
        assert!(
            self.held.len() <= MAX_HELD_BLOCKS,
            "held blocks are bounded"
        );
        assert!(
            self.departed.len() <= MAX_DEPARTED_BLOCKS,
            "departed blocks are bounded"
        );
    }

    /// Notes that `block` is in `tier`, whatever it stands for.
    fn enter(&mut self, block: BlockHash, tier: Tier, changes: &mut Vec<Change>) {
        let handle = self.known.entry(block).or_default();
        if handle.tiers.insert(tier)
            && let Name::Placed(key) = handle.name
        {
            changes.push(Change::Gained(key, tier));
        }
    }

    /// Says what the nameless `block` stands for.
    fn introduce(
        &mut self,
        hasher: &RouteHasher,
        block: BlockHash,
        before: Before,
        tokens: &[TokenId],
        changes: &mut Vec<Change>,
    ) {
        let parent_key = match before {
            Before::Root(root) => Ok(root),
            Before::Block(parent) => self.key_of(parent).ok_or(parent),
        };
        match parent_key {
            Ok(key) => self.place(hasher, block, hasher.next(key, tokens), changes),
            Err(parent) => {
                self.waiting.entry(parent).or_default().push(block);
                let tokens = tokens.into();
                self.handle_mut(block).name = Name::Waiting { parent, tokens };
            }
        }
    }

    /// Gives `block` its key, and theirs to all who wait for it. A loop, because chains are long.
    fn place(
        &mut self,
        hasher: &RouteHasher,
        block: BlockHash,
        key: RouteKey,
        changes: &mut Vec<Change>,
    ) {
        let mut due = vec![(block, key)];
        while let Some((block, key)) = due.pop() {
            let handle = self.handle_mut(block);
            handle.name = Name::Placed(key);
            changes.extend(handle.tiers.iter().map(|tier| Change::Gained(key, tier)));
            self.settle(block);
            for child in self.waiting.remove(&block).unwrap_or_default() {
                if let Name::Waiting { tokens, .. } = &self.known[&child].name {
                    due.push((child, hasher.next(key, tokens)));
                }
            }
        }
    }

    /// Puts `block` into the queue where its state belongs; a full queue drops its oldest.
    fn settle(&mut self, block: BlockHash) {
        let handle = &self.known[&block];
        let is_seated = match handle.seat {
            Seat::Unqueued => handle.is_resident(),
            Seat::Held(_) => handle.is_held(),
            Seat::Departed(_) => handle.is_departed(),
        };
        if is_seated {
            return;
        }
        let (is_held, is_departed) = (handle.is_held(), handle.is_departed());
        self.unseat(block);
        if is_held {
            self.handle_mut(block).seat = Seat::Held(self.held.push(block));
        } else if is_departed {
            self.handle_mut(block).seat = Seat::Departed(self.departed.push(block));
        } else if !self.known[&block].is_resident() {
            self.known.remove(&block);
        }
        if self.held.len() > MAX_HELD_BLOCKS {
            self.dropped.orphans += 1;
            self.forget(self.held.oldest());
        }
        if self.departed.len() > MAX_DEPARTED_BLOCKS {
            self.forget(self.departed.oldest());
        }
    }

    fn forget(&mut self, block: BlockHash) {
        self.unseat(block);
        let handle = self.known.remove(&block);
        if let Some(Name::Waiting { parent, .. }) = handle.map(|handle| handle.name)
            && let Some(siblings) = self.waiting.get_mut(&parent)
        {
            siblings.retain(|&sibling| sibling != block);
            if siblings.is_empty() {
                self.waiting.remove(&parent);
            }
        }
    }

    fn unseat(&mut self, block: BlockHash) {
        let seat = &mut self.handle_mut(block).seat;
        match std::mem::replace(seat, Seat::Unqueued) {
            Seat::Unqueued => {}
            Seat::Held(ticket) => self.held.leave(ticket),
            Seat::Departed(ticket) => self.departed.leave(ticket),
        }
    }

    fn key_of(&self, block: BlockHash) -> Option<RouteKey> {
        match self.known.get(&block)?.name {
            Name::Placed(key) => Some(key),
            Name::Waiting { .. } | Name::Nameless => None,
        }
    }

    fn handle_mut(&mut self, block: BlockHash) -> &mut Handle {
        self.known.get_mut(&block).expect("the block is known")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::RouteIdentity;

    const NO_TOKENS: &[TokenId] = &[];

    /// Block `n` holds the token `n`.
    fn hasher() -> RouteHasher {
        RouteHasher::new(&RouteIdentity {
            model: "m",
            block_size: 1,
        })
    }

    fn hash(block: u64) -> BlockHash {
        BlockHash::from_u64(block)
    }

    fn stored(parent: Option<u64>, blocks: &[u64]) -> StoredBlocks {
        StoredBlocks {
            blocks: blocks.iter().copied().map(hash).collect(),
            parent: parent.map(hash),
            tokens: blocks.iter().map(|&block| block as TokenId).collect(),
            block_size: 1,
            tier: Tier::Device,
            salt: None,
            adapter: None,
        }
    }

    /// Expects the keys of `resident` (as a chain from the root) on the device and no other.
    fn check(handles: &Handles, resident: &[TokenId], num_held: usize) {
        handles.check();
        let mut expected = hasher().chain(Namespace::default(), resident);
        let mut found: Vec<_> = handles.residents().map(|(key, _)| key).collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        assert_eq!(handles.num_held(), num_held);
    }

    #[test]
    fn a_chain_waits_for_its_parent_and_follows_it() {
        let mut handles = Handles::default();
        handles.store(&hasher(), &stored(Some(2), &[3, 4]));
        handles.store(&hasher(), &stored(Some(1), &[2]));
        check(&handles, NO_TOKENS, 3);
        let changes = handles.store(&hasher(), &stored(None, &[1]));
        assert_eq!(changes.len(), 4);
        check(&handles, &[1, 2, 3, 4], 0);
    }

    #[test]
    fn repeats_change_nothing() {
        let mut handles = Handles::default();
        handles.store(&hasher(), &stored(None, &[1, 2]));
        assert_eq!(handles.store(&hasher(), &stored(None, &[1, 2])), []);
        handles.remove(&[hash(2)], Tier::Device);
        assert_eq!(handles.remove(&[hash(2)], Tier::Device), []);
        check(&handles, &[1], 0);
        assert_eq!(handles.dropped().unknown_removals, 1);
    }

    #[test]
    fn a_block_removed_while_waiting_does_not_come_back() {
        let mut handles = Handles::default();
        handles.store(&hasher(), &stored(Some(1), &[2, 3]));
        handles.remove(&[hash(3)], Tier::Device);
        handles.store(&hasher(), &stored(None, &[1]));
        check(&handles, &[1, 2], 0);
    }

    #[test]
    fn a_demotion_may_be_announced_in_either_order() {
        for is_removal_first in [true, false] {
            let mut handles = Handles::default();
            handles.store(&hasher(), &stored(None, &[1]));
            if is_removal_first {
                handles.remove(&[hash(1)], Tier::Device);
                handles.change_tier(&[hash(1)], Tier::Host);
            } else {
                handles.change_tier(&[hash(1)], Tier::Host);
                handles.remove(&[hash(1)], Tier::Device);
            }
            check(&handles, &[1], 0);
        }
    }

    #[test]
    fn a_tier_change_waits_for_the_tokens() {
        let mut handles = Handles::default();
        handles.change_tier(&[hash(1), hash(2)], Tier::Host);
        check(&handles, NO_TOKENS, 2);
        handles.remove(&[hash(2)], Tier::Host);
        check(&handles, NO_TOKENS, 1);
        let changes = handles.store(&hasher(), &stored(None, &[1]));
        assert_eq!(changes.len(), 2, "device and host: {changes:?}");
        handles.check();
    }

    #[test]
    fn orphans_are_bounded_and_the_oldest_goes_first() {
        let mut handles = Handles::default();
        let limit = MAX_HELD_BLOCKS as u64;
        for block in 0..limit + 3 {
            handles.store(&hasher(), &stored(Some(900_000), &[1000 + block]));
        }
        check(&handles, NO_TOKENS, MAX_HELD_BLOCKS);
        assert_eq!(handles.dropped().orphans, 3);
        assert!(!handles.known.contains_key(&hash(1002)));
        assert!(handles.known.contains_key(&hash(1003)));
    }

    #[test]
    fn departed_blocks_are_bounded() {
        let mut handles = Handles::default();
        let blocks: Vec<u64> = (0..MAX_DEPARTED_BLOCKS as u64 + 5).collect();
        let hashes: Vec<_> = blocks.iter().copied().map(hash).collect();
        handles.store(&hasher(), &stored(None, &blocks));
        handles.remove(&hashes, Tier::Device);
        check(&handles, NO_TOKENS, 0);
        assert_eq!(handles.known.len(), MAX_DEPARTED_BLOCKS);
        assert!(handles.is_vacant());
    }

    #[test]
    fn parents_in_a_circle_wait_forever_and_harm_nobody() {
        let mut handles = Handles::default();
        handles.store(&hasher(), &stored(Some(2), &[1]));
        handles.store(&hasher(), &stored(Some(1), &[2]));
        handles.store(&hasher(), &stored(Some(3), &[3]));
        check(&handles, NO_TOKENS, 3);
        handles.clear();
        check(&handles, NO_TOKENS, 0);
    }
}
