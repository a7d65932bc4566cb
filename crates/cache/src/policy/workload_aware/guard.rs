//! Does the fit help? Duels between the victim that it chooses and the one of LRU.
//!
//! Where the two differ, one block is evicted and the other one kept. If the kept one is used
//! while it is there, that is a hit the evictor earned. If the evicted one is asked for first,
//! that is a miss the other would have spared, also when the kept one has gone meanwhile. So
//! the current evictor is judged more strictly. Duels are watched for about the time in which the
//! cache turns over; their balance, which forgets, decides who evicts. A fit that does not hold
//! thus costs what it takes to lose its lead, whatever the reason: drift, wrong labels, other
//! distributions.

use hashbrown::HashTable;
use headstart_core::{BlockHash, BlockId};

use crate::slots::spread;

/// Duels that are open at a time; the oldest is given up for a new one.
const OPEN: usize = 512;
/// Factor by which the balance decays with each duel.
const MEMORY: f64 = 0.995;
/// Lead that an evictor needs to take over.
const LEAD: f64 = 3.0;

/// Chooser of an evicted block: the fit or LRU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evictor {
    Fit,
    Lru,
}

impl Evictor {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Fit => Self::Lru,
            Self::Lru => Self::Fit,
        }
    }
}

/// The open duels and the balance of those decided.
#[derive(Debug)]
pub(super) struct FitGuard {
    duels: Vec<Duel>,
    next: usize,
    /// Evictions from one duel to the next: the table then spans one turnover of the cache.
    interval: usize,
    until_next: usize,
    /// The blocks that went, by fingerprint: indices of duels.
    gone: HashTable<u32>,
    /// Decided for the fit less decided for LRU, fading.
    balance: f64,
    trusts_fit: bool,
}

#[derive(Clone, Copy, Debug)]
struct Duel {
    gone: u64,
    /// `None` once it is evicted as well.
    kept: Option<BlockId>,
    evictor: Evictor,
    is_open: bool,
}

impl FitGuard {
    /// For a cache of `capacity` slots.
    pub(super) fn new(capacity: usize) -> Self {
        let interval = (capacity / OPEN).max(1);
        Self {
            duels: Vec::new(),
            next: 0,
            interval,
            until_next: interval,
            gone: HashTable::new(),
            balance: 0.0,
            trusts_fit: false,
        }
    }

    /// Returns the evictor in charge.
    pub(super) fn evictor(&self) -> Evictor {
        if self.trusts_fit { Evictor::Fit } else { Evictor::Lru }
    }

    /// Counts an eviction; whether it is one to make a duel of.
    pub(super) fn is_due(&mut self) -> bool {
        // Stays at 0 until a duel opens: an eviction on which both agree does not use up the turn.
        self.until_next = self.until_next.saturating_sub(1);
        self.until_next == 0
    }

    /// Opens a duel: `evictor` let the block named `gone` go where the other would have let
    /// `kept` go. Returns the resident block of the duel that was given up for it.
    pub(super) fn open(
        &mut self,
        gone: BlockHash,
        kept: BlockId,
        evictor: Evictor,
    ) -> Option<BlockId> {
        self.until_next = self.interval;
        let given_up = self.make_place();
        let duel = Duel { gone: spread(gone), kept: Some(kept), evictor, is_open: true };
        let index = self.next;
        match self.duels.get_mut(index) {
            Some(place) => *place = duel,
            None => self.duels.push(duel),
        }
        self.next = (index + 1) % OPEN;
        let duels = &self.duels;
        let name = |&index: &u32| duels[index as usize].gone;
        self.gone.insert_unique(duel.gone, index as u32, name);
        given_up
    }

    /// The block named `hash` is asked for and not resident. Returns the resident block whose
    /// duel that decides.
    pub(super) fn returned(&mut self, hash: BlockHash) -> Option<BlockId> {
        let fingerprint = spread(hash);
        let is_it = |&index: &u32| self.duels[index as usize].gone == fingerprint;
        let index = *self.gone.find(fingerprint, is_it)? as usize;
        self.close(index);
        self.decide(self.duels[index].evictor.other());
        self.duels[index].kept
    }

