//! Will the conversation go on? Asked for every chat request of an embedded fleet, answered beside
//! the request's way and never on it.
//!
//! ```text
//! chat request ─ Chat (hashes, text) ─ Tracker (which conversation, what gap) ─┐
//!        │                                                                     │ TurnQuestion
//!        ├─ submitted at once with the prior for its turn                      ▼
//!        │                  PredictionQueue ─► predictor thread ─ ConversationPredictor::predict
//!        ◄──────────── EmbeddedReplica::annotate, if it still runs ◄───────────┘
//! ```
//!
//! Every prediction ends in one way, unless its replica fails: the model's number reached the
//! replica in time (`model`) or too late (`late`), the predictor said nothing (`prior`) or panicked
//! (`failed`), or the queue was full (`dropped`). In all but the first the prior stands.
//!
//! Knows no model: the binary passes a [`ConversationPredictor`]. Text lives in a question until it
//! is answered, and nowhere else; the tracker keeps keyed hashes.

mod chat;
mod desk;
mod queue;
mod ticket;
mod tracker;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use headstart_core::{Probability, SessionId};

pub(crate) use chat::Scope;
pub use chat::{Chat, Said};
pub use desk::{Forecast, Predictions};
pub use tracker::{Sighting, Tracker, TrackerLimits};

/// Says how likely conversations go on, and hears what became of them.
///
/// [`ConversationPredictor::predict`] and [`ConversationPredictor::learn`] are called from one
/// thread, one at a time; the others from any, at any time, and must not wait for these two. A
/// panic costs the prediction that it struck and nothing else.
pub trait ConversationPredictor: Send + Sync {
    /// Returns the parts of a conversation that the predictor reads.
    fn reads(&self) -> Reads;

    /// Returns, at once and without a model, the probability that a conversation continues after
    /// its `turn`-th user message (from 1).
    fn prior(&self, turn: u16) -> Probability;

    /// Returns the model's answers, one per question in their order; `None` keeps the prior. May
    /// take its time: no request waits, but questions beyond a limit are dropped.
    fn predict(&self, questions: &[TurnQuestion]) -> Vec<Option<Probability>>;

    /// Learns the outcomes of earlier turns. Each turn comes at most once, and after its question
    /// unless that was dropped.
    fn learn(&self, outcomes: &[TurnOutcome]);

    /// Returns the current state and counters.
    fn status(&self) -> PredictorStatus;
}

/// Parts of a conversation that a predictor reads; the rest is not copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Most of the latest user prompts to read; with 0 the predictor is never asked.
    pub prompts: usize,
    /// Also the answers between them.
    pub answers: bool,
}

/// A turn of a conversation; unique within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId(pub u64);

/// Will this conversation go on after the answer that is being computed?
#[derive(Clone, Debug, PartialEq)]
pub struct TurnQuestion {
    /// The turn, as its outcome will name it.
    pub id: TurnId,
    /// The conversation.
    pub conversation: SessionId,
    /// The same turn was asked for before (a retry, or another user's same words): its outcome
    /// counts once.
    pub is_repeat: bool,
    /// 1-based index of its user message.
    pub turn: u16,
    /// Between the end of the previous answer and this request, where both were seen.
    pub gap: Option<Duration>,
    /// Its text, as far as [`ConversationPredictor::reads`] asked for it.
    pub said: Said,
}

/// A turn and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnOutcome {
    /// The turn.
    pub id: TurnId,
    /// 1-based index of its user message.
    pub turn: u16,
    /// The outcome of the turn.
    pub became: Became,
}

/// Possible outcomes of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    /// Another user message followed.
    Continued,
    /// None did within the horizon.
    Ended,
}

impl Became {
    /// As metrics name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Continued => "continued",
            Self::Ended => "ended",
        }
    }
}

/// State and counters of a predictor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PredictorStatus {
    /// Fingerprint of the model in use, where there is one.
    pub model: Option<String>,
    /// The model is not believed at present: the prior stands for all.
    pub is_fallback: bool,
    /// Calibration against recent outcomes; `None` where too few are known.
    pub calibration: Option<RecentCalibration>,
    /// Records written to the log.
    pub log_records: u64,
    /// Models taken over while running.
    pub swaps: u64,
    /// Model files refused while running.
    pub refused: u64,
}

/// Accuracy of predictions against outcomes of the recent past.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecentCalibration {
    /// Expected calibration error of the model, in `[0, 1]`.
    pub error: f64,
    /// Mean log-loss of the model less that of the prior; above 0 the model does harm.
    pub excess_log_loss: f64,
}

/// Configuration of predictions in a server.
#[derive(Clone)]
pub struct PredictionConfig {
    /// The predictor in use.
    pub predictor: Arc<dyn ConversationPredictor>,
    /// A conversation that stays silent for so long has ended.
    pub horizon: Duration,
}

impl PredictionConfig {
    /// Silence after which a conversation has ended: a quarter of an hour. In public traces nine of
    /// ten next turns come sooner, and the cache of a busy server has turned over by then.
    pub const HORIZON: Duration = Duration::from_secs(900);
}

impl std::fmt::Debug for PredictionConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PredictionConfig").field("horizon", &self.horizon).finish_non_exhaustive()
    }
}
