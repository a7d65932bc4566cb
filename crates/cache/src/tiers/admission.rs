//! Admission of units to a tier.

use std::collections::{HashMap, VecDeque};

use headstart_core::{Access, BlockHash};

/// Names whose offers are counted: some megabytes.
const COUNTED: usize = 64 << 10;

/// Chance that a prompt's prefix is used again without a prediction: about what the study of
/// Alibaba's traces found for blocks (54 to 62 %).
const USUAL_REUSE: f64 = 0.5;

/// Rule by which a tier admits units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Admission {
    /// Everything.
    Always,
    /// Units offered at least this many times. Keeps units used once from wearing out a disk.
    Offered {
        /// At least 1.
        times: u32,
    },
    /// Units whose chance of another use here, as the tier's policy has learned it, is at least
    /// this, and those of which it has learned nothing.
    Likely {
        /// From 0 to 1.
        chance: f64,
    },
    /// Units expected to save this many seconds of computation for each gigabyte written: the
    /// chance of another use × (computing - loading) ÷ bytes.
    Worth {
        /// At least; what a gigabyte of wear is worth.
        seconds_per_gb: f64,
    },
}

/// A unit that asks to be admitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdmissionCandidate<'a> {
    pub(super) name: BlockHash,
    pub(super) access: &'a Access,
    /// The chance of another use that the tier's policy learned.
    pub(super) learned: Option<f64>,
    /// Computing it again.
    pub(super) compute_s: f64,
    /// Loading it.
    pub(super) load_s: f64,
    pub(super) bytes: u64,
}

/// Number of offers per name, for the last `COUNTED` names.
#[derive(Debug, Default)]
pub(super) struct Offers {
    counts: HashMap<BlockHash, u32>,
    order: VecDeque<BlockHash>,
}

impl Offers {
    /// Counts an offer; how many there were with it.
    fn count(&mut self, name: BlockHash) -> u32 {
        let count = self.counts.entry(name).or_default();
        *count = count.saturating_add(1);
        let now = *count;
        // Queued at the first offer only, so that the queue has each name once.
        if now == 1 {
            self.order.push_back(name);
            if self.order.len() > COUNTED
                && let Some(oldest) = self.order.pop_front()
            {
                self.counts.remove(&oldest);
            }
        }
        now
    }
}

impl Admission {
    /// Whether the candidate may come in now.
    pub(super) fn admits(self, candidate: &AdmissionCandidate<'_>, offers: &mut Offers) -> bool {
        match self {
            Self::Always => true,
            Self::Offered { times } => offers.count(candidate.name) >= times,
            Self::Likely { chance } => candidate.learned.is_none_or(|learned| learned >= chance),
            Self::Worth { seconds_per_gb } => {
                let predicted = candidate.access.p_continue;
                let reuse = predicted.map_or(USUAL_REUSE, |predicted| predicted.value());
                // Negative where loading takes longer than computing: then no wear is worth it.
                let saved_s = reuse * (candidate.compute_s - candidate.load_s);
                saved_s * 1e9 >= seconds_per_gb * candidate.bytes as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Probability;

    fn candidate(access: &Access, compute_s: f64) -> AdmissionCandidate<'_> {
        AdmissionCandidate {
            name: BlockHash::from_u64(1),
            access,
            learned: None,
            compute_s,
            load_s: 0.01,
            bytes: 1_000_000,
        }
    }

    #[test]
    fn the_nth_offer_is_taken() {
        let mut offers = Offers::default();
        let access = Access::default();
        let twice = Admission::Offered { times: 2 };
        assert!(!twice.admits(&candidate(&access, 1.0), &mut offers));
        assert!(twice.admits(&candidate(&access, 1.0), &mut offers));
        for name in 0..2 * COUNTED as u64 {
            offers.count(BlockHash::from_u64(name + 2));
        }
        assert_eq!(offers.counts.len(), COUNTED, "memory is bounded");
        assert!(!twice.admits(&candidate(&access, 1.0), &mut offers), "forgotten");
    }

    #[test]
    fn what_is_likely_enough_or_unknown_is_taken() {
        let mut offers = Offers::default();
        let access = Access::default();
        let likely = Admission::Likely { chance: 0.5 };
        for (learned, is_admitted) in [(None, true), (Some(0.5), true), (Some(0.4), false)] {
            let candidate = AdmissionCandidate { learned, ..candidate(&access, 1.0) };
            assert_eq!(likely.admits(&candidate, &mut offers), is_admitted);
        }
    }

    #[test]
    fn what_saves_enough_is_taken() {
        let mut offers = Offers::default();
        let worth = Admission::Worth { seconds_per_gb: 10.0 };
        // 0.5 · (0.03 - 0.01) s for a megabyte: 10 s for a gigabyte.
        let unknown = Access::default();
        assert!(worth.admits(&candidate(&unknown, 0.0301), &mut offers));
        assert!(!worth.admits(&candidate(&unknown, 0.0299), &mut offers));
        let over = Access { p_continue: Probability::new(0.1), ..unknown };
        assert!(!worth.admits(&candidate(&over, 0.0301), &mut offers));
        assert!(!worth.admits(&candidate(&unknown, 0.005), &mut offers), "never a loss");
    }
}
