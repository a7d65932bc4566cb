//! Cache events of engines, on their way to the gateway.

use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{CacheEvent, ReplicaId};
use headstart_router::index::Update;

use super::super::engine::{ResidencyChange, hash_of};
use super::{BLOCK_SIZE, World, WorldEvent};

impl World {
    /// Sends what changed on its way, in order.
    pub(super) fn announce(&mut self, replica: usize) {
        let changes = self.replicas[replica].engine.drain_changes();
        if changes.is_empty() {
            return;
        }
        let mut events: Vec<_> = changes.iter().map(|&change| self.event(change)).collect();
        // Drawn per batch, because engines send batches and networks lose messages.
        let is_lost = self.rng.next_f64() < self.config.lost_events;
        let delay = self.around(self.config.event_delay);
        let state = &mut self.replicas[replica];
        // A lost first batch leaves the process unknown, so the next one that arrives makes it
        // known.
        if !is_lost && std::mem::take(&mut state.is_new) {
            // Its numbers start over: followers forget what was.
            events.insert(0, CacheEvent::Cleared);
        }
        // A stream keeps its order: a batch cannot overtake the one before.
        let arrives = (self.now + delay).max(state.delivered_at);
        state.delivered_at = arrives;
        let event = WorldEvent::Deliver { replica, events, is_lost };
        self.after(arrives.since(self.now), event);
    }

    fn event(&self, change: ResidencyChange) -> CacheEvent {
        match change {
            ResidencyChange::Cleared => CacheEvent::Cleared,
            ResidencyChange::Removed(node, tier) => {
                CacheEvent::Removed { blocks: vec![hash_of(node)], tier, group: 0 }
            }
            ResidencyChange::Stored(node, tier) => {
                let text = &self.texts[&node];
                CacheEvent::Stored(StoredBlocks {
                    blocks: vec![hash_of(node)],
                    parent: text.parent.map(hash_of),
                    tokens: text.tokens.clone(),
                    block_size: BLOCK_SIZE as u32,
                    extras: Vec::new(),
                    tier,
                    group: CacheGroup::default(),
                    salt: text.space.salt.map(Into::into),
                    adapter: text.space.adapter.map(Into::into),
                })
            }
        }
    }

    /// Delivers a batch of events to the gateway, or the notice that it is missing. Batches of a
    /// replica that is believed to be down are ignored.
    pub(super) fn deliver(&mut self, replica: usize, events: &[CacheEvent], is_lost: bool) {
        let id = ReplicaId(replica as u32);
        if !self.router.listens_to(id, events.len()) {
            return;
        }
        if is_lost {
            // The next number shows the gap, so the gateway doubts. The blocks themselves stay
            // unknown.
            self.router.index().update(id, Update::Doubt, self.now);
            return;
        }
        let mut changes = Vec::new();
        let index = self.router.index();
        index.update_and_tell(id, events, self.now, &mut changes);
        self.attributor.observe(id, &changes, self.now);
    }
}
