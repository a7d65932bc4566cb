//! Filter, score, pick: one choice among replicas.
//!
//! ```text
//! views ──all filters──► ──preferences──► candidates ──Σ weight · score──► scored ──picker──► one
//! ```
//!
//! It decides and remembers nothing (its picker may remember its last choice); reserving is the
//! router's part.

use headstart_core::Rng;

use crate::filter::Filter;
use crate::pick::{Picker, ScoredCandidate};
use crate::request::RouteRequest;
use crate::score::Scorer;
use crate::view::ReplicaView;

/// A way to choose.
pub struct Pipeline {
    /// Filters that every candidate must pass.
    pub filters: Vec<Box<dyn Filter>>,
    /// Filters that apply in order, except where none would be left.
    pub preferences: Vec<Box<dyn Filter>>,
    /// Scorers with their weights.
    pub scorers: Vec<WeightedScorer>,
    /// The final choice among the scored candidates.
    pub picker: Box<dyn Picker>,
}

/// A scorer and its weight.
pub struct WeightedScorer {
    /// Factor of the score; weights need not sum to anything.
    pub weight: f64,
    /// The scorer.
    pub scorer: Box<dyn Scorer>,
}

/// A choice, with those it was made among.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Position of the chosen one in `scored`.
    pub chosen: usize,
    /// All candidates, in the order of the views.
    pub scored: Vec<ScoredCandidate>,
}

impl Pipeline {
    /// Chooses one of `views`, which are sorted by replica; none when the filters leave none.
    pub fn choose(
        &mut self,
        views: &[ReplicaView],
        request: &RouteRequest<'_>,
        rng: &mut Rng,
    ) -> Option<Choice> {
        let is_admitted =
            |view: &&ReplicaView| self.filters.iter().all(|filter| filter.admits(view, request));
        let mut candidates: Vec<ReplicaView> = views.iter().filter(is_admitted).copied().collect();
        if candidates.is_empty() {
            return None;
        }
        for preference in &self.preferences {
            let is_preferred = |view: &ReplicaView| preference.admits(view, request);
            // A preference that would leave no candidate is skipped: a full fleet still serves.
            if candidates.iter().any(is_preferred) {
                candidates.retain(is_preferred);
            }
        }
        let scored = self.score(&candidates, request);
        let chosen = self.picker.pick(&scored, request, rng);
        Some(Choice { chosen, scored })
    }

    fn score(
        &self,
        candidates: &[ReplicaView],
        request: &RouteRequest<'_>,
    ) -> Vec<ScoredCandidate> {
        let unscored = |&view: &ReplicaView| ScoredCandidate { view, score: 0.0 };
        let mut scored: Vec<ScoredCandidate> = candidates.iter().map(unscored).collect();
        for WeightedScorer { weight, scorer } in &self.scorers {
            let scores = scorer.score(candidates, request);
            assert_eq!(scores.len(), candidates.len(), "one score per candidate");
            for (candidate, score) in scored.iter_mut().zip(scores) {
                // Scorers see all candidates at once, because some scores compare them.
                candidate.score += weight * score;
            }
        }
        scored
    }
}
