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
            assert!(
                holder.assumed_until.is_none() || is_backed,
                "assumptions end"
            );
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
            hasher: block_size
                .filter(|&size| size > 0)
                .map(|size| self.hasher(size)),
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
        if !keys.is_empty() {
            assumptions.push(Assumed { keys, until });
        }
        self.retire_due(now);
    }

    fn overlaps(&self, prompt: Prompt<'_>, now: Nanos) -> Vec<Overlap> {
        let hashers = self
            .replicas
            .values()
            .filter_map(|tracked| tracked.hasher.as_ref());
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

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::block::Namespace;
    use headstart_core::{BlockHash, Tier, TokenId};

    const A: ReplicaId = ReplicaId(1);
    const B: ReplicaId = ReplicaId(2);
    const PLAIN: Namespace<'static> = Namespace {
        adapter: None,
        salt: None,
    };

    fn hash(first_token: TokenId, block: usize) -> BlockHash {
        BlockHash::from_u64((u64::from(first_token) << 32) + block as u64)
    }

    /// The first `num_blocks` blocks of the prompt that counts up from `first_token`.
    fn stored(first_token: TokenId, block_size: u32, num_blocks: usize) -> CacheEvent {
        let num_tokens = num_blocks as u32 * block_size;
        CacheEvent::Stored(StoredBlocks {
            blocks: (0..num_blocks)
                .map(|block| hash(first_token, block))
                .collect(),
            parent: None,
            tokens: (first_token..first_token + num_tokens).collect(),
            block_size,
            tier: Tier::Device,
            salt: None,
            adapter: None,
        })
    }

    /// A and B, without a configured block size, after these events.
    fn index(events: &[(ReplicaId, CacheEvent)]) -> MapIndex {
        let mut index = MapIndex::new("m");
        index.track(A, None);
        index.track(B, None);
        for (replica, event) in events {
            index.apply(*replica, event);
            index.check();
        }
        index
    }

    /// Expects the tokens that A and B hold of the prompt 0, 1, …, 11.
    fn check(index: &MapIndex, now: Nanos, expected: [usize; 2]) {
        index.check();
        let tokens: Vec<TokenId> = (0..12).collect();
        let namespace = PLAIN;
        let overlaps = index.overlaps(
            Prompt {
                tokens: &tokens,
                namespace,
            },
            now,
        );
        let of = |replica| {
            let found = overlaps.iter().find(|overlap| overlap.replica == replica);
            found.map_or(0, |overlap| overlap.any_tier_tokens)
        };
        assert_eq!([of(A), of(B)], expected);
    }

    #[test]
    fn replicas_of_different_block_sizes_answer_side_by_side() {
        let index = index(&[(A, stored(0, 2, 5)), (B, stored(0, 4, 2))]);
        check(&index, Nanos(0), [10, 8]);
        assert_eq!(index.num_entries(), 7);
    }

    /// One block at a time, as decoding stores them; a router that rounds to blocks of its own
    /// loses these (llm-d with 16 against 64).
    #[test]
    fn blocks_stored_one_by_one_are_found() {
        let CacheEvent::Stored(all) = stored(0, 2, 6) else {
            unreachable!("stored makes stored events")
        };
        let one = |at: usize| {
            CacheEvent::Stored(StoredBlocks {
                blocks: vec![all.blocks[at]],
                parent: at.checked_sub(1).map(|before| all.blocks[before]),
                tokens: all.tokens[at * 2..at * 2 + 2].to_vec(),
                ..all.clone()
            })
        };
        let events: Vec<_> = (0..6).map(|at| (A, one(at))).collect();
        check(&index(&events), Nanos(0), [12, 0]);
    }

    #[test]
    fn other_block_sizes_wait_until_the_replica_is_empty() {
        let mut index = index(&[(A, stored(0, 2, 5)), (A, stored(0, 4, 2))]);
        assert_eq!(index.stats().mismatched_events, 1);
        check(&index, Nanos(0), [10, 0]);
        index.apply(A, &CacheEvent::Cleared);
        index.apply(A, &stored(0, 4, 2));
        check(&index, Nanos(0), [8, 0]);
    }

    #[test]
    fn malformed_events_are_counted_and_harmless() {
        let CacheEvent::Stored(good) = stored(0, 2, 2) else {
            unreachable!("stored makes stored events")
        };
        let odd = StoredBlocks {
            tokens: vec![1; 3],
            ..good.clone()
        };
        let zero = StoredBlocks {
            block_size: 0,
            ..good
        };
        let mut index = index(&[]);
        index.apply(A, &CacheEvent::Stored(odd));
        index.apply(A, &CacheEvent::Stored(zero));
        assert_eq!(index.stats().malformed_events, 2);
        check(&index, Nanos(0), [0, 0]);
    }

    #[test]
    fn an_assumption_lasts_its_time_and_leaves_nothing_behind() {
        let mut index = index(&[(A, stored(0, 2, 2)), (B, stored(50, 4, 1))]);
        let tokens: Vec<TokenId> = (0..9).collect();
        let prompt = Prompt {
            tokens: &tokens,
            namespace: PLAIN,
        };
        index.assume(A, prompt, Nanos(0));
        index.assume(B, prompt, Nanos(1));
        check(&index, Nanos(1), [8, 8]);
        let end = Nanos(0) + ASSUMPTION_TTL;
        check(&index, end, [4, 8]);
        // Expired ones go with the next assumption, whomever it concerns.
        index.assume(
            B,
            Prompt {
                tokens: &[],
                namespace: PLAIN,
            },
            end,
        );
        assert_eq!(index.stats().assumed, 2);
        index.apply(B, &CacheEvent::Cleared);
        check(&index, Nanos(1), [4, 0]);
        assert_eq!(index.stats().assumed, 0);
    }

    #[test]
    fn a_confirmed_assumption_ends_with_the_block() {
        let mut index = index(&[(A, stored(50, 2, 1))]);
        let tokens = [0, 1];
        index.assume(
            A,
            Prompt {
                tokens: &tokens,
                namespace: PLAIN,
            },
            Nanos(0),
        );
        check(&index, Nanos(0), [2, 0]);
        index.apply(A, &stored(0, 2, 1));
        let (blocks, tier) = (vec![hash(0, 0)], Tier::Device);
        index.apply(A, &CacheEvent::Removed { blocks, tier });
        check(&index, Nanos(0), [0, 0]);
    }

    #[test]
    fn what_is_not_tracked_does_not_exist() {
        let mut index = index(&[(ReplicaId(9), stored(0, 2, 2)), (B, stored(0, 2, 2))]);
        check(&index, Nanos(0), [0, 4]);
        index.apply(
            B,
            &CacheEvent::Removed {
                blocks: vec![hash(7, 7)],
                tier: Tier::Host,
            },
        );
        index.forget(B);
        index.forget(B);
        let unknown_removals = 1;
        let expected = IndexStats {
            unknown_removals,
            ..IndexStats::default()
        };
        assert_eq!(index.stats(), expected);
    }
}
