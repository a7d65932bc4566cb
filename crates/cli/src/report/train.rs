//! Report of a training, as table, JSON or HTML page.
//!
//! The figures are the test part's unless they say otherwise. What they mean is said in
//! sentences ([`words()`]), which claim nothing that the intervals do not show.

mod page;
mod table;
#[cfg(test)]
mod testing;
mod words;

use headstart_predict::{Counts, Definition, Epoch, LearningCurvePoint, Scores};
use serde::Serialize;

pub(crate) use page::page;
pub(crate) use table::table;
pub(crate) use words::words;

/// A trained classifier and how good it is. Its JSON is this and the sentences.
#[derive(Debug, Serialize)]
pub(crate) struct TrainReport {
    /// Inputs of the training.
    pub(crate) inputs: Vec<InputFacts>,
    /// Definition of the rows.
    pub(crate) definition: Definition,
    /// Names the data.
    pub(crate) fingerprint: String,
    /// File name of the model, without its folder; `None` if none was written.
    pub(crate) model: Option<String>,
    /// Fixes split, weights and draws.
    pub(crate) seed: u64,
    /// Whether outcomes were shuffled: any skill found then is an error of ours.
    pub(crate) is_shuffled: bool,
    /// Conversations of each part, by first-prompt group.
    pub(crate) parts: SplitCounts,
    /// Turns whose outcome is not known, left out.
    pub(crate) unknown: usize,
    /// On what the weights were fitted to.
    pub(crate) train: Scores,
    /// On what checkpoint and threshold were chosen by.
    pub(crate) validation: Scores,
    /// On what nothing was chosen by.
    pub(crate) test: Scores,
    /// The turn count alone, on the test part.
    pub(crate) turn_only: Scores,
    /// Gain of the model over the turn count, on the test part.
    pub(crate) lift: Lift,
    /// MCC of the best classifier there can be, where the corpus knows its probabilities.
    pub(crate) attainable_mcc: Option<f64>,
    /// By growing number of conversations; empty where it was not asked for.
    pub(crate) curve: Vec<LearningCurvePoint>,
    /// One after another.
    pub(crate) epochs: Vec<Epoch>,
    /// Splits and trainings with other seeds, this one first; empty where there is only one.
    pub(crate) seeds: Vec<OfSeed>,
    /// The same model on other corpora.
    pub(crate) elsewhere: Vec<Elsewhere>,
    /// Times of the stages.
    pub(crate) times: PhaseTimes,
}

/// An input, read.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct InputFacts {
    /// Its name without the folder.
    pub(crate) file: String,
    /// `conversations`, `trace` or `log`.
    pub(crate) kind: &'static str,
    /// Conversations with a turn that counts.
    pub(crate) conversations: usize,
    /// Distinct first prompts among them, as far as they can be told apart.
    pub(crate) groups: usize,
    /// Turns.
    pub(crate) turns: usize,
    /// Turns whose outcome is not known.
    pub(crate) unknown: usize,
    /// Further remarks, one sentence each.
    pub(crate) remarks: Vec<String>,
}

/// Split of the turns into parts.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SplitCounts {
    /// For the weights.
    pub(crate) train: Counts,
    /// For checkpoint and threshold.
    pub(crate) validation: Counts,
    /// For the report.
    pub(crate) test: Counts,
}

/// A difference of MCC, with the 95 % interval of a bootstrap over conversations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Lift {
    /// The model's MCC less that of the turn count alone.
    pub(crate) mcc: f64,
    /// 2.5 % of the draws are below.
    pub(crate) low: f64,
    /// 2.5 % of the draws are above.
    pub(crate) high: f64,
}

/// The test part of one seed's split, by the model of that seed.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct OfSeed {
    /// Fixes split, weights and draws.
    pub(crate) seed: u64,
    /// The model's.
    pub(crate) mcc: f64,
    /// Of the turn count alone.
    pub(crate) turn_only_mcc: f64,
    /// The difference.
    pub(crate) lift_mcc: f64,
    /// The model's.
    pub(crate) macro_f1: f64,
    /// Of the turn count alone.
    pub(crate) turn_only_macro_f1: f64,
    /// The model's.
    pub(crate) auc: f64,
    /// Of the turn count alone.
    pub(crate) turn_only_auc: f64,
    /// The model's.
    pub(crate) ece: f64,
}

/// Mean and standard deviation of a figure over the seeds.
fn spread(seeds: &[OfSeed], figure: impl Fn(&OfSeed) -> f64) -> (f64, f64) {
    let count = seeds.len() as f64;
    let mean = seeds.iter().map(&figure).sum::<f64>() / count;
    let squares = seeds.iter().map(|seed| (figure(seed) - mean).powi(2));
    (mean, (squares.sum::<f64>() / (count - 1.0)).sqrt())
}

/// The model on a corpus that it was not trained on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Elsewhere {
    /// Corpus of the evaluation.
    pub(crate) input: InputFacts,
    /// Conversations left out because training has seen them, or their first prompt.
    pub(crate) seen_before: usize,
    /// The model, by the threshold of its own validation part.
    pub(crate) model: Scores,
    /// The turn count alone, as learnt in training.
    pub(crate) turn_only: Scores,
    /// Model beyond turn count.
    pub(crate) lift: Lift,
}

/// Seconds by phase, with counts of the embedded texts.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct PhaseTimes {
    /// Reading the inputs.
    pub(crate) read_s: f64,
    /// Embedding what was not known.
    pub(crate) embed_s: f64,
    /// Different texts.
    pub(crate) texts: usize,
    /// Texts whose embedding was known.
    pub(crate) texts_known: usize,
    /// Training, without the learning curve.
    pub(crate) train_s: f64,
    /// The learning curve.
    pub(crate) curve_s: f64,
}

/// A report as JSON: all of it, and what it means in words.
#[derive(Serialize)]
struct ReportWithWords<'r> {
    #[serde(flatten)]
    report: &'r TrainReport,
    words: Vec<String>,
}

/// One line of JSON.
pub(crate) fn json(report: &TrainReport) -> String {
    let words = words(report);
    serde_json::to_string(&ReportWithWords { report, words }).expect("a report is JSON")
}
