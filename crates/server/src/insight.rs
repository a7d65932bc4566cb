//! Outcomes of live requests and their explanations, computed with `headstart-insight`.
//!
//! ```text
//! gateway ── decision ──► InsightTicket ── first token, answer ──┐
//! replica's events, as the index names their blocks ─────────────┴─► InsightBatch, in order
//!                                                                      │ full, or a reader asks
//!               ring, waterfalls, metrics ◄── Attributor, ReplicaGhosts (bounded memory)
//! ```
//!
//! The caller that fills a batch, or reads results, applies the batch; the results are the same as
//! if each operation were applied at once. Of the two locks, the batch's is held for a copy, the
//! other for a batch. Readers copy what they show. No text is kept, and tokens only while they wait
//! in a batch: prompts are keyed hashes, and a tenant is shown as a keyed tag. Every memory here
//! has its bound in `batch`, in `records` or in the attributor's config.

mod batch;
mod causes;
mod ghosts;
mod names;
mod records;
mod seconds;
mod snapshot;
mod state;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use headstart_core::event::BlockChange;
use headstart_core::{Nanos, ReplicaId, RouteKey, Tier};
use headstart_index_sync::random_key;
use headstart_insight::loss::{Attributor, AttributorConfig, ServedTokens};
use headstart_insight::text::Sketch;
use headstart_router::index::TierTokens;
use headstart_router::{Decision, RouteRequest};

use crate::lock::lock;
use crate::metrics::{InsightMetrics, Metrics, PromptSources};
use batch::{AnsweredRequest, BatchArrival, InsightBatch, InsightOp};
use names::NameHasher;
use records::foremost;
use state::{InsightSinks, InsightState};

pub use causes::{CauseSum, CauseSums, Causes, NeighbourDivergence};
pub use ghosts::GhostAnswer;
pub use records::{CandidateRecord, RequestRecord};
pub use seconds::BucketSeconds;
pub use snapshot::{ErrorSummary, InsightGauges, InsightSnapshot};

/// Leading blocks of a prompt that identify its prefix: 256 tokens in blocks of 16.
const EARLY_BLOCK: usize = 16;

/// Explains requests.
pub struct Insight {
    waiting: Mutex<InsightBatch>,
    state: Mutex<InsightState>,
    /// Operations that fill a batch.
    batch_ops: usize,
    /// Requests so far.
    requests: AtomicU64,
    names: NameHasher,
    metrics: InsightMetrics,
    causes: Arc<Causes>,
}

/// A request that is under way. Dropped before [`Observation::finish`], it ended without an answer.
pub struct Observation {
    insight: Arc<Insight>,
    number: u64,
    is_finished: bool,
    replica: ReplicaId,
    prompt_tokens: u32,
    predicted_tokens: u32,
    /// Tiers of the chosen replica that held the prompt's front when it was placed.
    held: TierTokens,
    block_size: u32,
    tenant: Option<String>,
    prefix: Option<RouteKey>,
    candidates: Vec<CandidateRecord>,
    served: Option<ServedTokens>,
}

impl Observation {
    /// Its first token is out.
    pub fn computed(&self, now: Nanos) {
        self.insight.say(|_| InsightOp::Computed(self.number, now));
    }

    /// The engine said where the prompt's tokens were found.
    pub fn serve(&mut self, sources: &PromptSources) {
        let tokens = sources.by_tier().map(|tokens| tokens as u32);
        self.served = Some(ServedTokens { tiers: tokens, load_failed: 0 });
    }

    /// The engine said how many it found, and not where: they were where the index knew them. It
    /// did not load the others below its device.
    pub fn serve_somewhere(&mut self, tokens: usize) {
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        let block_size = self.block_size.max(1);
        let floor = self.prompt_tokens.saturating_sub(1) / block_size * block_size;
        let stored = self.held.within(Tier::Remote).min(floor);
        let load_failed = stored.saturating_sub(tokens.max(self.held.within(Tier::Device)));
        // A split by tier that came first is kept; a bare count says less.
        self.served.get_or_insert(ServedTokens { tiers: self.held.split(tokens), load_failed });
    }

    /// Its answer is complete, or says enough.
    #[inline(never)]
    pub fn finish(mut self, answered: &AnswerFacts<'_>, sketch: Option<Sketch>, now: Nanos) {
        let served = self.served;
        let candidates = std::mem::take(&mut self.candidates);
        let chosen = candidates.iter().find(|one| one.replica == self.replica.0);
        let record = RequestRecord {
            tenant: self.tenant.take(),
            prompt_tokens: self.prompt_tokens,
            predicted_cached_tokens: Some(self.predicted_tokens),
            cached_tokens: served.map(|served| served.tokens().min(u64::from(u32::MAX)) as u32),
            predicted_ttft_s: chosen.map(|chosen| chosen.predicted_ttft_s),
            candidates,
            ..RequestRecord::of(self.replica, answered)
        };
        let finished = Box::new(AnsweredRequest {
            record,
            prefix: self.prefix,
            block_size: self.block_size,
            served,
            sketch,
        });
        self.is_finished = true;
        self.insight.say(|_| InsightOp::Finished(self.number, finished, now));
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        if !self.is_finished {
            self.insight.say(|_| InsightOp::Abandoned(self.number));
        }
    }
}

