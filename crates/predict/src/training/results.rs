//! Results of a training, as the report shows them.
//!
//! The figures are the test part's unless they say otherwise.

use serde::Serialize;

use crate::report::SplitCounts;
use crate::{Definition, Epoch, LearningCurvePoint, Scores};

/// A trained classifier and how good it is.
#[derive(Debug, Serialize)]
pub struct TrainReport {
    /// Inputs of the training.
    pub inputs: Vec<InputFacts>,
    /// Definition of the rows.
    pub definition: Definition,
    /// Names the data.
    pub fingerprint: String,
    /// File name of the model, without its folder; `None` if none was written.
    pub model: Option<String>,
    /// Fixes split, weights and draws.
    pub seed: u64,
    /// Whether outcomes were shuffled: any skill found then is an error of ours.
    pub is_shuffled: bool,
    /// Conversations of each part, by first-prompt group.
    pub parts: SplitCounts,
    /// Turns whose outcome is not known, left out.
    pub unknown: usize,
    /// On what the weights were fitted to.
    pub train: Scores,
    /// On what checkpoint and threshold were chosen by.
    pub validation: Scores,
    /// On what nothing was chosen by.
    pub test: Scores,
    /// The turn count alone, on the test part.
    pub turn_only: Scores,
    /// Gain of the model over the turn count, on the test part.
    pub lift: Lift,
    /// MCC of the best classifier there can be, where the corpus knows its probabilities.
    pub attainable_mcc: Option<f64>,
    /// By growing number of conversations; empty where it was not asked for.
    pub curve: Vec<LearningCurvePoint>,
    /// One after another.
    pub epochs: Vec<Epoch>,
    /// Splits and trainings with other seeds, this one first; empty where there is only one.
    pub seeds: Vec<OfSeed>,
    /// The same model on other corpora.
    pub elsewhere: Vec<Elsewhere>,
    /// Times of the stages.
    pub times: PhaseTimes,
}

/// An input, read.
#[derive(Clone, Debug, Serialize)]
pub struct InputFacts {
    /// Its name without the folder.
    pub file: String,
    /// `conversations`, `trace` or `log`.
    pub kind: &'static str,
    /// Conversations with a turn that counts.
    pub conversations: usize,
    /// Distinct first prompts among them, as far as they can be told apart.
    pub groups: usize,
    /// Turns.
    pub turns: usize,
    /// Turns whose outcome is not known.
    pub unknown: usize,
    /// Further remarks, one sentence each.
    pub remarks: Vec<String>,
}

/// A difference of MCC, with the 95 % interval of a bootstrap over conversations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lift {
    /// The model's MCC less that of the turn count alone.
    pub mcc: f64,
    /// 2.5 % of the draws are below.
    pub low: f64,
    /// 2.5 % of the draws are above.
    pub high: f64,
}

/// The test part of one seed's split, by the model of that seed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OfSeed {
    /// Fixes split, weights and draws.
    pub seed: u64,
    /// The model's.
    pub mcc: f64,
    /// Of the turn count alone.
    pub turn_only_mcc: f64,
    /// The difference.
    pub lift_mcc: f64,
    /// The model's.
    pub macro_f1: f64,
    /// Of the turn count alone.
    pub turn_only_macro_f1: f64,
    /// The model's.
    pub auc: f64,
    /// Of the turn count alone.
    pub turn_only_auc: f64,
    /// The model's.
    pub ece: f64,
}

/// The model on a corpus that it was not trained on.
#[derive(Clone, Debug, Serialize)]
pub struct Elsewhere {
    /// Corpus of the evaluation.
    pub input: InputFacts,
    /// Conversations left out because training has seen them, or their first prompt.
    pub seen_before: usize,
    /// The model, by the threshold of its own validation part.
    pub model: Scores,
    /// The turn count alone, as learnt in training.
    pub turn_only: Scores,
    /// Model beyond turn count.
    pub lift: Lift,
}

/// Seconds by phase, with counts of the embedded texts.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct PhaseTimes {
    /// Reading the inputs.
    pub read_s: f64,
    /// Embedding what was not known.
    pub embed_s: f64,
    /// Different texts.
    pub texts: usize,
    /// Texts whose embedding was known.
    pub texts_known: usize,
    /// Training, without the learning curve.
    pub train_s: f64,
    /// The learning curve.
    pub curve_s: f64,
}
