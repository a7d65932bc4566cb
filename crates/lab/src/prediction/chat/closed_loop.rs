//! One policy on one script: the loop of arrivals, steps and answers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use headstart_cache::{Policy, PrefixCache};
use headstart_core::{Access, BlockHasher, Nanos, Probability, SeqId, SessionId, TokenId};
use headstart_scheduler::{Executor, FinishReason, Output, Scheduler, Submission, Submit};

use super::outcome::{ChatOutcome, FirstToken, JudgedPrediction};
use super::{Place, Predict, Replica, Script};
use crate::prediction::executor::VirtualExecutor;
use headstart_sim::tokens;

/// A run in progress.
pub(crate) struct ChatRun<'a> {
    script: &'a Script,
    replica: Replica,
    predict: &'a Predict<'a>,
    scheduler: Scheduler,
    executor: VirtualExecutor,
    hasher: Arc<BlockHasher>,
    /// Pending events, the next first; those of one moment in the order of [`ChatEvent`].
    events: BinaryHeap<Reverse<(Nanos, ChatEvent)>>,
    /// Per conversation.
    open: Vec<ConversationState>,
    now: Nanos,
    outcome: ChatOutcome,
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ChatEvent {
    /// A prompt arrives.
    Arrival(Place),
    /// The prediction for it is there.
    Prediction(Place),
}

/// State of a conversation. It has one request at a time.
#[derive(Clone, Copy, Debug, Default)]
struct ConversationState {
    turn: usize,
    arrival: Nanos,
    /// Tokens of the prompt that were there before, and of the whole prompt.
    context: usize,
    prompt: usize,
    cached: usize,
    /// Tokens answered so far.
    answered: usize,
}

impl<'a> ChatRun<'a> {
    /// Begins with an empty cache of `capacity` blocks under `policy`, which receives the
    /// predictions of `predict`.
    ///
    /// # Panics
    /// When a limit of the replica is 0, or its costs are not valid.
    #[must_use]
    pub(crate) fn new(
        script: &'a Script,
        replica: Replica,
        capacity: usize,
        policy: Box<dyn Policy>,
        predict: &'a Predict<'a>,
    ) -> Self {
        assert_eq!(replica.cost.check(), Ok(()), "costs are valid");
        let arrival = |(conversation, &start): (usize, &Nanos)| {
            let first = Place { conversation, turn: 0 };
            Reverse((start, ChatEvent::Arrival(first)))
        };
        let open = ConversationState::default();
        Self {
            script,
            replica,
            predict,
            scheduler: Scheduler::new(replica.scheduler, PrefixCache::new(capacity, policy)),
            executor: VirtualExecutor::new(replica.cost),
            hasher: Arc::new(tokens::hasher(replica.scheduler.block_size)),
            events: script.starts().iter().enumerate().map(arrival).collect(),
            open: vec![open; script.conversations().len()],
            now: Nanos::default(),
            outcome: ChatOutcome::default(),
        }
    }

    /// Runs to the end of the script's time and tells what happened. Cost: the steps of the
    /// engine, some microseconds each.
    #[must_use]
    pub(crate) fn finish(mut self) -> ChatOutcome {
        while self.step() {}
        let seconds = self.script.seconds() - self.replica.warm_up.as_secs_f64();
        self.outcome.seconds = seconds.max(0.0);
        self.outcome.preemptions = self.scheduler.load().preemptions;
        self.outcome
    }

    /// Does the engine's next step. False when nothing more happens within the run.
    pub(crate) fn step(&mut self) -> bool {
        let end = Nanos::from_secs_f64(self.script.end_s());
        if self.scheduler.is_idle() {
            let next = self.events.peek().map(|Reverse((at, _))| *at);
            // An idle engine does nothing until the next prompt, so time jumps there.
            self.now = self.now.max(next.unwrap_or(end));
        }
        if self.now >= end {
            return false;
        }
        // Before the schedule: a step serves all that came before it began.
        self.take_arrivals();
        let batch = self.scheduler.schedule(self.now);
        if !batch.entries.is_empty() {
            let sampled = self.executor.execute(&batch, None);
            self.now = self.now + self.executor.last_step();
            self.scheduler.complete(&batch, &sampled, self.now);
            self.outcome.steps += 1;
        }
        for output in self.scheduler.take_outputs() {
            self.take_note(output);
        }
        // No router listens to this replica.
        self.scheduler.take_events().clear();
        true
    }

