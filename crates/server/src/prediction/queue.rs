//! Queue of the predictor's thread: questions and outcomes in order of arrival, so that a turn's
//! outcome comes after its question.
//!
//! Callers never wait for room. A full queue refuses: questions by number and by bytes of text,
//! outcomes by number.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headstart_core::Nanos;

use super::ticket::PredictionTicket;
use super::{TurnOutcome, TurnQuestion};
use crate::lock::lock;

/// Limits of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueLimits {
    /// Questions waiting.
    pub(super) questions: usize,
    /// Bytes of their text.
    pub(super) bytes: usize,
    /// Outcomes waiting.
    pub(super) outcomes: usize,
    /// Questions taken at once.
    pub(super) batch: usize,
}

impl QueueLimits {
    /// At ten questions a second, 256 are half a minute: what is older mostly comes too late. The
    /// bytes hold the longest body that is taken, outcomes are small, and 16 texts fill a batch.
    pub(super) const USUAL: Self =
        Self { questions: 256, bytes: 16 << 20, outcomes: 4096, batch: 16 };
}

/// A question on its way.
pub(super) struct PendingQuestion {
    pub(super) question: TurnQuestion,
    pub(super) ticket: Arc<PredictionTicket>,
    pub(super) at: Nanos,
}

enum PredictionJob {
    Answer(PendingQuestion),
    Learn(TurnOutcome),
}

/// Questions and outcomes that the thread takes at once.
#[derive(Default)]
pub(super) struct PredictionBatch {
    pub(super) questions: Vec<PendingQuestion>,
    pub(super) outcomes: Vec<TurnOutcome>,
    /// Nothing more will come.
    pub(super) is_last: bool,
}

pub(super) struct PredictionQueue {
    limits: QueueLimits,
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct QueueState {
    jobs: VecDeque<PredictionJob>,
    /// Questions waiting.
    pub(super) questions: usize,
    bytes: usize,
    is_closed: bool,
}

impl PredictionQueue {
    pub(super) fn new(limits: QueueLimits) -> Self {
        Self { limits, state: Mutex::default(), changed: Condvar::new() }
    }

    /// False when it is full or closed: the question is gone.
    pub(super) fn ask(&self, asked: PendingQuestion) -> bool {
        let mut state = self.lock();
        let bytes = asked.question.said.bytes();
        let fits = !state.is_closed
            && state.questions < self.limits.questions
            && state.bytes.saturating_add(bytes) <= self.limits.bytes;
        if fits {
            state.questions += 1;
            state.bytes += bytes;
            state.jobs.push_back(PredictionJob::Answer(asked));
            self.changed.notify_one();
        }
        fits
    }

    /// Hands over outcomes; those that do not fit are gone. Returns how many these were.
    pub(super) fn tell(&self, outcomes: Vec<TurnOutcome>) -> usize {
        let mut state = self.lock();
        // Every job that is not a question is an outcome.
        let waiting = state.jobs.len() - state.questions;
        let room = self.limits.outcomes.saturating_sub(waiting);
        let lost = outcomes.len().saturating_sub(room);
        let fitting = outcomes.into_iter().take(room);
        state.jobs.extend(fitting.map(PredictionJob::Learn));
        self.changed.notify_one();
        lost
    }

    /// Waits for something to do, at most for `patience`.
    pub(super) fn take(&self, patience: Duration) -> PredictionBatch {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        // A wake-up may be spurious, so the condition is checked again.
        while state.jobs.is_empty() && !state.is_closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut batch = PredictionBatch::default();
        // A batch is answered before it is learned from, so an outcome still comes after its
        // question.
        while batch.questions.len() < self.limits.batch {
            match state.jobs.pop_front() {
                Some(PredictionJob::Answer(asked)) => {
                    state.questions -= 1;
                    state.bytes -= asked.question.said.bytes();
                    batch.questions.push(asked);
                }
                Some(PredictionJob::Learn(outcome)) => batch.outcomes.push(outcome),
                None => break,
            }
        }
        batch.is_last = state.is_closed && state.jobs.is_empty();
        batch
    }

    /// Takes no more questions; what is there can still be taken.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::SessionId;

    use super::*;
    use crate::prediction::{Became, Said, TurnId};

    const LIMITS: QueueLimits = QueueLimits { questions: 3, bytes: 10, outcomes: 2, batch: 2 };

    fn asked(id: u64, text: &str) -> PendingQuestion {
        let prompts = vec![text.to_owned()];
        let said = Said { prompts, ..Said::default() };
        PendingQuestion {
            question: TurnQuestion {
                id: TurnId(id),
                conversation: SessionId(id),
                is_repeat: false,
                turn: 1,
                gap: None,
                said,
            },
            ticket: Arc::default(),
            at: Nanos(0),
        }
    }

    fn outcome(id: u64) -> TurnOutcome {
        TurnOutcome { id: TurnId(id), turn: 1, became: Became::Ended }
    }

    #[test]
    fn what_does_not_fit_is_refused_at_once() {
        let queue = PredictionQueue::new(LIMITS);
        assert!(queue.ask(asked(1, "1234567890")));
        assert!(!queue.ask(asked(2, "1")), "too many bytes");
        assert!(queue.ask(asked(3, "")) && queue.ask(asked(4, "")));
        assert!(!queue.ask(asked(5, "")), "too many questions");
        assert_eq!(queue.tell(vec![outcome(1), outcome(2), outcome(3)]), 1);
        assert_eq!(queue.tell(vec![outcome(4)]), 1);
        assert_eq!(queue.lock().questions, 3);
        queue.take(Duration::ZERO);
        assert!(queue.ask(asked(6, "1234567890")), "there is room again");
        queue.close();
        assert!(!queue.ask(asked(7, "")), "it is closed");
    }

    #[test]
    fn order_is_kept_over_batches() {
        let queue = PredictionQueue::new(LIMITS);
        queue.ask(asked(1, "a"));
        queue.tell(vec![outcome(9)]);
        queue.ask(asked(2, "b"));
        queue.ask(asked(3, "c"));
        queue.tell(vec![outcome(1)]);
        queue.close();
        let ids = |batch: &PredictionBatch| {
            let questions: Vec<_> = batch.questions.iter().map(|one| one.question.id.0).collect();
            let outcomes: Vec<_> = batch.outcomes.iter().map(|one| one.id.0).collect();
            (questions, outcomes, batch.is_last)
        };
        let first = queue.take(Duration::ZERO);
        assert_eq!(ids(&first), (vec![1, 2], vec![9], false));
        let second = queue.take(Duration::ZERO);
        assert_eq!(ids(&second), (vec![3], vec![1], true));
    }

    #[test]
    fn the_thread_wakes_when_something_comes_and_after_its_patience() {
        let queue = Arc::new(PredictionQueue::new(LIMITS));
        assert!(queue.take(Duration::from_millis(1)).questions.is_empty());
        let other = queue.clone();
        let taking = std::thread::spawn(move || other.take(Duration::from_secs(60)));
        queue.ask(asked(1, "a"));
        let batch = taking.join().expect("the thread ends");
        assert_eq!(batch.questions.len(), 1);
    }
}
