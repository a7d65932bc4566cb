//! Continuation predictor of a server: an adapter to crate `predict`.
//!
//! ```text
//! question ─ row ─┬─ model ─ p ─► the server        while the model is believed, else None
//!                 └─ pending, by turn ◄── outcome ─┬─► turn prior
//!                                                  ├─► drift: is the model believed?
//!                                                  └─► log, where one is asked for
//! ```
//!
//! Without a model there is the turn prior alone, learnt from the server's own conversations. No
//! text is kept: what waits for an outcome is a row of numbers.

mod log;
mod model_file;
mod panics;
mod pending;

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use headstart_core::Probability;
use headstart_predict::{Definition, Drift, DriftVerdict, Encoder, Situation, TurnPrior, encoder};
use headstart_server::prediction::{
    Became, ConversationPredictor, PredictionConfig, PredictorStatus, Reads, RecentCalibration,
    TurnOutcome, TurnQuestion,
};

use crate::config::ServeOptions;
use crate::exit::{refuse, usage};
use headstart_predict::situations::num_prompts;
use log::OutcomeLog;
use model_file::{ActiveModel, ModelFile};
use pending::{PendingTurn, PendingTurns};

pub use model_file::read_model;
pub(crate) use panics::keep_text_out_of_panics;

/// The encoder of a model that names no other, and of a log without a model.
const BUILT_IN: &str = "ngram";

/// Outcomes after which an earlier one counts half for the turn prior: some hours of a busy
/// server, so that it follows the time of day.
const PRIOR_HALF_LIFE: f64 = 5_000.0;

/// Returns the prediction settings of the options; `None` if no prediction is needed.
///
/// # Errors
/// When a file cannot be used as asked for.
pub(crate) fn config(options: &ServeOptions) -> Result<Option<PredictionConfig>> {
    let Some(horizon) = horizon(options)? else {
        return Ok(None);
    };
    let predictor = LivePredictor::open(options)?;
    Ok(Some(PredictionConfig { predictor, horizon }))
}

/// Returns the time in which a conversation must continue; `None` if no prediction is needed.
///
/// # Errors
/// When settings of predictions have no effect, or the time is zero.
pub(crate) fn horizon(options: &ServeOptions) -> Result<Option<Duration>> {
    let is_wanted = options.predictor.is_some() || options.prediction_log.is_some();
    if !is_wanted {
        let unused = [
            ("--encoder", options.encoder.is_some()),
            ("--prediction-horizon", options.prediction_horizon.is_some() && !wants_lpc(options)),
        ];
        refuse(&unused, |name| {
            format!("{name} has no effect without --predictor or --prediction-log")
        })?;
        if !wants_lpc(options) {
            return Ok(None);
        }
    }
    Ok(Some(match options.prediction_horizon {
        Some(0) => return Err(usage("--prediction-horizon: at least 1 second")),
        Some(seconds) => Duration::from_secs(seconds),
        None => PredictionConfig::HORIZON,
    }))
}

/// Describes the effect of an unusual combination of options, in a sentence.
pub(crate) fn note(options: &ServeOptions) -> Option<&'static str> {
    match (wants_lpc(options), options.predictor.is_some()) {
        (true, false) => Some(
            "Policy lpc without --predictor: the server predicts from turn counts alone whether a \
             conversation continues.\n`headstart train` makes a model that reads prompts.",
        ),
        (false, true) => Some(
            "--predictor without --policy lpc: predictions are made, measured and logged; the \
             cache does not use them.",
        ),
        _ => None,
    }
}

fn wants_lpc(options: &ServeOptions) -> bool {
    let policy = options.policy.as_deref().unwrap_or_default();
    policy.split(':').next() == Some("lpc")
}

/// A model where there is one, the turn prior, and what is learnt while serving.
struct LivePredictor {
    encoder: Arc<dyn Encoder>,
    model: Mutex<Option<Arc<ActiveModel>>>,
    /// Parts of a conversation that the model and the log need.
    reads: Mutex<Reads>,
    prior: Mutex<TurnPrior>,
    learning: Mutex<Learning>,
    /// Definition of the log's rows, if there is a log.
    logged: Option<Definition>,
    /// Locked by the predictor's own thread only: a disk may be slow.
    log: Mutex<Option<OutcomeLog>>,
    /// Sets this process's conversations apart from those of others in one log.
    conversations: RandomState,
    swaps: AtomicU64,
    refused: AtomicU64,
    log_records: AtomicU64,
}

