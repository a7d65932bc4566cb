//! Continuous batching over a prefix cache.
//!
//! A step: every running sequence gets its next tokens (oldest first, so decodes before the
//! newest prefill), then waiting ones are admitted while token budget, sequence slots and blocks
//! last. A prefill longer than the budget is computed in chunks. When a running sequence finds
//! no block, the youngest running one goes back to the front of the queue; its committed blocks
//! stay cached, so it loses little.
//!
//! Source: Yu et al., "Orca", OSDI'22 (iteration-level scheduling); Agrawal et al.,
//! "Sarathi-Serve", OSDI'24 (chunked prefill); vLLM's recompute preemption. Unlike vLLM a
//! sequence is admitted only when its whole prompt would fit, so a long prompt does not
//! evict half the cache and then lose its place.

use std::collections::VecDeque;
use std::sync::Arc;

use headstart_cache::{Grow, Lease, Occupancy, PrefixCache, Tiers};
use headstart_core::{
    BlockHasher, CacheEvent, FinishKind, Nanos, Probability, SeqId, Tier, TokenId,
};

use crate::announce::LowerTiers;
use crate::batch::{Batch, Entry};
use crate::names::BlockNameCache;
use crate::queue::QueueOrder;
use crate::sequence::{FinishReason, Output, Sequence, Submission};

use counted::Counter;
use fetch::StepAction;
use partly::PartlyLoads;

mod counted;
mod fetch;
mod partly;
mod residency;

pub use counted::{Decode, MadeUp};
pub use partly::{FullComputation, PartlyDone, PartlyLoadedPrompt, PartlyWhen};

/// Limits of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// Most tokens computed in one step.
    pub max_batched_tokens: usize,
    /// Most sequences running at once.
    pub max_sequences: usize,
    /// Most sequences waiting; more are refused.
    pub max_waiting: usize,
    /// The model's context, tokens: prompt and answer together.
    pub max_context: usize,
    /// Tokens per block.
    pub block_size: usize,
    /// Order in which waiting sequences are admitted.
    pub order: QueueOrder,
}

/// Answer of [`Scheduler::submit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submit {
    /// It waits for its turn.
    Queued,
    /// `max_waiting` sequences wait already; nothing was changed.
    QueueFull,
    /// Its prompt can never run here.
    TooLong {
        /// The longest prompt that can, in tokens.
        limit: usize,
    },
}

/// Sequences, blocks and preemptions of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerLoad {
    /// Sequences running.
    pub running: usize,
    /// Sequences waiting.
    pub waiting: usize,
    /// Blocks that a new sequence could get.
    pub available_blocks: usize,
    /// Blocks in all.
    pub capacity_blocks: usize,
    /// Times a sequence was sent back to the queue.
    pub preemptions: u64,
}

/// The scheduler of one engine, with the cache it fills.
pub struct Scheduler {
    config: SchedulerConfig,
    cache: PrefixCache,
    tiers: Option<Tiers>,
    lower: LowerTiers,
    partly: PartlyLoads,
    waiting: VecDeque<Sequence>,
    /// Oldest first.
    running: Vec<Sequence>,
    outputs: Vec<Output>,
    events: Vec<CacheEvent>,
    preemptions: u64,
    admissions: u64,
    /// State of counted steps; `None` where each token is stored at its step.
    counter: Option<Counter>,
    names: BlockNameCache,
}

