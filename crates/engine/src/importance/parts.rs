//! Parts of stored units and packs: requested, available, kept.
//!
//! A part is available from the end of its load until no prompt holds it and no cache keeps it. The
//! mover sees loads and releases only. A [`PartCache`] decides which parts stay between prompts:
//! one for probe parts and one for rest parts, which differ in size.

use std::collections::HashMap;
use std::time::Duration;

use headstart_cache::tiers::{FetchState, PARTS_FROM};
use headstart_core::transfer::{PartName, Transfer, TransferId, TransferResult};
use headstart_core::{BlockHash, Nanos, Tier};
use headstart_selective::{PartCache, PartCounts};

use crate::kv::Section;

/// The ids of transfers of parts begin here: those of whole units never come so far.
const FIRST_ID: u64 = 1 << 63;

/// Parts that are available or being loaded.
pub(super) struct PartTable {
    probes: PartCache,
    rest: PartCache,
    /// Whether what stands in host memory takes a transfer to the device.
    is_host_far: bool,
    states: HashMap<PartName, PartResidency>,
    under_way: HashMap<TransferId, PendingPartLoad>,
    next_id: u64,
    transfers: Vec<Transfer>,
}

/// State of a part that is available or being loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartResidency {
    Here,
    Loading {
        /// Whether a prompt waits for it. If not, it is released on arrival, since a load cannot be
        /// cancelled.
        is_wanted: bool,
    },
}

/// A part's load that has not ended.
struct PendingPartLoad {
    name: PartName,
    bytes: u64,
    from: Tier,
}

/// A finished load, as the mover reports it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartLoadReport {
    pub(super) id: TransferId,
    pub(super) result: TransferResult,
    pub(super) ago: Duration,
    pub(super) took: Duration,
}

/// A load from the disk that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FinishedDiskLoad {
    pub(super) bytes: u64,
    /// When the disk was asked for it, which is not when it was chosen: the step that chose it went
    /// on to compute.
    pub(super) asked_at: Nanos,
    /// When it became available; `None` if it did not arrive.
    pub(super) arrived: Option<Nanos>,
}

impl PartTable {
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

    fn cache(&mut self, kind: Section) -> &mut PartCache {
        match kind {
            Section::Probes => &mut self.probes,
            Section::Rest => &mut self.rest,
        }
    }

    /// Whether a rest part needs no load.
    pub(super) fn is_kept(&self, name: PartName) -> bool {
        self.rest.find(name).is_some()
    }

    /// Holds a part, which is loaded if need be. Says where it comes from, and whether it was asked
    /// for from the disk just now.
    pub(super) fn ask(&mut self, kind: Section, name: PartName, bytes: u64) -> (Tier, bool) {
        let found = self.cache(kind).find(name);
        self.cache(kind).hold(name);
        // If no cache keeps it, it comes from the disk, or another prompt holds it already.
        let from = found.unwrap_or(PARTS_FROM);
        let needs_load = match self.states.get_mut(&name) {
            // In memory: only a simulated device may still need the copy from host memory.
            Some(PartResidency::Here) => from == Tier::Host && self.is_host_far,
            // The load serves this prompt too, even if the first one gave it up.
            Some(PartResidency::Loading { is_wanted }) => {
                *is_wanted = true;
                false
            }
            None => true,
        };
        if needs_load {
            let id = TransferId(self.next_id);
            self.next_id += 1;
            let load = PendingPartLoad { name, bytes, from };
            self.under_way.insert(id, load);
            self.states.insert(name, PartResidency::Loading { is_wanted: true });
            self.transfers.push(Transfer::LoadPart { id, name, from });
        }
        (from, needs_load && from == PARTS_FROM)
    }

    /// Returns the state of a held part.
    pub(super) fn look(&self, name: PartName) -> FetchState {
        match self.states.get(&name) {
            Some(PartResidency::Here) => FetchState::Here,
            Some(PartResidency::Loading { .. }) => FetchState::Loading,
            None => FetchState::Gone,
        }
    }

    /// A load ended. `None` where it was not one from the disk.
    pub(super) fn loaded(
        &mut self,
        report: PartLoadReport,
        now: Nanos,
    ) -> Option<FinishedDiskLoad> {
        let load = self.under_way.remove(&report.id)?;
        let name = load.name;
        let is_here = report.result == TransferResult::Done;
        // A failed load leaves no state, and prompts then find the part gone.
        let state = self.states.remove(&name);
        if is_here {
            self.states.insert(name, PartResidency::Here);
        }
        // Every prompt gave it up meanwhile, so it is released on arrival.
        if state == Some(PartResidency::Loading { is_wanted: false }) {
            self.release([name]);
        }
        let at_hand = now.before(report.ago);
        (load.from == PARTS_FROM).then(|| FinishedDiskLoad {
            bytes: load.bytes,
            asked_at: at_hand.before(report.took),
            arrived: is_here.then_some(at_hand),
        })
    }

