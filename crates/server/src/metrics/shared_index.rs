//! Metrics of an index that gateways share; there only where one is shared.

use headstart_index_sync::shared::SharedIndexStats;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{MetricFactory, Metrics, raise, raise_one, set_one};

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
            connected: make.plain_gauge("headstart_shared_index_connected"),
            replicas: make.gauge("headstart_shared_index_replicas"),
            errors: make.plain_counter("headstart_shared_index_errors_total"),
            entries: make.counter("headstart_shared_index_entries_total"),
            loads: make.plain_counter("headstart_shared_index_loads_total"),
            holes: make.plain_counter("headstart_shared_index_holes_total"),
            lost_leases: make.plain_counter("headstart_shared_index_lost_leases_total"),
            bases: make.plain_counter("headstart_shared_index_bases_total"),
            too_large: make.plain_counter("headstart_shared_index_bases_too_large_total"),
        }
    }

    /// Brings all up to date.
    pub fn set(&self, stats: &SharedIndexStats) {
        self.connected.set(i64::from(stats.is_connected));
        for (listener, replicas) in
            [("own", stats.owned), ("other", stats.followed), ("alone", stats.alone)]
        {
            set_one(&self.replicas, &[listener], replicas as i64);
        }
        raise(&self.errors, stats.errors);
        raise_one(&self.entries, &["written"], stats.written);
        raise_one(&self.entries, &["applied"], stats.applied);
        raise(&self.loads, stats.loads);
        raise(&self.holes, stats.holes);
        raise(&self.lost_leases, stats.lost_leases);
        raise(&self.bases, stats.bases);
        raise(&self.too_large, stats.too_large);
    }
}
