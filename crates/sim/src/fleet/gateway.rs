//! One gateway: the real router, the real event streams, and what it has heard of the replicas.

use std::collections::HashMap;
use std::sync::Arc;

use headstart_core::{CacheEvent, Nanos, ReplicaId, SeqId};
use headstart_router::index::Update;
use headstart_router::profile::IndexKind;
use headstart_router::stream::{
    Follower, FollowerConfig, ReplayId, StreamBatch, StreamEffect, StreamUpdate,
};
use headstart_router::{
    Decision, Health, NoReplica, PrefixIndex, ReportedLoad, ReservationId, RouteRequest, Router,
    RouterConfig,
};

use super::prompts::KeyedPrompt;
use super::replica::ReplicaSpec;
use super::workload::Request;

/// A gateway.
pub struct Gateway {
    router: Router,
    index: Arc<dyn PrefixIndex>,
    /// One per replica; none where the index learns from no events.
    streams: Vec<Follower>,
    effects: Vec<StreamEffect>,
    /// Reservations of requests that are not answered.
    reservations: HashMap<SeqId, ReservationId>,
}

/// An input from an event stream.
#[derive(Clone, Debug)]
pub enum Heard {
    /// A connection.
    Connected,
    /// Its end.
    Disconnected,
    /// A batch, live.
    Live(Arc<StreamBatch>),
    /// A batch of a replay.
    Reply(ReplayId, Arc<StreamBatch>),
    /// The end of a replay.
    End(ReplayId),
    /// Nothing, for so long that the stream wants to know.
    Time,
}

/// A replay that a stream asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRequest {
    /// To be named with each reply.
    pub replay: ReplayId,
    /// The first batch wanted.
    pub from: u64,
}

impl Gateway {
    /// One that knows `replicas`, and nothing of what they hold.
    #[must_use]
    pub fn new(config: RouterConfig, replicas: &[ReplicaSpec], now: Nanos) -> Self {
        let is_told = config.profile.index == IndexKind::Events;
        // The simulation has one thread, so no lookup runs during an update.
        let index = config.profile.index.make_alone(&config.model);
        let mut router = Router::with_index(config, index);
        for (replica, spec) in (0..).map(ReplicaId).zip(replicas) {
            let block_size = spec.scheduler.block_size as u32;
            router.add_replica(replica, Some(block_size), now);
            router.set_engine(replica, spec.engine());
        }
        let replicas = replicas.len();
        let stream = FollowerConfig { can_replay: true, rank: None };
        let streams = (0..replicas).map(|_| Follower::new(stream));
        Self {
            index: router.index(),
            router,
            // An index that learns from its own decisions has no streams.
            streams: streams.take(if is_told { replicas } else { 0 }).collect(),
            effects: Vec::new(),
            reservations: HashMap::new(),
        }
    }

    /// The index that it asks.
    #[must_use]
    pub fn index(&self) -> &dyn PrefixIndex {
        &*self.index
    }

    /// Whether it listens to event streams.
    #[must_use]
    pub fn is_told(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Sends a request to a replica that is not among `excluded`.
    ///
    /// # Errors
    /// When no replica is left.
    pub fn route(
        &mut self,
        request: &Request,
        prompt: &KeyedPrompt,
        excluded: &[ReplicaId],
        now: Nanos,
    ) -> Result<Decision, NoReplica> {
        // Routers know a session by a text.
        let session = request.access.session.map(|session| session.0.to_string());
        let decision = self.router.route(&RouteRequest {
            tokens: Some(&prompt.tokens),
            keys: Some(&prompt.keys),
            session: session.as_deref(),
            excluded,
            now,
            ..RouteRequest::default()
        })?;
        self.reservations.insert(request.seq, decision.reservation);
        Ok(decision)
    }

    /// The first token of a request is here.
    pub fn on_first_token(&mut self, seq: SeqId, now: Nanos) {
        // The gateway may have given the request up.
        if let Some(&reservation) = self.reservations.get(&seq) {
            self.router.first_token(reservation, now);
        }
    }

    /// A request is answered, or is not going to be.
    pub fn on_end(&mut self, seq: SeqId, now: Nanos) {
        if let Some(reservation) = self.reservations.remove(&seq) {
            self.router.finish(reservation, now);
        }
    }

    /// Something came over a replica's event stream. Returns the replay that it asks for.
    pub fn hear(&mut self, replica: ReplicaId, heard: Heard, now: Nanos) -> Option<ReplayRequest> {
        let stream = self.streams.get_mut(replica.0 as usize)?;
        let effects = &mut self.effects;
        match heard {
            Heard::Connected => stream.on_connected(now, effects),
            Heard::Disconnected => stream.on_disconnected(now, effects),
            // Copied only where another gateway still has the batch.
            Heard::Live(batch) => stream.on_live(Arc::unwrap_or_clone(batch), now, effects),
            Heard::Reply(replay, batch) => {
                stream.on_reply(replay, Arc::unwrap_or_clone(batch), now, effects);
            }
            Heard::End(replay) => stream.on_replay_end(replay, now, effects),
            Heard::Time => stream.on_time(now, effects),
        }
        let mut asked = None;
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                StreamEffect::Update(StreamUpdate::Events { events, .. }) => {
                    self.router.apply(replica, &events, now);
                }
                StreamEffect::Update(StreamUpdate::Clear) => {
                    self.router.apply(replica, &[CacheEvent::Cleared], now);
                }
                StreamEffect::Update(StreamUpdate::Doubt { .. }) => {
                    self.update(replica, Update::Doubt, now);
                }
                StreamEffect::Update(StreamUpdate::Trust) => {
                    self.update(replica, Update::Trust, now);
                }
                // A stream has one replay at a time, so the last request counts.
                StreamEffect::Ask { replay, from } => asked = Some(ReplayRequest { replay, from }),
                StreamEffect::Update(StreamUpdate::Skipped { .. })
                | StreamEffect::Reconnect
                | StreamEffect::Update(StreamUpdate::Status(_)) => {}
            }
        }
        asked
    }

    /// When a replica's stream wants to hear of the time.
    #[must_use]
    pub fn due(&self, replica: ReplicaId) -> Option<Nanos> {
        self.streams.get(replica.0 as usize)?.due()
    }

    /// A replica's load is scraped.
    pub fn on_report(&mut self, replica: ReplicaId, report: ReportedLoad) {
        self.router.report(replica, report);
    }

    /// A replica is found to serve, or not to.
    pub fn on_health(&mut self, replica: ReplicaId, health: Health, now: Nanos) {
        self.router.set_health(replica, health, now);
    }

    /// Asserts that no reservation leaks.
    ///
    /// # Panics
    /// When one does.
    pub fn check(&self) {
        self.router.check();
        assert_eq!(self.router.stats().reservations, self.reservations.len());
    }

    fn update(&mut self, replica: ReplicaId, update: Update<'_>, now: Nanos) {
        // A replica that is down reports nothing that counts, as in a real gateway.
        if self.router.listens_to(replica, 0) {
            self.index.update(replica, update, now);
        }
    }
}
