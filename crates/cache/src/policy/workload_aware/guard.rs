//! Does the fit help? Duels between the victim that it chooses and the one of LRU.
//!
//! Where the two differ, one block is evicted and the other one kept. The one that is asked for
//! first, within about the time in which the cache turns over, tells who was right (Belady's
//! criterion): the kept block, the evictor; the evicted one, the other. Whether the kept block
//! is still there by then does not matter, so neither side gains by evicting what it disputes.
//! The balance, which forgets, decides who evicts. So a fit that does not hold costs as much as
//! it takes to lose a few duels, whatever the reason: drift, wrong labels, other distributions.

use hashbrown::HashTable;
use headstart_core::{BlockHash, BlockId};

use crate::slots::spread;

/// Duels that are open at a time; the oldest is given up for a new one.
const OPEN: usize = 512;
/// What is left of the balance after another duel.
const MEMORY: f64 = 0.995;
/// How far ahead one must be to take over.
const LEAD: f64 = 3.0;

/// Who chose the block that went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evictor {
    Fit,
    Lru,
}

/// The open duels and the balance of those decided.
#[derive(Debug)]
pub(super) struct Guard {
    duels: Vec<Duel>,
    next: usize,
    /// Evictions from one duel to the next: the table then spans one turnover of the cache.
    interval: usize,
    until_next: usize,
    /// Blocks that are not resident, by fingerprint: twice the duel's index, plus one for the
    /// block that had been kept.
    names: HashTable<u32>,
    /// Decided for the fit less decided for LRU, fading.
    balance: f64,
    trusts_fit: bool,
}

#[derive(Clone, Copy, Debug)]
struct Duel {
    gone: u64,
    kept: Kept,
    evictor: Evictor,
    is_open: bool,
}

/// The block that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Resident(BlockId),
    Evicted(u64),
}

impl Guard {
    /// For a cache of `capacity` slots.
    pub(super) fn new(capacity: usize) -> Self {
        let interval = (capacity / OPEN).max(1);
        Self {
            duels: Vec::new(),
            next: 0,
            interval,
            until_next: interval,
            names: HashTable::new(),
            balance: 0.0,
            trusts_fit: false,
        }
    }

    /// Who should evict.
    pub(super) fn evictor(&self) -> Evictor {
        match self.trusts_fit {
            true => Evictor::Fit,
            false => Evictor::Lru,
        }
    }

    /// Counts an eviction; whether it is one to make a duel of.
    pub(super) fn is_due(&mut self) -> bool {
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
        let duel = Duel {
            gone: spread(gone),
            kept: Kept::Resident(kept),
            evictor,
            is_open: true,
        };
        let index = self.next;
        match self.duels.get_mut(index) {
            Some(place) => *place = duel,
            None => self.duels.push(duel),
        }
        self.next = (index + 1) % OPEN;
        self.follow(duel.gone, 2 * index as u32);
        given_up
    }

    /// The block named `hash` is asked for and not resident. Returns the resident block whose
    /// duel that decides.
    pub(super) fn returned(&mut self, hash: BlockHash) -> Option<BlockId> {
        let fingerprint = spread(hash);
        let is_it = |&role: &u32| self.fingerprint(role) == fingerprint;
        let role = *self.names.find(fingerprint, is_it)?;
        let Duel { kept, evictor, .. } = self.duels[role as usize / 2];
        let was_gone = role % 2 == 0;
        self.close(role as usize / 2);
        self.decide(match (was_gone, evictor) {
            (true, Evictor::Fit) | (false, Evictor::Lru) => Evictor::Lru,
            (true, Evictor::Lru) | (false, Evictor::Fit) => Evictor::Fit,
        });
        match kept {
            Kept::Resident(kept) => Some(kept),
            Kept::Evicted(_) => None,
        }
    }

    /// A resident block that was kept is used.
    pub(super) fn used(&mut self, kept: BlockId) {
        if let Some(index) = self.index_of(kept) {
            self.close(index);
            self.decide(self.duels[index].evictor);
        }
    }