    /// A resident block that was kept is used.
    pub(super) fn used(&mut self, kept: BlockId) {
        if let Some(index) = self.index_of(kept) {
            self.close(index);
            self.decide(self.duels[index].evictor);
        }
    }

    /// A block that was kept is evicted after all: it can earn no hit any more.
    pub(super) fn went(&mut self, kept: BlockId) {
        if let Some(index) = self.index_of(kept) {
            self.duels[index].kept = None;
        }
    }

    /// A linear search, but over a short table, and only for blocks marked as kept.
    fn index_of(&self, kept: BlockId) -> Option<usize> {
        let is_it = |duel: &Duel| duel.is_open && duel.kept == Some(kept);
        self.duels.iter().position(is_it)
    }

    fn make_place(&mut self) -> Option<BlockId> {
        let old = *self.duels.get(self.next)?;
        if !old.is_open {
            return None;
        }
        self.close(self.next);
        old.kept
    }

    fn close(&mut self, index: usize) {
        self.duels[index].is_open = false;
        let fingerprint = self.duels[index].gone;
        let entry = self.gone.find_entry(fingerprint, |&found| found as usize == index);
        entry.expect("an open duel's block is followed").remove();
    }

    fn decide(&mut self, winner: Evictor) {
        self.balance *= MEMORY;
        self.balance += match winner {
            Evictor::Fit => 1.0,
            Evictor::Lru => -1.0,
        };
        // Between the two leads nothing changes, so the evictor does not flip with every duel.
        if self.balance.abs() > LEAD {
            self.trusts_fit = self.balance > 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 8;

    fn hash(number: u64) -> BlockHash {
        BlockHash::from_u64(number)
    }

    /// Plays `rounds` duels, each ended by `end`; returns who is trusted then.
    fn check(rounds: u64, end: impl Fn(&mut FitGuard, u64), expected: Evictor) {
        let mut guard = FitGuard::new(CAPACITY);
        for round in 0..rounds {
            let evictor = guard.evictor();
            guard.open(hash(round), BlockId(1), evictor);
            end(&mut guard, round);
        }
        assert_eq!(guard.evictor(), expected);
        assert!(guard.gone.len() <= OPEN);
    }

    #[test]
    fn who_wins_duels_evicts() {
        // LRU evicts first; what it evicts comes back: the fit knew better. Once the fit
        // evicts, the kept block is used first: it knows better still.
        let for_fit = |guard: &mut FitGuard, round| match guard.evictor() {
            Evictor::Lru => drop(guard.returned(hash(round))),
            Evictor::Fit => guard.used(BlockId(1)),
        };
        check(20, for_fit, Evictor::Fit);
        let for_lru = |guard: &mut FitGuard, round| match guard.evictor() {
            Evictor::Lru => guard.used(BlockId(1)),
            Evictor::Fit => drop(guard.returned(hash(round))),
        };
        check(20, for_lru, Evictor::Lru);
    }

    #[test]
    fn a_kept_block_that_went_earns_nothing_more() {
        let went_and_used = |guard: &mut FitGuard, _| {
            guard.went(BlockId(1));
            guard.used(BlockId(1));
        };
        check(20, went_and_used, Evictor::Lru);
        let went_and_returned = |guard: &mut FitGuard, round| {
            guard.went(BlockId(1));
            if guard.evictor() == Evictor::Lru {
                assert_eq!(guard.returned(hash(round)), None);
            }
        };
        check(20, went_and_returned, Evictor::Fit);
    }

    #[test]
    fn what_nobody_asks_for_decides_nothing() {
        check(3 * OPEN as u64, |_, _| {}, Evictor::Lru);
        let mut guard = FitGuard::new(100 * OPEN);
        assert_eq!((0..1000).filter(|_| guard.is_due()).count(), 901);
    }
}
