//! Quality of a model on unseen data, beside that of the turn count alone.
//!
//! The threshold comes from the validation part, all figures from the test part. Intervals are
//! drawn by conversation, because turns of one conversation are not independent.

use std::collections::HashMap;
use std::ops::ControlFlow;

use headstart_core::Rng;
use serde::Serialize;

use crate::metrics::{self, Bin, Confusion, ScoredPrediction};
use crate::model::ContinuationModel;
use crate::train::{self, TrainError, TrainOptions, turn_prior};
use crate::{ConversationOutcome, Dataset, DatasetSplit};

/// Bars of the reliability plot, as published.
const BINS: usize = 15;
/// Resamplings of the conversations for an interval.
const DRAWS: usize = 500;
/// Fixes those draws.
const DRAW_SEED: u64 = 0x6d63_6331;

/// Sizes of a part of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Examples whose outcome is known.
    pub samples: usize,
    /// Their conversations.
    pub conversations: usize,
    /// Samples whose conversation continued.
    pub continued: usize,
}

/// Figures of one predictor on one part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scores {
    /// Examples that it is about.
    pub samples: usize,
    /// The share of them that continued.
    pub base_rate: f64,
    /// From which probability on a conversation is said to continue.
    pub threshold: f64,
    /// Matthews' correlation coefficient at the threshold.
    pub mcc: f64,
    /// Lower end of its 95 % interval.
    pub mcc_low: f64,
    /// Upper end.
    pub mcc_high: f64,
    /// Mean of both classes' F1 at the threshold.
    pub macro_f1: f64,
    /// Area under the ROC curve.
    pub auc: f64,
    /// Expected calibration error, 15 bars.
    pub ece: f64,
    /// Nats.
    pub log_loss: f64,
    /// Mean squared error.
    pub brier: f64,
    /// The reliability plot.
    pub bins: Vec<Bin>,
}

/// A model's figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvaluationReport {
    /// Sizes of the training part.
    pub train: Counts,
    /// Sizes of the validation part.
    pub validation: Counts,
    /// Sizes of the test part, which all figures come from.
    pub test: Counts,
    /// Examples left out because their outcome is unknown.
    pub unknown: usize,
    /// The model.
    pub model: Scores,
    /// The share of each turn in the training part.
    pub turn_only: Scores,
    /// The MCC of the true probabilities with a threshold chosen as the model's was, where every
    /// example of validation and test has one.
    pub attainable_mcc: Option<f64>,
    /// The model's MCC less that of the turn alone.
    pub lift_mcc: f64,
}

/// A point of a learning curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LearningCurvePoint {
    /// Conversations learnt from.
    pub conversations: usize,
    /// Their examples.
    pub samples: usize,
    /// On the test part.
    pub scores: Scores,
}

/// `model` on the test part.
#[must_use]
pub fn report(data: &Dataset, split: &DatasetSplit, model: &ContinuationModel) -> EvaluationReport {
    let prior = turn_prior(data, &split.train);
    let by_turn = |at: usize| prior.p(data.labels[at].turn).value() as f32;
    let said = by_model(data, &split.test, model);
    let model = scores(data, &split.test, &said, model.threshold);
    let turn_only = scores_by(data, split, by_turn);
    let unknown = data.labels.iter().filter(|l| l.outcome == ConversationOutcome::Unknown);
    EvaluationReport {
        train: counts(data, &split.train),
        validation: counts(data, &split.validation),
        test: counts(data, &split.test),
        unknown: unknown.count(),
        attainable_mcc: attainable_mcc(data, split),
        lift_mcc: model.mcc - turn_only.mcc,
        model,
        turn_only,
    }
}

/// Figures of any predictor on the test part, its threshold chosen on the validation part.
/// `said` gives the probability for the example at an index.
#[must_use]
pub fn scores_by(data: &Dataset, split: &DatasetSplit, said: impl Fn(usize) -> f32) -> Scores {
    // Without anything to tell apart the threshold is infinite, which JSON cannot hold.
    let threshold = metrics::best_threshold(&scored(data, &split.validation, &said)).min(1.0);
    scores(data, &split.test, &scored(data, &split.test, said), threshold)
}

/// Trains on 1/2^steps, …, 1/2 and all of the training conversations, a smaller part contained
/// in a larger one. Parts too small to learn from are left out.
///
/// # Errors
/// As [`train::train`] on the whole.
pub fn learning_curve(
    data: &Dataset,
    split: &DatasetSplit,
    options: &TrainOptions,
    steps: u32,
    observer: &mut dyn FnMut(&LearningCurvePoint) -> ControlFlow<()>,
) -> Result<Vec<LearningCurvePoint>, TrainError> {
    let mut points = Vec::new();
    for step in (0..=steps).rev() {
        let part = split.part_of_training(&data.labels, 0.5f64.powi(step as i32));
        let trained = train::train(data, &part, options, 0, &mut |_| ControlFlow::Continue(()));
        let trained = match trained {
            // A small part may lack examples. The whole must not, so its error ends the curve.
            Err(TrainError::TooFew { .. } | TrainError::OneClass { .. }) if step > 0 => continue,
            trained => trained?,
        };
        let point = LearningCurvePoint {
            conversations: trained.report.train.conversations,
            samples: trained.report.train.samples,
            scores: trained.report.model,
        };
        let flow = observer(&point);
        points.push(point);
        if flow.is_break() {
            break;
        }
    }
    Ok(points)
}

