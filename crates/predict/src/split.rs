//! Training, validation and test, without a leak.
//!
//! Turns of one conversation resemble each other, and so do conversations that begin alike; both
//! stay on one side. (The published code splits turns at random.) Conversations and first prompts
//! are united into groups, and whole groups are dealt.
//!
//! Invariant: no conversation and no first prompt has examples on two sides; the same labels and
//! seed give the same split.

use std::collections::HashMap;

use headstart_core::Rng;

use crate::{ConversationOutcome, Label};

/// Shares of the examples, with the rest for the test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitShares {
    /// For the weights.
    pub train: f64,
    /// For the choice of checkpoint, threshold and calibration.
    pub validation: f64,
}

impl Default for SplitShares {
    /// 70 %, 15 % and, as the rest, 15 % for the test.
    fn default() -> Self {
        Self { train: 0.70, validation: 0.15 }
    }
}

/// Indices of examples whose outcome is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatasetSplit {
    /// For the weights.
    pub train: Vec<usize>,
    /// For the choice of checkpoint, threshold and calibration.
    pub validation: Vec<usize>,
    /// For the report, and nothing else.
    pub test: Vec<usize>,
}

impl DatasetSplit {
    /// Deals whole groups, in an order fixed by `seed`, to training until it has its share of the
    /// examples, then to validation, then to the test.
    #[must_use]
    pub fn new(labels: &[Label], shares: SplitShares, seed: u64) -> Self {
        let known =
            (0..labels.len()).filter(|&at| labels[at].outcome != ConversationOutcome::Unknown);
        let known: Vec<usize> = known.collect();
        let mut groups = connected(labels, &known);
        Rng::new(seed).shuffle(&mut groups);
        let mut split = Self::default();
        let total = known.len() as f64;
        for group in groups {
            // By what the side has already: a large group may exceed its share, but is never
            // divided.
            let side = if (split.train.len() as f64) < shares.train * total {
                &mut split.train
            } else if (split.validation.len() as f64) < shares.validation * total {
                &mut split.validation
            } else {
                &mut split.test
            };
            side.extend(group);
        }
        split
    }

    /// The same with only the first `share` of the training conversations, for learning curves:
    /// a smaller part is contained in a larger one.
    #[must_use]
    pub fn part_of_training(&self, labels: &[Label], share: f64) -> Self {
        let mut order: Vec<u64> = Vec::new();
        let mut seen: HashMap<u64, usize> = HashMap::new();
        for &at in &self.train {
            let conversation = labels[at].conversation;
            seen.entry(conversation).or_insert_with(|| {
                order.push(conversation);
                order.len() - 1
            });
        }
        let keep = (order.len() as f64 * share).ceil() as usize;
        let kept = |&&at: &&usize| seen[&labels[at].conversation] < keep;
        Self { train: self.train.iter().filter(kept).copied().collect(), ..self.clone() }
    }
}

/// Indices that share a conversation or a first prompt, directly or through others; in the order
/// of their first index.
fn connected(labels: &[Label], known: &[usize]) -> Vec<Vec<usize>> {
    let mut parent: Vec<usize> = (0..known.len()).collect();
    let mut by_conversation = HashMap::new();
    let mut by_group = HashMap::new();
    for (slot, &at) in known.iter().enumerate() {
        let conversation = *by_conversation.entry(labels[at].conversation).or_insert(slot);
        let group = *by_group.entry(labels[at].group).or_insert(slot);
        for other in [conversation, group] {
            let (a, b) = (root(&mut parent, slot), root(&mut parent, other));
            // The smaller root stays, so a group is known by its first index, and the order is
            // fixed.
            parent[a.max(b)] = a.min(b);
        }
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut number = HashMap::new();
    for (slot, &at) in known.iter().enumerate() {
        let root = root(&mut parent, slot);
        let group = *number.entry(root).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(at);
    }
    groups
}

/// The slot that stands for `slot`'s group; halves the paths that it walks.
fn root(parent: &mut [usize], mut slot: usize) -> usize {
    while parent[slot] != slot {
        parent[slot] = parent[parent[slot]];
        slot = parent[slot];
    }
    slot
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn label(conversation: u64, group: u64, outcome: ConversationOutcome) -> Label {
        Label { outcome, turn: 1, conversation, group, truth: None }
    }

    fn random_labels(rng: &mut Rng) -> Vec<Label> {
        let mut labels = Vec::new();
        for conversation in 0..400 {
            let group = rng.below(250) as u64;
            for _ in 0..=rng.below(6) {
                let outcome = match rng.below(5) {
                    0 => ConversationOutcome::Unknown,
                    1 | 2 => ConversationOutcome::Ended,
                    _ => ConversationOutcome::Continued,
                };
                labels.push(label(conversation, group, outcome));
            }
        }
        rng.shuffle(&mut labels);
        labels
    }

    fn keys(labels: &[Label], side: &[usize]) -> HashSet<(bool, u64)> {
        let of = |&at: &usize| [(false, labels[at].conversation), (true, labels[at].group)];
        side.iter().flat_map(of).collect()
    }

    #[test]
    fn no_conversation_and_no_first_prompt_is_on_two_sides() {
        for seed in 0..20 {
            let labels = random_labels(&mut Rng::new(seed));
            let split = DatasetSplit::new(&labels, SplitShares::default(), seed);
            let sides = [&split.train, &split.validation, &split.test];
            let known = labels.iter().filter(|l| l.outcome != ConversationOutcome::Unknown);
            let all: HashSet<usize> = sides.into_iter().flatten().copied().collect();
            assert_eq!(all.len(), known.count(), "seed {seed}");
            let sizes = sides.map(|side| side.len() as f64 / all.len() as f64);
            assert!((sizes[0] - 0.70).abs() < 0.03, "seed {seed}: {sizes:?}");
            assert!((sizes[1] - 0.15).abs() < 0.03, "seed {seed}: {sizes:?}");
            let keys = sides.map(|side| keys(&labels, side));
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                assert!(keys[a].is_disjoint(&keys[b]), "seed {seed}");
            }
            assert_eq!(split, DatasetSplit::new(&labels, SplitShares::default(), seed));
        }
    }

    #[test]
    fn groups_are_united_through_others() {
        use ConversationOutcome::Ended;
        // 1-2 by group 7, 2-3 by conversation, so all three are one; the fourth stands alone.
        let labels = [
            label(1, 7, Ended),
            label(2, 7, Ended),
            label(2, 8, Ended),
            label(3, 8, Ended),
            label(4, 9, Ended),
        ];
        let known: Vec<usize> = (0..labels.len()).collect();
        assert_eq!(connected(&labels, &known), [vec![0, 1, 2, 3], vec![4]]);
    }

    #[test]
    fn a_part_of_training_is_contained_in_a_larger_one() {
        let labels = random_labels(&mut Rng::new(3));
        let split = DatasetSplit::new(&labels, SplitShares::default(), 3);
        let parts = [0.1, 0.5, 1.0].map(|share| split.part_of_training(&labels, share));
        let sets = parts.map(|part| part.train.into_iter().collect::<HashSet<_>>());
        assert!(sets[0].is_subset(&sets[1]) && sets[1].is_subset(&sets[2]));
        assert!(sets[0].len() * 8 < sets[2].len() && !sets[0].is_empty());
        assert_eq!(sets[2].len(), split.train.len());
    }
}
