//! Score-based: the candidate goes first that mattered least, over all of its uses.
//!
//! `score = uses · mean share of its tokens that mattered`, which is the sum of the shares
//! ([`Access::importance`]). A use without a known importance counts 1: without importances this is
//! LFU. Ties go to the least recently released.
//!
//! Source: IMPRESS (FAST '25), section 4.4: access frequency × share of important tokens in a
//! chunk ("CKLFU" in the authors' code). With `half-life=N` (ours) a use counts twice as much as
//! one N uses of the cache before; scores are kept as logarithms, of which each use adds a larger
//! one, so that fading changes no order among those that wait.
//!
//! Invariant: a request counts once for a block, however often its chain repeats it.
//!
//! When not to use it: where what is popular changes, unless it fades: what mattered an hour ago
//! stays, and a newcomer, with one use, is pushed out by the next. Where whole prefixes are
//! loaded without importances: it is LFU then.

use headstart_core::{Access, BlockId};

use super::keyed::{KeyedPolicy, Priority};
use crate::queues::{ordered, wide_key};
use crate::recency::Recency;

/// Score, as bits that are in its order, then recency.
type ImportanceKey = [u32; 4];

/// Least frequency × importance.
pub type Importance = KeyedPolicy<ImportanceOrder>;

/// The order of [`Importance`].
#[derive(Debug)]
pub struct ImportanceOrder {
    /// Releases after which a use counts half.
    half_life: Option<f64>,
    num_releases: u64,
    /// The score, or its logarithm where it fades.
    score: Vec<f64>,
    recency: Recency,
}

impl Importance {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::scored(capacity, None)
    }

    /// The same; a use counts half after `half_life` more calls of [`Policy::release`]: requests
    /// of a prefix cache, uses of any part in a cache of parts.
    ///
    /// [`Policy::release`]: super::Policy::release
    #[must_use]
    pub fn fading(capacity: usize, half_life: f64) -> Self {
        Self::scored(capacity, Some(half_life))
    }

    fn scored(capacity: usize, half_life: Option<f64>) -> Self {
        let order = ImportanceOrder {
            half_life,
            num_releases: 0,
            score: vec![0.0; capacity],
            recency: Recency::new(capacity),
        };
        Self::over(capacity, order)
    }
}

/// A score with one use more, of that `share`, at a release.
fn used(score: f64, share: f64, half_life: Option<f64>, num_releases: u64) -> f64 {
    let Some(half_life) = half_life else {
        return score + share;
    };
    let use_now = share.log2() + num_releases as f64 / half_life;
    let (less, more) = (score.min(use_now), score.max(use_now));
    // Both are zero: the difference of the logarithms would not be a number.
    if more == f64::NEG_INFINITY {
        return more;
    }
    // log2(2^less + 2^more), in a form in which neither power overflows.
    more + (less - more).exp2().ln_1p() * std::f64::consts::LOG2_E
}

impl Priority for ImportanceOrder {
    type Key = ImportanceKey;

    fn insert(&mut self, block: BlockId) {
        self.score[block.index()] = match self.half_life {
            None => 0.0,
            Some(_) => f64::NEG_INFINITY,
        };
        self.recency.forget(block);
    }

    fn release(&mut self, blocks: &[BlockId], access: &Access) {
        self.num_releases += 1;
        // A negative share, or one that is not a number, counts 0.
        let share = access.importance.map_or(1.0, |share| f64::from(share).max(0.0));
        let Self { half_life, num_releases, score, recency } = self;
        recency.release_once(blocks, |slot| {
            score[slot] = used(score[slot], share, *half_life, *num_releases);
        });
    }

    fn key(&self, block: BlockId) -> ImportanceKey {
        wide_key(ordered(self.score[block.index()]), self.recency.of(block))
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::{BlockHash, Nanos};

    use super::super::Policy;
    use super::*;

    #[test]
    fn bits_are_in_the_order_of_the_numbers() {
        let numbers = [f64::NEG_INFINITY, -1e300, -2.0, -1e-300, 0.0, 1e-300, 2.0, 1e300];
        assert!(numbers.map(ordered).is_sorted_by(|one, other| one < other));
    }

    #[test]
    fn what_mattered_more_stays_and_what_mattered_long_ago_fades() {
        let uses = |policy: &mut dyn Policy| {
            for (block, importances) in [(0, &[0.9f32, 0.9][..]), (1, &[0.1, 0.2, 0.3])] {
                let block = BlockId(block);
                let hash = BlockHash::from_u64(u64::from(block.0));
                policy.insert(block, hash, &Access::default());
                for &importance in importances {
                    let access = Access { importance: Some(importance), ..Access::default() };
                    policy.release(&[block], &access);
                }
                policy.offer(block);
            }
            policy.victim(Nanos(0), None)
        };
        assert_eq!(uses(&mut Importance::new(2)), Some(BlockId(1)));
        assert_eq!(uses(&mut Importance::fading(2, 100.0)), Some(BlockId(1)));
        assert_eq!(uses(&mut Importance::fading(2, 0.5)), Some(BlockId(0)));
    }
}
