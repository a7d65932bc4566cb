//! Model of the resident blocks, rebuilt from the effects that a cache reports.

use std::collections::{HashMap, HashSet};

use headstart_cache::Effect;
use headstart_core::{BlockHash, BlockId};

use super::Workload;
use super::load::{CacheLoad, LoadStep};

/// The story so far.
pub(super) struct ResidencyModel {
    seed: u64,
    capacity: usize,
    resident: HashMap<BlockHash, BlockId>,
    parents: HashMap<BlockHash, BlockHash>,
}

impl ResidencyModel {
    pub(super) fn new(workload: &Workload, seed: u64) -> Self {
        let chains = (0..workload.requests.len()).map(|request| workload.chain(request));
        let mut parents = HashMap::new();
        for chain in chains {
            parents.extend(chain.windows(2).map(|pair| (pair[1], pair[0])));
        }
        Self { seed, capacity: workload.capacity, resident: HashMap::new(), parents }
    }

    /// Checks one step against what was resident before it.
    pub(super) fn follow(&mut self, load: &CacheLoad<'_>, step: &LoadStep) {
        let context = format!("seed {}, {step:?}", self.seed);
        load.cache.check();
        for effect in &step.effects {
            match *effect {
                Effect::Stored { block, hash } => self.store(block, hash, &context),
                Effect::Evicted { block, hash } => self.evict(block, hash, &context),
            }
        }
        let occupancy = load.cache.occupancy();
        let num_resident = occupancy.cached + occupancy.pinned;
        assert_eq!(num_resident, self.resident.len(), "effects are complete, {context}");
        let in_all = num_resident + occupancy.free + occupancy.in_flight;
        assert_eq!(in_all, self.capacity, "the capacity is kept, {context}");
        let resident: HashSet<_> = self.resident.values().copied().collect();
        assert_eq!(resident.len(), self.resident.len(), "a slot has one name, {context}");
        for block in load.held() {
            assert!(resident.contains(&block), "{block:?} is held but gone, {context}");
        }
    }

    fn store(&mut self, block: BlockId, hash: BlockHash, context: &str) {
        let before = self.resident.insert(hash, block);
        assert_eq!(before, None, "{hash:?} is stored twice, {context}");
        if let Some(parent) = self.parents.get(&hash) {
            let is_resident = self.resident.contains_key(parent);
            assert!(is_resident, "{hash:?} has no resident parent, {context}");
        }
    }

    fn evict(&mut self, block: BlockId, hash: BlockHash, context: &str) {
        let before = self.resident.remove(&hash);
        assert_eq!(before, Some(block), "{hash:?} is evicted but not resident, {context}");
        let is_child = |child: &&BlockHash| self.parents.get(*child) == Some(&hash);
        let orphan = self.resident.keys().find(is_child);
        assert_eq!(orphan, None, "{hash:?} is evicted before its child, {context}");
    }
}
