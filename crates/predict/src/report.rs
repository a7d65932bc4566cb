//! Figures of a predictor on a part of the data: in full, and as a model carries them.

use serde::{Deserialize, Serialize};

use crate::metrics::Bin;

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

/// Sizes of the parts of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SplitCounts {
    /// For the weights.
    pub train: Counts,
    /// For checkpoint and threshold.
    pub validation: Counts,
    /// For the report.
    pub test: Counts,
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
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationReport {
    /// Sizes of the parts; all figures come from the test part.
    pub parts: SplitCounts,
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

/// The report in short, on its test part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationSummary {
    /// Examples learnt from.
    pub train_samples: usize,
    /// Examples that the figures are from.
    pub test_samples: usize,
    /// The share of these that continued.
    pub base_rate: f32,
    /// Matthews' correlation coefficient.
    pub mcc: f32,
    /// Matthews' correlation coefficient of the turn count alone.
    pub turn_only_mcc: f32,
    /// Mean of both classes' F1.
    pub macro_f1: f32,
    /// Area under the ROC curve.
    pub auc: f32,
    /// Expected calibration error.
    pub ece: f32,
    /// Nats.
    pub log_loss: f32,
}

impl EvaluationSummary {
    /// Of a full report.
    #[must_use]
    pub fn of(report: &EvaluationReport) -> Self {
        let EvaluationReport { model, turn_only, .. } = report;
        Self {
            train_samples: report.parts.train.samples,
            test_samples: report.parts.test.samples,
            base_rate: model.base_rate as f32,
            mcc: model.mcc as f32,
            turn_only_mcc: turn_only.mcc as f32,
            macro_f1: model.macro_f1 as f32,
            auc: model.auc as f32,
            ece: model.ece as f32,
            log_loss: model.log_loss as f32,
        }
    }
}
