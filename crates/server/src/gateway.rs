//! One request's way to a replica: route, reserve, submit, and once more elsewhere if the
//! replica is gone before the first token.

mod embedded;
mod fan_out;
mod fleet;
mod gauges;
mod health;
mod holders;
mod models;
mod pins;
mod prompts;
mod proxied;
mod reservation;
mod restored;
mod self_check;
mod streams;
mod usage_gaps;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use headstart_core::{CacheEvent, Nanos, ReplicaId};
use headstart_index_sync::clock::Clock;
use headstart_index_sync::shared::SharedIndex;
use headstart_kv_events::{Endpoints, StreamReporter};
use headstart_prompt::Normalizers;
use headstart_router::index::{ApproximateIndex, Update};
use headstart_router::{
    Decision, Health, PrefixIndex, Profile, Prompt, PromptKeys, ReportedLoad, RouteRequest, Router,
};

use crate::config::{Edge, EdgeLimits, PrefixLabel};
use crate::dashboard::{Dashboard, PrefixLabels};
use crate::drift::DriftWatch;
use crate::lock::lock;
use crate::metrics::Metrics;
use crate::observers::Observers;
use crate::openai::ApiError;
use crate::prompt_tokens::PromptTokens;
use crate::upstream::Upstream;
use models::ModelLists;
use prompts::PromptDesk;

pub use embedded::{GenerationObservers, PrefilledRequest};
pub use fan_out::EngineAnswer;
pub use fleet::{EmbeddedReplicas, Fleet};
pub(crate) use gauges::kv_usage;
pub use models::unknown_model;
pub use pins::{Pin, Pins};
pub use prompts::{KnownPrompt, Lack, ToRender};
pub use proxied::{Passing, ProxyAnswer, is_event_stream};
pub use reservation::Reservation;
pub use self_check::Comparison;
pub use usage_gaps::{UsageGap, UsageGaps};

/// Refusals by replicas after which the client gets an error: two full queues are enough.
const REFUSALS: usize = 2;

/// Upstreams that die with a request after which the client gets an error. A single death may be
/// chance, but a request that kills every engine must not go round the whole fleet. Failed
/// connections do not count.
const DEATHS: usize = 4;

/// Everything that requests share.
pub struct HttpGateway {
    parts: GatewayParts,
    /// Replicas that hold stored responses, by response id.
    pub pins: Pins,
    /// Set once shutdown has begun.
    pub draining: AtomicBool,
    router: Mutex<Router>,
    /// The router's index: prompts are hashed and events applied without holding the router.
    index: Arc<dyn PrefixIndex>,
    /// The router's index of prompts whose tokens are not known.
    text_index: Arc<ApproximateIndex>,
    /// Tokenizes prompts; `None` without a tokenizer.
    prompt_tokens: Option<Arc<PromptTokens>>,
    /// State of the replicas' event streams.
    streams: Mutex<BTreeMap<ReplicaId, StreamReporter>>,
    /// Replicas of which something was restored, and whose stream is not followed yet.
    restored: Mutex<BTreeSet<ReplicaId>>,
    /// Held while a scrape brings the gauges up to date: another one may clear some of them.
    scrape: Mutex<()>,
    /// State of the dashboard.
    pub dashboard: Dashboard,
    /// Shapes of requests whose tokens differ from an engine's.
    pub drift: DriftWatch,
    /// Counts of answers without usage or cached tokens.
    pub(crate) usage_gaps: UsageGaps,
    prompts: PromptDesk,
    /// Whether a prompt is being compared with an engine's: one at a time.
    is_comparing: AtomicBool,
    /// When the engines were last asked for their models out of turn.
    model_lists: ModelLists,
    next_id: AtomicU64,
    /// Start of the process, microseconds since 1970: sets its answer ids apart from another's.
    run_id: u64,
}

/// Parts from which a gateway is built.
pub struct GatewayParts {
    /// The engines.
    pub fleet: Fleet,
    /// The router's index, where other gateways have part in it.
    pub shared_index: Option<Arc<SharedIndex>>,
    /// Routing strategy.
    pub profile: Profile,
    /// Whether the router was told what the engines cost: else it predicts times of another.
    pub has_cost_model: bool,
    /// The limits of the edge.
    pub limits: EdgeLimits,
    /// Clients must send it.
    pub api_key: Option<String>,
    /// Metrics.
    pub metrics: Metrics,
    /// Observers of requests: spans, explanations, shadow mode.
    pub observers: Observers,
    /// Rewrites of requests.
    pub normalizers: Normalizers,
    /// Whether requests tell the policies inside engines their kind, turn and session.
    pub has_engine_hints: bool,
    /// CORS and admin-route settings.
    pub edge: Edge,
    /// The clock.
    pub clock: Clock,
    /// KV event addresses by replica; `None` without events.
    pub events: Vec<Option<Endpoints>>,
}

