//! One replica with lower tiers in virtual time: the real scheduler, cache and tiers, a cost model
//! for the engine and a [`SimMover`] for the bytes.
//!
//! Requests arrive when they say. Steps follow one another; while all requests wait for loads, time
//! advances to the next event.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use headstart_cache::{PrefixCache, Tiers};
use headstart_core::{
    Access, BlockHasher, BlockMover, CostModel, Nanos, SeqId, SessionId, Tier, TokenId,
};
use headstart_scheduler::{Output, Scheduler, SchedulerConfig, Submission, Submit};

use crate::cost;
use crate::mover::SimMover;
use crate::tokens;

/// A request of a [`TieredReplica`].
#[derive(Clone, Debug)]
pub struct TieredRequest {
    /// When it arrives.
    pub arrival: Nanos,
    /// Its prompt.
    pub prompt: Vec<TokenId>,
    /// Tokens of its answer, at least one.
    pub answer_tokens: usize,
    /// Its conversation, when known.
    pub session: Option<SessionId>,
}

/// TTFT of one request, and the sources of its tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TieredOutcome {
    /// From its arrival to its first token.
    pub ttft: Duration,
    /// Prompt tokens.
    pub prompt_tokens: usize,
    /// Of these, found on the device.
    pub device_tokens: usize,
    /// Of these, loaded, by tier.
    pub loaded_tokens: BTreeMap<Tier, usize>,
    /// Whether it was answered; otherwise it was refused.
    pub is_answered: bool,
}

/// A replica with lower tiers.
pub struct TieredReplica {
    scheduler: Scheduler,
    cost: CostModel,
    mover: SimMover,
    hasher: Arc<BlockHasher>,
    now: Nanos,
    next_id: u64,
    flights: HashMap<SeqId, (usize, Nanos)>,
    outcomes: Vec<TieredOutcome>,
}

impl TieredReplica {
    /// An idle replica. `now` begins at 0.
    #[must_use]
    pub fn new(
        config: SchedulerConfig,
        cache: PrefixCache,
        cost: CostModel,
        tiers: Tiers,
        mover: SimMover,
    ) -> Self {
        Self {
            hasher: Arc::new(tokens::hasher(config.block_size)),
            scheduler: Scheduler::new(config, cache).with_tiers(tiers),
            cost,
            mover,
            now: Nanos::default(),
            next_id: 0,
            flights: HashMap::new(),
            outcomes: Vec::new(),
        }
    }

    /// Returns the virtual time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The lower tiers.
    ///
    /// # Panics
    /// Never: it was made with some.
    #[must_use]
    pub fn tiers(&self) -> &Tiers {
        self.scheduler.tiers().expect("made with tiers")
    }

    /// The mover.
    #[must_use]
    pub fn mover(&self) -> &SimMover {
        &self.mover
    }

    /// Drops what the device holds, as if others had needed the room.
    pub fn clear_device(&mut self) {
        self.scheduler.clear_device(self.now);
        self.move_units();
        // The mover learns of evictions before it is asked what was moved.
        self.settle();
    }

    /// Serves requests, which come in order of arrival, until all are answered and nothing moves.
    pub fn serve(&mut self, requests: &[TieredRequest]) -> Vec<TieredOutcome> {
        let known = |request: &TieredRequest| {
            let access = Access { session: request.session, ..Access::default() };
            (request.clone(), access)
        };
        self.serve_each(requests.iter().map(known))
    }

    /// The same with an [`Access`] for the policies per request; each is made when its turn comes.
    pub fn serve_each(
        &mut self,
        requests: impl IntoIterator<Item = (TieredRequest, Access)>,
    ) -> Vec<TieredOutcome> {
        self.outcomes.clear();
        let mut to_come = requests.into_iter().peekable();
        loop {
            while let Some((request, access)) =
                to_come.next_if(|(request, _)| request.arrival <= self.now)
            {
                self.submit(request, access);
            }
            if self.step() {
                continue;
            }
            let arrival = to_come.peek().map(|(request, _)| request.arrival);
            let deadline = self.scheduler.waits_until(self.now);
            // All requests may wait for loads, and then only a transfer or a deadline moves time
            // on.
            let next = [arrival, self.mover.next(), deadline];
            let Some(next) = next.into_iter().flatten().min() else {
                break;
            };
            // None of them may move time back.
            self.now = next.max(self.now);
        }
        self.scheduler.check();
        std::mem::take(&mut self.outcomes)
    }

    fn submit(&mut self, request: TieredRequest, access: Access) {
        self.next_id += 1;
        let id = SeqId(self.next_id);
        let index = self.outcomes.len();
        self.outcomes.push(TieredOutcome {
            prompt_tokens: request.prompt.len(),
            ..TieredOutcome::default()
        });
        let new =
            Submission { access, ..Submission::greedy(id, request.prompt, request.answer_tokens) };
        // A refused request has no flight, so its outcome stays unanswered.
        if self.scheduler.submit(new, self.hasher.clone(), self.now) == Submit::Queued {
            self.flights.insert(id, (index, request.arrival));
        }
    }

    /// One step. False: there was nothing to compute.
    fn step(&mut self) -> bool {
        self.settle();
        let batch = self.scheduler.schedule(self.now);
        self.move_units();
        if batch.is_empty() {
            return false;
        }
        // A batch may only copy blocks, which takes no time of the engine.
        if !batch.entries.is_empty() {
            self.now = self.now + cost::step(&self.cost, &batch);
        }
        let sampled = batch.entries.iter().filter(|entry| entry.sampling.is_some());
        let sampled = vec![1; sampled.count()];
        self.scheduler.complete(&batch, &sampled, self.now);
        // Blocks that the step evicted start their way down now.
        self.move_units();
        self.take_notes();
        true
    }

    /// Tells the scheduler what was moved by now.
    fn settle(&mut self) {
        let mut moved = Vec::new();
        self.mover.set_now(self.now);
        self.mover.poll(&mut moved);
        for moved in moved {
            self.scheduler.moved(moved, self.now);
        }
        self.move_units();
    }

    fn move_units(&mut self) {
        self.mover.set_now(self.now);
        for transfer in self.scheduler.take_transfers() {
            self.mover.submit(transfer);
        }
    }

    fn take_notes(&mut self) {
        self.scheduler.take_events().clear();
        for output in self.scheduler.take_outputs() {
            let (index, arrival) = self.flights[&output.seq()];
            let outcome = &mut self.outcomes[index];
            match output {
                Output::Started { cached_tokens, .. } => outcome.device_tokens = cached_tokens,
                Output::Loaded { tokens, from, .. } => {
                    *outcome.loaded_tokens.entry(from).or_default() += tokens;
                }
                Output::Token { .. } if !outcome.is_answered => {
                    outcome.is_answered = true;
                    outcome.ttft = self.now.since(arrival);
                }
                Output::Token { .. } | Output::Partly { .. } => {}
            }
        }
    }
}
