//! Two gateways over one server, as one index: one listens, both are asked.

use std::sync::{Arc, Mutex};

use headstart_core::{Nanos, ReplicaId};
use headstart_dst::index::ReferenceIndex;
use headstart_index_sync::shared::{GatewayRole, SharedIndex};
use headstart_router::index::{Overlaps, PrefixIndex, ResidentBlock, TierTokens, Update};
use headstart_router::{IndexStats, Prompt, PromptKeys};

use crate::gateway::{Common, Gateway, IDENTITY, residents};
use crate::service::eventually;

/// Changes of the gateways during a test, besides the events that they hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// The one that does not listen is replaced by one that comes late. Left out are assumptions,
    /// which are each gateway's own, and trust, which finds no doubt where one was not heard of.
    Joins {
        every: usize,
    },
    /// The one that listens goes, the other listens from then on, and another comes.
    Handovers {
        every: usize,
    },
}

impl Change {
    fn is_due(self, updates: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::Joins { every } | Self::Handovers { every } => updates.is_multiple_of(every),
        }
    }

    fn is_still(self) -> bool {
        self == Self::Nothing
    }
}

pub(crate) struct Gateways {
    common: Common,
    change: Change,
    state: Mutex<State>,
}

struct State {
    owner: Gateway,
    reader: Gateway,
    tracked: Vec<(ReplicaId, Option<u32>)>,
    updates: usize,
}

impl Gateways {
    pub(crate) fn new(common: Common, change: Change) -> Self {
        let (owner, reader) = (common.start(), common.start());
        owner.run_for_all(true);
        let state = State { owner, reader, tracked: Vec::new(), updates: 0 };
        Self { common, change, state: Mutex::new(state) }
    }

    /// Holes that no base filled, and leases that were lost, so far.
    pub(crate) fn faults(&self) -> u64 {
        let state = self.state.lock().unwrap();
        let faults = [&state.owner, &state.reader].map(|gateway| {
            let stats = gateway.index.shared_stats();
            stats.holes + stats.lost_leases + stats.errors
        });
        faults.iter().sum()
    }

    pub(crate) fn check(&self) {
        let state = self.state.lock().unwrap();
        state.owner.local.check();
        state.reader.local.check();
    }
}

impl State {
    /// Waits until both know the same.
    fn settle(&self) {
        for &(replica, _) in &self.tracked {
            self.reader.follows_one(&self.owner, replica);
        }
    }

    fn join(&mut self, common: &Common) {
        self.reader = common.start();
        for &(replica, block_size) in &self.tracked {
            let update = Update::Track { block_size };
            self.reader.update(replica, update, common.now());
        }
    }

    fn hand_over(&mut self, common: &Common) {
        self.owner.index.leave();
        self.reader.run_for_all(true);
        for &(replica, _) in &self.tracked {
            eventually("a new owner", || self.reader.report(replica).role == GatewayRole::Owning);
        }
        let next = common.start();
        self.owner = std::mem::replace(&mut self.reader, next);
        for &(replica, block_size) in &self.tracked {
            let update = Update::Track { block_size };
            self.reader.update(replica, update, common.now());
        }
    }

    fn note_membership(&mut self, replica: ReplicaId, update: Update<'_>) {
        match update {
            Update::Track { block_size } => {
                self.tracked.retain(|&(known, _)| known != replica);
                self.tracked.push((replica, block_size));
            }
            Update::Forget => self.tracked.retain(|&(known, _)| known != replica),
            _ => {}
        }
    }
}

impl PrefixIndex for Gateways {
    fn update(&self, replica: ReplicaId, update: Update<'_>, now: Nanos) {
        let mut state = self.state.lock().unwrap();
        self.common.set_now(now);
        state.note_membership(replica, update);
        match update {
            Update::Assume(_) | Update::Trust if !self.change.is_still() => return,
            Update::Events(_) | Update::Doubt | Update::Trust => {
                state.owner.update(replica, update, now);
            }
            Update::Assume(_) | Update::Track { .. } | Update::Forget => {
                state.owner.update(replica, update, now);
                state.reader.update(replica, update, now);
            }
        }
        state.updates += 1;
        state.settle();
        if self.change.is_due(state.updates) {
            match self.change {
                Change::Handovers { .. } => state.hand_over(&self.common),
                _ => state.join(&self.common),
            }
            state.settle();
        }
        // Who is forgotten is given back before it comes again.
        eventually("a lease given back", || {
            let is_tracked = |id| state.tracked.iter().any(|&(known, _)| known == id);
            let gone = self.common.replicas().filter(|&id| !is_tracked(id));
            let mut roles = gone.map(|id| state.owner.report(id).role);
            roles.all(|role| role == GatewayRole::Following)
        });
    }

