//! An index that joins late, from what a ledger writes out, answers as if it had received all
//! updates but two kinds. Assumptions are each router's own, and a doubt is taken back only for
//! those that received it. Here no index receives either.

use std::collections::BTreeMap;
use std::sync::Mutex;

use headstart_core::{CacheEvent, Nanos, ReplicaId};
use headstart_dst::index::{ReferenceIndex, conformance};
use headstart_router::index::ledger::{DepartedHandles, Ledger};
use headstart_router::index::{Limits, Overlaps, ResidentBlock, TierTokens, Update};
use headstart_router::{IndexStats, PrefixIndex, Prompt, PromptKeys, RunIndex};

/// Updates between two joins.
const UPDATES: usize = 23;

fn is_heard(update: Update<'_>) -> bool {
    !matches!(update, Update::Assume(_) | Update::Trust)
}

/// The obvious index, of what everybody hears.
struct Reference(ReferenceIndex);

impl PrefixIndex for Reference {
    fn update(&self, replica: ReplicaId, update: Update<'_>, now: Nanos) {
        if is_heard(update) {
            self.0.update(replica, update, now);
        }
    }

    fn hash(&self, prompt: Prompt<'_>) -> PromptKeys {
        self.0.hash(prompt)
    }

    fn overlaps(&self, prompt: &PromptKeys, now: Nanos, answer: &mut Overlaps) {
        self.0.overlaps(prompt, now, answer);
    }

    fn tier_tokens(&self, prompt: &PromptKeys, replica: ReplicaId, now: Nanos) -> TierTokens {
        self.0.tier_tokens(prompt, replica, now)
    }

    fn residents(&self, now: Nanos, visit: &mut dyn FnMut(ResidentBlock)) {
        self.0.residents(now, visit);
    }

    fn stats(&self) -> IndexStats {
        self.0.stats()
    }
}

/// An index that is thrown away now and then, for one that learns from the ledgers.
struct Rejoining {
    make: fn() -> Box<dyn PrefixIndex>,
    state: Mutex<State>,
}

struct State {
    index: Box<dyn PrefixIndex>,
    replicas: BTreeMap<ReplicaId, Replica>,
    left: usize,
}

struct Replica {
    block_size: Option<u32>,
    ledger: Ledger,
}

impl Rejoining {
    fn new(make: fn() -> Box<dyn PrefixIndex>) -> Self {
        let state = State { index: make(), replicas: BTreeMap::new(), left: UPDATES };
        Self { make, state: Mutex::new(state) }
    }
}

impl State {
    fn note(&mut self, replica: ReplicaId, update: Update<'_>, now: Nanos) {
        match update {
            Update::Track { block_size } => {
                let new = Replica { block_size, ledger: Ledger::default() };
                self.replicas.insert(replica, new);
            }
            Update::Forget => {
                self.replicas.remove(&replica);
            }
            _ => {}
        }
        if let Some(known) = self.replicas.get_mut(&replica) {
            known.ledger.apply(update, now);
        }
    }

    fn rejoin(&mut self, index: Box<dyn PrefixIndex>, now: Nanos) {
        for (&replica, known) in &self.replicas {
            let block_size = known.block_size;
            index.update(replica, Update::Track { block_size }, now);
            for (at, event) in known.ledger.write_out(DepartedHandles::Kept, now) {
                index.update(replica, Update::Events(&[event]), at);
            }
        }
        self.index = index;
    }
}

impl PrefixIndex for Rejoining {
    fn update(&self, replica: ReplicaId, update: Update<'_>, now: Nanos) {
        if !is_heard(update) {
            return;
        }
        let mut state = self.state.lock().unwrap();
        state.index.update(replica, update, now);
        state.note(replica, update, now);
        state.left -= 1;
        if state.left == 0 {
            state.left = UPDATES;
            state.rejoin((self.make)(), now);
        }
    }

    fn hash(&self, prompt: Prompt<'_>) -> PromptKeys {
        self.state.lock().unwrap().index.hash(prompt)
    }