    /// Now.
    #[cfg(test)]
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Asserts the invariants of scheduler and cache.
    ///
    /// # Panics
    /// When one is broken.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.scheduler.check();
    }

    /// All that happened up to now, at its own time.
    fn take_arrivals(&mut self) {
        while let Some(&Reverse((at, event))) = self.events.peek() {
            if at > self.now {
                return;
            }
            self.events.pop();
            match event {
                ChatEvent::Arrival(place) => self.submit(place, at),
                ChatEvent::Prediction(place) => {
                    if let Some(p) = (self.predict)(place) {
                        // A request that ended meanwhile goes without its prediction.
                        self.scheduler.annotate(sequence(place), p);
                    }
                }
            }
        }
    }

    fn submit(&mut self, place: Place, at: Nanos) {
        let turn = self.script.conversations()[place.conversation].turns[place.turn];
        let open = &mut self.open[place.conversation];
        open.turn = place.turn;
        open.arrival = at;
        open.prompt = open.context + turn.new_tokens.max(1) as usize;
        open.answered = 0;
        let prompt_tokens = open.prompt;
        // Known before the prompt is made, which could be of any length.
        if prompt_tokens >= self.scheduler.context() {
            self.outcome.refused += u64::from(self.counts(at));
            return;
        }
        let delay = self.replica.prediction_delay;
        let p_continue = match delay {
            // Without a delay the prediction comes with the request, so the policy has it from the
            // start.
            Duration::ZERO => (self.predict)(place),
            _ => None,
        };
        let new = self.request(place, prompt_tokens, p_continue);
        if self.scheduler.submit(new, self.hasher.clone(), at) != Submit::Queued {
            self.outcome.refused += u64::from(self.counts(at));
        } else if delay > Duration::ZERO {
            let prediction = (at + delay, ChatEvent::Prediction(place));
            self.events.push(Reverse(prediction));
        }
    }

    fn request(
        &self,
        place: Place,
        prompt_tokens: usize,
        p_continue: Option<Probability>,
    ) -> Submission {
        let turn = self.script.conversations()[place.conversation].turns[place.turn];
        let session = session(place);
        Submission {
            access: Access {
                turn: turn_number(place.turn),
                session: Some(session),
                p_continue,
                ..Access::default()
            },
            ..Submission::greedy(
                sequence(place),
                self.prompt(place.conversation, prompt_tokens),
                turn.answer_tokens.max(1) as usize,
            )
        }
    }

    /// The first `length` tokens of a conversation.
    fn prompt(&self, conversation: usize, length: usize) -> Vec<TokenId> {
        let mut prompt = Vec::with_capacity(length);
        while prompt.len() < length {
            let position = prompt.len();
            let (owner, end) = self.owner(conversation, position);
            // One owner's tokens at a time: a shared head is long.
            let end = length.min(end);
            prompt.extend((position..end).map(|at| tokens::token(number(owner), at)));
        }
        prompt
    }

    /// The conversation that the token at `position` was made for, and where that changes.
    fn owner(&self, mut conversation: usize, position: usize) -> (usize, usize) {
        let mut end = usize::MAX;
        // Heads lead to earlier conversations only, so this ends.
        while let Some(head) = self.script.conversations()[conversation].head {
            let tokens = head.tokens as usize;
            if head.conversation >= conversation || tokens <= position {
                break;
            }
            end = end.min(tokens);
            conversation = head.conversation;
        }
        (conversation, end)
    }

    fn take_note(&mut self, output: Output) {
        match output {
            Output::Started { seq, cached_tokens } => self.started(place(seq), cached_tokens),
            Output::Loaded { .. } | Output::Partly { .. } => {
                unreachable!("there are no lower tiers")
            }
            Output::Token { seq, finish, .. } => self.answered(place(seq), finish),
        }
    }

    fn started(&mut self, place: Place, cached_tokens: usize) {
        let open = &mut self.open[place.conversation];
        open.cached = cached_tokens;
        let (prompt, arrival) = (open.prompt, open.arrival);
        // By arrival, so that a request counts with all that it causes or not at all.
        if !self.counts(arrival) {
            return;
        }
        self.outcome.tokens.record(prompt, cached_tokens);
        // The cached tokens are part of the prompt.
        self.outcome.computed_tokens += (prompt - cached_tokens) as u64;
        let turns = &mut self.outcome.turns;
        let tally = turns.entry(turn_number(place.turn)).or_default();
        tally.requests += 1;
        tally.tokens.record(prompt, cached_tokens);
        if let Some(p) = (self.predict)(place) {
            self.outcome.judged.push(JudgedPrediction { p: p.value(), truth: self.goes_on(place) });
        }
    }

    fn answered(&mut self, place: Place, finish: Option<FinishReason>) {
        let open = &mut self.open[place.conversation];
        open.answered += 1;
        if open.answered == 1 {
            let first = FirstToken {
                seconds: self.now.since(open.arrival).as_secs_f64(),
                context_tokens: open.context as u32,
                cached_tokens: open.cached as u32,
            };
            let arrival = open.arrival;
            if self.counts(arrival) {
                self.outcome.first_tokens.push(first);
            }
        }
        if finish.is_none() {
            return;
        }
        let open = &mut self.open[place.conversation];
        // The answer is part of what the next prompt repeats.
        open.context = open.prompt + open.answered;
        if self.goes_on(place) {
            let turns = &self.script.conversations()[place.conversation].turns;
            let gap = Duration::try_from_secs_f64(turns[place.turn].gap_s).unwrap_or_default();
            let next = Place { turn: place.turn + 1, ..place };
            let arrival = (self.now + gap, ChatEvent::Arrival(next));
            self.events.push(Reverse(arrival));
        }
    }

    fn goes_on(&self, place: Place) -> bool {
        place.turn + 1 < self.script.conversations()[place.conversation].turns.len()
    }

    fn counts(&self, arrival: Nanos) -> bool {
        arrival.since(Nanos::default()) >= self.replica.warm_up
    }
}

fn session(place: Place) -> SessionId {
    number(place.conversation)
}

fn number(conversation: usize) -> SessionId {
    SessionId(conversation as u64)
}

fn sequence(place: Place) -> SeqId {
    tokens::sequence(session(place), place.turn as u16)
}

fn place(seq: SeqId) -> Place {
    let (session, turn) = tokens::parts(seq);
    Place { conversation: session.0 as usize, turn: usize::from(turn) }
}

fn turn_number(turn: usize) -> u16 {
    u16::try_from(turn + 1).unwrap_or(u16::MAX)
}
