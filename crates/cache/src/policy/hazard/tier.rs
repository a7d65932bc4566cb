//! `hazard` in a lower tier: which blocks are worth a write.
//!
//! A tier hears of whole prompts, so it knows the owner of a block that it does not have. A block
//! that it takes in joins those of its owner's piece that are here already.

use headstart_core::{Access, BlockHash, BlockId};

use super::age::{AGES, probability_of, start_s, width_s};
use super::pieces::{OwnedPiece, PieceId};
use super::rates::rows;
use super::{Hazard, Owner, at_age};
use crate::Policy;
use crate::policy::Newcomer;
use crate::queues::Key64;

/// Weight of the latest victim in the average age of victims.
const RESIDENCE_SHARE: f64 = 0.001;

impl Hazard {
    /// Whether a newcomer is worth more than the block that would go for it.
    pub(super) fn is_worth_a_victim(&mut self, newcomer: &Newcomer) -> bool {
        let now = newcomer.access.now;
        let (true, Some(victim)) = (self.is_learned(), self.victim(now, None)) else {
            return true;
        };
        let Some((piece, state)) = self.owner_of(newcomer) else {
            return true;
        };
        let worths = self.rates.worths(&rows(&piece.features), state, piece.age());
        let worth = at_age(worths, &piece, self.now);
        Key64::from(u64::from(worth.to_bits()) << 32) >= self.key(victim)
    }

    /// The chance that a newcomer is used again within the time for which blocks stay here.
    pub(super) fn chance_within_residence(&self, newcomer: &Newcomer) -> Option<f64> {
        let (piece, state) = self.owner_of(newcomer)?;
        let from_s = piece.age_s(self.now);
        let to_s = from_s + self.residence_s.unwrap_or(f64::INFINITY);
        let hazards = self.rates.hazards(&rows(&piece.features), state, piece.age());
        let expected = (piece.age()..AGES).map(|age| {
            let (start_s, end_s) =
                (start_s(age).max(from_s), (start_s(age) + width_s(age)).min(to_s));
            f64::from(hazards[age]) * (end_s - start_s).max(0.0)
        });
        Some(f64::from(probability_of(expected.sum::<f64>() as f32)))
    }

    /// A block joins those of its owner's piece, or is a piece of its own.
    pub(super) fn store_in_tier(&mut self, block: BlockId, hash: BlockHash, access: &Access) {
        let owner = self.look_up(hash).filter(|(_, piece, _)| piece.has_ghosts());
        self.owners[block.index()] = Owner::of(owner.map(|(id, ..)| id));
        match owner {
            Some((id, ..)) => self.pieces.grow(id),
            None => self.release(&[block], access),
        }
    }

    /// Counts the age of a block that is evicted.
    pub(super) fn note_residence(&mut self, id: PieceId) {
        let Some(piece) = self.pieces.get(id) else { return };
        let age_s = piece.age_s(self.now);
        let mean_s = self.residence_s.unwrap_or(age_s);
        self.residence_s = Some(mean_s + (age_s - mean_s) * RESIDENCE_SHARE);
    }

    /// The piece of a block that is not here, and the block's state.
    fn owner_of(&self, newcomer: &Newcomer) -> Option<(OwnedPiece, usize)> {
        self.look_up(newcomer.hash).map(|(_, piece, place)| (piece, piece.state_at(place)))
    }

    /// The piece of a block that is not here, and the block's place in its request.
    fn look_up(&self, hash: BlockHash) -> Option<(PieceId, OwnedPiece, u32)> {
        let ghosts = self.options.has_ghosts.then_some(&self.ghosts)?;
        let (id, place) = ghosts.look_up(hash, &self.pieces)?;
        Some((id, *self.pieces.get(id)?, place))
    }
}