    fn overlaps(&self, prompt: &PromptKeys, now: Nanos, answer: &mut Overlaps) {
        let state = self.state.lock().unwrap();
        state.index.overlaps(prompt, now, answer);
    }

    fn tier_tokens(&self, prompt: &PromptKeys, replica: ReplicaId, now: Nanos) -> TierTokens {
        let state = self.state.lock().unwrap();
        state.index.tier_tokens(prompt, replica, now)
    }

    fn residents(&self, now: Nanos, visit: &mut dyn FnMut(ResidentBlock)) {
        self.state.lock().unwrap().index.residents(now, visit);
    }

    fn stats(&self) -> IndexStats {
        self.state.lock().unwrap().index.stats()
    }
}

fn check(make: fn() -> Box<dyn PrefixIndex>) {
    conformance::same_overlaps(
        || Rejoining::new(make),
        |_| {},
        || Box::new(Reference(ReferenceIndex::new("m"))),
    );
}

#[test]
fn an_obvious_index_that_joins_late_misses_nothing() {
    check(|| Box::new(ReferenceIndex::new("m")));
}

#[test]
fn the_index_in_production_that_joins_late_misses_nothing() {
    check(|| {
        // The reference forgets no handle.
        let limits = Limits { min_departed: usize::MAX, ..Limits::default() };
        Box::new(RunIndex::with_limits("m", limits))
    });
}

#[test]
fn what_nobody_needs_is_left_out() {
    let stored = |blocks: &[u64], parent: Option<u64>| {
        CacheEvent::Stored(headstart_core::event::StoredBlocks {
            blocks: blocks.iter().map(|&block| hash(block)).collect(),
            parent: parent.map(hash),
            tokens: vec![7; blocks.len()],
            block_size: 1,
            extras: Vec::new(),
            tier: headstart_core::Tier::Device,
            group: Default::default(),
            salt: None,
            adapter: None,
        })
    };
    let removed = |block: u64| CacheEvent::Removed {
        blocks: vec![hash(block)],
        tier: headstart_core::Tier::Device,
        group: 0,
    };
    let mut ledger = Ledger::default();
    // 1 ─ 2 ─ 3, and 9: only 2 stays.
    let events = [stored(&[1, 2, 3], None), stored(&[9], None), removed(1), removed(3), removed(9)];
    ledger.apply(Update::Events(&events), Nanos(0));
    let named = |departed| {
        let events = ledger.write_out(departed, Nanos(0));
        let mut joined = Ledger::default();
        for (at, event) in events {
            joined.apply(Update::Events(&[event]), at);
        }
        joined.num_handles()
    };
    // With the block that ends the group's description.
    assert_eq!(named(DepartedHandles::Dropped), 3, "2, and 1 before it");
    assert_eq!(named(DepartedHandles::Kept), 5);
}

#[test]
fn a_doubt_that_was_taken_back_is_not_written_out() {
    let stored = CacheEvent::Stored(headstart_core::event::StoredBlocks {
        blocks: vec![hash(1)],
        parent: None,
        tokens: vec![7],
        block_size: 1,
        extras: Vec::new(),
        tier: headstart_core::Tier::Device,
        group: Default::default(),
        salt: None,
        adapter: None,
    });
    for is_trusted in [true, false] {
        let mut ledger = Ledger::default();
        ledger.apply(Update::Events(std::slice::from_ref(&stored)), Nanos(0));
        ledger.apply(Update::Doubt, Nanos(5));
        if is_trusted {
            ledger.apply(Update::Trust, Nanos(9));
        }
        let index = ReferenceIndex::new("m");
        index.update(ReplicaId(0), Update::Track { block_size: None }, Nanos(9));
        for (at, event) in ledger.write_out(DepartedHandles::Kept, Nanos(9)) {
            index.update(ReplicaId(0), Update::Events(&[event]), at);
        }
        let mut standings = Vec::new();
        index.residents(Nanos(9), &mut |resident| {
            standings.push(resident.is_doubtful);
        });
        assert_eq!(standings, [!is_trusted]);
    }
}

fn hash(number: u64) -> headstart_core::BlockHash {
    headstart_core::BlockHash::from_u64(number)
}
