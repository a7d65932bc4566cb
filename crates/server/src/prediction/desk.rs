//! Questions of requests to the predictor, and the state that requests hold until they end.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headstart_core::{Nanos, Probability, SeqId, SessionId};
use headstart_index_sync::clock::Clock;
use serde_json::Value;

use super::chat::{Chat, Namer, PrefixKey, Scope};
use super::queue::{PendingQuestion, PredictionQueue, QueueLimits};
use super::ticket::PredictionTicket;
use super::tracker::{Sighting, Tracker, TrackerLimits};
use super::worker;
use super::{
    ConversationPredictor, PredictionConfig, PredictorStatus, TurnId, TurnOutcome, TurnQuestion,
};
use crate::lock::lock;
use crate::metrics::{Metrics, PredictionMetrics};
use crate::replica::EmbeddedReplica;

/// Turns that are remembered, so that their continuation is known: a busy quarter of an hour (70
/// requests a second), some 10 MB.
const TURNS: usize = 65_536;

/// Longest wait for the predictor's thread at shutdown. What it has not done by then is lost.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Tells a replica, by its index, what the model says of a sequence. False: it cannot be told.
pub(crate) type Tell = Box<dyn Fn(usize, SeqId, Probability) -> bool + Send + Sync>;

/// The predictions of one server.
pub struct Predictions {
    pub(super) predictor: Arc<dyn ConversationPredictor>,
    pub(super) queue: PredictionQueue,
    pub(super) metrics: PredictionMetrics,
    pub(super) clock: Clock,
    tracker: Mutex<Tracker>,
    namer: Namer,
    tell: Tell,
    /// Numbers that came when their request had ended already.
    late: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Predictions {
    /// Starts the predictor's thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(
        config: PredictionConfig,
        metrics: PredictionMetrics,
        clock: Clock,
        tell: Tell,
    ) -> std::io::Result<Arc<Self>> {
        let tracker = Tracker::new(TrackerLimits { turns: TURNS, horizon: config.horizon });
        let predictions = Arc::new(Self {
            predictor: config.predictor,
            queue: PredictionQueue::new(QueueLimits::USUAL),
            metrics,
            clock,
            tracker: Mutex::new(tracker),
            namer: Namer::random(),
            tell,
            late: AtomicU64::new(0),
            thread: Mutex::default(),
        });
        let desk = predictions.clone();
        let thread = std::thread::Builder::new().name("predictor".to_owned());
        *lock(&predictions.thread) = Some(thread.spawn(move || worker::run(&desk))?);
        Ok(predictions)
    }

    /// Reads a chat request; takes time by the length of its text, so off the network threads.
    /// `None` where no user speaks.
    pub(crate) fn read(&self, messages: &Value, scope: &Scope) -> Option<Chat> {
        let reads = self.guarded(|| self.predictor.reads()).unwrap_or_default();
        Chat::read(messages, scope, reads, &self.namer)
    }

    /// Takes note of a request that arrived at `arrival`, and asks about it. Never waits for an
    /// answer.
    pub(crate) fn forecast(self: &Arc<Self>, chat: Chat, arrival: Nanos) -> Forecast {
        let Chat { keys, turn, said } = chat;
        // The tracker is released before the outcomes are queued.
        let mut tracker = self.tracker();
        let sighting = tracker.observe(&keys, turn, arrival);
        let outcomes = tracker.take_outcomes();
        drop(tracker);
        self.note(outcomes);
        if let Some(gap) = sighting.gap {
            self.metrics.gap.observe(gap.as_secs_f64());
        }
        let ticket = Arc::<PredictionTicket>::default();
        let Sighting { id, conversation, gap, is_repeat } = sighting;
        let forecast = Forecast {
            predictions: self.clone(),
            ticket: ticket.clone(),
            key: keys.last().copied().unwrap_or_default(),
            id,
            conversation,
            prior: self.guarded(|| self.predictor.prior(turn)),
            is_answered: false,
        };
        // A predictor that reads no prompts is never asked.
        if said.prompts.is_empty() {
            self.count("prior");
            return forecast;
        }
        let question = TurnQuestion { id, conversation, is_repeat, turn, gap, said };
        let asked = PendingQuestion { question, ticket, at: self.clock.now() };
        if !self.queue.ask(asked) {
            self.count("dropped");
        }
        forecast
    }

