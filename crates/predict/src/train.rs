//! Learning the classifier.
//!
//! ```text
//! train part ──► epochs of Adam ──► checkpoint with the least loss on the validation part
//!                └► as many times as there are members; the mean of their log-odds
//!                   └► calibration and threshold, on the validation part
//!                      └► report, on the test part
//! ```
//!
//! Source: Yang et al., "Learned Prefix Caching", NeurIPS 2025: only the classifier learns;
//! cross-entropy with each class weighted by total / count; Adam, learning rate 5e-4, batch 256,
//! at most 20 epochs, best checkpoint by validation loss. We differ: columns are scaled to mean 0
//! and deviation 1 by the training part, and batches are of equal size. Three classifiers with
//! other first weights and another order of examples are averaged. Their average is calibrated,
//! together with the turn prior.
//!
//! Deterministic: the same data, options and machine give the same bits.

pub(crate) mod error;
mod options;

use std::ops::ControlFlow;

use headstart_core::Rng;
use serde::Serialize;

use crate::calibrate::Calibration;
use crate::dataset::turn_prior;
use crate::evaluate;
use crate::metrics;
use crate::mlp::Mlp;
use crate::mlp::network::{ExampleBatch, NetworkShape, Scaling, TrainingNetwork};
use crate::model::{self, ContinuationModel};
use crate::report::{EvaluationReport, EvaluationSummary};
use crate::{Dataset, DatasetSplit};
use options::FEWEST;

pub use error::TrainError;
pub use options::TrainOptions;

/// Columns that vary less than this are left out.
const LEAST_DEVIATION: f64 = 1e-6;

/// One round over the training part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Epoch {
    /// Number of the classifier that learns, from 1.
    pub member: usize,
    /// Number of the epoch, from 1 for each member.
    pub epoch: usize,
    /// Mean weighted cross-entropy of its steps, with noise, in nats.
    pub train_loss: f64,
    /// Mean weighted cross-entropy of the validation part after it, without noise, in nats.
    pub validation_loss: f64,
    /// Whether this is the member's best so far.
    pub is_best: bool,
}

/// Told of each epoch; `Break` ends training with the best checkpoints so far.
pub type Observer<'a> = dyn FnMut(&Epoch) -> ControlFlow<()> + 'a;

/// Result of training.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingResult {
    /// The model, to be saved.
    pub model: ContinuationModel,
    /// Epochs reported to the observer.
    pub history: Vec<Epoch>,
    /// Quality on the test part.
    pub report: EvaluationReport,
}

/// Learns from the training part, chooses by the validation part, reports the test part.
/// `trained_at_s` (seconds since 1970) is only noted in the model. Takes some seconds for 20,000
/// examples, on one thread.
///
/// # Errors
/// When a part of the data has too few examples or only one class, or the loss runs away.
pub fn train(
    data: &Dataset,
    split: &DatasetSplit,
    options: &TrainOptions,
    trained_at_s: u64,
    observer: &mut Observer<'_>,
) -> Result<TrainingResult, TrainError> {
    check(data, split, options)?;
    let (mlp, history) = fit_all(data, split, options, observer)?;
    let validation = ExampleRows::of(data, &split.validation);
    // From the training part only: the report compares with it on the test part.
    let prior = turn_prior(data, &split.train);
    let raw = model::raw(&data.definition, &mlp, &prior, &validation.rows);
    let calibration = Calibration::fit(&raw, &validation.targets);
    let mut model = ContinuationModel {
        definition: data.definition.clone(),
        mlp,
        calibration,
        threshold: 0.5,
        prior,
        summary: EvaluationSummary::default(),
        fingerprint: data.fingerprint(),
        trained_at_s,
    };
    let said = evaluate::by_model(data, &split.validation, &model);
    // The threshold is infinite where validation tells nothing apart, and the file needs a share.
    model.threshold = metrics::best_threshold(&said).min(1.0);
    let report = evaluate::report(data, split, &model);
    model.summary = EvaluationSummary::of(&report);
    Ok(TrainingResult { model, history, report })
}

