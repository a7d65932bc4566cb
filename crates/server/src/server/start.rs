//! Building a gateway: replicas with their event streams, or upstreams with their watchers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use headstart_cache::policy::{self, Setting};
use headstart_core::{EngineModel, Probability, ReplicaId, SeqId, Tier};
use headstart_engine::importance::ImportanceConfig;
use headstart_engine::{BoundedExecutor, Engine, EngineConfig};
use headstart_index_sync::clock::{Clock, unix_seconds};
use headstart_index_sync::saved::{Folder, Keeper, Saving};
use headstart_index_sync::shared::{SharedIndex, SharedIndexConfig, Timeline};
use headstart_kv_events::{Endpoints, EventPublisher, PublisherConfig, endpoint_of_rank};
use headstart_prompt::PromptModel;
use headstart_router::profile::{IndexKind, ScorerKind};
use headstart_router::{PrefixIndex, Router, RouterConfig, RunIndex};

use super::Watcher;
use super::follow::{self, ReplicaStream};
use super::kept_index::{index_secret, keep};
use crate::config::{EmbeddedFleet, EngineBackend, ServeConfig, UpstreamConfig};
use crate::emulator::Emulator;
use crate::gateway::{EmbeddedReplicas, Fleet, GatewayParts, HttpGateway};
use crate::learned_tables::LearnedTables;
use crate::metrics::{Metrics, TimedMover};
use crate::observers::Observers;
use crate::prediction::Predictions;
use crate::prompt_tokens::model_in;
use crate::replica::{EmbeddedReplica, Hooks};
use crate::serve_error::ServeError;
use crate::timed_index::TimedIndex;
use crate::upstream::Upstream;

/// Batches that a replica keeps for replay: hours of an embedded engine's work.
const REPLAY_BATCHES: usize = 10_000;

/// The gateway, for those who exist before it.
type Later = Arc<OnceLock<Weak<HttpGateway>>>;

/// Everything behind the sockets.
pub(super) struct ServerAssembly {
    pub(super) gateway: Arc<HttpGateway>,
    /// Event subscriptions and health watchers; they end with the server.
    pub(super) watchers: Vec<Watcher>,
    pub(super) event_endpoints: Vec<Endpoints>,
    /// Keeps the index, where that is wanted.
    pub(super) saving: Option<Saving>,
    /// The state folder of embedded replicas, locked.
    _state_folder: Option<Folder>,
}

