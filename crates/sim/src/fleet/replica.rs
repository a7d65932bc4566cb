//! One engine of a fleet: the real scheduler and cache, and steps that take time.

use std::sync::Arc;

use headstart_cache::{Policy, PrefixCache};
use headstart_core::{BlockHasher, CacheEvent, CostModel, EngineModel, Nanos, SeqId, TokenId};
use headstart_router::ReportedLoad;
use headstart_scheduler::{Batch, Decode, Output, Scheduler, SchedulerConfig, Submission, Submit};

use super::workload::Request;
use crate::cost::counted_step;
use crate::tokens;

/// Costs and limits of an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaSpec {
    /// Cost model of its steps.
    pub cost: CostModel,
    /// Its limits.
    pub scheduler: SchedulerConfig,
    /// Blocks that it has memory for.
    pub capacity_blocks: usize,
}

impl ReplicaSpec {
    /// Returns the engine model for routers.
    #[must_use]
    pub fn engine(&self) -> EngineModel {
        EngineModel {
            cost: self.cost,
            max_batched_tokens: self.scheduler.max_batched_tokens,
            kv_tokens: self.capacity_blocks * self.scheduler.block_size,
            load_token_s: 0.0,
        }
    }
}

/// An engine in virtual time.
pub struct VirtualReplica {
    cost: CostModel,
    scheduler: Scheduler,
    hasher: Arc<BlockHasher>,
    /// The step on its way: when it began, how many decode in it, and which prompts.
    step: Option<(Nanos, Decode, Batch)>,
}

/// Results of one step.
#[derive(Debug, Default)]
pub struct Done {
    /// When it began.
    pub began: Nanos,
    /// Tokens of answers.
    pub tokens: usize,
    /// Outputs of sequences, in order.
    pub outputs: Vec<Output>,
    /// Events of blocks, in order.
    pub events: Vec<CacheEvent>,
}

impl VirtualReplica {
    /// One with an empty cache.
    #[must_use]
    pub fn new(spec: &ReplicaSpec, policy: Box<dyn Policy>) -> Self {
        let cache = PrefixCache::new(spec.capacity_blocks, policy);
        Self {
            cost: spec.cost,
            scheduler: Scheduler::counted(spec.scheduler, cache, tokens::of_sequence),
            hasher: Arc::new(tokens::hasher(spec.scheduler.block_size)),
            step: None,
        }
    }

    /// A request with the prompt `tokens` arrives.
    pub fn submit(&mut self, request: &Request, tokens: &[TokenId], now: Nanos) -> Submit {
        let new = Submission {
            access: request.access,
            ..Submission::greedy(
                request.seq,
                tokens.to_vec(),
                request.answer_tokens.max(1) as usize,
            )
        };
        self.scheduler.submit(new, self.hasher.clone(), now)
    }

    /// Begins the next step, if none is running and there is work. Returns its end.
    pub fn begin(&mut self, now: Nanos) -> Option<Nanos> {
        // An engine does one step at a time. The end of this one begins the next.
        if self.step.is_some() {
            return None;
        }
        let (decode, batch) = self.scheduler.schedule_counted(now);
        if decode.sequences == 0 && batch.entries.is_empty() {
            return None;
        }
        let time = counted_step(&self.cost, decode, &batch);
        self.step = Some((now, decode, batch));
        Some(now + time)
    }

    /// The step that was begun is over.
    pub fn end(&mut self, now: Nanos) -> Done {
        let (began, decode, batch) = self.step.take().expect("a step was begun");
        self.scheduler.complete_counted(&batch, now);
        let sampled = batch.entries.iter().filter(|entry| entry.sampling.is_some());
        Done {
            began,
            // Decoding sequences give a token each, prompts only with their last part.
            tokens: decode.sequences + sampled.count(),
            outputs: self.scheduler.take_outputs(),
            events: self.scheduler.take_events(),
        }
    }

    /// A request is not wanted any more. Not while a step is on its way.
    ///
    /// # Panics
    /// When a step is on its way.
    pub fn cancel(&mut self, seq: SeqId, now: Nanos) {
        assert!(self.step.is_none(), "between two steps");
        self.scheduler.cancel(seq, now);
    }

    /// Returns the load that it would report now.
    #[must_use]
    pub fn report(&self, now: Nanos) -> ReportedLoad {
        let load = self.scheduler.load();
        // Blocks that are cached but not in use count as free.
        let used = load.capacity_blocks - load.available_blocks;
        ReportedLoad {
            waiting: load.waiting as u32,
            running: load.running as u32,
            kv_usage: used as f64 / load.capacity_blocks as f64,
            at: now,
        }
    }

    /// Sequences that lost their place so far.
    #[must_use]
    pub fn preemptions(&self) -> u64 {
        self.scheduler.load().preemptions
    }

    /// Asserts the invariants of scheduler and cache.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        self.scheduler.check();
    }
}
