//! One request's way to a replica: route, reserve, submit, and once more elsewhere if the
//! replica is gone before the first token.

mod embedded;
mod proxied;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headstart_core::block::Namespace;
use headstart_core::{Nanos, ReplicaId, TokenId};
use headstart_engine::{GenerationDefaults, Load, Model};
use headstart_prompt::PromptModel;
use headstart_router::{
    Decision, Health, ReportedLoad, ReservationId, RouteRequest, Router, Strategy,
};

use crate::clock::Clock;
use crate::config::Limits;
use crate::events::StreamUpdate;
use crate::metrics::{Metrics, raise};
use crate::openai::ApiError;
use crate::prediction::Predictions;
use crate::replica::Replica;
use crate::upstream::Upstream;

pub use embedded::{Accepted, Ask};
pub use proxied::{Passing, Proxied, is_event_stream, unknown_model};

/// Times a request is placed: once, and once more on another replica.
const ATTEMPTS: usize = 2;

/// Everything that requests share.
pub struct Gateway {
    /// Who computes.
    pub fleet: Fleet,
    /// The limits of the edge.
    pub limits: Limits,
    /// Clients must send it.
    pub api_key: Option<String>,
    /// Metrics.
    pub metrics: Metrics,
    /// The clock.
    pub clock: Clock,
    /// Set once shutdown has begun.
    pub draining: AtomicBool,
    strategy: Strategy,
    router: Mutex<Router>,
    next_id: AtomicU64,
    /// Start of the process, microseconds since 1970: sets its answer ids apart from another's.
    run_id: u64,
}

/// Who computes.
pub enum Fleet {
    /// Replicas in this process.
    Embedded(Embedded),
    /// Engines behind HTTP.
    Upstreams(Vec<Upstream>),
}

/// Replicas in this process.
pub struct Embedded {
    /// The model's name in the API.
    pub name: String,
    /// What its files say about generation.
    pub defaults: GenerationDefaults,
    /// Tokenizer and template.
    pub prompt: Arc<PromptModel>,
    /// The weights.
    pub model: Arc<Model>,
    /// The replicas; the index is the replica id.
    pub replicas: Vec<Replica>,
    /// Whether conversations go on, where somebody predicts it.
    pub predictions: Option<Arc<Predictions>>,
}

impl Embedded {
    /// The longest sequence that a replica can hold, tokens.
    #[must_use]
    pub fn context(&self) -> usize {
        self.replicas
            .iter()
            .map(Replica::context)
            .max()
            .unwrap_or(0)
    }

    fn refresh_prediction_metrics(&self) {
        if let Some(predictions) = &self.predictions {
            let counts = self.replicas.iter().map(Replica::annotations);
            let (in_time, late) = counts.fold((0, 0), |(in_time, late), counts| {
                (in_time + counts.in_time, late + counts.late)
            });
            predictions.refresh_metrics(in_time, late);
        }
    }
}

/// What the gateway is built from.
pub struct GatewayParts {
    /// Who computes.
    pub fleet: Fleet,
    /// The router, which knows all replicas.
    pub router: Router,
    /// Its strategy.
    pub strategy: Strategy,
    /// The limits of the edge.
    pub limits: Limits,
    /// Clients must send it.
    pub api_key: Option<String>,
    /// Metrics.
    pub metrics: Metrics,
    /// The clock.
    pub clock: Clock,
}

impl Gateway {
    /// From its parts.
    #[must_use]
    pub fn new(parts: GatewayParts) -> Self {
        Self {
            fleet: parts.fleet,
            limits: parts.limits,
            api_key: parts.api_key,
            metrics: parts.metrics,
            clock: parts.clock,
            draining: AtomicBool::new(false),
            strategy: parts.strategy,
            router: Mutex::new(parts.router),
            next_id: AtomicU64::new(0),
            run_id: (crate::clock::unix_seconds() * 1e6) as u64,
        }
    }

