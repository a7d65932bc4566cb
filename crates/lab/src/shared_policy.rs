//! A policy `hazard` that is looked at after the replay.

use std::sync::{Arc, Mutex};

use headstart_cache::Policy;
use headstart_cache::policy::{Hazard, Newcomer};
use headstart_core::{Access, BlockHash, BlockId, Nanos};

/// A policy that is looked at after the replay.
pub(crate) struct SharedPolicy(Arc<Mutex<Hazard>>);

impl SharedPolicy {
    pub(crate) fn new(policy: Arc<Mutex<Hazard>>) -> Self {
        Self(policy)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Hazard) -> T) -> T {
        act(&mut self.0.lock().expect("no holder panics"))
    }
}

impl Policy for SharedPolicy {
    fn insert(&mut self, block: BlockId, hash: BlockHash, access: &Access) {
        self.with(|policy| policy.insert(block, hash, access));
    }

    fn release(&mut self, blocks: &[BlockId], access: &Access) {
        self.with(|policy| policy.release(blocks, access));
    }

    fn offer(&mut self, block: BlockId) {
        self.with(|policy| policy.offer(block));
    }

    fn withdraw(&mut self, block: BlockId) {
        self.with(|policy| policy.withdraw(block));
    }

    fn victim(&mut self, now: Nanos, newcomer: Option<&Newcomer>) -> Option<BlockId> {
        self.with(|policy| policy.victim(now, newcomer))
    }

    fn remove(&mut self, block: BlockId, hash: BlockHash) {
        self.with(|policy| policy.remove(block, hash));
    }

    fn forget(&mut self, block: BlockId, hash: BlockHash) {
        self.with(|policy| policy.forget(block, hash));
    }
}