/// The mean of the members.
fn fit_all(
    data: &Dataset,
    split: &DatasetSplit,
    options: &TrainOptions,
    observer: &mut Observer<'_>,
) -> Result<(Mlp, Vec<Epoch>), TrainError> {
    let mut rng = Rng::new(options.seed);
    let mut train = ExampleRows::of(data, &split.train);
    let mut validation = ExampleRows::of(data, &split.validation);
    // The training part alone sets the scale, or validation would leak into the weights.
    let scaling = scaling(&train.rows, data.definition.width());
    train.scale(&scaling);
    validation.scale(&scaling);
    let fitting = Fitting {
        class_weights: class_weights(&train.targets),
        train,
        validation,
        scaling,
        options,
    };
    let (mut members, mut history) = (Vec::new(), Vec::new());
    let mut observed = ControlFlow::Continue(());
    // One generator for all: members differ, and the same seed gives the same members.
    for member in 1..=options.members {
        members.push(fitting.fit(member, &mut rng, &mut |epoch| {
            history.push(*epoch);
            observed = observer(epoch);
            observed
        })?);
        if observed.is_break() {
            break;
        }
    }
    Ok((Mlp::mean(&members), history))
}

/// Training data and options, shared by all members.
struct Fitting<'a> {
    train: ExampleRows,
    validation: ExampleRows,
    scaling: Scaling,
    class_weights: [f32; 2],
    options: &'a TrainOptions,
}

impl Fitting<'_> {
    /// The weights with the least loss on the validation part.
    fn fit(
        &self,
        member: usize,
        rng: &mut Rng,
        observer: &mut Observer<'_>,
    ) -> Result<Mlp, TrainError> {
        let options = self.options;
        let shape = NetworkShape {
            width: self.train.width,
            hidden: options.hidden,
            dropout: options.dropout,
        };
        let mut network = TrainingNetwork::new(shape, rng);
        let mut order: Vec<usize> = (0..self.train.targets.len()).collect();
        let mut best = (f64::INFINITY, network.fold(&self.scaling));
        for epoch in 1..=options.epochs {
            rng.shuffle(&mut order);
            let train_loss = self.round(&mut network, &order, rng);
            let validation_loss = network.evaluate(&self.validation.batch(self.class_weights));
            // A later epoch cannot recover from weights that are no numbers.
            if !(train_loss.is_finite() && validation_loss.is_finite()) {
                return Err(TrainError::Diverged { epoch });
            }
            let is_best = validation_loss < best.0;
            if is_best {
                best = (validation_loss, network.fold(&self.scaling));
            }
            let epoch = Epoch { member, epoch, train_loss, validation_loss, is_best };
            if observer(&epoch).is_break() {
                break;
            }
        }
        Ok(best.1)
    }

    /// Steps through the examples in this order; the mean loss.
    fn round(&self, network: &mut TrainingNetwork, order: &[usize], rng: &mut Rng) -> f64 {
        let rate = self.options.learning_rate;
        let mut loss = 0.0;
        // A small last batch would normalize by statistics of a few examples.
        for picked in equal_chunks(order, self.options.batch) {
            let (rows, targets) = self.train.pick(picked);
            let batch =
                ExampleBatch { rows: &rows, targets: &targets, class_weights: self.class_weights };
            let share = picked.len() as f64 / order.len() as f64;
            loss += share * network.step(&batch, rate, rng);
        }
        loss
    }
}

/// Rows and outcomes of a part, gathered.
struct ExampleRows {
    width: usize,
    rows: Vec<f32>,
    targets: Vec<bool>,
}

impl ExampleRows {
    /// Takes the examples with a known outcome.
    fn of(data: &Dataset, part: &[usize]) -> Self {
        let known = |&&at: &&usize| data.labels[at].outcome.continued().is_some();
        let part: Vec<usize> = part.iter().filter(known).copied().collect();
        let target = |&at: &usize| data.labels[at].outcome.continued() == Some(true);
        let row = |&at: &usize| data.row(at).iter().copied();
        Self {
            width: data.definition.width(),
            rows: part.iter().flat_map(row).collect(),
            targets: part.iter().map(target).collect(),
        }
    }

    fn scale(&mut self, scaling: &Scaling) {
        for row in self.rows.chunks_exact_mut(self.width) {
            for ((value, mean), scale) in row.iter_mut().zip(&scaling.mean).zip(&scaling.scale) {
                *value = (*value - mean) * scale;
            }
        }
    }