/// Facts about a request that are known at its end.
#[derive(Clone, Copy, Debug)]
pub struct AnswerFacts<'a> {
    /// The answer's id, as the client has it; where it has none, the request is known by its own.
    pub id: Option<&'a str>,
    /// The client's id of the request, from `x-request-id`.
    pub request_id: Option<&'a str>,
    /// The model asked for.
    pub model: &'a str,
    /// Time to the first token, seconds; none where only the whole answer came.
    pub ttft_s: Option<f64>,
}

/// An engine's count of a prompt's tokens.
#[derive(Clone, Copy, Debug)]
pub struct CountedPrompt {
    /// All of them.
    pub prompt_tokens: usize,
    /// The cached ones among them, if it says so.
    pub cached_tokens: Option<usize>,
}

impl Insight {
    /// Explains requests; its names are those of `secret`.
    #[must_use]
    pub fn new(secret: u64, metrics: InsightMetrics) -> Self {
        let config = AttributorConfig { secret, ..AttributorConfig::default() };
        Self {
            waiting: Mutex::default(),
            state: Mutex::new(InsightState::new(Attributor::new(&config))),
            batch_ops: batch::OPS,
            requests: AtomicU64::new(0),
            names: NameHasher::new(secret),
            metrics,
            // Sketches are compared within this process only, so their key need not outlive it.
            causes: Arc::new(Causes::start(&random_key())),
        }
    }

    /// A request was placed. `None`: its tokens are not known, and it cannot be explained.
    /// `capacity_blocks`: those of the chosen replica's device, where that is known.
    #[must_use]
    #[inline(never)]
    pub fn arrive(
        self: &Arc<Self>,
        decision: &Decision,
        request: &RouteRequest<'_>,
        capacity_blocks: Option<usize>,
    ) -> Option<Observation> {
        let (tokens, keys, now) = (request.tokens?, request.keys?, request.now);
        let namespace = request.namespace;
        // Where replicas have blocks of several sizes the smallest say most. Without events no size
        // is known.
        let chain = keys.chains().first();
        let (block_size, keys) =
            chain.map_or((0, &[][..]), |chain| (chain.shape.size, &chain.keys[..]));
        // An observation's number only has to be unique; no other data depends on its order.
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let named = self.names.namespace(namespace);
        // Copies into flat lists. The caller holds the batch's lock for this copy and for no
        // analysis.
        self.say(|batch| {
            batch.tokens.extend_from_slice(tokens);
            batch.keys.extend_from_slice(keys);
            let candidates = decision.candidates.iter();
            let overlaps = candidates.map(|one| (one.replica, one.overlap_tokens as u32));
            batch.overlaps.extend(overlaps);
            let arrived = BatchArrival {
                replica: decision.replica,
                block_size,
                namespace: named,
                capacity_blocks: capacity_blocks.map(|blocks| blocks as u64),
                // The ends of the lists: an arrival owns the entries between the end before it and
                // its own.
                tokens: batch.tokens.len(),
                keys: batch.keys.len(),
                overlaps: batch.overlaps.len(),
            };
            InsightOp::Arrived(number, arrived, now)
        });
        let mut candidates = decision.candidates.iter();
        let chosen = candidates.find(|one| one.replica == decision.replica);
        let predicted = chosen.map_or(0, |chosen| chosen.overlap_tokens.min(tokens.len()));
        Some(Observation {
            insight: self.clone(),
            number,
            is_finished: false,
            replica: decision.replica,
            prompt_tokens: tokens.len() as u32,
            predicted_tokens: predicted as u32,
            held: decision.tier_tokens,
            block_size,
            tenant: namespace.salt.map(|salt| self.names.tenant(salt)),
            // A key covers its block and all before it. The 16th one names the first 256 tokens,
            // system prompt included.
            prefix: keys.get(EARLY_BLOCK - 1).or(keys.last()).copied(),
            candidates: foremost(decision.replica, &decision.candidates),
            served: None,
        })
    }

