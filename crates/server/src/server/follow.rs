//! Follows replicas for as long as the server runs: their event streams, and upstreams' health.
//!
//! An engine with data-parallel ranks is asked for its health once, for all of them; each rank has
//! its own event stream, which breaks and heals by itself.

use std::sync::{Arc, Weak};

use headstart_core::ReplicaId;
use headstart_index_sync::saved::KnownReplicas;
use headstart_kv_events::{
    Endpoints, StreamReporter, SubscriberConfig, SubscriberHandle, subscribe, subscribe_again,
};
use headstart_router::Health;

use super::Watcher;
use crate::gateway::{Fleet, HttpGateway};
use crate::upstream::{self, Upstream};

/// Event stream of a replica, and its block size.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplicaStream {
    /// Tokens per block, where that is configured.
    pub(super) block_size: Option<u32>,
    /// Its events.
    pub(super) events: Option<Endpoints>,
    /// The data-parallel rank that publishes them, if its engine has several.
    pub(super) rank: Option<u32>,
}

type StreamMember = (ReplicaId, ReplicaStream);

/// By which addresses each replica is known from one start to the next; none for one without
/// events.
pub(super) fn endpoints(fleet: &Fleet, streams: &[ReplicaStream]) -> Vec<Option<String>> {
    let Fleet::Upstreams(upstreams) = fleet else {
        return streams.iter().map(|_| None).collect();
    };
    let name = |(upstream, stream): (&Upstream, &ReplicaStream)| {
        let events = &stream.events.as_ref()?.events;
        let rank = stream.rank.map(|rank| format!(" rank {rank}"));
        Some(format!("{} {events}{}", upstream.base(), rank.unwrap_or_default()))
    };
    upstreams.iter().zip(streams).map(name).collect()
}

/// Follows everybody.
pub(super) fn all(gateway: &Arc<HttpGateway>, streams: &[ReplicaStream]) -> Vec<Watcher> {
    let replicas = (0..).map(ReplicaId);
    let members = replicas.zip(streams.iter().cloned());
    let Fleet::Upstreams(upstreams) = &gateway.fleet else {
        let followed = members.filter_map(|(replica, stream)| follow_one(gateway, replica, stream));
        let watcher = |subscription| Watcher::Events { _subscription: subscription };
        return followed.map(watcher).collect();
    };
    let mut engines: Vec<Vec<StreamMember>> = Vec::new();
    for member in members {
        let (replica, _) = member;
        if upstream::first_of_engine(upstreams, replica) == replica {
            engines.push(vec![member]);
        } else {
            // Ranks of one engine stand side by side.
            engines.last_mut().expect("a first rank").push(member);
        }
    }
    let watch = |engine: Vec<StreamMember>| {
        let replicas = engine.iter().map(|&(replica, _)| replica).collect();
        let load = watch_load(Arc::downgrade(gateway), replicas);
        let health = watch_engine(Arc::downgrade(gateway), engine);
        [Watcher::Task(tokio::spawn(load)), Watcher::Task(tokio::spawn(health))]
    };
    engines.into_iter().flat_map(watch).collect()
}

fn follow_one(
    gateway: &Arc<HttpGateway>,
    replica: ReplicaId,
    stream: ReplicaStream,
) -> Option<SubscriberHandle> {
    let Endpoints { events, replay } = stream.events?;
    let config = SubscriberConfig {
        endpoint: events,
        replay_endpoint: replay,
        topic_prefix: String::new(),
        rank: stream.rank,
        replica: replica.to_string(),
        upstream: gateway.upstream(replica).map(|upstream| upstream.base().to_owned()),
    };
    // A strong reference would keep the gateway alive through its own subscriptions.
    let weak = Arc::downgrade(gateway);
    let sink = move |update| {
        if let Some(gateway) = weak.upgrade() {
            gateway.on_stream(replica, update);
        }
    };
    // Restarts are counted across the time without a subscription, and logged problems are not
    // logged again.
    let before = gateway.stream_reporter(replica);
    let is_restored = gateway.take_restored(replica);
    let subscription = match before.or_else(|| is_restored.then(StreamReporter::default)) {
        Some(before) => subscribe_again(config, &before, sink),
        None => subscribe(config, sink),
    };
    gateway.follow_stream(replica, subscription.reporter());
    Some(subscription)
}

