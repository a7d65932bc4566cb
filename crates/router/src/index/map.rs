//! The index in production: hash maps from route keys to holders.
//!
//! ```text
//! event of replica 3 ──► Handles (hash → key, tiers) ──► Change ──► Holders (key → replicas)
//! prompt ──► one chain of keys per block size in use ───────────────────► runs
//! ```
//!
//! The block size is part of every key, so replicas of different block sizes share no keys and no
//! run has to be cut: a prompt is asked for once per size. A replica's size comes from its events;
//! the configured one serves until then. Blocks of another size than those already held are not
//! indexed; once the replica holds nothing, the next event sets its size anew.
//!
//! Costs: an event, its blocks; a question, the longest run plus one hash per block size; a clear,
//! the replica's own blocks. An assumption hashes the whole prompt once more.
//!
//! Source: the structure of llm-d's in-memory index. Differences: bounded by what replicas hold
//! and by named limits instead of by eviction, and without a canonical block size, whose rounding
//! loses events that fill no whole block of it.

use std::collections::{BTreeMap, BTreeSet};

use headstart_core::event::StoredBlocks;
use headstart_core::{CacheEvent, Nanos, ReplicaId, RouteHasher, RouteIdentity, RouteKey};

use super::assumptions::{Assumed, Assumptions};
use super::handles::{Change, Handles};
use super::holders::Holders;
use super::tiers::{TIERS, position};
use super::{ASSUMPTION_TTL, IndexStats, Overlap, PrefixIndex, Prompt};

/// A [`PrefixIndex`] for the replicas of one model.
#[derive(Debug)]
pub struct MapIndex {
    model: String,
    replicas: BTreeMap<ReplicaId, Tracked>,
    holders: Holders,
    /// Counters of replicas that are tracked no more, and of whole events.
    past: IndexStats,
}

#[derive(Debug, Default)]
struct Tracked {
    /// Knows the block size; none before it is known.
    hasher: Option<RouteHasher>,
    handles: Handles,
    assumptions: Assumptions,
}

impl MapIndex {
    /// An index without replicas.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            replicas: BTreeMap::new(),
            holders: Holders::default(),
            past: IndexStats::default(),
        }
    }

    /// Pairs of replica and block that events report, whatever the tier.
    #[must_use]
    pub fn num_entries(&self) -> usize {
        self.holders.num_resident()
    }

    /// Asserts that what replicas hold and who is on record as holder are the same. O(size); for
    /// tests.
    ///
    /// # Panics
    /// When an invariant is broken, with its name.
    pub fn check(&self) {
        self.holders.check();
        let mut expected = BTreeMap::new();
        let mut assumed = BTreeSet::new();
        for (&replica, tracked) in &self.replicas {
            tracked.handles.check();
            for (key, tier) in tracked.handles.residents() {
                let counts = expected.entry((key, replica)).or_insert([0; TIERS.len()]);
                counts[position(tier)] += 1;
            }
            assumed.extend(tracked.assumptions.keys().map(|key| (key, replica)));
        }
        for (key, holder) in self.holders.iter() {
            let counts = expected.remove(&(key, holder.replica)).unwrap_or_default();
            assert_eq!(counts, holder.handles, "holders are backed by handles");
            let is_backed = assumed.contains(&(key, holder.replica));
            assert!(holder.assumed_until.is_none() || is_backed, "assumptions end");
        }
        assert!(expected.is_empty(), "handles in a tier have a holder");
    }

    fn hasher(&self, block_size: u32) -> RouteHasher {
        RouteHasher::new(&RouteIdentity {
            model: &self.model,
            block_size,
        })
    }

    fn store(&mut self, replica: ReplicaId, stored: &StoredBlocks) {
        if !is_well_formed(stored) {
            self.past.malformed_events += 1;
            return;
        }
        let tracked = &self.replicas[&replica];
        let known = tracked.hasher.as_ref().map(RouteHasher::block_size);
        if known != Some(stored.block_size as usize) {
            if !tracked.handles.is_vacant() {
                self.past.mismatched_events += 1;
                return;
            }
            self.clear(replica);
            let hasher = self.hasher(stored.block_size);
            self.tracked_mut(replica).hasher = Some(hasher);
        }
        let tracked = self.tracked_mut(replica);
        let hasher = tracked.hasher.as_ref().expect("set above at the latest");
        let changes = tracked.handles.store(hasher, stored);
        self.take_over(replica, changes);
    }

    fn clear(&mut self, replica: ReplicaId) {
        let tracked = self.tracked_mut(replica);
        let changes = tracked.handles.clear();
        let assumptions = std::mem::take(&mut tracked.assumptions);
        self.take_over(replica, changes);
        self.retire(replica, assumptions.into_prompts());
    }

    fn take_over(&mut self, replica: ReplicaId, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Gained(key, tier) => self.holders.gain(replica, key, tier),
                Change::Lost(key, tier) => self.holders.lose(replica, key, tier),
            }
        }
    }

    fn retire(&mut self, replica: ReplicaId, prompts: impl IntoIterator<Item = Assumed>) {
        for Assumed { keys, until } in prompts {
            for key in keys {
                self.holders.retire(replica, key, until);
            }
        }
    }

    /// Retires what is over, of all replicas: an idle one would keep its last prompts otherwise.
    fn retire_due(&mut self, now: Nanos) {
        let mut due = Vec::new();
        for (&replica, tracked) in &mut self.replicas {
            due.extend(
                std::iter::from_fn(|| tracked.assumptions.pop_due(now))
                    .map(|assumed| (replica, assumed)),
            );
        }
        for (replica, assumed) in due {
            self.retire(replica, [assumed]);
        }
    }

    fn tracked_mut(&mut self, replica: ReplicaId) -> &mut Tracked {
        let tracked = self.replicas.get_mut(&replica);
        tracked.expect("callers have looked it up")
    }
}