/// Starts everything behind the sockets.
pub(super) async fn gateway(config: ServeConfig) -> Result<ServerAssembly, ServeError> {
    let clock = Clock::start();
    let mut observers = Observers::start(&config, clock)?;
    let folder = config.state_dir.as_deref().map(Folder::open).transpose()?;
    // Replicas start before the gateway exists. Their hooks find it here once it does.
    let later = Later::default();
    let metrics = Metrics::priced(config.prices.clone());
    let engine_model = emulated(&config.backend).or(config.engine_model);
    warn_of_blindness(&config);
    let around = SharedServices { clock, later: &later, metrics: &metrics };
    let (fleet, model, streams) = match config.backend {
        EngineBackend::Embedded(fleet) => embedded(*fleet, around).await?,
        EngineBackend::Upstreams(upstreams) => proxied(&upstreams)?,
    };
    let secret = index_secret(config.index_secret, folder.as_ref())?;
    let name = format!("{model} {secret:016x}");
    let index = Arc::new(RunIndex::new(name.clone()));
    observers.explain(config.insight.then_some(secret), &metrics);
    let (folder, lock) = split_state(folder, &fleet);
    let keeper = folder.map(|folder| {
        let endpoints = follow::endpoints(&fleet, &streams);
        Keeper::new(folder, index.clone(), name.clone(), endpoints)
    });
    let share = |server| {
        let named = (0..).map(ReplicaId).zip(follow::endpoints(&fleet, &streams));
        let config = SharedIndexConfig {
            server,
            model: model.clone(),
            identity: name.clone(),
            replicas: named.filter_map(|(id, name)| Some((id, name?))).collect(),
        };
        SharedIndex::start(config, index.clone(), Timeline::of(clock)).map(Arc::new)
    };
    let shared_index = config.shared_index.map(share).transpose()?;
    let asked: Arc<dyn PrefixIndex> = match (&shared_index, config.profile.index) {
        (Some(shared), _) => shared.clone(),
        (None, IndexKind::Events) => index.clone(),
        (None, IndexKind::Approximate(_)) => config.profile.index(&name),
    };
    let timed = Arc::new(TimedIndex::new(asked, metrics.index.clone()));
    let router = RouterConfig { model, profile: config.profile.clone(), seed: config.seed };
    let mut router = Router::with_index(router, timed);
    add_replicas(&mut router, &streams, engine_model, clock);
    let parts = GatewayParts {
        fleet,
        shared_index,
        profile: config.profile,
        has_cost_model: engine_model.is_some(),
        limits: config.limits,
        api_key: config.api_key,
        metrics,
        observers,
        normalizers: config.normalizers,
        has_engine_hints: config.has_engine_hints,
        edge: config.edge,
        clock,
        events: streams.iter().map(|stream| stream.events.clone()).collect(),
    };
    let gateway = Arc::new(HttpGateway::new(parts, router, &config.labels));
    let _ = later.set(Arc::downgrade(&gateway)); // Set once, here.
    // The restore of a saved index asks which engines are up, and for which models.
    follow::look_at_all(&gateway).await;
    let saving = keep(keeper, &gateway).await?;
    // After the restore: a stream must know that it continues restored contents.
    let mut watchers = follow::all(&gateway, &streams);
    let dashboard = crate::dashboard::run(Arc::downgrade(&gateway));
    watchers.push(Watcher::Task(tokio::spawn(dashboard)));
    let event_endpoints = streams.into_iter().filter_map(|stream| stream.events).collect();
    Ok(ServerAssembly { gateway, watchers, event_endpoints, saving, _state_folder: lock })
}

/// The folder for the index, or the one that embedded replicas have locked: they start empty, so
/// that their index is not kept.
fn split_state(folder: Option<Folder>, fleet: &Fleet) -> (Option<Folder>, Option<Folder>) {
    match fleet {
        Fleet::Upstreams(_) => (folder, None),
        Fleet::Embedded(_) => (None, folder),
    }
}

fn add_replicas(
    router: &mut Router,
    streams: &[ReplicaStream],
    engine_model: Option<EngineModel>,
    clock: Clock,
) {
    for (replica, stream) in (0..).map(ReplicaId).zip(streams) {
        router.add_replica(replica, stream.block_size, clock.now());
        if let Some(engine) = engine_model {
            router.set_engine(replica, engine);
        }
    }
}

/// Warns about upstreams that lack a tokenizer or events for a strategy that goes by prefixes:
/// without a warning a wrong configuration looks like one that does not help. In shadow mode there
/// is no replica to choose.
fn warn_of_blindness(config: &ServeConfig) {
    let goes_by_prefix = |(kind, _): &(ScorerKind, f64)| {
        matches!(kind, ScorerKind::Prefix { .. } | ScorerKind::Cost)
    };
    let profile = &config.profile;
    let EngineBackend::Upstreams(upstreams) = &config.backend else {
        return;
    };
    if config.shadow.is_some() || !profile.scorers.iter().any(goes_by_prefix) {
        return;
    }
    for upstream in upstreams {
        let missing = match (&upstream.tokenizer, &upstream.kv_events, profile.index) {
            (None, None, IndexKind::Events) => "tokenizer=FOLDER and kv=tcp://HOST:PORT",
            (None, ..) => "tokenizer=FOLDER",
            (Some(_), None, IndexKind::Events) => "kv=tcp://HOST:PORT",
            _ => continue,
        };
        tracing::warn!(
            upstream = upstream.url,
            strategy = profile.name,
            "prompts are routed by what was sent, not by what this engine holds: add {missing} to \
             its --upstream"
        );
    }
}

