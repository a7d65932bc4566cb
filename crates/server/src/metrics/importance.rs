//! Metrics of stored prefixes that are loaded in part: how much of them, where from, what it
//! changed in answers, and what was packed.

use headstart_engine::importance::{ImportanceReport, PackCounts, PartialLoadTally};
use headstart_selective::PartCounts;
use prometheus::{CounterVec, GaugeVec, IntCounterVec, IntGaugeVec};

use super::{MetricFactory, raise_one, set_one};

/// Places that parts come from, as a tally has them.
const SOURCES: [&str; 4] = ["device", "host", "disk", "shared"];

/// Metrics of partial loads, by replica. Absent where prefixes are never loaded in part.
pub struct ImportanceMetrics {
    prompts: IntCounterVec,
    bytes: IntCounterVec,
    loaded_bytes: IntCounterVec,
    tokens: IntCounterVec,
    amplification: GaugeVec,
    layers: IntCounterVec,
    agreement: GaugeVec,
    missed: GaugeVec,
    // Results of prompts that were recomputed in full as a check.
    checks: IntCounterVec,
    divergence: CounterVec,
    most_divergence: GaugeVec,
    barred: IntGaugeVec,
    // Packs and the units in them.
    packs: IntGaugeVec,
    pack_units: IntGaugeVec,
    packs_pending: IntGaugeVec,
    packs_made: IntCounterVec,
    // Parts kept in memory, and their uses and evictions.
    parts: IntGaugeVec,
    part_uses: IntCounterVec,
    part_evictions: IntCounterVec,
}

impl ImportanceMetrics {
    pub(super) fn new(make: &MetricFactory) -> Self {
        Self {
            prompts: make.counter("headstart_importance_prompts_total"),
            bytes: make.counter("headstart_importance_bytes_total"),
            loaded_bytes: make.counter("headstart_importance_loaded_bytes_total"),
            tokens: make.counter("headstart_importance_tokens_total"),
            amplification: make.ratio("headstart_importance_read_amplification"),
            layers: make.counter("headstart_importance_layers_total"),
            agreement: make.ratio("headstart_importance_agreement"),
            missed: make.ratio("headstart_importance_missed"),
            checks: make.counter("headstart_importance_checks_total"),
            divergence: make.float_counter("headstart_importance_check_kl_nats_total"),
            most_divergence: make.ratio("headstart_importance_check_kl_nats_max"),
            barred: make.gauge("headstart_importance_barred_prefixes"),
            packs: make.gauge("headstart_importance_packs"),
            pack_units: make.gauge("headstart_importance_pack_units"),
            packs_pending: make.gauge("headstart_importance_packs_pending"),
            packs_made: make.counter("headstart_importance_packs_total"),
            parts: make.gauge("headstart_importance_parts"),
            part_uses: make.counter("headstart_importance_part_uses_total"),
            part_evictions: make.counter("headstart_importance_part_evictions_total"),
        }
    }

    /// Brings a replica's metrics up to date.
    pub fn set(&self, replica: &str, report: &ImportanceReport) {
        self.set_tally(replica, &report.tally);
        self.set_checks(replica, report);
        self.set_packs(replica, &report.packs);
        self.set_parts([replica, "probes"], &report.probes);
        self.set_parts([replica, "rest"], &report.rest);
    }

    fn set_tally(&self, replica: &str, tally: &PartialLoadTally) {
        for (counter, label, count) in [
            (&self.prompts, "loaded", tally.prompts),
            (&self.prompts, "failed", tally.failed),
            (&self.prompts, "late", tally.late),
            (&self.prompts, "left", tally.left),
            (&self.bytes, "whole", tally.whole_bytes),
            (&self.bytes, "probes", tally.probe_bytes),
            (&self.bytes, "rest", tally.rest_bytes),
            (&self.tokens, "selected", tally.selected_tokens),
            (&self.tokens, "read", tally.read_tokens),
            (&self.layers, "all", tally.layers),
            (&self.layers, "full", tally.full_layers),
        ] {
            raise_one(counter, &[replica, label], count);
        }
        for (source, bytes) in SOURCES.iter().zip(tally.bytes) {
            raise_one(&self.loaded_bytes, &[replica, source], bytes);
        }
        // None says anything before there was a layer.
        if tally.layers > 0 {
            let layers = tally.layers as f64;
            let set = |gauge: &GaugeVec, value| gauge.with_label_values(&[replica]).set(value);
            set(&self.amplification, tally.read_amplification());
            set(&self.agreement, tally.agreement / layers);
            set(&self.missed, tally.missed / layers);
        }
    }

    fn set_checks(&self, replica: &str, report: &ImportanceReport) {
        let guard = &report.guard;
        raise_one(&self.checks, &[replica, "compared"], guard.compared);
        raise_one(&self.checks, &[replica, "agreed"], guard.agreed);
        raise_one(&self.checks, &[replica, "barred"], report.barred.prefixes);
        let sum = self.divergence.with_label_values(&[replica]);
        // A counter takes no negative step.
        sum.inc_by((guard.kl_sum - sum.get()).max(0.0));
        self.most_divergence.with_label_values(&[replica]).set(f64::from(guard.kl_max));
        set_one(&self.barred, &[replica], guard.barred as i64);
    }

