//! All that is remembered, and what follows from what was said.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use headstart_core::{Nanos, RouteKey};
use headstart_insight::loss::{ArrivingRequest, Attributor, Pending};
use headstart_insight::text::Sketch;
use headstart_insight::{Bucket, BucketTokens, Waterfall};

use super::batch::{AnsweredRequest, BatchArrival, InsightBatch, InsightOp};
use super::causes::Causes;
use super::ghosts::ReplicaGhosts;
use super::records::{RequestHistory, RequestRecord};
use super::seconds::Seconds;
use crate::metrics::InsightMetrics;

/// Most models whose tokens are summed before the counters are updated.
const MODELS: usize = 16;

/// Attributor, records, ghosts and sums behind the explanations.
pub(super) struct InsightState {
    pub(super) attributor: Attributor,
    pub(super) records: RequestHistory,
    pub(super) ghosts: ReplicaGhosts,
    pub(super) seconds: Seconds,
    /// Requests that are under way.
    pending: BTreeMap<u64, Pending>,
    /// Tokens by model that no counter was told of yet.
    sums: Vec<(String, Waterfall)>,
    /// The memory of the batch before; the next but one takes it.
    pub(super) spare: InsightBatch,
}

/// Receivers of the explanations.
pub(super) struct InsightSinks<'a> {
    pub(super) metrics: &'a InsightMetrics,
    pub(super) causes: &'a Causes,
}

/// Entries of each list of a batch that are already applied.
#[derive(Default)]
struct BatchCursor {
    tokens: usize,
    keys: usize,
    overlaps: usize,
    changes: usize,
}

impl InsightState {
    pub(super) fn new(attributor: Attributor) -> Self {
        Self {
            attributor,
            records: RequestHistory::default(),
            ghosts: ReplicaGhosts::default(),
            seconds: Seconds::default(),
            pending: BTreeMap::new(),
            sums: Vec::new(),
            spare: InsightBatch::default(),
        }
    }

    /// Takes over what was said, in order.
    #[inline(never)]
    pub(super) fn settle(&mut self, batch: &mut InsightBatch, told: &InsightSinks<'_>) {
        let mut done = BatchCursor::default();
        // Taken out, because applying an operation borrows the batch's other lists.
        let mut ops = std::mem::take(&mut batch.ops);
        for op in ops.drain(..) {
            match op {
                InsightOp::Arrived(number, arrived, now) => {
                    let pending = self.arrive(&arrived, batch, &mut done, now);
                    self.pending.insert(number, pending);
                }
                InsightOp::Computed(number, now) => {
                    if let Some(pending) = self.pending.get_mut(&number) {
                        self.attributor.computed(pending, now);
                    }
                }
                InsightOp::Finished(number, finished, now) => {
                    if let Some(pending) = self.pending.remove(&number) {
                        self.finish(pending, *finished, told, now);
                    }
                }
                InsightOp::Abandoned(number) => {
                    if let Some(pending) = self.pending.remove(&number) {
                        self.attributor.abandon(&pending);
                    }
                }
                InsightOp::Unknown(unknown) => {
                    let (record, sketch) = *unknown;
                    self.unknown(record, sketch, told);
                }
                InsightOp::Changed(replica, end, now) => {
                    // Operations are in order, so that each begins where the one before it ended.
                    let changes = &batch.changes[done.changes..end];
                    done.changes = end;
                    self.attributor.observe(replica, changes, now);
                    self.ghosts.observe(replica.0, changes, now);
                }
                InsightOp::Cleared(replica, now) => {
                    self.attributor.cleared(replica);
                    self.ghosts.clear(replica.0, now);
                }
                InsightOp::Serves(replica, model) => self.attributor.set_model(replica, model),
            }
        }
        // Given back for its memory.
        batch.ops = ops;
        // Once per batch: the metrics' locks are shared with all requests.
        self.tell_sums(told.metrics);
    }

