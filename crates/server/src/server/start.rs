//! Building a gateway: replicas with their event streams, or upstreams with their watchers.

use std::sync::{Arc, OnceLock, Weak};

use headstart_cache::policy::{self, Setting};
use headstart_core::{Probability, ReplicaId, SeqId};
use headstart_engine::{Engine, EngineConfig};
use headstart_prompt::PromptModel;
use headstart_router::{Health, Router, RouterConfig, RunIndex};

use super::{ServeError, Watcher};
use crate::clock::{Clock, unix_seconds};
use crate::config::{Backend, EmbeddedFleet, ServeConfig, UpstreamConfig};
use crate::events::{
    Endpoints, EventPublisher, PublisherConfig, SubscriberConfig, SubscriberHandle, subscribe,
};
use crate::gateway::{Embedded, Fleet, Gateway, GatewayParts};
use crate::metrics::Metrics;
use crate::prediction::Predictions;
use crate::prompt_tokens::random_key;
use crate::replica::{Hooks, Replica};
use crate::timed_index::TimedIndex;
use crate::upstream::Upstream;

/// Batches that a replica keeps for replay: hours of an embedded engine's work.
const REPLAY_BATCHES: usize = 10_000;

/// The gateway, for those who exist before it.
type Later = Arc<OnceLock<Weak<Gateway>>>;

/// Everything behind the sockets.
pub(super) struct Parts {
    pub(super) gateway: Arc<Gateway>,
    pub(super) watchers: Vec<Watcher>,
    pub(super) event_endpoints: Vec<Endpoints>,
}

/// Starts everything behind the sockets.
pub(super) async fn gateway(config: ServeConfig) -> Result<Parts, ServeError> {
    let clock = Clock::start();
    let later = Later::default();
    let metrics = Metrics::new();
    let (fleet, model, streams) = match config.backend {
        Backend::Embedded(fleet) => {
            let predictions = predictions(&fleet, &metrics, clock, &later)?;
            embedded(fleet, predictions, clock, &later).await?
        }
        Backend::Upstreams(upstreams) => proxied(&upstreams)?,
    };
    // Keys of this process only: nobody can prepare texts that collide, nor tell prompts by a dump.
    let secret = config.index_secret.unwrap_or_else(|| {
        u64::from_le_bytes(*random_key().first_chunk().expect("a key has 32 bytes"))
    });
    let index = Arc::new(RunIndex::new(format!("{model} {secret:016x}")));
    let timed = Arc::new(TimedIndex::new(index, metrics.index.clone()));
    let router = RouterConfig {
        model,
        strategy: config.strategy,
        seed: config.seed,
    };
    let mut router = Router::with_index(router, timed);
    for (index, stream) in streams.iter().enumerate() {
        router.add_replica(ReplicaId(index as u32), stream.block_size, clock.now());
    }
    let gateway = Arc::new(Gateway::new(GatewayParts {
        fleet,
        router,
        strategy: config.strategy,
        limits: config.limits,
        api_key: config.api_key,
        metrics,
        clock,
    }));
    // Set once, here.
    let _ = later.set(Arc::downgrade(&gateway));
    look_at_all(&gateway).await;
    let event_endpoints = streams
        .iter()
        .filter_map(|stream| stream.events.clone())
        .collect();
    let watchers = follow(&gateway, streams);
    Ok(Parts {
        gateway,
        watchers,
        event_endpoints,
    })
}

/// What the router needs to know of a replica.
struct Stream {
    block_size: Option<u32>,
    events: Option<Endpoints>,
}

type Started = (Fleet, String, Vec<Stream>);

/// Starts the predictor's thread, where somebody predicts. It ends with its server, or when that
/// is stopped.
fn predictions(
    config: &EmbeddedFleet,
    metrics: &Metrics,
    clock: Clock,
    later: &Later,
) -> Result<Option<Arc<Predictions>>, ServeError> {
    let Some(prediction) = config.prediction.clone() else {
        return Ok(None);
    };
    let later = later.clone();
    let tell = move |replica: usize, seq: SeqId, p: Probability| {
        let gateway = later.get().and_then(Weak::upgrade);
        gateway.is_some_and(|gateway| match &gateway.fleet {
            Fleet::Embedded(embedded) => embedded.replicas[replica].annotate(seq, p),
            Fleet::Upstreams(_) => false,
        })
    };
    let metrics = metrics.with_predictions();
    let started = Predictions::start(prediction, metrics, clock, Box::new(tell))?;
    Ok(Some(started))
}

async fn embedded(
    config: EmbeddedFleet,
    predictions: Option<Arc<Predictions>>,
    clock: Clock,
    later: &Later,
) -> Result<Started, ServeError> {
    check(&config)?;
    let (mut replicas, mut streams) = (Vec::new(), Vec::new());
    for index in 0..config.replicas {
        let publisher = EventPublisher::bind(PublisherConfig {
            endpoint: "tcp://127.0.0.1:0".to_owned(),
            replay_endpoint: Some("tcp://127.0.0.1:0".to_owned()),
            topic: format!("kv@replica-{index}@{}", config.name),
            buffer_steps: REPLAY_BATCHES,
        })
        .await?;
        let endpoints = publisher.endpoints().clone();
        tracing::info!(
            replica = index,
            events = endpoints.events,
            "publishing KV events"
        );
        let block_size = Some(config.engine.block_size as u32);
        streams.push(Stream {
            block_size,
            events: Some(endpoints),
        });
        let hooks = hooks(&config, ReplicaId(index as u32), publisher, later.clone());
        replicas.push(Replica::start(format!("replica-{index}"), hooks, clock)?);
    }
    let name = config.name.clone();
    let fleet = Fleet::Embedded(Embedded {
        name: config.name,
        defaults: config.model.generation.clone(),
        prompt: config.prompt,
        model: config.model,
        replicas,
        predictions,
    });
    Ok((fleet, name, streams))
}

