//! A trained model and the turn count alone, side by side on the same turns.

use headstart_core::Probability;

use super::results::Lift;
use crate::bootstrap::ConversationCounts;
use crate::evaluate::scores_by;
use crate::metrics::Confusion;
use crate::{ContinuationModel, Dataset, DatasetSplit, Scores};

/// Draws of the bootstrap.
const DRAWS: usize = 1_000;

/// Predictions of the model and of the turn count for each turn of a data set.
pub(super) struct Evaluation<'a> {
    data: &'a Dataset,
    /// Turns that select the thresholds, as indices.
    validation: &'a [usize],
    model_says: Vec<f32>,
    turns_say: Vec<f32>,
    /// Fixes the draws.
    seed: u64,
}

/// Model, turn count alone, and the difference, on some turns.
#[derive(Debug)]
pub(super) struct ScoreComparison {
    pub(super) model: Scores,
    pub(super) turn_only: Scores,
    pub(super) lift: Lift,
}

impl<'a> Evaluation<'a> {
    /// Asks both about all of `data`, whose turns at `validation` were the model's validation
    /// part. Where the model says no number, it says even.
    pub(super) fn new(
        data: &'a Dataset,
        validation: &'a [usize],
        model: &ContinuationModel,
        seed: u64,
    ) -> Self {
        let said = model.predict_rows(&data.values).into_iter();
        // A turn without a number counts as even, so both are compared on the same turns.
        let said = said.map(|p| p.unwrap_or(Probability::EVEN).value() as f32);
        let prior = &model.prior;
        let by_turn = data.labels.iter().map(|label| prior.p(label.turn));
        Self {
            data,
            validation,
            model_says: said.collect(),
            turns_say: by_turn.map(|p| p.value() as f32).collect(),
            seed,
        }
    }

    /// The model's figures for the turns in `part`.
    pub(super) fn of_model(&self, part: &[usize]) -> Scores {
        // Each predictor has the threshold that its own validation part chose.
        scores_by(self.data, &self.split(part), |at| self.model_says[at])
    }

    /// Both, on the same turns.
    pub(super) fn compare(&self, part: &[usize]) -> ScoreComparison {
        let model = self.of_model(part);
        let turn_only = scores_by(self.data, &self.split(part), |at| self.turns_say[at]);
        let lift = self.lift(part, &model, &turn_only);
        ScoreComparison { model, turn_only, lift }
    }

    fn split(&self, part: &[usize]) -> DatasetSplit {
        DatasetSplit {
            train: Vec::new(),
            validation: self.validation.to_vec(),
            test: part.to_vec(),
        }
    }

    /// Returns the MCC gain of the model over the turn count on `part`, each at its threshold. The
    /// bootstrap draws conversations with all their turns and both predictions, so the gain is over
    /// the same turns.
    fn lift(&self, part: &[usize], model: &Scores, turns: &Scores) -> Lift {
        let mut counts = ConversationCounts::default();
        for &at in part {
            let label = self.data.labels[at];
            // A turn of unknown outcome can be neither right nor wrong.
            let Some(continued) = label.outcome.continued() else {
                continue;
            };
            let [of_model, of_turns] = counts.of(label.conversation);
            let says = |p: f32, threshold: f64| f64::from(p) >= threshold;
            of_model.count(says(self.model_says[at], model.threshold), continued, 1);
            of_turns.count(says(self.turns_say[at], turns.threshold), continued, 1);
        }
        lift(&counts, self.seed)
    }
}

/// The difference of MCC over all, and its interval; that alone where there is nothing to draw.
fn lift(counts: &ConversationCounts<2>, seed: u64) -> Lift {
    let difference = |[model, turns]: [Confusion; 2]| model.mcc() - turns.mcc();
    let mcc = difference(counts.sums());
    let (low, high) = counts.interval(DRAWS, seed, difference).unwrap_or((mcc, mcc));
    Lift { mcc, low, high }
}

#[cfg(test)]
mod tests {
    use headstart_core::Rng;

    use super::*;

    fn of_pairs(pairs: impl IntoIterator<Item = [Confusion; 2]>) -> ConversationCounts<2> {
        let mut counts = ConversationCounts::default();
        for (conversation, pair) in (0..).zip(pairs) {
            *counts.of(conversation) = pair;
        }
        counts
    }

    fn counts(hits: u64, misses: u64) -> Confusion {
        Confusion {
            true_positive: hits,
            true_negative: hits,
            false_positive: misses,
            false_negative: misses,
        }
    }

    #[test]
    fn the_interval_is_of_the_pair_and_not_of_each() {
        // Both err wherever the other does: however much each varies, the difference is 0.
        let same = (0..50).map(|at| [counts(at % 7, at % 3); 2]);
        let lift = lift(&of_pairs(same), 1);
        assert_eq!((lift.mcc, lift.low, lift.high), (0.0, 0.0, 0.0));
    }

    #[test]
    fn the_interval_holds_the_difference_and_narrows_with_more_conversations() {
        let mut widths = Vec::new();
        for count in [40, 4_000] {
            let mut rng = Rng::new(count as u64);
            let mut judge = |right: f64| {
                let mut confusion = Confusion::default();
                for continued in [true, false] {
                    let is_right = rng.next_f64() < right;
                    confusion.count(is_right == continued, continued, 1);
                }
                confusion
            };
            let pairs = (0..count).map(|_| [judge(0.8), judge(0.6)]);
            // Right in 0.8 and 0.6 of both classes: MCC 0.6 and 0.2.
            let lift = lift(&of_pairs(pairs), 7);
            assert!(lift.low <= lift.mcc && lift.mcc <= lift.high, "{lift:?}");
            assert!(lift.low <= 0.4 && 0.4 <= lift.high, "{lift:?}");
            widths.push(lift.high - lift.low);
        }
        assert!(widths[0] > 5.0 * widths[1], "{widths:?}");
    }
}