    fn set_packs(&self, replica: &str, counts: &PackCounts) {
        let &PackCounts { packs, units, pending, made, failed } = counts;
        set_one(&self.packs, &[replica], packs as i64);
        set_one(&self.pack_units, &[replica], units as i64);
        set_one(&self.packs_pending, &[replica], pending as i64);
        raise_one(&self.packs_made, &[replica, "made"], made);
        raise_one(&self.packs_made, &[replica, "failed"], failed);
    }

    fn set_parts(&self, [replica, part]: [&str; 2], counts: &PartCounts) {
        for level in &counts.levels {
            let tier = level.tier.name();
            set_one(&self.parts, &[replica, part, tier, "kept"], level.parts as i64);
            set_one(&self.parts, &[replica, part, tier, "capacity"], level.capacity as i64);
            raise_one(&self.part_uses, &[replica, part, tier], level.hits);
            raise_one(&self.part_evictions, &[replica, part, tier], level.evictions);
        }
        raise_one(&self.part_uses, &[replica, part, "disk"], counts.misses);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;
    use headstart_core::Tier;
    use headstart_engine::importance::BarredPrefixes;
    use headstart_selective::{GuardCounts, LevelCounts};

    fn report() -> ImportanceReport {
        let parts = |scale: u64| PartCounts {
            levels: vec![LevelCounts {
                tier: Tier::Host,
                capacity: 100 * scale as usize,
                parts: 10 * scale as usize,
                hits: 3 * scale,
                evictions: 2 * scale,
            }],
            misses: 7 * scale,
            not_kept: 1,
        };
        ImportanceReport {
            tally: PartialLoadTally {
                prompts: 4,
                failed: 1,
                late: 2,
                left: 3,
                whole_bytes: 1_000,
                probe_bytes: 120,
                rest_bytes: 300,
                parts: [0, 2, 6, 1],
                bytes: [0, 100, 300, 20],
                selected_tokens: 50,
                read_tokens: 200,
                chunks: 10,
                layers: 8,
                full_layers: 3,
                agreement: 6.0,
                missed: 0.5,
            },
            guard: GuardCounts { compared: 5, agreed: 4, kl_sum: 0.75, kl_max: 0.5, barred: 1 },
            barred: BarredPrefixes { prefixes: 2, last: None },
            packs: PackCounts { packs: 2, units: 12, pending: 1, made: 6, failed: 1 },
            probes: parts(1),
            rest: parts(2),
        }
    }

    #[test]
    fn what_an_engine_reports_is_told() {
        let metrics = Metrics::new();
        assert!(!metrics.render().contains("headstart_importance_"));
        metrics.importance.set("1", &report());
        let mut later = report();
        later.guard.kl_sum = 1.0;
        later.guard.barred = 0;
        later.tally.prompts = 9;
        metrics.importance.set("1", &later);
        let text = metrics.render();
        for line in [
            "prompts_total{outcome=\"loaded\",replica=\"1\"} 9",
            "prompts_total{outcome=\"failed\",replica=\"1\"} 1",
            "prompts_total{outcome=\"late\",replica=\"1\"} 2",
            "prompts_total{outcome=\"left\",replica=\"1\"} 3",
            "bytes_total{replica=\"1\",what=\"whole\"} 1000",
            "bytes_total{replica=\"1\",what=\"probes\"} 120",
            "bytes_total{replica=\"1\",what=\"rest\"} 300",
            "loaded_bytes_total{replica=\"1\",source=\"host\"} 100",
            "loaded_bytes_total{replica=\"1\",source=\"disk\"} 300",
            "loaded_bytes_total{replica=\"1\",source=\"shared\"} 20",
            "tokens_total{replica=\"1\",what=\"selected\"} 50",
            "tokens_total{replica=\"1\",what=\"read\"} 200",
            "read_amplification{replica=\"1\"} 4",
            "layers_total{replica=\"1\",what=\"full\"} 3",
            "agreement{replica=\"1\"} 0.75",
            "missed{replica=\"1\"} 0.0625",
            "checks_total{outcome=\"agreed\",replica=\"1\"} 4",
            "checks_total{outcome=\"barred\",replica=\"1\"} 2",
            "check_kl_nats_total{replica=\"1\"} 1",
            "check_kl_nats_max{replica=\"1\"} 0.5",
            "barred_prefixes{replica=\"1\"} 0",
            "packs{replica=\"1\"} 2",
            "pack_units{replica=\"1\"} 12",
            "packs_total{outcome=\"made\",replica=\"1\"} 6",
            "parts{part=\"probes\",replica=\"1\",tier=\"host\",what=\"kept\"} 10",
            "parts{part=\"rest\",replica=\"1\",tier=\"host\",what=\"capacity\"} 200",
            "part_uses_total{part=\"rest\",replica=\"1\",source=\"host\"} 6",
            "part_uses_total{part=\"rest\",replica=\"1\",source=\"disk\"} 14",
            "part_evictions_total{part=\"probes\",replica=\"1\",tier=\"host\"} 2",
        ] {
            let line = format!("headstart_importance_{line}");
            assert!(text.lines().any(|row| row == line), "{line} in {text}");
        }
    }

    #[test]
    fn before_the_first_layer_nothing_is_said_of_layers() {
        let metrics = Metrics::new();
        let nothing = ImportanceReport { tally: PartialLoadTally::default(), ..report() };
        metrics.importance.set("0", &nothing);
        let text = metrics.render();
        assert!(!text.contains("amplification{") && !text.contains("agreement{"));
        assert!(text.contains("headstart_importance_prompts_total"));
    }
}