impl Scheduler {
    /// A scheduler over an empty `cache`.
    ///
    /// # Panics
    /// When a limit other than `max_waiting` is 0 or the cache holds no block.
    #[must_use]
    pub fn new(config: SchedulerConfig, cache: PrefixCache) -> Self {
        assert!(config.max_batched_tokens > 0 && config.max_sequences > 0, "limits are positive");
        assert!(config.max_context > 0, "a context holds a token");
        assert!(config.block_size > 0 && cache.capacity() > 0, "there is room for a token");
        Self {
            config,
            cache,
            tiers: None,
            lower: LowerTiers::default(),
            partly: PartlyLoads::default(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            outputs: Vec::new(),
            events: Vec::new(),
            preemptions: 0,
            admissions: 0,
            counter: None,
            names: BlockNameCache::default(),
        }
    }

    /// The longest sequence (prompt and answer) that this engine can hold, in tokens.
    #[must_use]
    pub fn context(&self) -> usize {
        self.config.max_context.min(self.cache.capacity() * self.config.block_size)
    }

    /// Puts a sequence in the queue.
    ///
    /// # Panics
    /// When the prompt is empty, nothing is to be generated, the block size differs, or where steps
    /// are counted and there are stop tokens.
    pub fn submit(&mut self, new: Submission, hasher: Arc<BlockHasher>, now: Nanos) -> Submit {
        assert!(!new.prompt.is_empty() && new.max_tokens > 0, "there is something to do");
        assert_eq!(hasher.block_size(), self.config.block_size, "one block size per engine");
        let is_counted = self.counter.is_some();
        assert!(!is_counted || new.stop_tokens.is_empty(), "counted answers end by their length");
        // Room for one generated token.
        let limit = self.context() - 1;
        // Length comes before the queue's state: a client that is refused for its length need not
        // retry.
        if new.prompt.len() > limit {
            return Submit::TooLong { limit };
        }
        if self.waiting.len() >= self.config.max_waiting {
            return Submit::QueueFull;
        }
        // Both refusals come first, so that a refused prompt costs no hashing.
        let sequence = Sequence::new(new, hasher, &mut self.names, now);
        self.waiting.push_back(sequence);
        Submit::Queued
    }

    /// Sets the probability that another request of the conversation follows `seq`; the cache
    /// policy receives it when the sequence ends. Unknown ids (already finished) are ignored.
    pub fn annotate(&mut self, seq: SeqId, p_continue: Probability) {
        // A prediction may come while its sequence is preempted, so the queue is searched too.
        let mut sequences = self.running.iter_mut().chain(&mut self.waiting);
        if let Some(sequence) = sequences.find(|sequence| sequence.new.id == seq) {
            sequence.new.access.p_continue = Some(p_continue);
        }
    }

    /// Forgets a sequence and frees its blocks; what it committed stays cached. Unknown ids
    /// (already finished) are ignored. Not between `schedule` and `complete`.
    pub fn cancel(&mut self, seq: SeqId, now: Nanos) {
        // A waiting sequence has no lease, but it may have claims on loads or a hold on stored
        // units.
        for sequence in self.waiting.iter_mut().filter(|sequence| sequence.new.id == seq) {
            Self::release_loads(self.tiers.as_mut(), sequence);
        }
        self.waiting.retain(|sequence| sequence.new.id != seq);
        if let Some(index) = self.running.iter().position(|sequence| sequence.new.id == seq) {
            let sequence = self.remove(index);
            self.give_back(sequence, FinishKind::Cancelled, now);
        }
    }

    /// Decides the next step. Empty only when nothing runs and nothing can be admitted, or when all
    /// wait for loads ([`Self::waits_until`]). After a batch that is not empty, [`Self::complete`]
    /// must follow.
    ///
    /// # Panics
    /// Where steps are counted.
    pub fn schedule(&mut self, now: Nanos) -> Batch {
        assert!(self.counter.is_none(), "steps are counted here");
        let mut batch = Batch::default();
        self.plan_loads(now);
        let before = self.preemptions;
        let budget = self.config.max_batched_tokens;
        let taken = self.schedule_running(0, &mut batch, budget, now);
        // A preemption shows that blocks are short. An admission would take those that it has just
        // freed.
        if self.preemptions == before {
            self.admit_waiting(&mut batch, budget - taken, now);
        }
        // Evictions are announced before the step completes: `announce::commits` skips those among
        // the effects.
        self.announce_evictions(now);
        batch
    }

    /// Takes a computed batch: commits full blocks, appends sampled tokens (one per entry that
    /// asked), ends sequences.
    ///
    /// # Panics
    /// When `sampled` does not fit the batch.
    pub fn complete(&mut self, batch: &Batch, sampled: &[TokenId], now: Nanos) {
        // The first token reports loads, so they are noted before any token is appended.
        self.complete_arrivals(batch, now);
        let mut sampled = sampled.iter();
        // Entries are in the order of the running sequences.
        let mut index = 0;
        for entry in &batch.entries {
            let rest = &self.running[index..];
            let ahead = rest.iter().position(|sequence| sequence.new.id == entry.seq);
            index += ahead.expect("a scheduled sequence runs until its batch completes");
            self.running[index].computed += entry.tokens.len();
            self.commit_full_blocks(index, now);
            if entry.sampling.is_some() {
                let token = *sampled.next().expect("one token per entry that asked");
                self.append(index, token, now);
            }
        }
        assert!(sampled.next().is_none(), "one token per entry that asked");
    }

    /// Takes the outputs since the last call.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Returns the numbers of sequences, blocks and preemptions. O(1).
    #[must_use]
    pub fn load(&self) -> SchedulerLoad {
        SchedulerLoad {
            running: self.running.len(),
            waiting: self.waiting.len(),
            available_blocks: self.cache.available(),
            capacity_blocks: self.cache.capacity(),
            preemptions: self.preemptions,
        }
    }

    /// The tables of the eviction policies of device and tiers, of those that learn. Some 40 KB
    /// each.
    #[must_use]
    pub fn learned_tables(&self) -> Vec<(Tier, Vec<u8>)> {
        let device = self.cache.learned().map(|tables| (Tier::Device, tables));
        let lower = self.tiers.as_ref().map(Tiers::learned_tables);
        device.into_iter().chain(lower.into_iter().flatten()).collect()
    }

    /// Returns the division of the cache's capacity. O(capacity).
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        self.cache.occupancy()
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Asserts the cache's invariants, and that nothing is held when nothing runs.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        self.cache.check();
        if let Some(tiers) = &self.tiers {
            tiers.check();
            self.check_lower(tiers);
        }
        if let Some(counter) = &self.counter {
            counter.check(&self.running);
        }
        if self.running.is_empty() {
            let Occupancy { pinned, in_flight, .. } = self.cache.occupancy();
            assert_eq!((pinned, in_flight), (0, 0), "an idle engine holds no block");
        }
    }