    /// A request whose tokens are not known was answered by `replica`; the engine counted its
    /// prompt, and perhaps what of it was cached.
    pub fn finish_unknown(
        &self,
        replica: ReplicaId,
        counted: CountedPrompt,
        salt: Option<&str>,
        answered: &AnswerFacts<'_>,
        sketch: Option<Sketch>,
    ) {
        let count = |tokens: usize| u32::try_from(tokens).unwrap_or(u32::MAX);
        let record = RequestRecord {
            tenant: salt.map(|salt| self.names.tenant(salt)),
            prompt_tokens: count(counted.prompt_tokens),
            cached_tokens: counted.cached_tokens.map(count),
            ..RequestRecord::of(replica, answered)
        };
        self.say(|_| InsightOp::Unknown(Box::new((record, sketch))));
    }

    /// A replica's events changed its cache so.
    #[inline(never)]
    pub fn changed(&self, replica: ReplicaId, changes: &[BlockChange], now: Nanos) {
        self.say(|batch| {
            batch.changes.extend_from_slice(changes);
            InsightOp::Changed(replica, batch.changes.len(), now)
        });
    }

    /// Sets the models that a replica serves: blocks of different models are different blocks.
    /// Ignores an empty list.
    pub fn set_models(&self, replica: ReplicaId, models: &[String]) {
        if !models.is_empty() {
            let model = self.names.models(models);
            self.say(|_| InsightOp::Serves(replica, model));
        }
    }

    /// A replica lost all it held.
    pub fn cleared(&self, replica: ReplicaId, now: Nanos) {
        self.say(|_| InsightOp::Cleared(replica, now));
    }

    /// A sketch of a text of about `bytes` bytes, if there is time for it.
    #[must_use]
    pub fn look_at(&self, bytes: usize, text: impl FnOnce() -> String) -> Option<Sketch> {
        self.causes.look_at(bytes, text)
    }

    /// Returns the causes of prompt divergence, after it applies the waiting batch.
    #[must_use]
    pub fn causes(&self) -> &Arc<Causes> {
        // The lock applies the waiting batch, which sends finished requests to the causes.
        drop(self.lock());
        &self.causes
    }

    /// Seconds of each bucket's tokens, as the requests' own times tell; none while these are few.
    #[must_use]
    pub fn seconds(&self) -> Option<BucketSeconds> {
        // Copied, so that the fit holds no lock.
        let seconds = self.lock().seconds.clone();
        seconds.told()
    }

    /// Estimates hit rates in the last hour, per replica, for its cache size and larger ones.
    #[must_use]
    pub fn ghosts(&self, now: Nanos) -> Vec<GhostAnswer> {
        // One at a time, so that the lock is not held for all.
        let replicas = self.lock().ghosts.replicas();
        let answers = replicas.into_iter();
        answers.filter_map(|replica| self.lock().ghosts.answer(replica, now)).collect()
    }

    /// The latest `limit` requests, newest first.
    #[must_use]
    pub fn recent(&self, limit: usize) -> Vec<Arc<RequestRecord>> {
        self.lock().records.recent(limit)
    }

    /// The request of an answer's id or of a client's request id, while it is remembered.
    #[must_use]
    pub fn request(&self, id: &str) -> Option<Arc<RequestRecord>> {
        self.lock().records.find(id)
    }

    /// All sums, as they stand.
    #[must_use]
    pub fn snapshot(&self) -> InsightSnapshot {
        let state = self.lock();
        // Copied, so that the lock is not held while they are summarized.
        let (sums, memory) = (state.records.sums.clone(), state.attributor.memory());
        drop(state);
        InsightSnapshot::of(sums, memory)
    }

    /// Brings the gauges up to date.
    pub fn refresh(&self, metrics: &Metrics, now: Nanos) {
        let state = self.lock();
        let (outlook, memory) = (state.records.sums.outlook.clone(), state.attributor.memory());
        drop(state);
        metrics.set_insight(&InsightGauges::of(&outlook, memory), &self.ghosts(now));
    }

    /// Notes what is said, soon.
    fn say(&self, say: impl FnOnce(&mut InsightBatch) -> InsightOp) {
        let mut batch = lock(&self.waiting);
        let op = say(&mut batch);
        batch.ops.push(op);
        let is_full = batch.is_full(self.batch_ops);
        // Released first: `lock` takes the state and then the batch, and the other order could
        // deadlock.
        drop(batch);
        if is_full {
            drop(self.lock());
        }
    }

    /// Locks the state, after it applies the waiting batch.
    fn lock(&self) -> MutexGuard<'_, InsightState> {
        // The state before the batch: batches are then applied in the order in which they were
        // taken.
        let mut state = lock(&self.state);
        let mut batch = std::mem::take(&mut state.spare);
        // Writers wait for a swap and not for the whole batch, and both lists keep their memory.
        std::mem::swap(&mut batch, &mut *lock(&self.waiting));
        let told = InsightSinks { metrics: &self.metrics, causes: &self.causes };
        state.settle(&mut batch, &told);
        batch.clear();
        state.spare = batch;
        state
    }
}

#[cfg(test)]
mod tests;
