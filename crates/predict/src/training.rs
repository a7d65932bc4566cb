//! A training from files to a model and its report, as `headstart train` runs it.
//!
//! ```text
//! files ─input─► conversations ─corpus──┐
//!                traces ─────── sessions┴► samples ─embed─► rows ─┬► split, train ─► model
//!                logs ───────────────────────────── material ────┘  comparison ────► TrainReport
//! ```
//!
//! It reads the files that [`TrainingParameters`] name. The [`TrainingHost`] shows progress, tells
//! the time and writes the file of embeddings. The model is written by the caller.

mod comparison;
mod corpus;
mod embed;
mod embeddings;
mod error;
mod host;
mod input;
mod learn;
mod material;
mod parameters;
mod results;
mod samples;
mod sessions;

pub use crate::report::SplitCounts;
pub use error::TrainingError;
pub use host::{StageWork, TrainingHost, WriteContents};
pub use input::InputKind;
pub use learn::LearningResult;
pub use parameters::{EmbeddingsCache, TrainingParameters};
pub use results::{Elsewhere, InputFacts, Lift, OfSeed, PhaseTimes, TrainReport};

use input::TrainingFiles;

/// Reads the inputs, trains and evaluates. The same parameters and inputs give the same model, but
/// for its date, and the same report, but for its times.
///
/// # Errors
/// When parameters contradict each other, or an input cannot be read or trained on.
pub fn run(
    parameters: &TrainingParameters,
    host: &dyn TrainingHost,
) -> Result<LearningResult, TrainingError> {
    let files = TrainingFiles::open(parameters)?;
    // The kind of the inputs decides which options have an effect.
    let plan = material::MaterialPlan::of(parameters, files.kind)?;
    let material = material::gather(parameters, host, &plan, &files)?;
    learn::learn(parameters, host, material)
}