    fn arrive(
        &mut self,
        arrived: &BatchArrival,
        batch: &InsightBatch,
        done: &mut BatchCursor,
        now: Nanos,
    ) -> Pending {
        // Lists and ends were written under one lock, so that the ranges are valid.
        let tokens = &batch.tokens[done.tokens..arrived.tokens];
        let arrival = ArrivingRequest {
            replica: arrived.replica,
            prompt_tokens: tokens.len() as u32,
            block_size: arrived.block_size,
            keys: &batch.keys[done.keys..arrived.keys],
            tokens: Some(tokens),
            namespace: arrived.namespace,
            overlaps: &batch.overlaps[done.overlaps..arrived.overlaps],
        };
        (done.tokens, done.keys, done.overlaps) = (arrived.tokens, arrived.keys, arrived.overlaps);
        if let Some(blocks) = arrived.capacity_blocks {
            self.ghosts.set_capacity(arrived.replica.0, blocks);
        }
        self.attributor.arrive(&arrival, now)
    }

    fn finish(
        &mut self,
        mut pending: Pending,
        finished: AnsweredRequest,
        told: &InsightSinks<'_>,
        now: Nanos,
    ) {
        let AnsweredRequest { mut record, prefix, block_size, served, sketch } = finished;
        // An engine that says nothing of its cache cannot be explained; it was computed all the
        // same.
        self.attributor.computed(&mut pending, now);
        // The attributor is done with the names once the prompt is computed, and the ghost takes
        // them without a copy.
        let (names, tokens) = (pending.take_names(), record.prompt_tokens);
        self.ghosts.record(record.replica, block_size, names, tokens, now);
        if let Some(served) = served {
            let outcome = self.attributor.finish(pending, &served, now);
            self.seconds.add(&outcome.split, record.ttft_s);
            self.sum(&record.model, &outcome.split);
            record.split = Some(outcome.split);
            record.certainty = outcome.certainty;
            record.evicted = outcome.evicted;
        }
        let lost = record.split.as_ref().map(again);
        self.remember(record, prefix, sketch.map(|sketch| (sketch, lost)), told);
    }

    /// A request of which only lengths are known.
    fn unknown(
        &mut self,
        mut record: RequestRecord,
        sketch: Option<Sketch>,
        told: &InsightSinks<'_>,
    ) {
        if let Some(cached) = record.cached_tokens {
            let mut split = BucketTokens::default();
            // The engine gives a count without a place; its own memory is the nearest.
            split.put(Bucket::Device, cached);
            // An engine may count cached tokens beyond its prompt count; a difference below zero
            // means nothing.
            let computed = record.prompt_tokens.saturating_sub(cached);
            split.put(Bucket::NoTokens, computed);
            self.seconds.add(&split, record.ttft_s);
            self.sum(&record.model, &split);
            record.split = Some(split);
            record.certainty = 1.0;
        }
        let lost = record.split.map(|split| split.get(Bucket::NoTokens));
        self.remember(record, None, sketch.map(|sketch| (sketch, lost)), told);
    }

    /// Keeps a record. Its sketch, with its recomputed tokens where known, goes to the causes.
    fn remember(
        &mut self,
        record: RequestRecord,
        prefix: Option<RouteKey>,
        sketch: Option<(Sketch, Option<u32>)>,
        told: &InsightSinks<'_>,
    ) {
        if let Some((sketch, lost)) = sketch {
            told.causes.explain(namespace(&record), record.id.clone(), sketch, lost);
        }
        self.records.add(record, prefix);
        // Model names come from clients, so that the list is bounded between two updates.
        if self.sums.len() > MODELS {
            self.tell_sums(told.metrics);
        }
    }

    fn sum(&mut self, model: &str, split: &BucketTokens) {
        // At most `MODELS` rows and one more, so that a scan finds the model.
        let known = self.sums.iter().position(|(known, _)| known == model);
        let at = known.unwrap_or_else(|| {
            self.sums.push((model.to_owned(), Waterfall::default()));
            self.sums.len() - 1
        });
        self.sums[at].1.add(split);
    }

    fn tell_sums(&mut self, metrics: &InsightMetrics) {
        for (model, tokens) in self.sums.drain(..) {
            metrics.note(&model, &tokens);
        }
    }
}

/// Tokens that were known, behind another front or in another namespace.
fn again(split: &BucketTokens) -> u32 {
    split.get(Bucket::Diverged) + split.get(Bucket::Namespace)
}

/// Stands for what prompts must have in common to share a cache.
fn namespace(record: &RequestRecord) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&record.model, &record.tenant).hash(&mut hasher);
    hasher.finish()
}
