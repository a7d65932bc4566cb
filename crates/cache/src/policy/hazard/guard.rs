//! The guard: whether the learned order or LRU rules.
//!
//! Both orders are compared by duels. A duel is a pair of candidates on which they disagree: the
//! learned order would evict one, LRU the other. One of them is evicted. The one that a request
//! asks for first shows which order was wrong. LRU rules at first, and whenever the learned order
//! has lost more duels than it has won, of late.
//!
//! A duel is void when the candidate that was kept is evicted before its request. It is void, too,
//! when the learned order evicted its choice and a request asks for that one only after as many
//! blocks were inserted as the cache has: LRU would not have kept it so long either.

use std::collections::VecDeque;

use super::pieces::{OwnedPieces, PieceId};

/// Duels that wait for a request; a new one takes the place of the oldest.
const DUELS: usize = 256;

/// A duel counts half after 1,000 requests: its weight after each. No library's exponential, whose
/// last bits differ between machines.
const FADING: f64 = 1.0 - std::f64::consts::LN_2 / 1_000.0;

/// Net duels for the learned order to take over, and against it to lose.
const MARGIN: f64 = 1.0;

/// One of a duel's two: a block of a piece, by its place in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Duellist {
    pub(super) piece: PieceId,
    pub(super) place: u32,
}

#[derive(Clone, Copy, Debug)]
struct Duel {
    /// The one that the learned order evicts, and the one that LRU evicts.
    learned: Duellist,
    lru: Duellist,
    /// Whether `learned` was evicted, and not `lru`.
    is_learned_gone: bool,
    /// Blocks inserted before it began.
    began: u64,
}

/// Duels, and which order rules.
#[derive(Debug)]
pub(super) struct DuelGuard {
    capacity: u64,
    /// The oldest first.
    duels: VecDeque<Duel>,
    /// Duels won less duels lost by the learned order, the old ones faded.
    net: f64,
    is_learned: bool,
    inserted: u64,
    requests_since_change: u64,
}

impl DuelGuard {
    /// For a cache of `capacity` blocks.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity as u64,
            duels: VecDeque::new(),
            net: 0.0,
            is_learned: false,
            inserted: 0,
            requests_since_change: 0,
        }
    }

    /// Whether the learned order rules.
    pub(super) fn is_learned(&self) -> bool {
        self.is_learned
    }

    /// A block was inserted.
    pub(super) fn inserted(&mut self) {
        self.inserted += 1;
    }

    /// A request was released, with a number of candidates in the cache. Returns whether the other
    /// order rules from now on, for which all candidates are sorted again.
    pub(super) fn settle(&mut self, candidates: usize) -> bool {
        self.net *= FADING;
        self.requests_since_change += 1;
        let changes = if self.is_learned { self.net < -MARGIN } else { self.net > MARGIN };
        // Sorting costs a few steps a request on average, whatever the number of candidates.
        if !changes || self.requests_since_change < candidates as u64 / 64 {
            return false;
        }
        self.is_learned = !self.is_learned;
        self.requests_since_change = 0;
        true
    }

    /// A duel begins, of which the order that rules evicts its own choice now.
    pub(super) fn begin(&mut self, pieces: &mut OwnedPieces, learned: Duellist, lru: Duellist) {
        for duellist in [learned, lru] {
            let Some(piece) = pieces.get_mut(duellist.piece) else {
                return;
            };
            piece.is_in_duel = true;
        }
        let duel = Duel { learned, lru, is_learned_gone: self.is_learned, began: self.inserted };
        if self.duels.len() == DUELS {
            self.duels.pop_front();
        }
        self.duels.push_back(duel);
    }

    /// A request has asked for the blocks of a piece up to `to`.
    pub(super) fn requested(&mut self, piece: PieceId, to: u32) {
        let is_it = |one: &Duellist| one.piece == piece && one.place < to;
        let Self { duels, net, inserted, capacity, .. } = self;
        duels.retain(|duel| {
            let is_learned_wrong = is_it(&duel.learned);
            if !is_learned_wrong && !is_it(&duel.lru) {
                return true;
            }
            let has_turned_over = *inserted - duel.began > *capacity;
            if !(is_learned_wrong && duel.is_learned_gone && has_turned_over) {
                *net += if is_learned_wrong { -1.0 } else { 1.0 };
            }
            false
        });
    }

    /// A block of a piece is evicted, after a duel that it is in began.
    pub(super) fn evicted(&mut self, piece: PieceId, place: u32) {
        let evicted = Duellist { piece, place };
        self.duels.retain(|duel| {
            let kept = if duel.is_learned_gone { duel.lru } else { duel.learned };
            kept != evicted
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::features::Features;
    use super::*;

    /// Duels of which the learned order wins `won` and loses `lost`, in turn.
    fn after(won: usize, lost: usize) -> DuelGuard {
        let (mut guard, mut pieces) = (DuelGuard::new(100), OwnedPieces::new());
        for duel in 0..won.max(lost) {
            for (is_won, most) in [(true, won), (false, lost)] {
                if duel < most {
                    let [learned, lru] = [(); 2].map(|()| {
                        let piece = pieces.add(1, 0, Features::default(), 0).expect("room");
                        Duellist { piece, place: 0 }
                    });
                    guard.begin(&mut pieces, learned, lru);
                    guard.requested(if is_won { lru.piece } else { learned.piece }, 1);
                    guard.settle(1);
                }
            }
        }
        guard
    }

    #[test]
    fn the_learned_order_rules_while_it_wins() {
        assert!(!after(0, 0).is_learned());
        assert!(!after(1, 0).is_learned());
        assert!(after(20, 3).is_learned());
        assert!(!after(50, 50).is_learned());
        assert!(!after(20, 200).is_learned());
    }

    #[test]
    fn a_duel_is_void_when_the_kept_one_is_evicted_or_the_cache_has_turned_over() {
        let mut pieces = OwnedPieces::new();
        let mut duellist = |place| {
            let piece = pieces.add(9, 0, Features::default(), 0).expect("room");
            Duellist { piece, place }
        };
        let (learned, lru) = (duellist(3), duellist(5));
        let mut guard = DuelGuard::new(10);
        // LRU rules, so `lru` is evicted and `learned` is kept.
        guard.begin(&mut pieces, learned, lru);
        guard.evicted(learned.piece, 4);
        assert_eq!(guard.duels.len(), 1, "another block of it");
        guard.evicted(learned.piece, 3);
        guard.requested(lru.piece, 9);
        assert_eq!(guard.net, 0.0);
        guard.is_learned = true;
        guard.begin(&mut pieces, learned, lru);
        (0..11).for_each(|_| guard.inserted());
        guard.requested(learned.piece, 9);
        assert_eq!((guard.net, guard.duels.len()), (0.0, 0));
        guard.begin(&mut pieces, learned, lru);
        guard.requested(lru.piece, 5);
        assert_eq!(guard.duels.len(), 1, "not up to the block");
        guard.requested(lru.piece, 6);
        assert_eq!(guard.net, 1.0);
    }
}
