//! The lengths of an answer: how much of a prompt each replica holds, in lists that look-ups fill.
//!
//! Popular prompts begin on thousands of replicas, and nearly all of those hold what they hold on
//! their device, confirmed. So the lists have 8 bytes for each of them, and more only for those
//! whose three lengths differ.

use headstart_core::ReplicaId;

/// Leading tokens of a prompt that one replica holds, without a hole, in whole blocks. With several
/// cache groups it is the longest prefix from which all of them can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The replica.
    pub replica: ReplicaId,
    /// Tokens ready to compute from, or assumed to be soon; doubtful ones included.
    pub device_tokens: u32,
    /// Tokens in whatever tier, doubtful ones included; at least `device_tokens`.
    pub any_tier_tokens: u32,
    /// Tokens in whatever tier without a doubtful one among them; at most `any_tier_tokens`.
    pub trusted_tokens: u32,
}

impl Overlap {
    /// The longer of two lengths of one replica, in each respect.
    #[must_use]
    pub fn or_longer(self, other: Self) -> Self {
        Self {
            replica: self.replica,
            device_tokens: self.device_tokens.max(other.device_tokens),
            any_tier_tokens: self.any_tier_tokens.max(other.any_tier_tokens),
            trusted_tokens: self.trusted_tokens.max(other.trusted_tokens),
        }
    }
}

/// The lengths of an answer, by ascending replica as soon as it is complete.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    /// All replicas.
    pub(super) all: Vec<OverlapLength>,
    /// Overlaps of the replicas whose lengths differ.
    pub(super) uneven: Vec<Overlap>,
}

/// Tokens in whatever tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OverlapLength {
    pub(super) replica: u32,
    pub(super) tokens: u32,
}

impl OverlapLength {
    /// The same on all levels.
    pub(super) fn even(self) -> Overlap {
        Overlap {
            replica: ReplicaId(self.replica),
            device_tokens: self.tokens,
            any_tier_tokens: self.tokens,
            trusted_tokens: self.tokens,
        }
    }
}

impl Lengths {
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.uneven.clear();
    }

    /// Adds a replica's, in any order.
    pub(super) fn push(&mut self, overlap: Overlap) {
        let length = OverlapLength { replica: overlap.replica.0, tokens: overlap.any_tier_tokens };
        self.all.push(length);
        if length.even() != overlap {
            self.uneven.push(overlap);
        }
    }

    /// Brings them into order.
    pub(super) fn sort(&mut self) {
        // One chain is in order already; only several chains, or mixed replicas, need sorting.
        if !self.all.is_sorted_by_key(|length| length.replica) {
            self.all.sort_unstable_by_key(|length| length.replica);
            self.uneven.sort_unstable_by_key(|overlap| overlap.replica);
        }
    }

    /// All that is said of a replica that is in.
    pub(super) fn overlap(&self, length: OverlapLength) -> Overlap {
        let known = find(&self.uneven, length.replica);
        known.map_or(length.even(), |at| self.uneven[at])
    }

    /// Whether the lengths of a replica that is in are all the same.
    pub(super) fn is_even(&self, length: OverlapLength) -> bool {
        // The usual answer has no uneven lengths, so no search is made.
        self.uneven.is_empty() || find(&self.uneven, length.replica).is_err()
    }

    /// Says otherwise of the replica at `at`.
    pub(super) fn set(&mut self, at: usize, overlap: Overlap) {
        let length = &mut self.all[at];
        length.tokens = overlap.any_tier_tokens;
        let is_even = length.even() == overlap;
        match find(&self.uneven, length.replica) {
            Ok(at) if is_even => drop(self.uneven.remove(at)),
            Ok(at) => self.uneven[at] = overlap,
            Err(_) if is_even => {}
            Err(at) => self.uneven.insert(at, overlap),
        }
    }
}

fn find(uneven: &[Overlap], replica: u32) -> Result<usize, usize> {
    uneven.binary_search_by_key(&replica, |overlap| overlap.replica.0)
}