/// Turns that wait for their outcome, and what the outcomes say of the model.
#[derive(Default)]
struct Learning {
    pending: PendingTurns,
    drift: Drift,
}

impl LivePredictor {
    /// As the options say; watches the model's file from now on.
    fn open(options: &ServeOptions) -> Result<Arc<Self>> {
        let spec = options.encoder.as_deref().unwrap_or(BUILT_IN);
        let encoder =
            encoder::open(spec).map_err(|error| usage(format!("--encoder {spec}: {error}")))?;
        let file = options.predictor.clone().map(ModelFile::new);
        let model = match &file {
            Some(file) => Some(Arc::new(file.load(&encoder)?)),
            None => None,
        };
        let log = match &options.prediction_log {
            Some(path) => Some(open_log(path.clone(), model.as_deref(), &*encoder)?),
            None => None,
        };
        let prior = model
            .as_ref()
            .map_or_else(TurnPrior::new, |loaded| loaded.predictor.model().prior.clone());
        let logged = log.as_ref().map(|log| log.definition().clone());
        let predictor = Arc::new(Self {
            encoder,
            reads: Mutex::new(reads(model.as_deref(), logged.as_ref())),
            model: Mutex::new(model),
            prior: Mutex::new(prior.forgetting(PRIOR_HALF_LIFE)),
            learning: Mutex::default(),
            logged,
            log: Mutex::new(log),
            conversations: RandomState::new(),
            swaps: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            log_records: AtomicU64::new(0),
        });
        if let Some(file) = file {
            model_file::watch(file, Arc::downgrade(&predictor))?;
        }
        Ok(predictor)
    }

    fn model(&self) -> Option<Arc<ActiveModel>> {
        lock(&self.model).clone()
    }

    /// Takes another model over; its predecessor's mistakes are not its own.
    fn swap(&self, loaded: ActiveModel) {
        *lock(&self.reads) = reads(Some(&loaded), self.logged.as_ref());
        // Before the model: who holds it sees a model and the outcomes of that one.
        let mut learning = lock(&self.learning);
        learning.drift.reset();
        *lock(&self.model) = Some(Arc::new(loaded));
        self.swaps.fetch_add(1, Relaxed);
    }

    fn note_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Rows for the log, one per situation; none where there is no log.
    fn log_rows(&self, made: Option<(&ActiveModel, &[f32])>, of: &[Situation]) -> Vec<Vec<f32>> {
        let Some(definition) = &self.logged else {
            return Vec::new();
        };
        let rows = match made {
            Some((loaded, rows)) if loaded.predictor.model().definition == *definition => {
                rows.to_vec()
            }
            // A model of another shape than the log was begun with.
            _ => definition.rows(&*self.encoder, of),
        };
        rows.chunks(definition.width()).map(<[f32]>::to_vec).collect()
    }

    fn conversation(&self, question: &TurnQuestion) -> u64 {
        self.conversations.hash_one(question.conversation.0)
    }

    /// Scores one outcome. Returns the turn, for the log.
    fn score(&self, outcome: &TurnOutcome) -> Option<PendingTurn> {
        let Learning { pending, drift } = &mut *lock(&self.learning);
        let version = self.model().map(|loaded| loaded.version);
        let waiting = pending.take(outcome.id)?;
        if let Some(said) = waiting.said.filter(|_| waiting.version == version) {
            let was_believed = drift.uses_model();
            drift.observe(said, waiting.prior, outcome.became == Became::Continued);
            report_change(was_believed, drift);
        }
        Some(waiting)
    }

    fn append(&self, waiting: PendingTurn, outcome: &TurnOutcome) {
        if let Some(log) = &mut *lock(&self.log) {
            let written = log.append(waiting, outcome);
            self.log_records.fetch_add(u64::from(written), Relaxed);
        }
    }
}