/// Pairs the probabilities of `said` with the outcomes of those of `part` whose outcome is known.
fn scored(data: &Dataset, part: &[usize], said: impl Fn(usize) -> f32) -> Vec<ScoredPrediction> {
    let one = |&at: &usize| {
        let continued = data.labels[at].outcome.continued()?;
        let p = said(at);
        Some(ScoredPrediction { p, continued })
    };
    part.iter().filter_map(one).collect()
}

/// Predictions of `model` for those of `part` whose outcome is known; NaN if it returns no number.
pub(crate) fn by_model(
    data: &Dataset,
    part: &[usize],
    model: &ContinuationModel,
) -> Vec<ScoredPrediction> {
    let mut rows = Vec::with_capacity(part.len() * data.definition.width());
    part.iter().for_each(|&at| rows.extend_from_slice(data.row(at)));
    // One call for all rows: the products are efficient for many rows only.
    let said = model.predict_rows(&rows);
    let said: HashMap<usize, f32> = part
        .iter()
        .zip(said)
        .map(|(&at, p)| (at, p.map_or(f32::NAN, |p| p.value() as f32)))
        .collect();
    scored(data, part, |at| said[&at])
}

/// Figures of what was said about `part`, those of its examples whose outcome is known.
fn scores(data: &Dataset, part: &[usize], scored: &[ScoredPrediction], threshold: f32) -> Scores {
    let confusion = Confusion::at(scored, threshold);
    let bins = metrics::reliability(scored, BINS);
    let (mcc_low, mcc_high) = mcc_interval(data, part, scored, threshold);
    Scores {
        samples: scored.len(),
        base_rate: metrics::base_rate(scored),
        threshold: f64::from(threshold),
        mcc: confusion.mcc(),
        mcc_low,
        mcc_high,
        macro_f1: confusion.macro_f1(),
        auc: metrics::auc(scored),
        ece: metrics::ece(&bins),
        log_loss: metrics::log_loss(scored),
        brier: metrics::brier(scored),
        bins,
    }
}

/// The middle 95 % of the MCC over resamplings of the conversations, with replacement.
fn mcc_interval(
    data: &Dataset,
    part: &[usize],
    scored: &[ScoredPrediction],
    threshold: f32,
) -> (f64, f64) {
    let known = part
        .iter()
        .map(|&at| &data.labels[at])
        .filter(|label| label.outcome != ConversationOutcome::Unknown);
    let mut slots: HashMap<u64, usize> = HashMap::new();
    let mut cells: Vec<Confusion> = Vec::new();
    // `scored` left out the same unknown outcomes, so both sides are in step.
    for (label, one) in known.zip(scored) {
        let slot = *slots.entry(label.conversation).or_insert_with(|| {
            cells.push(Confusion::default());
            cells.len() - 1
        });
        cells[slot].count(one.p >= threshold, one.continued, 1);
    }
    if cells.is_empty() {
        return (0.0, 0.0);
    }
    let mut rng = Rng::new(DRAW_SEED);
    let mut draw = || {
        let mut sum = Confusion::default();
        for _ in 0..cells.len() {
            sum.add(&cells[rng.below(cells.len())]);
        }
        sum.mcc()
    };
    let mut draws: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
    draws.sort_by(f64::total_cmp);
    // A fortieth of the draws, 2.5 %, lies beyond each end.
    let tail = DRAWS / 40;
    (draws[tail], draws[DRAWS - 1 - tail])
}

fn attainable_mcc(data: &Dataset, split: &DatasetSplit) -> Option<f64> {
    let truth = |at: usize| data.labels[at].truth.map(|truth| truth.value() as f32);
    let parts = split.validation.iter().chain(&split.test);
    // One example without a true probability would make the figure one of another set.
    let all_known = parts.clone().all(|&at| truth(at).is_some());
    let said = |at| truth(at).unwrap_or(0.0);
    (all_known && parts.count() > 0).then(|| scores_by(data, split, said).mcc)
}

fn counts(data: &Dataset, part: &[usize]) -> Counts {
    let labels = part.iter().map(|&at| &data.labels[at]);
    let known: Vec<_> = labels.filter(|l| l.outcome != ConversationOutcome::Unknown).collect();
    let conversations: std::collections::HashSet<u64> =
        known.iter().map(|label| label.conversation).collect();
    let continued = known.iter().filter(|l| l.outcome == ConversationOutcome::Continued);
    Counts {
        samples: known.len(),
        conversations: conversations.len(),
        continued: continued.count(),
    }
}
