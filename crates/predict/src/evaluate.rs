//! Quality of a model on unseen data, beside that of the turn count alone.
//!
//! The threshold comes from the validation part, all figures from the test part. Intervals are
//! drawn by conversation, because turns of one conversation are not independent.

use std::collections::HashMap;

use crate::bootstrap::ConversationCounts;
use crate::dataset::turn_prior;
use crate::metrics::{self, Confusion, ScoredPrediction};
use crate::model::ContinuationModel;
use crate::report::{Counts, EvaluationReport, Scores, SplitCounts};
use crate::{ConversationOutcome, Dataset, DatasetSplit};

/// Bars of the reliability plot, as published.
const BINS: usize = 15;
/// Resamplings of the conversations for an interval.
const DRAWS: usize = 500;
/// Fixes those draws.
const DRAW_SEED: u64 = 0x6d63_6331;

/// `model` on the test part.
pub(crate) fn report(
    data: &Dataset,
    split: &DatasetSplit,
    model: &ContinuationModel,
) -> EvaluationReport {
    let prior = turn_prior(data, &split.train);
    let by_turn = |at: usize| prior.p(data.labels[at].turn).value() as f32;
    let said = by_model(data, &split.test, model);
    let model = scores(data, &split.test, &said, model.threshold);
    let turn_only = scores_by(data, split, by_turn);
    let unknown = data.labels.iter().filter(|l| l.outcome == ConversationOutcome::Unknown);
    EvaluationReport {
        parts: SplitCounts {
            train: counts(data, &split.train),
            validation: counts(data, &split.validation),
            test: counts(data, &split.test),
        },
        unknown: unknown.count(),
        attainable_mcc: attainable_mcc(data, split),
        lift_mcc: model.mcc - turn_only.mcc,
        model,
        turn_only,
    }
}

/// Figures of any predictor on the test part, its threshold chosen on the validation part.
/// `said` gives the probability for the example at an index.
pub(crate) fn scores_by(
    data: &Dataset,
    split: &DatasetSplit,
    said: impl Fn(usize) -> f32,
) -> Scores {
    // Without anything to tell apart the threshold is infinite, which JSON cannot hold.
    let threshold = metrics::best_threshold(&scored(data, &split.validation, &said)).min(1.0);
    scores(data, &split.test, &scored(data, &split.test, said), threshold)
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
    let mut counts = ConversationCounts::default();
    // `scored` left out the same unknown outcomes, so both sides are in step.
    for (label, one) in known.zip(scored) {
        let [count] = counts.of(label.conversation);
        count.count(one.p >= threshold, one.continued, 1);
    }
    counts.interval(DRAWS, DRAW_SEED, |[sum]| sum.mcc()).unwrap_or_default()
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