impl PrefixIndex for MapIndex {
    fn track(&mut self, replica: ReplicaId, block_size: Option<u32>) {
        self.forget(replica);
        let tracked = Tracked {
            hasher: block_size.filter(|&size| size > 0).map(|size| self.hasher(size)),
            ..Tracked::default()
        };
        self.replicas.insert(replica, tracked);
    }

    fn forget(&mut self, replica: ReplicaId) {
        if !self.replicas.contains_key(&replica) {
            return;
        }
        self.clear(replica);
        let dropped = self.tracked_mut(replica).handles.dropped();
        self.past.orphans += dropped.orphans;
        self.past.unknown_removals += dropped.unknown_removals;
        self.replicas.remove(&replica);
    }

    fn apply(&mut self, replica: ReplicaId, event: &CacheEvent) {
        let Some(tracked) = self.replicas.get_mut(&replica) else {
            return;
        };
        let changes = match event {
            CacheEvent::Stored(stored) if stored.tokens.is_empty() => {
                tracked.handles.change_tier(&stored.blocks, stored.tier)
            }
            CacheEvent::Stored(stored) => return self.store(replica, stored),
            CacheEvent::Removed { blocks, tier } => tracked.handles.remove(blocks, *tier),
            CacheEvent::Cleared => return self.clear(replica),
        };
        self.take_over(replica, changes);
    }

    fn assume(&mut self, replica: ReplicaId, prompt: Prompt<'_>, now: Nanos) {
        let tracked = self.replicas.get(&replica);
        let Some(hasher) = tracked.and_then(|tracked| tracked.hasher.as_ref()) else {
            return;
        };
        let until = now + ASSUMPTION_TTL;
        let mut keys = hasher.chain(prompt.namespace, prompt.tokens);
        keys.retain(|&key| self.holders.assume(replica, key, until));
        let assumptions = &mut self.tracked_mut(replica).assumptions;
        assumptions.push(Assumed { keys, until });
        self.retire_due(now);
    }

    fn overlaps(&self, prompt: Prompt<'_>, now: Nanos) -> Vec<Overlap> {
        let hashers = self.replicas.values().filter_map(|tracked| tracked.hasher.as_ref());
        let mut hashers: Vec<_> = hashers.collect();
        hashers.sort_by_key(|hasher| hasher.block_size());
        hashers.dedup_by_key(|hasher| hasher.block_size());
        let mut overlaps = Vec::new();
        for hasher in hashers {
            let block_size = hasher.block_size();
            let runs = self.holders.runs(keys(hasher, prompt), now);
            overlaps.extend(runs.into_iter().map(|run| Overlap {
                replica: run.replica,
                device_tokens: run.device_blocks * block_size,
                any_tier_tokens: run.any_tier_blocks * block_size,
            }));
        }
        overlaps.sort_by_key(|overlap| overlap.replica);
        overlaps
    }

    fn stats(&self) -> IndexStats {
        let mut stats = IndexStats {
            entries: self.holders.num_resident(),
            assumed: self.holders.num_assumed(),
            ..self.past
        };
        for tracked in self.replicas.values() {
            let dropped = tracked.handles.dropped();
            stats.held += tracked.handles.num_held();
            stats.orphans += dropped.orphans;
            stats.unknown_removals += dropped.unknown_removals;
        }
        stats
    }
}

/// The prompt's keys, each computed when asked for: a cold prompt costs one.
fn keys(hasher: &RouteHasher, prompt: Prompt<'_>) -> impl Iterator<Item = RouteKey> {
    let mut parent = hasher.root(prompt.namespace);
    let blocks = prompt.tokens.chunks_exact(hasher.block_size());
    blocks.map(move |block| {
        parent = hasher.next(parent, block);
        parent
    })
}

/// Whether the tokens fill the blocks exactly.
fn is_well_formed(stored: &StoredBlocks) -> bool {
    let num_tokens = stored.blocks.len().checked_mul(stored.block_size as usize);
    stored.block_size > 0 && num_tokens == Some(stored.tokens.len())
}
