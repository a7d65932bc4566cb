//! Gauges for state kept elsewhere, updated on each scrape.

use headstart_core::ReplicaId;
use headstart_engine::SchedulerLoad;
use headstart_router::stream::StreamStatus;
use headstart_router::{Health, ReplicaStatus};

use super::{EmbeddedReplicas, HttpGateway};
use crate::lock::lock;
use crate::metrics::raise;

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
        let entries =
            metrics.replicas.index_entries.with_label_values(&[self.profile.name.as_str()]);
        entries.set(stats.index.entries as i64);
        metrics.index.set_stats(&stats.index);
        if let Some(insight) = &self.observers.insight {
            insight.refresh_metrics(self.clock.now());
        }
        if let Some(tokens) = &self.prompt_tokens {
            metrics.index.set_prompt_tokens(&tokens.stats());
        }
        if let Some(shared) = &self.shared_index {
            metrics.with_shared_index().set(&shared.shared_stats());
        }
        if let Some(shadow) = &self.observers.shadow {
            metrics.with_shadow().set(&shadow.report());
        }
        let replicas: Vec<_> = self.router().replicas().collect();
        self.refresh_streams(&replicas);
        for replica in replicas {
            let up = i64::from(replica.health == Health::Healthy);
            metrics.replicas.up.with_label_values(&[replica.replica.to_string()]).set(up);
        }
        self.name_upstreams();
        if let Some(embedded) = self.fleet.embedded() {
            self.refresh_loads(embedded);
            self.refresh_tiers(embedded);
            if let Some(predictions) = &embedded.predictions {
                predictions.refresh_metrics(&embedded.replicas);
            }
        }
        metrics.render()
    }

    /// Says how busy each replica is.
    fn refresh_loads(&self, embedded: &EmbeddedReplicas) {
        let metrics = &self.metrics;
        for (index, replica) in embedded.replicas.iter().enumerate() {
            let name = index.to_string();
            let labels = [&embedded.name[..], &name];
            let load = replica.load();
            metrics.replicas.running.with_label_values(&labels).set(load.running as i64);
            metrics.replicas.waiting.with_label_values(&labels).set(load.waiting as i64);
            raise(&metrics.replicas.preemptions.with_label_values(&labels), load.preemptions);
            raise(&metrics.replicas.panics.with_label_values(&[&name]), replica.panics());
            metrics.replicas.kv_usage.with_label_values(&labels).set(kv_usage(&load));
            let blocks = load.capacity_blocks.to_string();
            let tokens = embedded.block_size.to_string();
            metrics
                .replicas
                .kv_capacity
                // The capacity is in the labels, as in vLLM's `cache_config_info`, and the value is
                // always 1.
                .with_label_values(&[labels[0], labels[1], &tokens, &blocks])
                .set(1);
        }
    }

    /// Says what lower tiers hold and did: as each replica sees it, and as they see it themselves.
    fn refresh_tiers(&self, embedded: &EmbeddedReplicas) {
        for (index, replica) in embedded.replicas.iter().enumerate() {
            for tier in replica.tiers() {
                self.metrics.replicas.set_tier(&index.to_string(), &tier);
            }
            if let Some(report) = replica.importance() {
                self.metrics.importance.set(&index.to_string(), &report);
            }
        }
        if let Some(reports) = &embedded.tier_reports {
            reports().iter().for_each(|report| self.metrics.tiers.set(report));
        }
    }

    /// Says how each replica's event stream is.
    fn refresh_streams(&self, replicas: &[ReplicaStatus]) {
        // Copied, because a report takes the stream's own lock.
        let streams = self.lock_streams().clone();
        for replica in replicas {
            let stream = streams.get(&replica.replica).map(|stream| match replica.health {
                Health::Healthy => stream.report().status,
                // What it said is forgotten, whatever its stream looks like.
                Health::Down => StreamStatus::Down,
            });
            self.metrics.replicas.set_stream(&replica.replica.to_string(), stream);
        }
    }

    /// Says which upstream each replica is, and what that says of its load.
    fn name_upstreams(&self) {
        if self.fleet.embedded().is_some() {
            return;
        }
        // A report that has expired must vanish from the metrics rather than stay at its last
        // value.
        self.metrics.replicas.forget_loads();
        for (id, upstream) in (0..).map(ReplicaId).zip(self.fleet.upstreams()) {
            let rank = upstream.rank().map(|rank| rank.to_string());
            let replica = id.to_string();
            let labels = [&replica[..], upstream.base(), rank.as_deref().unwrap_or_default()];
            self.metrics.replicas.info.with_label_values(&labels).set(1);
            let report = self.router().report_of(id, self.clock.now());
            if let Some(report) = report {
                let models = upstream.models();
                let labels = [models.first().map_or("", String::as_str), labels[0]];
                self.metrics.replicas.set_load(&labels, report);
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
