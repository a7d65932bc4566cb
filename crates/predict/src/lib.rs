//! Will the conversation go on?
//!
//! When a user's prompt has arrived, a [`Situation`] holds what is known; an [`Encoder`] turns its
//! text into numbers; a small classifier turns these into a probability. Only the classifier is
//! trained.
//!
//! ```text
//! Situation ─text─► texts ─Encoder─► vectors ─features─► row ─mlp─► log-odds ─calibrate─► p
//!
//! Examples ─► Dataset ─► DatasetSplit ─train─► ContinuationModel + EvaluationReport
//! files ─training─► ContinuationModel + TrainReport                (`headstart train`)
//! outcomes ─► TurnPrior, Drift: what is believed without, and whether to believe the model
//! ```
//!
//! Only [`training`] reads files of conversations. Nothing here knows when a prediction is asked
//! for, or what is done with it.
//!
//! Source: Yang, Li, Li, Lloyd, "Learned Prefix Caching", NeurIPS 2025. Where we differ, the module
//! says so.

mod bootstrap;
pub mod calibrate;
mod dataset;
mod drift;
pub mod encoder;
mod evaluate;
mod features;
mod kernel;
mod learning_curve;
pub mod log;
pub mod metrics;
mod mlp;
mod model;
mod predictor;
mod prior;
mod report;
mod situation;
pub mod situations;
mod split;
pub mod text;
mod train;
pub mod training;

pub use dataset::{ConversationOutcome, Dataset, Label, turn_prior};
pub use drift::{Drift, DriftVerdict};
pub use encoder::Encoder;
pub use features::{Definition, Parts};
pub use learning_curve::{LearningCurvePoint, learning_curve};
pub use mlp::Mlp;
pub use model::{ContinuationModel, MAX_BYTES, ModelError};
pub use predictor::Predictor;
pub use prior::TurnPrior;
pub use report::{Counts, EvaluationReport, EvaluationSummary, Scores};
pub use situation::Situation;
pub use split::{DatasetSplit, SplitShares};
pub use train::{Epoch, Observer, TrainError, TrainOptions, TrainingResult, train};