impl ConversationPredictor for LivePredictor {
    fn reads(&self) -> Reads {
        *lock(&self.reads)
    }

    fn prior(&self, turn: u16) -> Probability {
        lock(&self.prior).p(turn)
    }

    fn predict(&self, questions: &[TurnQuestion]) -> Vec<Option<Probability>> {
        let situations: Vec<Situation> = questions.iter().map(situation).collect();
        let model = self.model();
        let rows = model.as_ref().map(|loaded| loaded.predictor.rows(&situations));
        let made = model.as_deref().zip(rows.as_deref());
        let said = made.map_or_else(
            || vec![None; questions.len()],
            |(loaded, rows)| loaded.predictor.predict_rows(rows),
        );
        let mut log_rows = self.log_rows(made, &situations).into_iter();
        let mut learning = lock(&self.learning);
        for (question, said) in questions.iter().zip(&said) {
            let waiting = PendingTurn {
                conversation: self.conversation(question),
                said: *said,
                prior: self.prior(question.turn),
                version: model.as_ref().map(|loaded| loaded.version),
                row: log_rows.next(),
            };
            if !question.is_repeat {
                learning.pending.put(question.id, waiting);
            }
        }
        if learning.drift.uses_model() { said } else { vec![None; questions.len()] }
    }

    fn learn(&self, outcomes: &[TurnOutcome]) {
        for outcome in outcomes {
            if let Some(waiting) = self.score(outcome) {
                self.append(waiting, outcome);
            }
            let mut prior = lock(&self.prior);
            prior.observe(outcome.turn, outcome.became == Became::Continued);
        }
    }

    fn status(&self) -> PredictorStatus {
        let learning = lock(&self.learning);
        let model = self.model();
        let drift = &learning.drift;
        let is_enough = !matches!(drift.verdict(), DriftVerdict::TooFew { .. });
        let calibration = is_enough.then(|| RecentCalibration {
            error: drift.ece(),
            excess_log_loss: drift.excess_log_loss(),
        });
        PredictorStatus {
            is_fallback: model.is_some() && !drift.uses_model(),
            model: model.map(|loaded| loaded.fingerprint.clone()),
            calibration,
            log_records: self.log_records.load(Relaxed),
            swaps: self.swaps.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }
}

/// Returns the parts of a conversation that the model and the log need.
fn reads(model: Option<&ActiveModel>, logged: Option<&Definition>) -> Reads {
    let read = model.map(|loaded| &loaded.predictor.model().definition);
    let all = read.into_iter().chain(logged);
    all.fold(Reads::default(), |reads, definition| {
        let prompts = num_prompts(definition);
        Reads {
            prompts: reads.prompts.max(prompts),
            answers: reads.answers || definition.text.answers,
        }
    })
}

fn situation(question: &TurnQuestion) -> Situation {
    Situation {
        prompts: question.said.prompts.clone(),
        answers: question.said.answers.clone(),
        turn: question.turn,
        answer_chars: question.said.answer_chars,
        gap_s: question.gap.map(|gap| gap.as_secs_f32()),
    }
}

fn open_log(
    path: PathBuf,
    model: Option<&ActiveModel>,
    encoder: &dyn Encoder,
) -> Result<OutcomeLog> {
    let definition = match model {
        Some(loaded) => loaded.predictor.model().definition.clone(),
        None => Definition::new(encoder),
    };
    OutcomeLog::open(path, definition)
}

/// Says, once per change, whether the model is believed.
fn report_change(was_believed: bool, drift: &Drift) {
    let excess = drift.excess_log_loss();
    match (was_believed, drift.uses_model()) {
        (true, false) => tracing::warn!(
            excess_log_loss = excess,
            "the model predicts worse than the turn count; falling back to that. `headstart train` \
             on newer conversations makes a better one"
        ),
        (false, true) => tracing::warn!(
            excess_log_loss = excess,
            "the model predicts as well as the turn count again; using it"
        ),
        _ => {}
    }
}

/// Locks a mutex even if it is poisoned: a panic leaves the previous state intact.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