    fn pick(&self, picked: &[usize]) -> (Vec<f32>, Vec<bool>) {
        let mut rows = Vec::with_capacity(picked.len() * self.width);
        for at in picked {
            rows.extend_from_slice(&self.rows[at * self.width..][..self.width]);
        }
        (rows, picked.iter().map(|&at| self.targets[at]).collect())
    }

    fn batch(&self, class_weights: [f32; 2]) -> ExampleBatch<'_> {
        ExampleBatch { rows: &self.rows, targets: &self.targets, class_weights }
    }
}

/// Mean 0 and deviation 1 for each column of `rows`; nothing of a column that does not vary, so
/// that what was never seen cannot move a prediction later.
fn scaling(rows: &[f32], width: usize) -> Scaling {
    let n = (rows.len() / width) as f64;
    let mut mean = vec![0.0f64; width];
    let mut square = vec![0.0f64; width];
    for row in rows.chunks_exact(width) {
        mean.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x) / n);
    }
    // A second pass over the distances keeps digits that a difference of sums would lose.
    for row in rows.chunks_exact(width) {
        for ((sum, x), mean) in square.iter_mut().zip(row).zip(&mean) {
            *sum += (f64::from(*x) - mean).powi(2) / n;
        }
    }
    let scale = |variance: &f64| {
        let deviation = variance.sqrt();
        if deviation < LEAST_DEVIATION { 0.0 } else { (1.0 / deviation) as f32 }
    };
    Scaling {
        mean: mean.iter().map(|&mean| mean as f32).collect(),
        scale: square.iter().map(scale).collect(),
    }
}

/// Total over count: of those that ended, of those that continued.
fn class_weights(targets: &[bool]) -> [f32; 2] {
    let continued = targets.iter().filter(|&&target| target).count();
    let ended = targets.len() - continued;
    // `check` refused parts with one class, so no count is 0.
    [ended, continued].map(|count| targets.len() as f32 / count as f32)
}

/// `items` in as many pieces as batches of `size` take, of equal size but for one.
fn equal_chunks(items: &[usize], size: usize) -> impl Iterator<Item = &[usize]> {
    let pieces = items.len().div_ceil(size);
    let bound = move |piece: usize| piece * items.len() / pieces;
    (0..pieces).map(move |piece| &items[bound(piece)..bound(piece + 1)])
}