    /// A block that was kept is evicted after all; it is followed by name.
    pub(super) fn went(&mut self, kept: BlockId, hash: BlockHash) {
        if let Some(index) = self.index_of(kept) {
            let fingerprint = spread(hash);
            self.duels[index].kept = Kept::Evicted(fingerprint);
            self.follow(fingerprint, 2 * index as u32 + 1);
        }
    }

    /// A linear search, but over a short table, and only for blocks marked as kept.
    fn index_of(&self, kept: BlockId) -> Option<usize> {
        let is_it = |duel: &Duel| duel.is_open && duel.kept == Kept::Resident(kept);
        self.duels.iter().position(is_it)
    }

    fn fingerprint(&self, role: u32) -> u64 {
        let duel = &self.duels[role as usize / 2];
        match duel.kept {
            Kept::Evicted(kept) if role % 2 == 1 => kept,
            _ => duel.gone,
        }
    }

    fn follow(&mut self, fingerprint: u64, role: u32) {
        let mut names = std::mem::take(&mut self.names);
        names.insert_unique(fingerprint, role, |&role| self.fingerprint(role));
        self.names = names;
    }

    fn make_place(&mut self) -> Option<BlockId> {
        let old = *self.duels.get(self.next)?;
        if !old.is_open {
            return None;
        }
        self.close(self.next);
        match old.kept {
            Kept::Resident(kept) => Some(kept),
            Kept::Evicted(_) => None,
        }
    }

    fn close(&mut self, index: usize) {
        let duel = self.duels[index];
        self.duels[index].is_open = false;
        self.forget(duel.gone, 2 * index as u32);
        if let Kept::Evicted(kept) = duel.kept {
            self.forget(kept, 2 * index as u32 + 1);
        }
    }

    fn forget(&mut self, fingerprint: u64, role: u32) {
        let entry = self.names.find_entry(fingerprint, |&found| found == role);
        entry.expect("an open duel's blocks are followed").remove();
    }

    fn decide(&mut self, winner: Evictor) {
        self.balance *= MEMORY;
        self.balance += match winner {
            Evictor::Fit => 1.0,
            Evictor::Lru => -1.0,
        };
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
    fn check(rounds: u64, end: impl Fn(&mut Guard, u64), expected: Evictor) {
        let mut guard = Guard::new(CAPACITY);
        for round in 0..rounds {
            let evictor = guard.evictor();
            guard.open(hash(round), BlockId(1), evictor);
            end(&mut guard, round);
        }
        assert_eq!(guard.evictor(), expected);
        assert!(guard.names.len() <= 2 * OPEN);
    }

    #[test]
    fn who_wins_duels_evicts() {
        // LRU evicts first; what it evicts comes back: the fit knew better. Once the fit
        // evicts, the kept block is used first: it knows better still.
        let for_fit = |guard: &mut Guard, round| match guard.evictor() {
            Evictor::Lru => drop(guard.returned(hash(round))),
            Evictor::Fit => guard.used(BlockId(1)),
        };
        check(20, for_fit, Evictor::Fit);
        let for_lru = |guard: &mut Guard, round| match guard.evictor() {
            Evictor::Lru => guard.used(BlockId(1)),
            Evictor::Fit => drop(guard.returned(hash(round))),
        };
        check(20, for_lru, Evictor::Lru);
    }

    #[test]
    fn a_kept_block_that_went_still_decides() {
        let returns_after_it_went = |guard: &mut Guard, round: u64| {
            let kept = hash(1_000_000 + round);
            guard.went(BlockId(1), kept);
            match guard.evictor() {
                Evictor::Lru => assert_eq!(guard.returned(hash(round)), None),
                Evictor::Fit => assert_eq!(guard.returned(kept), None),
            }
        };
        check(20, returns_after_it_went, Evictor::Fit);
    }

    #[test]
    fn what_nobody_asks_for_decides_nothing() {
        check(3 * OPEN as u64, |_, _| {}, Evictor::Lru);
        let mut guard = Guard::new(100 * OPEN);
        assert_eq!((0..1000).filter(|_| guard.is_due()).count(), 901);
    }
}
