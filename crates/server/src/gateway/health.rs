//! Health of replicas and its log lines: one per engine and change, with address, cause and
//! consequence.

use headstart_core::ReplicaId;
use headstart_router::Health;

use super::HttpGateway;
use crate::upstream::{EngineLoad, Upstream, of_same_engine};

impl HttpGateway {
    /// Whether a replica is known to be down.
    #[must_use]
    pub fn is_down(&self, replica: ReplicaId) -> bool {
        let router = self.router();
        router.replicas().any(|status| status.replica == replica && status.health == Health::Down)
    }

    /// Takes note of what its engine says of a replica's load. Whether it says anything.
    pub fn on_load(&self, replica: ReplicaId, load: &EngineLoad) -> bool {
        let rank = self.upstream(replica).and_then(Upstream::rank);
        // One answer of the engine has the loads of all its ranks.
        let report = load.of(rank, self.clock.now());
        let name = replica.to_string();
        for (source, tokens) in load.cached(rank) {
            let labels = [&name[..], source];
            self.metrics.savings.note_engine_cached(&labels, tokens);
        }
        if let Some(report) = report {
            self.router().report(replica, report);
        }
        report.is_some()
    }

    /// Takes note that a replica went down or came back. Requests that wait for an upstream which
    /// went down go elsewhere.
    pub fn set_health(&self, replica: ReplicaId, health: Health) {
        // An engine that came back may serve another model.
        if let Some(insight) = &self.observers.insight {
            insight.set_models(replica, &self.base_models(replica));
        }
        // As in the router, its blocks count as lost both when it goes down and when it comes up: a
        // replica that is down serves no request, and its events are not heard, a restart for one.
        // So insight clears it while it is down, when the router sends it no requests. The router
        // is not held then, because this may explain the waiting batch.
        if health == Health::Healthy && self.is_down(replica) {
            self.tell_lost(replica);
        }
        let mut router = self.router();
        let before = router.replicas().find(|status| status.replica == replica);
        // The watcher reports each check; only a change has consequences.
        if before.is_some_and(|status| status.health == health) {
            return;
        }
        router.set_health(replica, health, self.clock.now());
        // The engine may have restarted with another tokenizer or template.
        self.drift.forget(replica);
        if let Some(upstream) = self.upstream(replica) {
            // While the router is held, so that whom it chooses is not told to leave at once.
            upstream.set_down(health == Health::Down);
        }
        let is_any_up = router.replicas().any(|status| status.health == Health::Healthy);
        drop(router);
        // After the router, so that no request is placed between the two and explained by lost
        // blocks.
        if health == Health::Down {
            self.tell_lost(replica);
        }
        match self.upstream(replica) {
            Some(upstream) => self.tell_upstream(upstream, replica, health, is_any_up),
            None => tell_embedded(replica, health),
        }
    }

    /// All that a replica held counts as lost.
    fn tell_lost(&self, replica: ReplicaId) {
        if let Some(insight) = &self.observers.insight {
            insight.cleared(replica, self.clock.now());
        }
    }

    fn tell_upstream(
        &self,
        upstream: &Upstream,
        first: ReplicaId,
        health: Health,
        is_any_up: bool,
    ) {
        let mut replicas = of_same_engine(self.fleet.upstreams(), first);
        // All ranks of an engine come and go together.
        if replicas.next() != Some(first) {
            return;
        }
        // Ranks of one engine have consecutive ids, so that the first and the last name them all.
        let last = replicas.last();
        let replica = last.map_or(first.to_string(), |last| format!("{first}-{last}"));
        let (base, models) = (upstream.base(), upstream.models());
        match health {
            // As loud as that it was down.
            Health::Healthy => tracing::warn!(replica, upstream = base, ?models, "replica is up"),
            Health::Down => {
                let cause = upstream.trouble();
                let every_ms = self.limits.health_interval.as_millis() as u64;
                let until = if is_any_up {
                    "its requests go to other replicas"
                } else {
                    "no replica is left and requests get 503"
                };
                tracing::warn!(
                    replica,
                    upstream = base,
                    cause,
                    "replica is down: {until} until it answers GET /health, asked every \
                     {every_ms} ms; see whether the engine runs and listens there"
                );
            }
        }
    }
}

fn tell_embedded(replica: ReplicaId, health: Health) {
    match health {
        Health::Healthy => tracing::warn!(%replica, "replica is up"),
        Health::Down => tracing::warn!(
            %replica,
            cause = "its engine panicked",
            "replica is down: its engine restarts, and requests go to others; the panic's message \
             above says where to look"
        ),
    }
}