impl Deref for HttpGateway {
    type Target = GatewayParts;

    fn deref(&self) -> &GatewayParts {
        &self.parts
    }
}

impl HttpGateway {
    /// From its parts, with a router that knows all replicas, and names of prefixes for the
    /// dashboard.
    #[must_use]
    pub fn new(parts: GatewayParts, router: Router, labels: &[PrefixLabel]) -> Self {
        let prompt = parts.fleet.prompt();
        let labels = prompt.as_deref().map(|model| PrefixLabels::new(labels, model));
        let prompt_tokens = prompt.map(|prompt| {
            let insight = parts.observers.insight.as_ref();
            let causes = insight.map(|insight| insight.causes().clone());
            Arc::new(PromptTokens::new(prompt, parts.metrics.index.clone(), causes))
        });
        Self {
            parts,
            prompt_tokens,
            pins: Pins::default(),
            model_lists: ModelLists::default(),
            draining: AtomicBool::new(false),
            index: router.index(),
            text_index: router.text_index(),
            router: Mutex::new(router),
            streams: Mutex::default(),
            restored: Mutex::default(),
            scrape: Mutex::default(),
            drift: DriftWatch::default(),
            usage_gaps: UsageGaps::default(),
            prompts: PromptDesk::default(),
            dashboard: Dashboard::with(labels.unwrap_or_default()),
            is_comparing: AtomicBool::new(false),
            next_id: AtomicU64::new(0),
            // Microseconds, so that two processes started in the same second still issue different
            // answer ids.
            run_id: (headstart_index_sync::clock::unix_seconds() * 1e6) as u64,
        }
    }