/// Asks an engine for its health for ever. Its ranks' blocks are forgotten when it goes down, so
/// their event streams start over, with a replay, whenever it comes back.
async fn watch_engine(gateway: Weak<HttpGateway>, members: Vec<StreamMember>) {
    let Some(&(first, _)) = members.first() else {
        return;
    };
    let mut subscriptions: Vec<Option<(u64, SubscriberHandle)>> =
        members.iter().map(|_| None).collect();
    while let Some(gateway) = gateway.upgrade() {
        // Asked before the look, which may bring the engine up within this turn.
        let were_down: Vec<bool> =
            members.iter().map(|&(replica, _)| gateway.is_down(replica)).collect();
        let health = look(&gateway, first).await;
        let followed = members.iter().zip(&mut subscriptions).zip(were_down);
        for (((replica, stream), subscription), was_down) in followed {
            let wanted = wanted(&gateway, *replica, health);
            let start = subscription.as_ref().map(|&(start, _)| start);
            if wanted.is_none() || was_down || start != wanted {
                *subscription = None;
            }
            if let (None, Some(start)) = (&subscription, wanted) {
                if gateway.shared_index().is_some() {
                    // What others said, in doubt now.
                    gateway.note_restored(&[*replica]);
                }
                let followed = follow_one(&gateway, *replica, stream.clone());
                *subscription = followed.map(|followed| (start, followed));
            }
        }
        let pause = tokio::time::sleep(gateway.limits.health_interval);
        match gateway.upstream(first) {
            // An answer that broke off may be the end of an engine that is back before its time.
            Some(upstream) => tokio::select! {
                () = pause => {}
                () = upstream.is_doubted() => {}
            },
            None => pause.await,
        }
    }
}

/// Questions in a row without an answer after which an engine is taken for one that does not tell
/// its load, and pauses that it is then left alone for.
const SILENT_QUESTIONS: u32 = 10;
const SILENT_PAUSES: u32 = 50;

/// Asks an engine for its load for ever, on behalf of all its ranks.
async fn watch_load(gateway: Weak<HttpGateway>, ranks: Vec<ReplicaId>) {
    let Some(&first) = ranks.first() else { return };
    let mut unanswered = 0;
    while let Some(gateway) = gateway.upgrade() {
        let pause = gateway.limits.load_interval;
        let Some(upstream) = gateway.upstream(first) else {
            return;
        };
        let is_down = gateway.is_down(first);
        let load = if is_down { None } else { upstream.load().await };
        let is_used = load.is_some_and(|load| {
            let used = ranks.iter().filter(|&&rank| gateway.on_load(rank, &load));
            used.count() > 0
        });
        // The silence of a dead engine does not say that it has no metrics.
        unanswered = if is_used || is_down { 0 } else { unanswered + 1 };
        if unanswered == SILENT_QUESTIONS {
            tracing::info!(
                upstream = upstream.base(),
                "no load in GET /metrics: of this engine's requests only those are counted that \
                 go through this gateway"
            );
        }
        let pauses = if unanswered < SILENT_QUESTIONS { 1 } else { SILENT_PAUSES };
        // Not held during the pause, so that the gateway can end.
        drop(gateway);
        tokio::time::sleep(pause * pauses).await;
    }
}

/// Whether to follow a replica's events: `None` for no, else a number whose change means to start
/// over. Of gateways that share their index, one that can reach the engine does.
fn wanted(gateway: &HttpGateway, replica: ReplicaId, health: Health) -> Option<u64> {
    let is_up = health == Health::Healthy;
    let Some(shared) = gateway.shared_index() else {
        return is_up.then_some(0);
    };
    shared.set_candidate(replica, is_up);
    let wanted = shared.listening(replica).filter(|_| is_up);
    if wanted.is_none() {
        gateway.leave_stream(replica);
    }
    wanted
}

/// Asks every upstream once, so that the server starts knowing who is there.
pub(super) async fn look_at_all(gateway: &Arc<HttpGateway>) {
    let looks = gateway.fleet.engines().map(|(replica, _)| look(gateway, replica));
    futures::future::join_all(looks).await;
}

/// Asks the engine of `replica`; the answer is that of all its ranks.
async fn look(gateway: &Arc<HttpGateway>, replica: ReplicaId) -> Health {
    let Fleet::Upstreams(upstreams) = &gateway.fleet else {
        return Health::Healthy;
    };
    let health =
        if upstreams[replica.0 as usize].is_alive().await { Health::Healthy } else { Health::Down };
    for rank in upstream::of_same_engine(upstreams, replica) {
        gateway.set_health(rank, health);
    }
    health
}
