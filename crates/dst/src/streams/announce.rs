//! Announcements of a simulated engine: [`Happening`]s as [`CacheEvent`]s.
//!
//! Its hashes name a block and its whole prefix, and mean nothing to anybody else: they come from
//! a seed that may differ from process to process.

use headstart_core::event::{Attention, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Rng, Tier};

use super::catalog::{BlockNo, Catalog};
use super::engine::{BlockLocation, EngineSpec, Happening};

/// Format of an engine's events.
#[derive(Clone, Copy, Debug)]
pub struct Voice {
    /// Seed of its block hashes.
    pub hash_seed: u64,
    /// Whether groups other than the full one are announced with their tokens.
    pub tells_all_tokens: bool,
    /// Whether what moves to the host is announced with its tokens.
    pub tells_host_tokens: bool,
}

impl Voice {
    /// The events for `happenings`, in their order; neighbours mostly share one.
    pub fn events(
        &self,
        happenings: &[Happening],
        spec: &EngineSpec,
        catalog: &Catalog,
        rng: &mut Rng,
    ) -> Vec<CacheEvent> {
        let mut events: Vec<CacheEvent> = Vec::new();
        for &happening in happenings {
            let event = self.event(happening, spec, catalog);
            // Mostly joined and sometimes not, because engines differ and an index must not care.
            let last = events.last_mut().filter(|_| rng.below(8) > 0);
            if !last.is_some_and(|last| join(last, &event)) {
                events.push(event);
            }
        }
        events
    }

    fn event(&self, happening: Happening, spec: &EngineSpec, catalog: &Catalog) -> CacheEvent {
        match happening {
            Happening::Stored(place) | Happening::CopyStored(place) => {
                CacheEvent::Stored(self.stored(place, spec, catalog))
            }
            Happening::Removed(place) | Happening::CopyRemoved(place) => CacheEvent::Removed {
                blocks: vec![self.handle(place.block)],
                tier: place.tier,
                group: place.group,
            },
            Happening::Cleared => CacheEvent::Cleared,
        }
    }

    /// Whether this process tells what the block in this place is made of.
    #[must_use]
    pub fn introduces(&self, place: BlockLocation, spec: &EngineSpec) -> bool {
        let known = spec.group(place.group);
        let is_full = known.group.attention == Attention::Full;
        // No other group announces blocks of this size.
        let is_alone = known.block_size != spec.block_size();
        let is_near = place.tier == Tier::Device;
        (is_full || is_alone || self.tells_all_tokens) && (is_near || self.tells_host_tokens)
    }

    fn stored(&self, place: BlockLocation, spec: &EngineSpec, catalog: &Catalog) -> StoredBlocks {
        let block = catalog.block(place.block);
        let known = spec.group(place.group);
        let (tokens, extras) = if self.introduces(place, spec) {
            (block.tokens.clone(), vec![block.extra.clone()])
        } else {
            (Vec::new(), Vec::new())
        };
        // vLLM sends the salt with the first block of a prompt only.
        let salt = block.namespace.salt.filter(|_| block.parent.is_none());
        StoredBlocks {
            blocks: vec![self.handle(place.block)],
            parent: block.parent.map(|parent| self.handle(parent)),
            tokens,
            block_size: known.block_size,
            extras,
            tier: place.tier,
            group: known.group,
            salt: salt.map(Into::into),
            adapter: block.namespace.adapter.map(Into::into),
        }
    }

    /// Mixes the bits of seed and number; one to one for each seed.
    fn handle(&self, block: BlockNo) -> BlockHash {
        let mut bits = u64::from(block.0).wrapping_add(self.hash_seed);
        for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
            bits = (bits ^ bits >> 30).wrapping_mul(factor);
        }
        BlockHash::from_u64(bits ^ bits >> 31)
    }
}

/// Appends `event` to the one before where one event can say both.
fn join(last: &mut CacheEvent, event: &CacheEvent) -> bool {
    match (last, event) {
        (CacheEvent::Stored(last), CacheEvent::Stored(next)) => {
            // One event has one parent, so only a direct successor fits.
            let is_next = next.parent.is_some()
                && next.parent.as_ref() == last.blocks.last()
                && (last.tier, last.group) == (next.tier, next.group)
                && last.tokens.is_empty() == next.tokens.is_empty();
            if is_next {
                last.blocks.extend(&next.blocks);
                last.tokens.extend(&next.tokens);
                last.extras.extend(next.extras.iter().cloned());
            }
            is_next
        }
        (
            CacheEvent::Removed { blocks, tier, group },
            CacheEvent::Removed { blocks: next, tier: next_tier, group: next_group },
        ) => {
            let is_same = (&*tier, &*group) == (next_tier, next_group);
            if is_same {
                blocks.extend(next);
            }
            is_same
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_seed_gives_a_hash_to_each_block() {
        let voice = Voice { hash_seed: u64::MAX, tells_all_tokens: true, tells_host_tokens: true };
        let handles = [0, 1, u32::MAX].map(|number| voice.handle(BlockNo(number)));
        assert!(handles[0] != handles[1] && handles[1] != handles[2] && handles[0] != handles[2]);
    }
}
