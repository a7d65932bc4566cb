//! Metrics of an index that gateways share; there only where one is shared.

use headstart_index_sync::shared::SharedIndexStats;

use super::Metrics;

impl Metrics {
    /// Brings the connection, the logs and the leases of the shared index up to date.
    pub fn set_shared_index(&self, stats: &SharedIndexStats) {
        let is_connected = f64::from(u8::from(stats.is_connected));
        self.set("headstart_shared_index_connected", &[], is_connected);
        for (listener, replicas) in
            [("own", stats.owned), ("other", stats.followed), ("alone", stats.alone)]
        {
            self.set("headstart_shared_index_replicas", &[listener], replicas as f64);
        }
        for (direction, entries) in [("written", stats.written), ("applied", stats.applied)] {
            self.set("headstart_shared_index_entries_total", &[direction], entries as f64);
        }
        for (name, count) in [
            ("headstart_shared_index_errors_total", stats.errors),
            ("headstart_shared_index_loads_total", stats.loads),
            ("headstart_shared_index_holes_total", stats.holes),
            ("headstart_shared_index_lost_leases_total", stats.lost_leases),
            ("headstart_shared_index_bases_total", stats.bases),
            ("headstart_shared_index_bases_too_large_total", stats.too_large),
        ] {
            self.set(name, &[], count as f64);
        }
    }
}
