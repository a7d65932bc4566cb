//! What became of requests, and why: the live side of `headstart-insight`.
//!
//! ```text
//! gateway ── decision ──► arrive ──► Ticket ── first token, answer ──► RequestRecord
//!                           │                                             │
//! replica's events ──► Attributor (bounded memory)          ring, waterfalls, metrics
//! ```
//!
//! One lock, held for some microseconds a call; requests never wait for a reader, which copies
//! what it shows. No text and no token is kept: prompts are keyed hashes, and a tenant is shown as
//! a keyed tag. Every memory here has its bound in `records` or in the attributor's config.

mod causes;
mod ghosts;
mod names;
mod records;
mod seconds;
mod snapshot;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headstart_core::block::Namespace;
use headstart_core::{CacheEvent, Nanos, ReplicaId, RouteKey, TokenId};
use headstart_insight::loss::{Arrival, Attributor, AttributorConfig, Outcome, Pending, Served};
use headstart_insight::text::Sketch;
use headstart_insight::{Bucket, Split};
use headstart_router::{Decision, PromptKeys};

use crate::clock::unix_seconds;
use crate::metrics::{InsightMetrics, PromptSources};
use crate::prompt_tokens::random_key;
use ghosts::Ghosts;
use names::Names;
use records::{Records, foremost};
use seconds::Seconds;

pub use causes::{CauseSum, Causes, Parted};
pub use ghosts::GhostAnswer;
pub use records::{CandidateRecord, RequestRecord};
pub use seconds::BucketSeconds;
pub use snapshot::{ErrorSummary, Outlook, PrefixRow, Snapshot, Waterfalls};

/// Blocks into a prompt at which a prefix is told from others: 256 tokens of blocks of 16.
const EARLY_BLOCK: usize = 16;

/// Explains requests.
pub struct Insight {
    state: Mutex<State>,
    names: Names,
    metrics: InsightMetrics,
    causes: Arc<Causes>,
}

struct State {
    attributor: Attributor,
    records: Records,
    ghosts: Ghosts,
    seconds: Seconds,
}

/// What is asked of a request when it was placed.
#[derive(Clone, Copy)]
pub struct Placed<'a> {
    /// The decision.
    pub decision: &'a Decision,
    /// The prompt's tokens.
    pub tokens: &'a [TokenId],
    /// Its keys.
    pub keys: &'a PromptKeys,
    /// What sets it apart from the same tokens elsewhere.
    pub namespace: Namespace<'a>,
    /// Blocks of the chosen replica's device, where that is known.
    pub capacity_blocks: Option<usize>,
}

/// A request that is under way. Give it back with [`Insight::finish`] or [`Insight::abandon`].
pub struct Ticket {
    pending: Pending,
    prompt_tokens: u32,
    block_size: u32,
    tenant: Option<String>,
    prefix: Option<RouteKey>,
    candidates: Vec<CandidateRecord>,
    served: Option<Served>,
}

impl Ticket {
    /// The engine said where the prompt's tokens were found.
    pub fn serve(&mut self, sources: &PromptSources) {
        let tokens = sources.by_tier().map(|tokens| tokens as u32);
        self.served = Some(Served {
            tiers: tokens,
            load_failed: 0,
        });
    }

    /// The engine said how many it found, and not where.
    pub fn serve_somewhere(&mut self, tokens: usize) {
        self.served.get_or_insert(Served::by_device(tokens as u32));
    }
}

/// What is known of a request at its end.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// The answer's id, as the client has it; where it has none, the request is known by its own.
    pub id: Option<&'a str>,
    /// What the client calls it: its `x-request-id`.
    pub request_id: Option<&'a str>,
    /// The model asked for.
    pub model: &'a str,
    /// Time to the first token, seconds; none where only the whole answer came.
    pub ttft_s: Option<f64>,
}

impl Insight {
    /// Explains requests of replicas whose index names blocks by `identity`.
    #[must_use]
    pub fn new(identity: &str, secret: u64, metrics: InsightMetrics) -> Self {
        let config = AttributorConfig {
            secret,
            ..AttributorConfig::default()
        };
        Self {
            state: Mutex::new(State {
                attributor: Attributor::new(&config),
                records: Records::default(),
                ghosts: Ghosts::default(),
                seconds: Seconds::default(),
            }),
            names: Names::new(identity, secret),
            metrics,
            causes: Arc::new(Causes::start(&random_key())),
        }
    }

    /// A request was placed.
    #[must_use]
    #[inline(never)]
    pub fn arrive(&self, placed: &Placed<'_>, now: Nanos) -> Ticket {
        let Placed {
            decision,
            tokens,
            keys,
            namespace,
            capacity_blocks,
        } = *placed;
        // Where replicas have blocks of several sizes the smallest say most.
        let chain = keys.chains().first();
        let (block_size, keys) =
            chain.map_or((1, &[][..]), |chain| (chain.block_size, &chain.keys[..]));
        let candidates = decision.candidates.iter();
        let overlaps: Vec<_> = candidates
            .map(|one| (one.replica, one.overlap_tokens as u32))
            .collect();
        let arrival = Arrival {
            replica: decision.replica,
            prompt_tokens: tokens.len() as u32,
            block_size,
            keys,
            tokens: Some(tokens),
            namespace: self.names.namespace(namespace),
            overlaps: &overlaps,
        };
        let mut state = self.lock();
        if let Some(blocks) = capacity_blocks {
            state.ghosts.set_capacity(decision.replica.0, blocks as u64);
        }
        let pending = state.attributor.arrive(&arrival, now);
        drop(state);
        Ticket {
            pending,
            prompt_tokens: tokens.len() as u32,
            block_size,
            tenant: namespace.salt.map(|salt| self.names.tenant(salt)),
            prefix: keys.get(EARLY_BLOCK - 1).or(keys.last()).copied(),
            candidates: foremost(decision.replica, &decision.candidates),
            served: None,
        }
    }