    fn hash(&self, prompt: Prompt<'_>) -> PromptKeys {
        let state = self.state.lock().unwrap();
        let (a, b) = (state.owner.hash(prompt), state.reader.hash(prompt));
        // Past shapes are those that a gateway saw last; nothing is looked up by them.
        let are_past = !a.are_in_use() && !b.are_in_use();
        assert!(are_past || a == b, "both name a prompt alike: {a:?}, {b:?}");
        a
    }

    fn overlaps(&self, prompt: &PromptKeys, now: Nanos, answer: &mut Overlaps) {
        let state = self.state.lock().unwrap();
        let mut other = Overlaps::default();
        state.owner.overlaps(prompt, now, answer);
        state.reader.overlaps(prompt, now, &mut other);
        assert!(answer.iter().eq(other.iter()), "owner and reader");
    }

    fn tier_tokens(&self, prompt: &PromptKeys, replica: ReplicaId, now: Nanos) -> TierTokens {
        let state = self.state.lock().unwrap();
        let told = state.owner.tier_tokens(prompt, replica, now);
        assert_eq!(told, state.reader.tier_tokens(prompt, replica, now), "owner and reader");
        told
    }

    fn residents(&self, now: Nanos, visit: &mut dyn FnMut(ResidentBlock)) {
        let state = self.state.lock().unwrap();
        let (a, b) = (residents(&state.owner, now), residents(&state.reader, now));
        assert_eq!(a, b, "owner and reader");
        a.into_iter().for_each(visit);
    }

    fn stats(&self) -> IndexStats {
        self.state.lock().unwrap().owner.stats()
    }
}

/// The obvious index: of what was said, for overlaps; and of what it is named in the server, for
/// residents. The latter by a gateway that has no server.
pub(crate) struct Reference {
    change: Change,
    plain: ReferenceIndex,
    alone: SharedIndex,
    state: Mutex<(usize, Vec<ReplicaId>)>,
}

impl Reference {
    pub(crate) fn new(common: &Common, change: Change) -> Self {
        let named = Arc::new(ReferenceIndex::new(IDENTITY));
        let nowhere = "redis://127.0.0.1:1/0";
        let alone = common.share(nowhere, IDENTITY, named).expect("it starts");
        eventually("alone", || {
            common
                .replicas()
                .all(|replica| alone.report(replica).expect("a seat").role == GatewayRole::Alone)
        });
        Self { change, plain: ReferenceIndex::new(IDENTITY), alone, state: Mutex::default() }
    }

    fn tell(&self, replica: ReplicaId, update: Update<'_>, now: Nanos) {
        self.plain.update(replica, update, now);
        self.alone.update(replica, update, now);
    }
}

impl PrefixIndex for Reference {
    fn update(&self, replica: ReplicaId, update: Update<'_>, now: Nanos) {
        match update {
            Update::Assume(_) | Update::Trust if !self.change.is_still() => return,
            // The other is not asked for overlaps.
            Update::Assume(_) => return self.plain.update(replica, update, now),
            _ => {}
        }
        let mut state = self.state.lock().unwrap();
        let (updates, tracked) = &mut *state;
        self.tell(replica, update, now);
        tracked.retain(|&known| known != replica || !matches!(update, Update::Forget));
        if matches!(update, Update::Track { .. }) && !tracked.contains(&replica) {
            tracked.push(replica);
        }
        *updates += 1;
        if matches!(self.change, Change::Handovers { .. }) && self.change.is_due(*updates) {
            for &replica in &*tracked {
                self.tell(replica, Update::Doubt, now);
            }
        }
    }

    fn hash(&self, prompt: Prompt<'_>) -> PromptKeys {
        self.plain.hash(prompt)
    }

    fn overlaps(&self, prompt: &PromptKeys, now: Nanos, answer: &mut Overlaps) {
        self.plain.overlaps(prompt, now, answer);
    }

    fn tier_tokens(&self, prompt: &PromptKeys, replica: ReplicaId, now: Nanos) -> TierTokens {
        self.plain.tier_tokens(prompt, replica, now)
    }

    fn residents(&self, now: Nanos, visit: &mut dyn FnMut(ResidentBlock)) {
        self.alone.residents(now, visit);
    }

    fn stats(&self) -> IndexStats {
        self.plain.stats()
    }
}