/// The engine that all replicas play, if they do.
fn emulated(backend: &EngineBackend) -> Option<EngineModel> {
    let EngineBackend::Embedded(fleet) = backend else {
        return None;
    };
    fleet.emulated.as_deref().copied()
}

/// Shared services that replicas use.
#[derive(Clone, Copy)]
struct SharedServices<'a> {
    clock: Clock,
    later: &'a Later,
    metrics: &'a Metrics,
}

type StartedFleet = (Fleet, String, Vec<ReplicaStream>);

/// Starts the predictor's thread, if a predictor is configured. The thread ends with its server, or
/// when that is stopped.
fn predictions(
    config: &EmbeddedFleet,
    around: SharedServices<'_>,
) -> Result<Option<Arc<Predictions>>, ServeError> {
    let Some(prediction) = config.prediction.clone() else {
        return Ok(None);
    };
    let later = around.later.clone();
    let tell = move |replica: usize, seq: SeqId, p: Probability| {
        let gateway = later.get().and_then(Weak::upgrade);
        gateway.is_some_and(|gateway| {
            let embedded = gateway.fleet.embedded();
            embedded.is_some_and(|embedded| embedded.replicas[replica].annotate(seq, p))
        })
    };
    let metrics = around.metrics.with_predictions();
    let started = Predictions::start(prediction, metrics, around.clock, Box::new(tell))?;
    Ok(Some(started))
}

async fn embedded(
    config: EmbeddedFleet,
    around: SharedServices<'_>,
) -> Result<StartedFleet, ServeError> {
    let predictions = predictions(&config, around)?;
    let (mut replicas, mut streams) = (Vec::new(), Vec::new());
    for index in 0..config.replicas {
        let (endpoint, replay_endpoint) = event_endpoints(config.kv_events_port, index);
        let publisher = EventPublisher::bind(PublisherConfig {
            endpoint,
            replay_endpoint: Some(replay_endpoint),
            topic: format!("kv@replica-{index}@{}", config.name),
            buffer_steps: REPLAY_BATCHES,
        })
        .await?;
        let endpoints = publisher.endpoints().clone();
        let events = &endpoints.events;
        tracing::info!(replica = index, events, "publishing KV events");
        streams.push(ReplicaStream {
            block_size: Some(config.engine.block_size as u32),
            events: Some(endpoints),
            rank: None,
        });
        let hooks = hooks(&config, ReplicaId(index as u32), publisher, around);
        let name = format!("replica-{index}");
        replicas.push(EmbeddedReplica::start(name, hooks, around.clock)?);
    }
    let name = config.name.clone();
    let fleet = Fleet::Embedded(EmbeddedReplicas {
        name: config.name,
        defaults: config.model.generation.clone(),
        tool_tokens: config.prompt.tool_call_tokens().into(),
        prompt: config.prompt,
        model: config.model,
        replicas,
        block_size: config.engine.block_size,
        predictions,
        tier_reports: config.tiers.map(|tiers| tiers.reports),
        responses: Arc::default(),
    });
    Ok((fleet, name, streams))
}

/// Ports of a replica: for its events and for their replays.
pub(super) const EVENT_PORTS: usize = 2;

/// Returns the addresses at which a replica publishes and replays its events.
fn event_endpoints(base: Option<u16>, replica: usize) -> (String, String) {
    // Without a base any free port, which is what 0 means.
    // `check` has refused a base from which the last replica's ports do not fit.
    let first = base.map_or(0, |base| usize::from(base) + EVENT_PORTS * replica);
    let second = base.map_or(0, |_| first + 1);
    let on_port = |port: usize| format!("tcp://127.0.0.1:{port}");
    (on_port(first), on_port(second))
}

pub(super) fn setting(engine: &EngineConfig) -> Setting {
    Setting { capacity: engine.cache_blocks, block_tokens: engine.block_size as u32 }
}