    /// Ends the turns whose time has come.
    pub(super) fn expired(&self) -> Vec<TurnOutcome> {
        let mut tracker = self.tracker();
        tracker.expire(self.clock.now());
        tracker.take_outcomes()
    }

    /// Hands outcomes over to the predictor's thread.
    fn note(&self, outcomes: Vec<TurnOutcome>) {
        if !outcomes.is_empty() {
            self.count_outcomes(&outcomes);
            let lost = self.queue.tell(outcomes);
            self.metrics.outcomes_lost.inc_by(lost as u64);
        }
    }

    pub(super) fn count_outcomes(&self, outcomes: &[TurnOutcome]) {
        for outcome in outcomes {
            let labels = [outcome.became.name()];
            self.metrics.outcomes.with_label_values(&labels).inc();
        }
    }

    /// Counts how a request's prediction ended.
    pub(super) fn count(&self, end: &str) {
        self.metrics.predictions.with_label_values(&[end]).inc();
    }

    /// Sends the model's number to a replica, which counts it.
    pub(super) fn send(&self, replica: usize, seq: SeqId, p: Probability) {
        if !(self.tell)(replica, seq, p) {
            self.note_late();
        }
    }

    pub(super) fn note_late(&self) {
        self.late.fetch_add(1, Relaxed);
    }

    /// Runs the predictor's code. Returns `None` if it panics, and counts that.
    pub(super) fn guarded<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        // The predictor is passed in by the binary. Its panic must not end a request or the thread.
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(call));
        if outcome.is_err() {
            self.metrics.panics.inc();
            tracing::warn!("the predictor panicked; the turn-count prior replaces it");
        }
        outcome.ok()
    }

    /// Returns the state of the predictor; the default if it panics.
    #[must_use]
    pub fn status(&self) -> PredictorStatus {
        self.guarded(|| self.predictor.status()).unwrap_or_default()
    }

    /// Brings the gauges up to date, by what the replicas counted and by what was counted here.
    pub(crate) fn refresh(&self, metrics: &Metrics, replicas: &[EmbeddedReplica]) {
        let in_time = replicas.iter().map(|replica| replica.annotations().in_time).sum();
        let late: u64 = replicas.iter().map(|replica| replica.annotations().late).sum();
        self.metrics.raise_ends(in_time, late + self.late.load(Relaxed));
        let tracker = self.tracker();
        let (tracked, forgotten) = (tracker.len(), tracker.forgotten());
        drop(tracker);
        let waiting = self.queue.lock().questions;
        metrics.set_prediction_sizes(waiting, tracked, forgotten);
        metrics.set_predictor(&self.status());
    }

    /// Lets the thread finish what waits, within a limit.
    pub(crate) fn stop(&self) {
        self.queue.close();
        let thread = lock(&self.thread).take();
        let until = Instant::now() + STOP_PATIENCE;
        if let Some(thread) = thread {
            // `join` has no time limit.
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    fn tracker(&self) -> MutexGuard<'_, Tracker> {
        lock(&self.tracker)
    }
}

/// One request's prediction, from its arrival to the end of its answer. Dropping it tells the
/// tracker that the answer is over.
pub struct Forecast {
    predictions: Arc<Predictions>,
    ticket: Arc<PredictionTicket>,
    key: PrefixKey,
    id: TurnId,
    conversation: SessionId,
    prior: Option<Probability>,
    is_answered: bool,
}

impl Forecast {
    /// The conversation.
    #[must_use]
    pub fn conversation(&self) -> SessionId {
        self.conversation
    }

    /// Returns the model's probability if it has arrived, otherwise the prior.
    #[must_use]
    pub fn p_continue(&self) -> Option<Probability> {
        self.ticket.answered().or(self.prior)
    }

    /// Takes note that `seq` was submitted to a replica: the model's number is sent there, now or
    /// when it comes.
    pub(crate) fn placed(&self, replica: usize, seq: SeqId) {
        if let Some(p) = self.ticket.place(replica, seq) {
            self.predictions.send(replica, seq, p);
        }
    }

    /// The answer has begun.
    pub(crate) fn answering(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for Forecast {
    fn drop(&mut self) {
        if self.ticket.end().is_some() {
            self.predictions.note_late();
        }
        let mut tracker = self.predictions.tracker();
        if self.is_answered {
            tracker.answered(&self.key, self.id, self.predictions.clock.now());
        } else {
            tracker.withdrawn(&self.key, self.id);
        }
    }
}
