//! The predictor's thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::TurnQuestion;
use super::desk::Predictions;
use super::queue::PendingQuestion;
use super::ticket::Addressee;

/// Longest sleep of an idle thread between two checks for ended turns.
const IDLE_PAUSE: Duration = Duration::from_secs(1);

/// Answers and learns until the queue is closed and empty, or no other owner of the desk is left.
pub(super) fn run(desk: &Arc<Predictions>) {
    loop {
        let batch = desk.queue.take(IDLE_PAUSE);
        let start = Instant::now();
        if !batch.questions.is_empty() {
            answer(desk, batch.questions);
        }
        let mut outcomes = batch.outcomes;
        let expired = desk.expired();
        desk.count_outcomes(&expired);
        outcomes.extend(expired);
        if !outcomes.is_empty() {
            desk.guarded(|| desk.predictor.learn(&outcomes));
        }
        desk.metrics.busy.inc_by(start.elapsed().as_secs_f64());
        // With one reference left, no caller remains that could ask.
        if batch.is_last || Arc::strong_count(desk) == 1 {
            return;
        }
    }
}

fn answer(desk: &Predictions, asked: Vec<PendingQuestion>) {
    let (questions, rest): (Vec<TurnQuestion>, Vec<_>) =
        asked.into_iter().map(|asked| (asked.question, (asked.ticket, asked.at))).unzip();
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
