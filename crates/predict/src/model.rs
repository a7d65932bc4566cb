//! A trained model, and what travels with it.

mod file;

use headstart_core::Probability;

use crate::Definition;
use crate::calibrate::{Calibration, Raw};
use crate::mlp::Mlp;
use crate::prior::TurnPrior;
use crate::report::EvaluationSummary;

pub use file::MAX_BYTES;

/// Keeps the turn prior's log-odds finite.
const MARGIN: f64 = 1e-6;

/// A classifier with all that it takes to use it.
#[derive(Clone, Debug, PartialEq)]
pub struct ContinuationModel {
    /// Definition of its rows.
    pub definition: Definition,
    /// The classifier.
    pub mlp: Mlp,
    /// From its log-odds and the turn's to probabilities.
    pub calibration: Calibration,
    /// From which probability on a conversation is said to continue; for reports only, eviction
    /// uses the probability itself.
    pub threshold: f32,
    /// The share of each turn in the training part: what the calibration was fitted with, and
    /// where a live prior may begin.
    pub prior: TurnPrior,
    /// Quality at the end of training.
    pub summary: EvaluationSummary,
    /// Fingerprint of the training data ([`crate::Dataset::fingerprint`]).
    pub fingerprint: String,
    /// When, in seconds since 1970, by the caller's clock.
    pub trained_at_s: u64,
}

/// Why a model cannot be used.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ModelError {
    /// Some other file.
    #[error("this is not a Headstart model file; `headstart train` writes one")]
    Foreign,
    /// Larger than any model.
    #[error("a model file has at most {MAX_BYTES} bytes, this has {0}")]
    TooLarge(usize),
    /// From a version that does not exist yet, or no longer.
    #[error(
        "the model file has format {found}, this program reads {known}; train again, or use the \
         program that wrote it"
    )]
    Version {
        /// The file's.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// Not what was written.
    #[error(
        "the model file is damaged or was cut off (its checksum does not fit); copy it again or \
         train again"
    )]
    Damaged,
    /// Whole, but it says what cannot be.
    #[error("the model file contradicts itself: {0}; train again")]
    Contradiction(String),
    /// Made for other numbers.
    #[error(
        "the model was trained with the encoder `{model}`, but `{given}` is in use; open that \
         encoder or train again with this one"
    )]
    OtherEncoder {
        /// The model's.
        model: String,
        /// The one given.
        given: String,
    },
}

impl ContinuationModel {
    /// As a file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        file::write(self)
    }

    /// From a file's bytes.
    ///
    /// # Errors
    /// When they are not those of a model that this version wrote; the error says what to do.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ModelError> {
        file::read(bytes)
    }

    /// The probability for each of `rows`, `[n, definition.width()]`; `None` where it is no
    /// number.
    ///
    /// # Panics
    /// When `rows` are not whole rows.
    #[must_use]
    pub fn predict_rows(&self, rows: &[f32]) -> Vec<Option<Probability>> {
        let raw = raw(&self.definition, &self.mlp, &self.prior, rows);
        let probability = |raw: &Raw| Probability::new(self.calibration.probability(*raw));
        raw.iter().map(probability).collect()
    }
}

/// Log-odds of the classifier and of the turn prior for each of `rows`.
pub(crate) fn raw(definition: &Definition, mlp: &Mlp, prior: &TurnPrior, rows: &[f32]) -> Vec<Raw> {
    let log_odds = mlp.log_odds(rows);
    let turns = rows.chunks_exact(definition.width()).map(|row| definition.turn(row));
    let raw = |(&classifier, turn): (&f32, u16)| Raw {
        classifier,
        // Counts may say 0 or 1, whose log-odds are infinite.
        turn: prior.p(turn).log_odds(MARGIN) as f32,
    };
    log_odds.iter().zip(turns).map(raw).collect()
}
