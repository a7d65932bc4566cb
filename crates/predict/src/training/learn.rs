//! From rows to a model and its report.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;

use super::TrainingError;
use super::comparison::Evaluation;
use super::host::{StageWork, TrainingHost};
use super::material::Material;
use super::parameters::TrainingParameters;
use super::results::{Elsewhere, InputFacts, OfSeed, PhaseTimes, TrainReport};
use crate::{
    ContinuationModel, ConversationOutcome, Dataset, DatasetSplit, Epoch, EvaluationReport,
    LearningCurvePoint, Scores, SplitShares, TrainOptions, TrainingResult, learning_curve,
    train as fit,
};

/// Default halvings of the learning curve, and the most turns that it is drawn for by default.
const CURVE_STEPS: u32 = 4;
const CURVE_TURNS_MAX: usize = 20_000;

/// Sets the shuffling of labels apart from the split of the same seed.
const SHUFFLE: u64 = 0x5348_5546_464c_4521;

/// Result of a training.
#[derive(Debug)]
pub struct LearningResult {
    /// The model, to be saved; `None` of shuffled labels.
    pub model: Option<ContinuationModel>,
    /// The model's quality, and what it was trained on.
    pub report: TrainReport,
}

/// Rows, split, and what to do with them.
struct Learner<'a> {
    parameters: &'a TrainingParameters,
    host: &'a dyn TrainingHost,
    data: &'a Dataset,
    split: DatasetSplit,
}

/// Splits, trains and evaluates.
///
/// # Errors
/// When a part has too little of something.
pub(super) fn learn(
    parameters: &TrainingParameters,
    host: &dyn TrainingHost,
    material: Material,
) -> Result<LearningResult, TrainingError> {
    let Material { mut data, inputs, others, mut times } = material;
    // Shuffled outcomes keep the rows and their number: only the relation is gone.
    if parameters.shuffle_labels {
        data = data.shuffled(parameters.seed ^ SHUFFLE);
    }
    // Groups stay on one side of the split, so no test prompt was seen in training.
    let split = DatasetSplit::new(&data.labels, SplitShares::default(), parameters.seed);
    let learner = Learner { parameters, host, data: &data, split };
    let begin = host.now();
    let trained = learner.epochs()?;
    times.train_s = host.now().since(begin).as_secs_f64();
    let begin = host.now();
    let curve = learner.curve()?;
    if !curve.is_empty() {
        times.curve_s = host.now().since(begin).as_secs_f64();
    }
    let mut report = learner.report(trained.report, &trained.model);
    let elsewhere = others.into_iter();
    let elsewhere = elsewhere.map(|(input, other)| learner.look(&trained.model, input, other));
    report.elsewhere = elsewhere.collect::<Result<_, _>>()?;
    report.inputs = inputs;
    report.seeds = learner.seeds(&report)?;
    report.curve = curve;
    report.epochs = trained.history;
    report.times = times;
    // A model of shuffled outcomes predicts nothing, so none is written.
    let model = (!parameters.shuffle_labels).then_some(trained.model);
    Ok(LearningResult { model, report })
}

