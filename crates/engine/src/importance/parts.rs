//! Parts of stored units and packs: asked for, at hand, kept.
//!
//! A part is at hand from when it was loaded until it is neither held by a prompt nor kept by a
//! cache. Whoever moves bytes sees loads and releases only; which parts stay between prompts is
//! decided by a [`PartCache`], one for probe parts and one for rest parts, which differ in size.

use std::collections::HashMap;
use std::time::Duration;

use headstart_cache::importance::{PartCache, PartCounts};
use headstart_cache::tiers::PARTS_FROM;
use headstart_core::transfer::{PartName, Transfer, TransferId, TransferResult};
use headstart_core::{BlockHash, Nanos, Tier};

/// The ids of transfers of parts begin here: those of whole units never come so far.
const FIRST_ID: u64 = 1 << 63;

/// What kind of part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Keys of a unit's probes.
    Probes,
    /// All else of a unit, or a chunk of a pack.
    Rest,
}

/// Where a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// At hand.
    Here,
    /// On its way.
    Loading,
    /// It did not come.
    Gone,
}

/// Parts that are at hand or on their way.
pub(super) struct Parts {
    probes: PartCache,
    rest: PartCache,
    /// Whether what stands in host memory takes a transfer to the device.
    is_host_far: bool,
    states: HashMap<PartName, State>,
    under_way: HashMap<TransferId, Asked>,
    next_id: u64,
    transfers: Vec<Transfer>,
}

/// A part that is at hand or on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Here,
    Loading {
        /// Whether somebody waits for it: else it is released when it comes, since it cannot be
        /// called back.
        is_wanted: bool,
    },
}

/// A load.
struct Asked {
    name: PartName,
    bytes: u64,
    at: Nanos,
    from: Tier,
}

/// A load from the disk that ended.
pub(super) struct Ended {
    pub(super) bytes: u64,
    pub(super) asked_at: Nanos,
    /// When it was at hand; `None` where it did not come.
    pub(super) arrived: Option<Nanos>,
}

impl Parts {
    pub(super) fn new(probes: PartCache, rest: PartCache, is_host_far: bool) -> Self {
        Self {
            probes,
            rest,
            is_host_far,
            states: HashMap::new(),
            under_way: HashMap::new(),
            next_id: FIRST_ID,
            transfers: Vec::new(),
        }
    }

    fn cache(&mut self, kind: Kind) -> &mut PartCache {
        match kind {
            Kind::Probes => &mut self.probes,
            Kind::Rest => &mut self.rest,
        }
    }

    /// Whether a rest part needs no load.
    pub(super) fn is_kept(&self, name: PartName) -> bool {
        self.rest.find(name).is_some()
    }

    /// Holds a part, which is loaded if need be. Says where it comes from, and whether it was asked
    /// for from the disk just now.
    pub(super) fn ask(
        &mut self,
        kind: Kind,
        name: PartName,
        bytes: u64,
        now: Nanos,
    ) -> (Tier, bool) {
        let found = self.cache(kind).find(name);
        self.cache(kind).hold(name);
        let from = found.unwrap_or(PARTS_FROM);
        let needs_load = match self.states.get_mut(&name) {
            Some(State::Here) => from == Tier::Host && self.is_host_far,
            Some(State::Loading { is_wanted }) => {
                *is_wanted = true;
                false
            }
            None => true,
        };
        if needs_load {
            let id = TransferId(self.next_id);
            self.next_id += 1;
            let asked = Asked {
                name,
                bytes,
                at: now,
                from,
            };
            self.under_way.insert(id, asked);
            self.states.insert(name, State::Loading { is_wanted: true });
            self.transfers.push(Transfer::LoadPart { id, name, from });
        }
        (from, needs_load && from == PARTS_FROM)
    }

    /// Where a part is that is held.
    pub(super) fn look(&self, name: PartName) -> Where {
        match self.states.get(&name) {
            Some(State::Here) => Where::Here,
            Some(State::Loading { .. }) => Where::Loading,
            None => Where::Gone,
        }
    }

    /// A load ended. `None` where it was not one from the disk.
    pub(super) fn loaded(
        &mut self,
        id: TransferId,
        result: TransferResult,
        ago: Duration,
        now: Nanos,
    ) -> Option<Ended> {
        let asked = self.under_way.remove(&id)?;
        let name = asked.name;
        let is_here = result == TransferResult::Done;
        let state = self.states.remove(&name);
        if is_here {
            self.states.insert(name, State::Here);
        }
        if state == Some(State::Loading { is_wanted: false }) {
            self.release([name]);
        }
        (asked.from == PARTS_FROM).then(|| Ended {
            bytes: asked.bytes,
            asked_at: asked.at,
            arrived: is_here.then(|| now.before(ago)),
        })
    }

    /// Parts of one kind were used, each with the share of its tokens that mattered.
    pub(super) fn used(&mut self, kind: Kind, parts: &[(PartName, f32)], now: Nanos) {
        let released = self.cache(kind).used(parts, now);
        self.release(released);
    }

    /// A part is needed no more by one that asked for it.
    pub(super) fn let_go(&mut self, kind: Kind, name: PartName) {
        let released = self.cache(kind).let_go(name);
        self.release(released);
    }

    /// A record is gone: none of its parts is kept.
    pub(super) fn forget(&mut self, record: BlockHash) {
        let mut released = self.probes.forget(record);
        released.extend(self.rest.forget(record));
        self.release(released);
    }

    /// What these parts of units were read for can be read from a pack: none of them is kept.
    pub(super) fn supersede(&mut self, names: impl IntoIterator<Item = PartName>) {
        let names = names.into_iter();
        let released: Vec<_> = names.filter_map(|it| self.rest.forget_part(it)).collect();
        self.release(released);
    }

    fn release(&mut self, names: impl IntoIterator<Item = PartName>) {
        let mut at_hand = Vec::new();
        for name in names {
            match self.states.get_mut(&name) {
                Some(State::Here) => {
                    self.states.remove(&name);
                    at_hand.push(name);
                }
                Some(State::Loading { is_wanted }) => *is_wanted = false,
                None => {}
            }
        }
        if !at_hand.is_empty() {
            self.transfers
                .push(Transfer::ReleaseParts { names: at_hand });
        }
    }

    pub(super) fn take_transfers(&mut self) -> Vec<Transfer> {
        std::mem::take(&mut self.transfers)
    }

    /// What caches of probe parts and of rest parts hold and have done.
    pub(super) fn counts(&self) -> (PartCounts, PartCounts) {
        (self.probes.counts(), self.rest.counts())
    }

    pub(super) fn check(&self) {
        self.probes.check();
        self.rest.check();
    }
}