fn check(data: &Dataset, split: &DatasetSplit, options: &TrainOptions) -> Result<(), TrainError> {
    // A batch of one has no variance to normalize by.
    if [options.hidden, options.epochs, options.members].contains(&0) || options.batch < 2 {
        return Err(TrainError::Options(
            "hidden units, epochs and members are at least 1, a batch is at least 2 examples",
        ));
    }
    if !(0.0..1.0).contains(&options.dropout) {
        return Err(TrainError::Options("dropout is from 0 to below 1"));
    }
    if options.learning_rate.is_nan() || options.learning_rate <= 0.0 {
        return Err(TrainError::Options("the learning rate is above 0"));
    }
    let parts = [("train", &split.train), ("validation", &split.validation), ("test", &split.test)];
    for (part, indices) in parts {
        let outcomes = indices.iter().map(|&at| data.labels[at].outcome);
        let known: Vec<bool> = outcomes.filter_map(crate::ConversationOutcome::continued).collect();
        let have = known.len();
        if have < FEWEST {
            let need = FEWEST;
            return Err(TrainError::TooFew { part, have, need });
        }
        let what = if known[0] { "continue" } else { "end" };
        if known.iter().all(|&continued| continued == known[0]) {
            return Err(TrainError::OneClass { part, have, what });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::tests::planted;
    use crate::{ConversationOutcome, SplitShares};

    fn short() -> TrainOptions {
        TrainOptions {
            hidden: 8,
            epochs: 6,
            members: 2,
            batch: 32,
            learning_rate: 0.01,
            ..TrainOptions::default()
        }
    }

    fn learn(data: &Dataset, options: &TrainOptions) -> Result<TrainingResult, TrainError> {
        let split = DatasetSplit::new(&data.labels, SplitShares::default(), 1);
        train(data, &split, options, 7, &mut |_| ControlFlow::Continue(()))
    }

    #[test]
    fn what_a_column_tells_is_found_and_chance_is_not() {
        let told = learn(&planted(1000, 0.8, 1), &short()).expect("enough to learn from");
        // The column gives the outcome in 0.8 of the cases, else a coin of the same weight: MCC
        // 0.8.
        let EvaluationReport { model, turn_only, .. } = &told.report;
        assert!((model.mcc - 0.8).abs() < 0.08, "{model:?}");
        assert!(model.mcc_low < model.mcc && model.mcc < model.mcc_high, "{model:?}");
        assert!(model.ece < 0.06 && turn_only.mcc.abs() < 0.1, "{model:?}");
        assert_eq!(told.model.trained_at_s, 7);
        let chance = learn(&planted(1000, 0.0, 1), &short()).expect("enough to learn from");
        assert!(chance.report.model.mcc.abs() < 0.1, "{:?}", chance.report.model);
        let (model, turn_only) = (chance.report.model.log_loss, chance.report.turn_only.log_loss);
        assert!(model < turn_only + 0.02, "{model} {turn_only}");
    }

    #[test]
    fn the_same_seed_gives_the_same_bits_and_another_one_others() {
        let data = planted(200, 0.5, 1);
        let first = learn(&data, &short()).expect("enough to learn from");
        assert_eq!(Ok(&first), learn(&data, &short()).as_ref());
        let other = TrainOptions { seed: 1, ..short() };
        let other = learn(&data, &other).expect("enough to learn from");
        assert_ne!(first.model.mlp, other.model.mlp);
    }

    #[test]
    fn the_best_checkpoint_is_kept_and_an_observer_may_stop() {
        let data = planted(300, 0.6, 2);
        let split = DatasetSplit::new(&data.labels, SplitShares::default(), 1);
        let mut seen = Vec::new();
        let trained = train(&data, &split, &short(), 0, &mut |epoch| {
            seen.push(*epoch);
            if epoch.epoch == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let trained = trained.expect("enough to learn from");
        assert_eq!((seen.len(), &trained.history), (3, &seen));
        assert!(seen.iter().all(|epoch| epoch.member == 1), "no other one begins");
        let best = seen.iter().map(|epoch| epoch.validation_loss).fold(f64::INFINITY, f64::min);
        let last_best = seen.iter().rfind(|epoch| epoch.is_best).expect("the first is one");
        assert_eq!(last_best.validation_loss, best);
    }

    #[test]
    fn a_column_that_never_varied_cannot_move_a_prediction() {
        let mut data = planted(200, 0.5, 1);
        data.values.iter_mut().skip(3).step_by(5).for_each(|value| *value = 0.25);
        let model = learn(&data, &short()).expect("enough to learn from").model;
        let mut row = data.row(0).to_vec();
        let before = model.predict_rows(&row);
        row[3] = 1e6;
        let difference = |a: Option<headstart_core::Probability>| a.map_or(f64::NAN, |p| p.value());
        let moved = difference(before[0]) - difference(model.predict_rows(&row)[0]);
        assert!(moved.abs() < 1e-6, "{moved}");
        // Nor does what is no number become one.
        row[0] = f32::NAN;
        assert_eq!(model.predict_rows(&row), [None]);
    }

    #[test]
    fn data_that_nothing_can_be_learnt_from_is_refused_by_name() {
        let refused = |data: &Dataset, options: &TrainOptions| {
            learn(data, options).expect_err("must be refused").to_string()
        };
        let few = refused(&planted(20, 1.0, 1), &short());
        assert!(few.contains("the train part has 28 examples, 32 are needed"), "{few}");
        let mut one_class = planted(500, 1.0, 1);
        one_class
            .labels
            .iter_mut()
            .for_each(|label| label.outcome = ConversationOutcome::Continued);
        assert!(refused(&one_class, &short()).contains("examples of the train part continue"));
        let options = TrainOptions { dropout: 1.0, ..short() };
        assert!(refused(&planted(500, 1.0, 1), &options).contains("dropout"));
        let options = TrainOptions { learning_rate: f32::NAN, ..short() };
        assert!(refused(&planted(500, 1.0, 1), &options).contains("learning rate"));
    }

    #[test]
    fn batches_are_of_equal_size_but_for_one() {
        let items: Vec<usize> = (0..257).collect();
        let sizes: Vec<usize> = equal_chunks(&items, 256).map(<[usize]>::len).collect();
        assert_eq!(sizes, [128, 129]);
        assert!(equal_chunks(&items, 256).flatten().eq(&items));
    }
}