    /// Parts of one kind were used, each with the share of its tokens that mattered.
    pub(super) fn used(&mut self, kind: Section, parts: &[(PartName, f32)], now: Nanos) {
        let released = self.cache(kind).used(parts, now);
        self.release(released);
    }

    /// A part is needed no more by one that asked for it.
    pub(super) fn let_go(&mut self, kind: Section, name: PartName) {
        let released = self.cache(kind).let_go(name);
        self.release(released);
    }

    /// A record is gone: none of its parts is kept.
    pub(super) fn forget(&mut self, record: BlockHash) {
        let mut released = self.probes.forget(record);
        released.extend(self.rest.forget(record));
        self.release(released);
    }

    /// Drops these parts of units, because a pack now holds the tokens they were read for.
    pub(super) fn supersede(&mut self, names: impl IntoIterator<Item = PartName>) {
        let names = names.into_iter();
        let released: Vec<_> = names.filter_map(|name| self.rest.forget_part(name)).collect();
        self.release(released);
    }

    fn release(&mut self, names: impl IntoIterator<Item = PartName>) {
        let mut at_hand = Vec::new();
        for name in names {
            match self.states.get_mut(&name) {
                Some(PartResidency::Here) => {
                    self.states.remove(&name);
                    at_hand.push(name);
                }
                // A load cannot be called back: its arrival releases the part.
                Some(PartResidency::Loading { is_wanted }) => *is_wanted = false,
                None => {}
            }
        }
        if !at_hand.is_empty() {
            self.transfers.push(Transfer::ReleaseParts { names: at_hand });
        }
    }

    pub(super) fn take_transfers(&mut self) -> Vec<Transfer> {
        std::mem::take(&mut self.transfers)
    }

    /// Counts of the caches of probe parts and of rest parts.
    pub(super) fn counts(&self) -> (PartCounts, PartCounts) {
        (self.probes.counts(), self.rest.counts())
    }

    pub(super) fn check(&self) {
        self.probes.check();
        self.rest.check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> PartTable {
        let cache = || PartCache::new(&[], |_| unreachable!("nothing is kept"));
        PartTable::new(cache(), cache(), false)
    }

    /// The step that chose a part began long before the disk was asked for it: the disk is not
    /// taken for slower than it is.
    #[test]
    fn the_disk_was_asked_when_whoever_moves_bytes_says() {
        let mut parts = parts();
        let name = PartName { record: BlockHash::from_u64(1), part: 3 };
        assert_eq!(parts.ask(Section::Rest, name, 700), (Tier::Disk, true));
        let [Transfer::LoadPart { id, .. }] = parts.take_transfers()[..] else {
            panic!("it is loaded");
        };
        // Chosen at 0 s, computed until 9 s; the disk was asked then, and looked at at 11 s.
        let at = |millis: u64| Nanos(millis * 1_000_000);
        let report = PartLoadReport {
            id,
            result: TransferResult::Done,
            ago: Duration::from_millis(1_750),
            took: Duration::from_millis(250),
        };
        let ended = FinishedDiskLoad { bytes: 700, asked_at: at(9_000), arrived: Some(at(9_250)) };
        assert_eq!(parts.loaded(report, at(11_000)), Some(ended));
        assert_eq!(parts.look(name), FetchState::Here);
        assert_eq!(parts.loaded(report, at(11_000)), None, "it ended");
    }

    #[test]
    fn what_does_not_come_has_no_arrival() {
        let mut parts = parts();
        let name = PartName { record: BlockHash::from_u64(1), part: 0 };
        parts.ask(Section::Probes, name, 5);
        let [Transfer::LoadPart { id, .. }] = parts.take_transfers()[..] else {
            panic!("it is loaded");
        };
        let report = PartLoadReport {
            id,
            result: TransferResult::Failed,
            ago: Duration::ZERO,
            took: Duration::ZERO,
        };
        let ended = parts.loaded(report, Nanos(3)).expect("from the disk");
        assert_eq!((ended.bytes, ended.arrived), (5, None));
        assert_eq!(parts.look(name), FetchState::Gone);
    }
}