    /// The router. Held for one call at a time.
    pub fn router(&self) -> MutexGuard<'_, Router> {
        self.router.lock().unwrap_or_else(PoisonError::into_inner)
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
        match &self.fleet {
            Fleet::Embedded(embedded) => vec![embedded.name.clone()],
            Fleet::Upstreams(upstreams) => {
                let mut names: Vec<_> = upstreams.iter().flat_map(Upstream::models).collect();
                names.sort();
                names.dedup();
                names
            }
        }
    }

    /// Whether anybody takes requests.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let healthy = self
            .router()
            .replicas()
            .any(|replica| replica.health == Health::Healthy);
        healthy && !self.draining.load(Relaxed)
    }

    /// Whether a replica is known to be down.
    #[must_use]
    pub fn is_down(&self, replica: ReplicaId) -> bool {
        let router = self.router();
        router
            .replicas()
            .any(|status| status.replica == replica && status.health == Health::Down)
    }

    /// Takes note that a replica went down or came back.
    pub fn set_health(&self, replica: ReplicaId, health: Health) {
        let mut router = self.router();
        let before = router.replicas().find(|status| status.replica == replica);
        if before.is_none_or(|status| status.health != health) {
            router.set_health(replica, health);
            drop(router);
            match health {
                Health::Healthy => tracing::info!(%replica, "replica is up"),
                Health::Down => tracing::warn!(%replica, "replica is down"),
            }
        }
    }

    /// Takes note of what a replica's event stream said.
    pub fn on_stream(&self, replica: ReplicaId, update: StreamUpdate) {
        let name = replica.to_string();
        let count = |outcome: &str, by: u64| {
            self.metrics
                .replicas
                .kv_events
                .with_label_values(&[&name[..], outcome])
                .inc_by(by);
        };
        match update {
            StreamUpdate::Events(events) => {
                let mut router = self.router();
                events.iter().for_each(|event| router.apply(replica, event));
                drop(router);
                count("applied", events.len() as u64);
            }
            StreamUpdate::Clear => {
                self.router().clear(replica);
                count("cleared", 1);
            }
            // What was lost may be removals: stale entries cost a wrong route, never a wrong
            // answer, and leave with the next clear.
            StreamUpdate::Lost { batches } => {
                tracing::warn!(%replica, batches, "KV events lost; routing may miss what it holds");
                count("lost", batches);
            }
            StreamUpdate::Skipped { count: skipped } => count("skipped", skipped as u64),
        }
    }

    /// Places a request and reserves its place.
    fn place(
        self: &Arc<Self>,
        tokens: Option<&[TokenId]>,
        salt: Option<&str>,
        session: Option<&str>,
        excluded: &[ReplicaId],
    ) -> Result<(Decision, Reservation), ApiError> {
        let request = RouteRequest {
            tokens,
            namespace: Namespace {
                adapter: None,
                salt,
            },
            session,
            excluded,
            now: self.clock.now(),
        };
        let mut router = self.router();
        self.report_loads(&mut router, request.now);
        let decision = router
            .route(&request)
            .map_err(|none| ApiError::replica_gone(format!("{none}; try again")))?;
        drop(router);
        let labels = [self.strategy.name(), &decision.replica.to_string()];
        self.metrics
            .requests
            .routed
            .with_label_values(&labels)
            .inc();
        let id = decision.reservation;
        Ok((
            decision,
            Reservation {
                gateway: self.clone(),
                id,
                replica_name: labels[1].to_owned(),
            },
        ))
    }

    /// Tells the router what the replicas of this process last said of themselves.
    fn report_loads(&self, router: &mut Router, now: Nanos) {
        let Fleet::Embedded(embedded) = &self.fleet else {
            return;
        };
        for (index, replica) in embedded.replicas.iter().enumerate() {
            let load = replica.load();
            let report = ReportedLoad {
                waiting: load.waiting as u32,
                running: load.running as u32,
                kv_usage: kv_usage(&load),
                at: now,
            };
            router.report(ReplicaId(index as u32), report);
        }
    }

    /// Counts a second attempt, on `replica`.
    fn note_retry(&self, replica: ReplicaId) {
        tracing::debug!(%replica, "second attempt");
        let retries = &self.metrics.requests.retries;
        retries.with_label_values(&[replica.to_string()]).inc();
    }

    /// Brings the gauges up to date and writes all metrics.
    #[must_use]
    pub fn render_metrics(&self) -> String {
        let metrics = &self.metrics;
        let stats = self.router().stats();
        let entries = metrics
            .replicas
            .index_entries
            .with_label_values(&[self.strategy.name()]);
        entries.set(stats.index.entries as i64);
        let replicas: Vec<_> = self.router().replicas().collect();
        for replica in replicas {
            let up = i64::from(replica.health == Health::Healthy);
            metrics
                .replicas
                .up
                .with_label_values(&[replica.replica.to_string()])
                .set(up);
        }
        if let Fleet::Embedded(embedded) = &self.fleet {
            for (index, replica) in embedded.replicas.iter().enumerate() {
                let name = index.to_string();
                let labels = [&embedded.name[..], &name];
                let load = replica.load();
                metrics
                    .replicas
                    .running
                    .with_label_values(&labels)
                    .set(load.running as i64);
                metrics
                    .replicas
                    .waiting
                    .with_label_values(&labels)
                    .set(load.waiting as i64);
                raise(
                    &metrics.replicas.preemptions.with_label_values(&labels),
                    load.preemptions,
                );
                raise(
                    &metrics.replicas.panics.with_label_values(&[&name]),
                    replica.panics(),
                );
                metrics
                    .replicas
                    .kv_usage
                    .with_label_values(&labels)
                    .set(kv_usage(&load));
            }
            embedded.refresh_prediction_metrics();
        }
        metrics.render()
    }
}

/// Share of the KV blocks that running requests hold, in `[0, 1]`.
fn kv_usage(load: &Load) -> f64 {
    let used = load.capacity_blocks.saturating_sub(load.available_blocks);
    used as f64 / load.capacity_blocks.max(1) as f64
}

/// A request's place with the router; given back when dropped.
pub struct Reservation {
    gateway: Arc<Gateway>,
    id: ReservationId,
    replica_name: String,
}

impl Reservation {
    /// The prefill is done.
    pub fn first_token(&self) {
        self.gateway.router().first_token(self.id);
    }

    /// The replica, as metrics and headers name it.
    #[must_use]
    pub fn replica_name(&self) -> &str {
        &self.replica_name
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.gateway.router().finish(self.id);
    }
}