fn hooks(
    config: &EmbeddedFleet,
    replica: ReplicaId,
    publisher: EventPublisher,
    around: SharedServices<'_>,
) -> Hooks {
    let (later, load_seconds) = (around.later.clone(), around.metrics.load_seconds.clone());
    let (model, name, engine) = (config.model.clone(), config.name.clone(), config.engine);
    let policy_name = config.policy.clone();
    let tiers = config.tiers.clone();
    let tables = config.learned_tables.as_deref();
    let tables = tables.map(|folder| LearnedTables::new(folder, replica.0));
    let kept = tables.clone();
    let emulated = config.emulated.as_deref().copied();
    let emulated = emulated.map(|engine_model| (engine_model, config.prompt.stable_words()));
    Hooks {
        tables: kept,
        build: Box::new(move |waker| {
            let policy = policy::by_name(&policy_name, setting(&engine));
            let mut policy = policy.expect("the name was checked at start");
            if let Some(tables) = &tables {
                tables.restore(&mut *policy, Tier::Device);
            }
            let built = match &emulated {
                None => Engine::new(model.clone(), &name, engine, policy),
                Some((emulated, words)) => {
                    let executor = Box::new(Emulator::new(*emulated, words.clone()));
                    let max_context = engine.cache_blocks * engine.block_size;
                    let executor = BoundedExecutor { executor, max_context };
                    Engine::with_executor(model.clone(), &name, engine, policy, executor)
                }
            };
            let Some(tiers) = &tiers else {
                return built;
            };
            match (tiers.make)(replica.0, waker) {
                Ok((lower, mover)) => {
                    let timed = TimedMover::new(mover, load_seconds.clone());
                    let built = built.with_tiers(lower, Box::new(timed));
                    match &tiers.importance {
                        Some(importance) => {
                            built.with_importance(ImportanceConfig::clone(importance))
                        }
                        None => built,
                    }
                }
                // It works without them.
                Err(problem) => {
                    tracing::warn!(replica = replica.0, problem, "no lower tiers");
                    built
                }
            }
        }),
        publish: Box::new(move |events| {
            // A full queue leaves a hole that the subscriber sees and asks for.
            let _ = publisher.publish(events, unix_seconds());
        }),
        health: Box::new(move |health| {
            if let Some(gateway) = later.get().and_then(Weak::upgrade) {
                gateway.set_health(replica, health);
            }
        }),
    }
}

fn proxied(configs: &[UpstreamConfig]) -> Result<StartedFleet, ServeError> {
    if configs.is_empty() {
        return Err(ServeError::NoReplica);
    }
    let (mut upstreams, mut streams) = (Vec::new(), Vec::new());
    // Engines of one model share its tokenizer.
    let mut prompts: HashMap<&Path, Arc<PromptModel>> = HashMap::new();
    for config in configs {
        let prompt = match config.tokenizer.as_deref() {
            None => None,
            Some(folder) => Some(match prompts.entry(folder) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(new) => new.insert(Arc::new(model_in(folder)?)).clone(),
            }),
        };
        let engine = Upstream::new(config, prompt)?;
        for rank in 0..config.data_parallel_size.max(1) {
            let has_ranks = config.data_parallel_size > 1;
            let rank = has_ranks.then_some(rank);
            let events = events_of_rank(config, rank.unwrap_or(0))?;
            upstreams.push(engine.of_rank(rank));
            streams.push(ReplicaStream { block_size: None, events, rank });
        }
    }
    Ok((Fleet::Upstreams(upstreams), "upstream".to_owned(), streams))
}

/// Returns the event endpoints of one data-parallel rank of an engine.
fn events_of_rank(config: &UpstreamConfig, rank: u32) -> Result<Option<Endpoints>, ServeError> {
    let Some(events) = &config.kv_events else {
        return Ok(None);
    };
    let replay = config.kv_replay.as_deref();
    let replay = replay.map(|replay| endpoint_of_rank(replay, rank));
    Ok(Some(Endpoints { events: endpoint_of_rank(events, rank)?, replay: replay.transpose()? }))
}