    /// Schedules those that run, from the `index`th on. Returns the tokens taken of `budget`.
    fn schedule_running(
        &mut self,
        mut index: usize,
        batch: &mut Batch,
        budget: usize,
        now: Nanos,
    ) -> usize {
        let mut left = budget;
        while index < self.running.len() && left > 0 {
            // Later arrivals are this sequence's: if it is preempted they must not be copied into
            // its old blocks.
            let first_arrival = batch.arrivals.len();
            let most = match self.take_arrivals(index, batch, now) {
                StepAction::Compute(most) => most,
                StepAction::Wait => {
                    index += 1;
                    continue;
                }
                StepAction::Preempted => break,
                // The next sequence has moved to this index.
                StepAction::SentBack => continue,
            };
            let chunk = self.running[index].remaining().min(left).min(most);
            if !self.make_room(index, chunk, now) {
                self.drop_arrivals(batch, first_arrival);
                break;
            }
            left -= chunk;
            batch.entries.push(entry(&self.running[index], chunk));
            index += 1;
        }
        budget - left
    }

    /// Grows the blocks of `running[index]` for `chunk` more tokens, preempting from the young
    /// end. False when the sequence itself had to go.
    fn make_room(&mut self, index: usize, chunk: usize, now: Nanos) -> bool {
        loop {
            let sequence = &mut self.running[index];
            let needed = sequence.blocks_for(sequence.computed + chunk);
            let lease = sequence.lease_mut();
            // Admission grew the lease for a full chunk; a shorter one in front of a load needs
            // less.
            let missing = needed.saturating_sub(lease.blocks().len());
            if self.cache.grow(lease, missing, now) == Grow::Done {
                return true;
            }
            // It goes to the front, since it has run before. The youngest goes first, so preempted
            // ones keep their order.
            self.preemptions += 1;
            self.send_back(self.running.len() - 1, now);
            // All younger ones are gone; the last one preempted was this sequence itself.
            if self.running.len() == index {
                return false;
            }
        }
    }

    /// Takes one out of those that run.
    fn remove(&mut self, index: usize) -> Sequence {
        let context = self.context();
        let mut sequence = self.running.remove(index);
        if let Some(counter) = &mut self.counter {
            counter.leave(&mut sequence, context);
        }
        sequence
    }

