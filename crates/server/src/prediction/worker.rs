//! The predictor's thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::desk::Predictions;
use super::queue::PendingQuestion;
use super::ticket::Addressee;
use super::{TurnOutcome, TurnQuestion};

/// Longest sleep of an idle thread between two checks for ended turns.
const IDLE_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct PredictionWorker {
    desk: Arc<Predictions>,
}

impl PredictionWorker {
    pub(super) fn new(desk: Arc<Predictions>) -> Self {
        Self { desk }
    }

    /// Answers and learns until the queue is closed and empty, or no other owner of the desk is
    /// left.
    pub(super) fn run(self) {
        loop {
            let batch = self.desk.queue.take(IDLE_PAUSE);
            let start = Instant::now();
            if !batch.questions.is_empty() {
                self.answer(batch.questions);
            }
            let mut outcomes = batch.outcomes;
            let expired = self.desk.expired();
            self.desk.count_outcomes(&expired);
            outcomes.extend(expired);
            self.learn(&outcomes);
            self.desk.metrics.predictor.busy.inc_by(start.elapsed().as_secs_f64());
            // With one reference left, no caller remains that could ask.
            if batch.is_last || Arc::strong_count(&self.desk) == 1 {
                return;
            }
        }
    }

    fn answer(&self, asked: Vec<PendingQuestion>) {
        let (questions, rest): (Vec<TurnQuestion>, Vec<_>) =
            asked.into_iter().map(|asked| (asked.question, (asked.ticket, asked.at))).unzip();
        let desk = &self.desk;
        let answers = desk.guarded(|| desk.predictor.predict(&questions));
        // Answers belong to questions by their position, so a wrong number of them is a failure.
        let Some(answers) = answers.filter(|answers| answers.len() == questions.len()) else {
            questions.iter().for_each(|_| desk.count("failed"));
            return;
        };
        let now = desk.clock.now();
        for (p, (ticket, at)) in answers.into_iter().zip(rest) {
            desk.metrics.latency.observe(now.since(at).as_secs_f64());
            let Some(p) = p else {
                desk.count("prior");
                continue;
            };
            desk.metrics.probability.observe(p.value());
            match ticket.answer(p) {
                Addressee::Sequence(replica, seq) => desk.send(replica, seq, p),
                Addressee::Request => {}
                Addressee::Nobody => desk.note_late(),
            }
        }
    }

    fn learn(&self, outcomes: &[TurnOutcome]) {
        if !outcomes.is_empty() {
            let desk = &self.desk;
            desk.guarded(|| desk.predictor.learn(outcomes));
        }
    }
}