fn check(config: &EmbeddedFleet) -> Result<(), ServeError> {
    policy::by_name(&config.policy, setting(&config.engine))?;
    let engine = &config.engine;
    let complaint = if config.replicas == 0 {
        return Err(ServeError::NoReplica);
    } else if engine.block_size == 0 || !engine.block_size.is_multiple_of(16) {
        "the block size must be a multiple of 16"
    } else if engine.cache_blocks < 2 {
        "a replica needs at least 2 cache blocks"
    } else if engine.max_waiting == 0 {
        "at least one request must be allowed to wait, or none is ever taken (--max-waiting)"
    } else if engine.max_batched_tokens == 0 || engine.max_sequences == 0 {
        "an engine must be allowed at least one token and one sequence a step"
    } else {
        return Ok(());
    };
    Err(ServeError::Engine(complaint.to_owned()))
}

fn setting(engine: &EngineConfig) -> Setting {
    Setting {
        capacity: engine.cache_blocks,
        block_tokens: engine.block_size as u32,
    }
}

fn hooks(
    config: &EmbeddedFleet,
    replica: ReplicaId,
    publisher: EventPublisher,
    later: Later,
) -> Hooks {
    let (model, name, engine) = (config.model.clone(), config.name.clone(), config.engine);
    let policy_name = config.policy.clone();
    Hooks {
        build: Box::new(move || {
            let policy = policy::by_name(&policy_name, setting(&engine));
            let policy = policy.expect("the name was checked at start");
            Engine::new(model.clone(), &name, engine, policy)
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

fn proxied(configs: &[UpstreamConfig]) -> Result<Started, ServeError> {
    if configs.is_empty() {
        return Err(ServeError::NoReplica);
    }
    let (mut upstreams, mut streams) = (Vec::new(), Vec::new());
    for config in configs {
        let prompt = config
            .tokenizer
            .as_deref()
            .map(PromptModel::from_dir)
            .transpose()?;
        upstreams.push(Upstream::new(config, prompt)?);
        let endpoints = config.kv_events.clone().map(|events| Endpoints {
            events,
            replay: config.kv_replay.clone(),
        });
        streams.push(Stream {
            block_size: None,
            events: endpoints,
        });
    }
    Ok((Fleet::Upstreams(upstreams), "upstream".to_owned(), streams))
}

fn follow(gateway: &Arc<Gateway>, streams: Vec<Stream>) -> Vec<Watcher> {
    let is_embedded = matches!(gateway.fleet, Fleet::Embedded(_));
    let streams = streams.into_iter().enumerate();
    let watch = |(index, stream): (usize, Stream)| {
        let replica = ReplicaId(index as u32);
        if is_embedded {
            let subscription = stream
                .events
                .map(|endpoints| follow_one(gateway, replica, endpoints));
            return subscription.map(|subscription| Watcher::Events {
                _subscription: subscription,
            });
        }
        let watched = watch_upstream(Arc::downgrade(gateway), index, stream.events);
        Some(Watcher::Health(tokio::spawn(watched)))
    };
    streams.filter_map(watch).collect()
}

fn follow_one(
    gateway: &Arc<Gateway>,
    replica: ReplicaId,
    endpoints: Endpoints,
) -> SubscriberHandle {
    let config = SubscriberConfig {
        endpoint: endpoints.events,
        replay_endpoint: endpoints.replay,
        topic_prefix: String::new(),
        rank: None,
    };
    let weak = Arc::downgrade(gateway);
    let subscription = subscribe(config, move |update| {
        if let Some(gateway) = weak.upgrade() {
            gateway.on_stream(replica, update);
        }
    });
    gateway.follow_stream(replica, subscription.reporter());
    subscription
}

/// Asks an upstream for its health for ever. What a replica held is forgotten when it goes down,
/// so its event stream begins anew, with a replay, whenever it comes back.
async fn watch_upstream(gateway: Weak<Gateway>, index: usize, events: Option<Endpoints>) {
    let replica = ReplicaId(index as u32);
    let mut subscription = None;
    while let Some(gateway) = gateway.upgrade() {
        let was_down = gateway.is_down(replica);
        if look(&gateway, index).await == Health::Down {
            subscription = None;
        } else if was_down || subscription.is_none() {
            subscription = events
                .clone()
                .map(|events| follow_one(&gateway, replica, events));
        }
        tokio::time::sleep(gateway.limits.health_interval).await;
    }
}

/// Asks every upstream once, so that the server starts knowing who is there.
async fn look_at_all(gateway: &Arc<Gateway>) {
    if let Fleet::Upstreams(upstreams) = &gateway.fleet {
        let looks = (0..upstreams.len()).map(|index| look(gateway, index));
        futures::future::join_all(looks).await;
    }
}

async fn look(gateway: &Arc<Gateway>, index: usize) -> Health {
    let Fleet::Upstreams(upstreams) = &gateway.fleet else {
        return Health::Healthy;
    };
    let alive = upstreams[index].is_alive().await;
    let health = if alive { Health::Healthy } else { Health::Down };
    gateway.set_health(ReplicaId(index as u32), health);
    health
}