    fn admit_waiting(&mut self, batch: &mut Batch, mut budget: usize, now: Nanos) {
        while budget > 0 && self.running.len() < self.config.max_sequences {
            let (order, tiers, cache) = (self.config.order, self.tiers.as_ref(), &self.cache);
            let is_ready = |sequence: &Sequence| Self::is_ready(tiers, cache, sequence, now);
            let next = order.next(&self.waiting, cache, is_ready, now);
            let Some(index) = next else { return };
            // The new plan may make it wait for a load, so the queue chooses again.
            if self.plan_late(index, now) {
                continue;
            }
            // None overtakes: a smaller prompt would take the blocks that this one needs.
            let Some(lease) = self.lease_for(index, budget, now) else {
                return;
            };
            let mut sequence = self.waiting.remove(index).expect("the index was just chosen");
            sequence.computed = lease.matched() * self.config.block_size;
            sequence.lease = Some(lease);
            sequence.place = self.admissions;
            self.admissions += 1;
            if sequence.start() {
                let (seq, cached_tokens) = (sequence.new.id, sequence.computed);
                self.outputs.push(Output::Started { seq, cached_tokens });
            }
            self.offer_matched(&sequence, now);
            self.running.push(sequence);
            // The newcomer is the youngest. If blocks run short, it loses its own place, not that
            // of another.
            let taken = self.schedule_running(self.running.len() - 1, batch, budget, now);
            budget -= taken;
        }
    }

    /// The cached prefix of `waiting[index]` and blocks for its first chunk, if its whole prompt
    /// would fit now.
    fn lease_for(&mut self, index: usize, budget: usize, now: Nanos) -> Option<Lease> {
        let sequence = &self.waiting[index];
        let mut lease = self.cache.acquire(sequence.matchable());
        let matched_tokens = lease.matched() * self.config.block_size;
        // At least one token is left, because `matchable` leaves out the last.
        let chunk = budget.min(sequence.tokens.len() - matched_tokens);
        let first = sequence.blocks_for(matched_tokens + chunk) - lease.matched();
        let whole = sequence.blocks_for(sequence.tokens.len()) - lease.matched();
        if self.cache.available() >= whole && self.cache.grow(&mut lease, first, now) == Grow::Done
        {
            return Some(lease);
        }
        // A failed admission is no use of these blocks, so the policy must not see one.
        self.cache.give_back(lease);
        None
    }

    /// Returns whether the sequence ended with it.
    fn append(&mut self, index: usize, token: TokenId, now: Nanos) -> bool {
        let context = self.context();
        // Clients expect the loads before the first token; see `Output::Loaded`.
        self.tell_loads(index);
        let sequence = &mut self.running[index];
        let finish = sequence.push(token, context);
        self.outputs.push(Output::Token { seq: sequence.new.id, token, finish });
        if let Some(reason) = finish {
            let kind = match reason {
                FinishReason::Stop => self.running[index].stop_kind(),
                FinishReason::Length => FinishKind::Length,
            };
            let sequence = self.remove(index);
            self.give_back(sequence, kind, now);
        }
        finish.is_some()
    }

    fn give_back(&mut self, mut sequence: Sequence, finish: FinishKind, now: Nanos) {
        Self::release_loads(self.tiers.as_mut(), &mut sequence);
        if let Some(lease) = sequence.lease.take() {
            let access = sequence.last_access(now, finish);
            self.use_units(&sequence, &lease, &access);
            self.cache.release(lease, &access);
        }
    }
}

fn entry(sequence: &Sequence, chunk: usize) -> Entry {
    let end = sequence.computed + chunk;
    let lease = sequence.lease.as_ref().expect("a scheduled sequence holds a lease");
    Entry {
        seq: sequence.new.id,
        tokens: sequence.tokens[sequence.computed..end].to_vec(),
        start: sequence.computed,
        blocks: lease.blocks().to_vec(),
        // Only the logits of the last token choose one: the tokens after the others are known.
        sampling: (end == sequence.tokens.len()).then_some(sequence.new.sampling),
        pruned: sequence.pruned.clone(),
    }
}
