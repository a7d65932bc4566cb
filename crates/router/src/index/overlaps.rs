//! The answer to a question: how much of a prompt each replica holds.
//!
//! It comes with the memory that the look-ups need on their way to it, so that one value serves
//! question after question.

use headstart_core::ReplicaId;

use super::lengths::{Lengths, Overlap, OverlapLength};
use super::lookup_hybrid::MixedScratch;
use super::walk::WalkScratch;

/// Answers of [`PrefixIndex::overlaps`](super::PrefixIndex::overlaps), whose memory is used again
/// by the next question.
#[derive(Clone, Debug, Default)]
pub struct Overlaps {
    pub(super) lengths: Lengths,
    pub(super) scratch: Scratch,
}

/// Memory of a question, used again by the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    pub(super) walk: WalkScratch,
    pub(super) mixed: MixedScratch,
}

impl Overlaps {
    /// Overlaps of the replicas that hold some of the prompt, by ascending replica.
    pub fn iter(&self) -> impl Iterator<Item = Overlap> {
        let mut uneven = self.lengths.uneven.iter().peekable();
        // Both lists are by ascending replica.
        self.lengths.all.iter().map(move |length| {
            let is_meant = |overlap: &&Overlap| overlap.replica.0 == length.replica;
            uneven.next_if(is_meant).map_or(length.even(), |overlap| *overlap)
        })
    }

    /// Returns the number of replicas that hold some of the prompt.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lengths.all.len()
    }

    /// Whether no replica holds any of the prompt.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lengths.all.is_empty()
    }

    /// Adds the overlap of a replica behind those of lower numbers.
    pub fn push(&mut self, overlap: Overlap) {
        self.lengths.push(overlap);
    }

    /// Forgets the last answer.
    pub fn clear(&mut self) {
        self.lengths.clear();
    }

    /// Returns the overlap of `replica`; zero if it was left out.
    #[must_use]
    pub fn of(&self, replica: ReplicaId) -> Overlap {
        let all = &self.lengths.all;
        let found = all.binary_search_by_key(&replica.0, |length| length.replica);
        let nothing = OverlapLength { replica: replica.0, tokens: 0 };
        self.lengths.overlap(found.map_or(nothing, |at| all[at]))
    }
}