    /// The router. Held for one call at a time.
    pub fn router(&self) -> MutexGuard<'_, Router> {
        lock(&self.router)
    }

    /// The router's index.
    #[must_use]
    pub fn index(&self) -> &dyn PrefixIndex {
        self.index.as_ref()
    }

    /// The same, where other gateways have part in it.
    #[must_use]
    pub fn shared_index(&self) -> Option<&Arc<SharedIndex>> {
        self.shared_index.as_ref()
    }

    /// From text to tokens: of the embedded model, or by the first upstream that has a tokenizer.
    #[must_use]
    pub fn prompt_tokens(&self) -> Option<&Arc<PromptTokens>> {
        self.prompt_tokens.as_ref()
    }

    /// A number that no other request of this process has.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Relaxed)
    }

    /// When the server started, seconds since 1970.
    #[must_use]
    pub fn started_unix_s(&self) -> u64 {
        self.run_id / 1_000_000
    }

    /// An answer's id, such as `chatcmpl-5f0c…-17`.
    #[must_use]
    pub fn answer_id(&self, prefix: &str, request: u64) -> String {
        format!("{prefix}-{:x}-{request}", self.run_id)
    }

    /// The models that can be asked for.
    #[must_use]
    pub fn models(&self) -> Vec<String> {
        self.fleet.models()
    }

    /// The upstream that a replica is; none of an embedded one.
    #[must_use]
    pub fn upstream(&self, replica: ReplicaId) -> Option<&Upstream> {
        self.fleet.upstreams().get(replica.0 as usize)
    }

    /// KV event addresses of a replica; `None` without events.
    #[must_use]
    pub fn event_endpoints(&self, replica: ReplicaId) -> Option<&Endpoints> {
        self.events.get(replica.0 as usize)?.as_ref()
    }

    /// Tokens of prompt and answer together that are taken for `model`, where that is known: by
    /// the most capable replica that serves it.
    #[must_use]
    pub fn context(&self, model: &str) -> Option<usize> {
        self.fleet.context(model)
    }

    /// Whether anybody takes requests.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let healthy = self.router().replicas().any(|replica| replica.health == Health::Healthy);
        // A server that drains answers what it has, but a load balancer must send no more.
        healthy && !self.draining.load(Relaxed)
    }

    /// Updates the index while requests are routed, if the replica counts.
    fn tell_index(&self, replica: ReplicaId, update: Update<'_>, num_events: usize) {
        // The guard ends with the condition: requests are routed while the index takes the events.
        // If the replica goes down in between, `Router::set_health` clears its blocks again when it
        // returns.
        if self.router().listens_to(replica, num_events) {
            let now = self.clock.now();
            // The text index holds prompts that were sent, not blocks, so that single blocks mean
            // nothing to it. A cleared cache does.
            if matches!(update, Update::Events(events) if events.contains(&CacheEvent::Cleared)) {
                self.text_index.update(replica, update, now);
            }
            match (&self.observers.insight, update) {
                (Some(insight), Update::Events(events)) => {
                    // The index names the blocks: events carry the engine's own hashes, and insight
                    // knows only our keys.
                    let mut changes = Vec::new();
                    let index = &self.index;
                    index.update_and_tell(replica, events, now, &mut changes);
                    insight.changed(replica, &changes, now);
                }
                _ => self.index.update(replica, update, now),
            }
        }
    }

    /// The keys of a prompt's tokens, and of its text where the index cannot use the tokens.
    fn keys(&self, request: &RouteRequest<'_>) -> (Option<PromptKeys>, Option<PromptKeys>) {
        let RouteRequest { media, namespace, .. } = *request;
        let exact = request.tokens.map(|tokens| Prompt { tokens, media, namespace });
        let keys = exact.map(|exact| self.index.hash(exact));
        let text = request.text.map(|tokens| Prompt { tokens, media: &[], namespace });
        // Without events no block size is in use, and the router goes by what it sent where.
        let is_unheard = keys.as_ref().is_some_and(|keys| !keys.are_in_use());
        let text = text.or(exact.filter(|_| is_unheard));
        (keys, text.map(|text| self.text_index.hash(text)))
    }

    /// Places a request and reserves its place. The request has no keys and no time yet.
    fn place(
        self: &Arc<Self>,
        request: RouteRequest<'_>,
        excluded: &[ReplicaId],
    ) -> Result<(Decision, Reservation), ApiError> {
        // Hashing reads the whole prompt, so it comes before the router is locked.
        let (keys, text_keys) = self.keys(&request);
        let request = RouteRequest {
            keys: keys.as_ref(),
            text_keys: text_keys.as_ref(),
            excluded,
            now: self.clock.now(),
            ..request
        };
        let mut router = self.router();
        // In the router's lock, so that the decision sees the loads of this moment and no older
        // ones.
        self.report_loads(&mut router, request.now);
        let decision = router.route(&request).map_err(|none| {
            ApiError::replica_gone(format!("{none}; send the request again later"))
        })?;
        // Metrics and insight take locks of their own; no request waits for them at the router.
        drop(router);
        let labels = [self.profile.name.as_str(), &decision.replica.to_string()];
        self.metrics.requests.routed.with_label_values(&labels).inc();
        let now = request.now;
        // Tokens in front of a medium are only a part of the prompt, and a part cannot be
        // explained.
        let is_exact = request.tokens.is_some() && !request.lacks_tokens();
        let insight = self.observers.insight.as_ref().filter(|_| is_exact);
        let capacity_blocks = self.capacity_blocks(decision.replica);
        let observation =
            insight.and_then(|insight| insight.arrive(&decision, &request, capacity_blocks));
        if let Some(keys) = keys {
            self.dashboard.note_prompt(keys, now);
        }
        let reservation = Reservation {
            gateway: self.clone(),
            id: decision.reservation,
            replica: decision.replica,
            replica_name: labels[1].to_owned(),
            // A prompt known in part has no prediction to compare with the engine's count.
            predicted_tokens: is_exact.then_some(decision.overlap_tokens),
            observation: Mutex::new(observation),
        };
        Ok((decision, reservation))
    }

    /// Tells the router what the replicas of this process last said of themselves.
    fn report_loads(&self, router: &mut Router, now: Nanos) {
        for (id, replica) in self.fleet.replicas() {
            let load = replica.load();
            let report = ReportedLoad {
                waiting: load.waiting as u32,
                running: load.running as u32,
                kv_usage: gauges::kv_usage(&load),
                at: now,
            };
            router.report(id, report);
        }
    }

    /// Counts another attempt, on `replica`.
    fn note_retry(&self, replica: ReplicaId) {
        tracing::debug!(%replica, "another attempt");
        let retries = &self.metrics.requests.retries;
        retries.with_label_values(&[replica.to_string()]).inc();
    }
}
