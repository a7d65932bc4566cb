//! Metrics of an index that gateways share; there only where one is shared.

use headstart_index_sync::shared::SharedIndexStats;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{MetricFactory, Metrics, raise};

/// Connection, log and lease metrics of the shared index.
#[derive(Clone, Debug)]
pub struct SharedIndexMetrics {
    connected: IntGauge,
    replicas: IntGaugeVec,
    errors: IntCounter,
    entries: IntCounterVec,
    loads: IntCounter,
    holes: IntCounter,
    lost_leases: IntCounter,
    bases: IntCounter,
    too_large: IntCounter,
}

impl Metrics {
    /// The metrics of a shared index, made when they are first asked for.
    pub fn with_shared_index(&self) -> &SharedIndexMetrics {
        self.shared_index.get_or_init(|| SharedIndexMetrics::new(&self.make))
    }
}

impl SharedIndexMetrics {
    fn new(make: &MetricFactory) -> Self {
        Self {
            connected: make.plain_gauge(
                "headstart_shared_index_connected",
                "1 while there is a connection to the server of the shared index.",
            ),
            replicas: make.gauge(
                "headstart_shared_index_replicas",
                "Replicas by who listens to their engine: own (this gateway, for all), other (one \
                 that shares with it) or alone (this gateway, for itself).",
                &["listener"],
            ),
            errors: make.plain_counter(
                "headstart_shared_index_errors_total",
                "Connections to the server of the shared index that failed or broke.",
            ),
            entries: make.counter(
                "headstart_shared_index_entries_total",
                "Entries of logs, written for others or applied from them.",
                &["direction"],
            ),
            loads: make.plain_counter(
                "headstart_shared_index_loads_total",
                "Full reads of a replica's contents, at the start or after a gap.",
            ),
            holes: make.plain_counter(
                "headstart_shared_index_holes_total",
                "Gaps in logs that nothing filled: what was known before them is in doubt.",
            ),
            lost_leases: make.plain_counter(
                "headstart_shared_index_lost_leases_total",
                "Times that another gateway took over while this one still listened.",
            ),
            bases: make.plain_counter(
                "headstart_shared_index_bases_total",
                "Times that this gateway wrote down what a log adds up to.",
            ),
            too_large: make.plain_counter(
                "headstart_shared_index_bases_too_large_total",
                "Times that it did not, because the replica holds too many blocks.",
            ),
        }
    }

    /// Brings all up to date.
    pub fn set(&self, stats: &SharedIndexStats) {
        self.connected.set(i64::from(stats.is_connected));
        let listeners = [("own", stats.owned), ("other", stats.followed), ("alone", stats.alone)];
        for (listener, replicas) in listeners {
            let gauge = self.replicas.with_label_values(&[listener]);
            gauge.set(replicas as i64);
        }
        raise(&self.errors, stats.errors);
        raise(&self.entries.with_label_values(&["written"]), stats.written);
        raise(&self.entries.with_label_values(&["applied"]), stats.applied);
        raise(&self.loads, stats.loads);
        raise(&self.holes, stats.holes);
        raise(&self.lost_leases, stats.lost_leases);
        raise(&self.bases, stats.bases);
        raise(&self.too_large, stats.too_large);
    }
}
