//! One replica's handles that stand for no block yet.
//!
//! | a handle is | until |
//! |---|---|
//! | nameless: in some place, without tokens | an event brings them |
//! | linked: with tokens, behind a handle that has no block | that one gets its block |
//! | linked behind a block of another size | the replica is cleared |
//!
//! Removals and doubts reach them too; otherwise a block that came and went while its parent was
//! missing would be taken for held once the parent arrives.
//!
//! Invariants: a nameless handle is in some place; at most [`MAX_WAITING_BLOCKS`] wait.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use headstart_core::TokenId;

use super::standing::Records;
use crate::lookup::StableMap;

/// Waiting blocks per replica: 64 thousand tokens at the usual 16, one long prompt whose first
/// event was lost. The oldest is given up first.
pub(super) const MAX_WAITING_BLOCKS: usize = 4096;

/// All handles of one replica that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    handles: StableMap<u64, Waiter>,
    /// From a parent to those linked behind it.
    children: StableMap<u64, HashSet<u64>>,
    /// By ticket, oldest first.
    queue: BTreeMap<u64, u64>,
    next_ticket: u64,
}

/// One of them.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    pub(super) link: Option<ParentLink>,
    pub(super) records: Records,
    ticket: u64,
}

/// Inputs of a waiting block's key.
#[derive(Clone, Debug)]
pub(super) struct ParentLink {
    pub(super) parent: u64,
    pub(super) block_size: u32,
    pub(super) tokens: Box<[TokenId]>,
    pub(super) extra: Option<Arc<[u8]>>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.handles.len()
    }

    pub(super) fn is_linked(&self, handle: u64) -> bool {
        self.link_of(handle).is_some()
    }

    /// Whether any place holds the handle's block.
    pub(super) fn holds(&self, handle: u64) -> bool {
        let waiter = self.handles.get(&handle);
        waiter.is_some_and(|waiter| !waiter.records.is_empty())
    }

    pub(super) fn link_of(&self, handle: u64) -> Option<&ParentLink> {
        self.handles.get(&handle)?.link.as_ref()
    }

    /// Links a handle that is not linked yet. Returns how many were given up for it.
    pub(super) fn link(&mut self, handle: u64, link: ParentLink) -> u64 {
        // By parent as well: when a block gets its spot, all that wait for it are found at once.
        self.children.entry(link.parent).or_default().insert(handle);
        self.enter(handle).link = Some(link);
        self.limit()
    }

    /// Changes where a handle is, known or not. Returns how many were given up for it.
    pub(super) fn hold(&mut self, handle: u64, change: impl FnOnce(&mut Records)) -> u64 {
        change(&mut self.enter(handle).records);
        self.settle(handle);
        self.limit()
    }

    /// The same, only for a known handle; `None` for others.
    pub(super) fn change<T>(
        &mut self,
        handle: u64,
        change: impl FnOnce(&mut Records) -> T,
    ) -> Option<T> {
        let records = &mut self.handles.get_mut(&handle)?.records;
        let changed = change(records);
        self.settle(handle);
        Some(changed)
    }

    /// Changes all of them.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(&mut Records)) {
        // A change may remove its handle, so they are collected first, in a fixed order.
        let handles: Vec<u64> = self.queue.values().copied().collect();
        for handle in handles {
            self.change(handle, &mut change);
        }
    }

    /// Lets a handle go that gets its block.
    pub(super) fn take(&mut self, handle: u64) -> Option<Waiter> {
        let waiter = self.handles.remove(&handle)?;
        self.queue.remove(&waiter.ticket);
        if let Some(link) = &waiter.link {
            self.unlink(link.parent, handle);
        }
        Some(waiter)
    }

    /// Handles linked behind `parent` in blocks of this size, in a fixed order.
    pub(super) fn children(&self, parent: u64, block_size: u32) -> Vec<u64> {
        let Some(children) = self.children.get(&parent) else {
            return Vec::new();
        };
        let is_alike = |child: &u64| {
            let link = self.handles.get(child).and_then(|waiter| waiter.link.as_ref());
            link.is_some_and(|link| link.block_size == block_size)
        };
        let mut children: Vec<u64> = children.iter().copied().filter(is_alike).collect();
        // A hash set has no order, but equal calls must build equal indices.
        children.sort_unstable();
        children
    }

    /// Memory, bytes, roughly.
    pub(super) fn bytes(&self) -> usize {
        let waiter = |waiter: &Waiter| {
            let tokens = waiter.link.as_ref().map_or(0, |link| link.tokens.len() * 4);
            size_of::<Waiter>() + 64 + tokens + waiter.records.heap_bytes()
        };
        self.handles.values().map(waiter).sum()
    }

    /// Asserts the invariants. O(size).
    pub(super) fn check(&self) {
        assert!(self.len() <= MAX_WAITING_BLOCKS, "waiting blocks are bounded");
        assert_eq!(self.len(), self.queue.len(), "all who wait stand in the queue");
        let mut num_linked = 0;
        for (handle, waiter) in &self.handles {
            assert_eq!(self.queue.get(&waiter.ticket), Some(handle), "tickets are right");
            match &waiter.link {
                None => assert!(!waiter.records.is_empty(), "nameless handles are somewhere"),
                Some(link) => {
                    num_linked += 1;
                    let is_listed = self.children[&link.parent].contains(handle);
                    assert!(is_listed, "linked handles are listed");
                }
            }
        }
        let num_listed: usize = self.children.values().map(HashSet::len).sum();
        assert_eq!(num_listed, num_linked, "listed handles are linked");
    }

    fn enter(&mut self, handle: u64) -> &mut Waiter {
        let Self { handles, queue, next_ticket, .. } = self;
        handles.entry(handle).or_insert_with(|| {
            let ticket = *next_ticket;
            *next_ticket += 1;
            queue.insert(ticket, handle);
            Waiter { ticket, ..Waiter::default() }
        })
    }

    /// A nameless handle that is nowhere is nothing at all.
    fn settle(&mut self, handle: u64) {
        let waiter = self.handles.get(&handle);
        if waiter.is_some_and(|waiter| waiter.link.is_none() && waiter.records.is_empty()) {
            self.take(handle);
        }
    }

    fn limit(&mut self) -> u64 {
        let mut given_up = 0;
        while self.len() > MAX_WAITING_BLOCKS {
            let Some((_, oldest)) = self.queue.pop_first() else {
                break;
            };
            self.take(oldest);
            given_up += 1;
        }
        given_up
    }

    fn unlink(&mut self, parent: u64, child: u64) {
        if let Some(children) = self.children.get_mut(&parent) {
            children.remove(&child);
            if children.is_empty() {
                self.children.remove(&parent);
            }
        }
    }
}