impl Learner<'_> {
    fn options(&self, seed: u64) -> TrainOptions {
        let epochs = usize::from(self.parameters.epochs);
        TrainOptions { seed, epochs, ..TrainOptions::default() }
    }

    /// Splits and trains again with other seeds; `first` is the result of the first seed.
    fn seeds(&self, first: &TrainReport) -> Result<Vec<OfSeed>, TrainingError> {
        let Self { parameters, data, .. } = self;
        if parameters.seeds <= 1 {
            return Ok(Vec::new());
        }
        let of_seed = |seed: u64, model: &Scores, turn_only: &Scores| OfSeed {
            seed,
            mcc: model.mcc,
            turn_only_mcc: turn_only.mcc,
            lift_mcc: model.mcc - turn_only.mcc,
            macro_f1: model.macro_f1,
            turn_only_macro_f1: turn_only.macro_f1,
            auc: model.auc,
            turn_only_auc: turn_only.auc,
            ece: model.ece,
        };
        let others = usize::from(parameters.seeds) - 1;
        let work = StageWork::Steps(others);
        let progress = self.host.begin("training with other seeds", work);
        let mut found = vec![of_seed(first.seed, &first.test, &first.turn_only)];
        for step in 1..u64::from(parameters.seeds) {
            // Seeds wrap around, so that any first seed is allowed.
            let seed = parameters.seed.wrapping_add(step);
            let split = DatasetSplit::new(&data.labels, SplitShares::default(), seed);
            let go_on = &mut |_: &Epoch| ControlFlow::Continue(());
            let trained = fit(data, &split, &self.options(seed), 0, go_on)?;
            let evaluation = Evaluation::new(data, &split.validation, &trained.model, seed);
            let test = evaluation.compare(&split.test);
            found.push(of_seed(seed, &test.model, &test.turn_only));
            progress.inc(1);
        }
        progress.end();
        Ok(found)
    }

    /// Trains, with progress.
    fn epochs(&self) -> Result<TrainingResult, TrainingError> {
        let options = self.options(self.parameters.seed);
        let work = StageWork::Steps(options.members * options.epochs);
        let progress = self.host.begin("training", work);
        let trained_at_s = self.host.unix_s();
        let trained = fit(self.data, &self.split, &options, trained_at_s, &mut |_| {
            progress.inc(1);
            ControlFlow::Continue(())
        });
        progress.end();
        Ok(trained?)
    }

    /// Trains again, on parts.
    fn curve(&self) -> Result<Vec<LearningCurvePoint>, TrainingError> {
        let steps = match self.parameters.curve {
            Some(steps) => u32::from(steps),
            // The curve trains once for each step, which takes long on much data.
            None if self.data.labels.len() <= CURVE_TURNS_MAX => CURVE_STEPS,
            None => 0,
        };
        if steps == 0 {
            return Ok(Vec::new());
        }
        let work = StageWork::Steps(steps as usize + 1);
        let progress = self.host.begin("training on parts", work);
        let options = self.options(self.parameters.seed);
        let points = learning_curve(self.data, &self.split, &options, steps, &mut |_| {
            progress.inc(1);
            ControlFlow::Continue(())
        });
        progress.end();
        Ok(points?)
    }

    /// Builds the report of the model on all parts; the caller adds the rest.
    fn report(&self, found: EvaluationReport, model: &ContinuationModel) -> TrainReport {
        let Self { parameters, data, split, .. } = self;
        let evaluation = Evaluation::new(data, &split.validation, model, parameters.seed);
        let test = evaluation.compare(&split.test);
        TrainReport {
            inputs: Vec::new(),
            definition: data.definition.clone(),
            fingerprint: model.fingerprint.clone(),
            model: parameters.output.as_deref().map(shown_name),
            seed: parameters.seed,
            is_shuffled: parameters.shuffle_labels,
            parts: found.parts,
            unknown: found.unknown,
            train: evaluation.of_model(&split.train),
            validation: evaluation.of_model(&split.validation),
            test: test.model,
            turn_only: test.turn_only,
            lift: test.lift,
            attainable_mcc: found.attainable_mcc,
            curve: Vec::new(),
            epochs: Vec::new(),
            seeds: Vec::new(),
            elsewhere: Vec::new(),
            times: PhaseTimes::default(),
        }
    }

    /// The model on another corpus, but for what it has seen of it.
    ///
    /// # Errors
    /// When nothing is left, or the corpus is a log of another definition.
    fn look(
        &self,
        model: &ContinuationModel,
        input: InputFacts,
        other: Dataset,
    ) -> Result<Elsewhere, TrainingError> {
        let Self { parameters, data, split, .. } = self;
        // The columns must have the same meaning, or the model reads numbers of another kind.
        if other.definition != data.definition {
            return Err(TrainingError::Unsuitable(format!(
                "{} is the log of a model with different inputs",
                input.file
            )));
        }
        let group = |&at: &usize| data.labels[at].group;
        // The validation part chose the epoch and the threshold, so it was seen as well.
        let chosen_by = split.train.iter().chain(&split.validation);
        let seen: HashSet<u64> = chosen_by.map(group).collect();
        // The thresholds come from the validation part, so it goes along.
        let width = data.definition.width();
        let mut both = Dataset {
            definition: data.definition.clone(),
            values: Vec::with_capacity(other.values.len() + split.validation.len() * width),
            labels: Vec::new(),
        };
        for &at in &split.validation {
            both.values.extend_from_slice(data.row(at));
            both.labels.push(data.labels[at]);
        }
        let validation: Vec<usize> = (0..both.labels.len()).collect();
        both.values.extend(other.values);
        both.labels.extend(other.labels);
        let (mut part, mut seen_before) = (Vec::new(), HashSet::new());
        for (at, label) in both.labels.iter().enumerate().skip(validation.len()) {
            // A conversation whose group was trained on would flatter the model.
            if seen.contains(&label.group) {
                seen_before.insert(label.conversation);
            } else if label.outcome != ConversationOutcome::Unknown {
                part.push(at);
            }
        }
        if part.is_empty() {
            return Err(TrainingError::Unsuitable(format!(
                "{} has no turn with a known outcome that training has not used",
                input.file
            )));
        }
        let compared = Evaluation::new(&both, &validation, model, parameters.seed).compare(&part);
        Ok(Elsewhere {
            input,
            seen_before: seen_before.len(),
            model: compared.model,
            turn_only: compared.turn_only,
            lift: compared.lift,
        })
    }
}

fn shown_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