    /// Its first token is out.
    #[inline(never)]
    pub fn computed(&self, ticket: &mut Ticket, now: Nanos) {
        self.lock().attributor.computed(&mut ticket.pending, now);
    }

    /// Its answer is complete, or says enough.
    #[inline(never)]
    pub fn finish(
        &self,
        ticket: Ticket,
        answered: &Answered<'_>,
        sketch: Option<Sketch>,
        now: Nanos,
    ) {
        let predicted = ticket.pending.predicted_tokens();
        let replica = ticket.pending.replica();
        let mut state = self.lock();
        // An engine that says nothing of its cache cannot be explained; it was computed all the
        // same.
        let mut pending = ticket.pending;
        state.attributor.computed(&mut pending, now);
        let (names, size) = (pending.take_names(), ticket.block_size);
        let tokens = ticket.prompt_tokens;
        state.ghosts.record(replica.0, size, names, tokens, now);
        let served = ticket.served;
        let outcome = served.map(|served| state.attributor.finish(pending, &served, now));
        let record = RequestRecord {
            id: answered
                .id
                .or(answered.request_id)
                .unwrap_or_default()
                .to_owned(),
            request_id: answered.request_id.map(str::to_owned),
            at_unix_s: unix_seconds(),
            model: answered.model.to_owned(),
            tenant: ticket.tenant,
            replica: replica.0,
            prompt_tokens: ticket.prompt_tokens,
            predicted_cached_tokens: predicted,
            cached_tokens: served.map(|served| served.tokens().min(u64::from(u32::MAX)) as u32),
            predicted_ttft_s: ticket
                .candidates
                .iter()
                .find(|one| one.replica == replica.0)
                .map(|one| one.predicted_ttft_s),
            ttft_s: answered.ttft_s,
            candidates: ticket.candidates,
            split: outcome.map(|outcome| outcome.split),
            certainty: outcome.map_or(0.0, |outcome| outcome.certainty),
            evicted: outcome.and_then(|outcome| outcome.evicted),
        };
        if let Some(split) = &record.split {
            state.seconds.add(split, record.ttft_s);
        }
        let question = sketch.map(|sketch| (namespace(&record), record.id.clone(), sketch));
        state.records.add(record, ticket.prefix);
        drop(state);
        if let Some((namespace, id, sketch)) = question {
            let lost = outcome.map(|outcome| again(&outcome.split));
            self.causes.explain(namespace, id, sketch, lost);
        }
        if let Some(Outcome { split, .. }) = outcome {
            self.metrics.note(answered.model, &split);
        }
    }

    /// It ended without an answer.
    #[inline(never)]
    pub fn abandon(&self, ticket: &Ticket) {
        self.lock().attributor.abandon(&ticket.pending);
    }

    /// A replica said what changed in its cache.
    #[inline(never)]
    pub fn events(&self, replica: ReplicaId, events: &[CacheEvent], now: Nanos) {
        let mut state = self.lock();
        for event in events {
            let name =
                |parent, tokens: &[TokenId], extra: Option<&[u8]>, namespace: Namespace<'_>| {
                    self.names.block(parent, tokens, extra, namespace)
                };
            state.attributor.observe(replica, event, &name, now);
            state.ghosts.observe(replica.0, event, now);
        }
    }

    /// A replica serves these models: blocks of different models are different blocks. Says
    /// nothing where nobody knows any.
    pub fn set_models(&self, replica: ReplicaId, models: &[String]) {
        if !models.is_empty() {
            let model = self.names.models(models);
            self.lock().attributor.set_model(replica, model);
        }
    }

    /// A replica lost all it held.
    pub fn cleared(&self, replica: ReplicaId, now: Nanos) {
        let mut state = self.lock();
        state.attributor.cleared(replica);
        state.ghosts.clear(replica.0, now);
    }

    /// What made prompts part.
    #[must_use]
    pub fn causes(&self) -> &Arc<Causes> {
        &self.causes
    }

    /// Seconds of each bucket's tokens, as the requests' own times tell; none while these are few.
    #[must_use]
    pub fn seconds(&self) -> Option<BucketSeconds> {
        // Copied, so that nobody waits for the fit.
        let seconds = self.lock().seconds.clone();
        seconds.told()
    }

    /// What each replica's cache would have hit in the last hour if it were larger.
    #[must_use]
    pub fn ghosts(&self, now: Nanos) -> Vec<GhostAnswer> {
        // One at a time, so that nobody waits for all.
        let replicas = self.lock().ghosts.replicas();
        let answers = replicas.into_iter();
        answers
            .filter_map(|replica| self.lock().ghosts.answer(replica, now))
            .collect()
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
    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        // Copied, so that nobody waits until they are put into words.
        let (sums, memory) = (state.records.sums.clone(), state.attributor.memory());
        drop(state);
        Snapshot::of(sums, memory)
    }

    /// Brings the gauges up to date.
    pub fn refresh_metrics(&self, now: Nanos) {
        let state = self.lock();
        let (outlook, memory) = (
            state.records.sums.outlook.clone(),
            state.attributor.memory(),
        );
        drop(state);
        self.metrics.set(&Outlook::of(&outlook, memory));
        self.metrics.set_ghosts(&self.ghosts(now));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tokens that were known, behind another front or in another namespace.
fn again(split: &Split) -> u32 {
    split.get(Bucket::Diverged) + split.get(Bucket::Namespace)
}

/// Stands for what prompts must have in common to share a cache.
fn namespace(record: &RequestRecord) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&record.model, &record.tenant).hash(&mut hasher);
    hasher.finish()
}
