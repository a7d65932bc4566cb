//! Gauges for state kept elsewhere, updated on each scrape.

use headstart_core::ReplicaId;
use headstart_engine::SchedulerLoad;
use headstart_router::stream::StreamStatus;
use headstart_router::{Health, ReplicaStatus};

use super::{EmbeddedReplicas, HttpGateway};
use crate::lock::lock;

impl HttpGateway {
    /// Name of the routing strategy.
    #[must_use]
    pub fn strategy(&self) -> &str {
        &self.profile.name
    }

    /// Blocks of a replica's device, of one in this process.
    pub(super) fn capacity_blocks(&self, replica: ReplicaId) -> Option<usize> {
        let replica = self.fleet.embedded()?.replicas.get(replica.0 as usize)?;
        // A replica that has not reported yet has a capacity of 0, and that is not its size.
        Some(replica.load().capacity_blocks).filter(|&blocks| blocks > 0)
    }

    /// Brings the gauges up to date and writes all metrics.
    #[must_use]
    pub fn render_metrics(&self) -> String {
        let metrics = &self.metrics;
        let _scrape = lock(&self.scrape);
        // Each guard ends with its statement: a scrape must not hold up requests.
        let stats = self.router().stats();
        metrics.set_index(&self.profile.name, &stats.index);
        if let Some(insight) = &self.observers.insight {
            insight.refresh(metrics, self.clock.now());
        }
        let prompt_tokens = self.prompt_tokens.as_ref().map(|tokens| tokens.stats());
        metrics.set_prompt_tokens(prompt_tokens.as_ref());
        if let Some(shared) = &self.shared_index {
            metrics.set_shared_index(&shared.shared_stats());
        }
        if let Some(shadow) = &self.observers.shadow {
            metrics.set_shadow(&shadow.report());
        }
        let replicas: Vec<_> = self.router().replicas().collect();
        self.refresh_streams(&replicas);
        for replica in replicas {
            let is_up = replica.health == Health::Healthy;
            metrics.set_up(&replica.replica.to_string(), is_up);
        }
        self.name_upstreams();
        if let Some(embedded) = self.fleet.embedded() {
            self.refresh_loads(embedded);
            self.refresh_tiers(embedded);
            if let Some(predictions) = &embedded.predictions {
                predictions.refresh(metrics, &embedded.replicas);
            }
        }
        metrics.render()
    }

    /// Says how busy each replica is.
    fn refresh_loads(&self, embedded: &EmbeddedReplicas) {
        for (index, replica) in embedded.replicas.iter().enumerate() {
            let name = index.to_string();
            let labels = [&embedded.name[..], &name];
            self.metrics.set_own_load(labels, embedded.block_size, &replica.load());
            self.metrics.set_panics(&name, replica.panics());
        }
    }

    /// Says what lower tiers hold and did: as each replica sees it, and as they see it themselves.
    fn refresh_tiers(&self, embedded: &EmbeddedReplicas) {
        for (index, replica) in embedded.replicas.iter().enumerate() {
            for tier in replica.tiers() {
                self.metrics.set_units(&index.to_string(), &tier);
            }
            if let Some(report) = replica.importance() {
                self.metrics.set_importance(&index.to_string(), &report);
            }
        }
        if let Some(reports) = &embedded.tier_reports {
            reports().iter().for_each(|report| self.metrics.set_tier(report));
        }
    }

    /// Says how each replica's event stream is.
    fn refresh_streams(&self, replicas: &[ReplicaStatus]) {
        // Copied, because a report takes the stream's own lock.
        let streams = self.lock_streams().clone();
        // A stream that has ended must vanish from the metrics.
        self.metrics.forget_streams();
        for replica in replicas {
            if let Some(stream) = streams.get(&replica.replica) {
                let status = match replica.health {
                    Health::Healthy => stream.report().status,
                    // What it said is forgotten, whatever its stream looks like.
                    Health::Down => StreamStatus::Down,
                };
                self.metrics.set_stream(&replica.replica.to_string(), status);
            }
        }
    }

    /// Says which upstream each replica is, and what that says of its load.
    fn name_upstreams(&self) {
        if self.fleet.embedded().is_some() {
            return;
        }
        // A report that has expired must vanish from the metrics rather than stay at its last
        // value.
        self.metrics.forget_loads();
        for (id, upstream) in (0..).map(ReplicaId).zip(self.fleet.upstreams()) {
            let rank = upstream.rank().map(|rank| rank.to_string());
            let replica = id.to_string();
            let labels = [&replica[..], upstream.base(), rank.as_deref().unwrap_or_default()];
            self.metrics.set_upstream(labels);
            let report = self.router().report_of(id, self.clock.now());
            if let Some(report) = report {
                let models = upstream.models();
                let labels = [models.first().map_or("", String::as_str), labels[0]];
                self.metrics.set_load(&labels, report);
            }
        }
    }
}

/// Share of the KV blocks that running requests hold, in `[0, 1]`.
pub(crate) fn kv_usage(load: &SchedulerLoad) -> f64 {
    // The two counts are read one after the other from a running thread, and may be of different
    // steps.
    let used = load.capacity_blocks.saturating_sub(load.available_blocks);
    used as f64 / load.capacity_blocks.max(1) as f64
}
