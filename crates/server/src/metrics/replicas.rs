//! Metrics of replicas: whether they take requests, how busy they are, what their event streams
//! and their lower tiers do.

use headstart_cache::tiers::{TierCounts, TierSummary};
use headstart_engine::SchedulerLoad;
use headstart_router::ReportedLoad;
use headstart_router::stream::StreamStatus;

use super::{Metrics, load};
use crate::gateway::kv_usage;

impl Metrics {
    /// Says whether a replica takes requests.
    pub fn set_up(&self, replica: &str, is_up: bool) {
        self.set("headstart_replica_up", &[replica], f64::from(u8::from(is_up)));
    }

    /// Says which upstream a replica is, and its data-parallel rank there.
    pub fn set_upstream(&self, [replica, upstream, rank]: [&str; 3]) {
        self.set("headstart_replica_info", &[replica, upstream, rank], 1.0);
    }

    /// Passes on how busy a replica in this process is.
    pub fn set_own_load(&self, labels: [&str; 2], block_size: usize, load: &SchedulerLoad) {
        self.set(load::RUNNING, &labels, load.running as f64);
        self.set(load::WAITING, &labels, load.waiting as f64);
        self.set(load::KV_USAGE, &labels, kv_usage(load));
        self.set("vllm:num_preemptions_total", &labels, load.preemptions as f64);
        let tokens = block_size.to_string();
        let blocks = load.capacity_blocks.to_string();
        // The capacity is in the labels, as in vLLM's `cache_config_info`, and the value is always
        // 1.
        self.set(load::KV_CAPACITY, &[labels[0], labels[1], &tokens, &blocks], 1.0);
    }

    /// Says how often the engine of a replica panicked.
    pub fn set_panics(&self, replica: &str, panics: u64) {
        self.set("headstart_replica_panics_total", &[replica], panics as f64);
    }

    /// Forgets what replicas said of their load.
    pub fn forget_loads(&self) {
        for name in [load::RUNNING, load::WAITING, load::KV_USAGE] {
            self.make.forget(name);
        }
    }

    /// Passes on what a replica said of its load.
    pub fn set_load(&self, labels: &[&str; 2], report: ReportedLoad) {
        self.set(load::RUNNING, labels, f64::from(report.running));
        self.set(load::WAITING, labels, f64::from(report.waiting));
        // NaN means that the engine does not report its share.
        if report.kv_usage.is_finite() {
            self.set(load::KV_USAGE, labels, report.kv_usage);
        }
    }

    /// Forgets the states of all event streams.
    pub fn forget_streams(&self) {
        self.make.forget("headstart_kv_stream_state");
    }

    /// Sets the state of a replica's event stream.
    pub fn set_stream(&self, replica: &str, status: StreamStatus) {
        for state in StreamStatus::ALL {
            let is_in_it = f64::from(u8::from(state == status));
            self.set("headstart_kv_stream_state", &[replica, state.name()], is_in_it);
        }
    }

    /// Says what a replica's lower tier holds and has done.
    pub fn set_units(&self, replica: &str, tier: &TierSummary) {
        let TierCounts { stored, declined, dropped, evicted, unstored, lost, loaded, failed } =
            tier.counts;
        for (what, units) in [("readable", tier.units), ("capacity", tier.capacity_units)] {
            let labels = [replica, tier.tier.name(), what];
            self.set("headstart_tier_units", &labels, units as f64);
        }
        for (what, count) in [
            ("stored", stored),
            ("declined", declined),
            ("dropped", dropped),
            ("evicted", evicted),
            ("unstored", unstored),
            ("lost", lost),
            ("loaded", loaded),
            ("failed", failed),
        ] {
            let labels = [replica, tier.tier.name(), what];
            self.set("headstart_tier_units_total", &labels, count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_in_one_state_or_in_none() {
        use StreamStatus::{Complete, Down};
        let metrics = Metrics::new();
        let states = |status| {
            metrics.forget_streams();
            if let Some(status) = status {
                metrics.set_stream("3", status);
            }
            let text = metrics.render();
            let lines = text.lines().filter(|line| line.starts_with("headstart_kv_stream_state{"));
            let lines: Vec<_> = lines.map(str::to_owned).collect();
            let held = lines.iter().filter(|line| line.ends_with(" 1"));
            (lines.len(), held.cloned().collect::<Vec<_>>())
        };
        assert_eq!(states(None), (0, vec![]));
        for status in [Complete, Down] {
            let line =
                format!("headstart_kv_stream_state{{replica=\"3\",state=\"{}\"}} 1", status.name());
            assert_eq!(states(Some(status)), (4, vec![line]));
        }
        assert_eq!(states(None), (0, vec![]));
    }
}
