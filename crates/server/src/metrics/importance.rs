//! Metrics of stored prefixes that are loaded in part: how much of them, where from, what it
//! changed in answers, and what was packed.

use headstart_engine::importance::{ImportanceReport, PackCounts, PartialLoadTally};
use headstart_selective::PartCounts;
use prometheus::{CounterVec, GaugeVec, IntCounterVec, IntGaugeVec};

use super::{MetricFactory, raise};

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
    checks: CheckMetrics,
    packs: PackMetrics,
    parts: PartMetrics,
}

/// Results of prompts that were recomputed in full as a check.
struct CheckMetrics {
    prompts: IntCounterVec,
    divergence: CounterVec,
    most: GaugeVec,
    barred: IntGaugeVec,
}

/// Packs and the units in them.
struct PackMetrics {
    readable: IntGaugeVec,
    units: IntGaugeVec,
    pending: IntGaugeVec,
    made: IntCounterVec,
}

/// Parts kept in memory, and their uses and evictions.
struct PartMetrics {
    kept: IntGaugeVec,
    uses: IntCounterVec,
    evictions: IntCounterVec,
}

impl ImportanceMetrics {
    pub(super) fn new(make: &MetricFactory) -> Self {
        let counter = |name, help, label| make.counter(name, help, &["replica", label]);
        let ratio = |name, help| make.ratio(name, help, &["replica"]);
        Self {
            prompts: counter(
                "headstart_importance_prompts_total",
                "Prompts whose stored prefix was loaded in part (loaded), and those that began so \
                 and did not end so: a part did not come (failed), parts came too late (late), \
                 they were cancelled or had to make room for others (left).",
                "outcome",
            ),
            bytes: counter(
                "headstart_importance_bytes_total",
                "Bytes of the stored prefixes of such prompts (whole), and of what was used of \
                 them, wherever it was: the keys that tell what matters (probes), all else (rest).",
                "what",
            ),
            loaded_bytes: counter(
                "headstart_importance_loaded_bytes_total",
                "Bytes used of partly loaded prefixes, by source: device or host memory, disk, or \
                 a load that another prompt started (shared).",
                "source",
            ),
            tokens: counter(
                "headstart_importance_tokens_total",
                "Tokens that were selected, and tokens of the parts that they were taken from, \
                 read from the disk or kept in memory (read), over all layers.",
                "what",
            ),
            amplification: ratio(
                "headstart_importance_read_amplification",
                "Tokens of the parts that were used, whether these were read from the disk or kept \
                 in memory, for each token that was selected, since the start. Below 1 where whole \
                 chunks bring the same attention with fewer tokens.",
            ),
            layers: counter(
                "headstart_importance_layers_total",
                "Layers of such prompts: all, and those of which everything was loaded because \
                 the heads that were asked did not agree (full).",
                "what",
            ),
            agreement: ratio(
                "headstart_importance_agreement",
                "Mean over layers of how far the heads that were asked agree, 0 to 1, since the \
                 start.",
            ),
            missed: ratio(
                "headstart_importance_missed",
                "By which share less attention what was kept gets than what was selected, where \
                 whole chunks were kept instead (their other tokens counted; 0 where it is no \
                 less): the mean over the heads that were asked and layers, since the start.",
            ),
            checks: CheckMetrics::new(make),
            packs: PackMetrics::new(make),
            parts: PartMetrics::new(make),
        }
    }

    /// Brings a replica's metrics up to date.
    pub fn set(&self, replica: &str, report: &ImportanceReport) {
        self.set_tally(replica, &report.tally);
        self.checks.set(replica, report);
        self.packs.set(replica, &report.packs);
        self.parts.set([replica, "probes"], &report.probes);
        self.parts.set([replica, "rest"], &report.rest);
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
            raise(&counter.with_label_values(&[replica, label]), count);
        }
        for (source, bytes) in SOURCES.iter().zip(tally.bytes) {
            raise(&self.loaded_bytes.with_label_values(&[replica, source]), bytes);
        }
        // Neither says anything before there was a layer.
        if tally.layers > 0 {
            let agreement = tally.agreement / tally.layers as f64;
            let gauge = self.amplification.with_label_values(&[replica]);
            gauge.set(tally.read_amplification());
            self.agreement.with_label_values(&[replica]).set(agreement);
            let missed = tally.missed / tally.layers as f64;
            self.missed.with_label_values(&[replica]).set(missed);
        }
    }
}

impl CheckMetrics {
    fn new(make: &MetricFactory) -> Self {
        Self {
            prompts: make.counter(
                "headstart_importance_checks_total",
                "Prompts recomputed in full for comparison (compared), those with the same most \
                 likely first token (agreed), and those that barred a prefix (barred).",
                &["replica", "outcome"],
            ),
            divergence: make.float_counter(
                "headstart_importance_check_kl_nats_total",
                "Sum of the divergences of first tokens' distributions from those of the full \
                 computation, where finite.",
                &["replica"],
            ),
            most: make.ratio(
                "headstart_importance_check_kl_nats_max",
                "The largest such divergence since the start.",
                &["replica"],
            ),
            barred: make.gauge(
                "headstart_importance_barred_prefixes",
                "Prefixes that are loaded in full now, because a comparison was too far off; the \
                 oldest are forgotten.",
                &["replica"],
            ),
        }
    }

    fn set(&self, replica: &str, report: &ImportanceReport) {
        let guard = &report.guard;
        for (outcome, count) in [
            ("compared", guard.compared),
            ("agreed", guard.agreed),
            ("barred", report.barred.prefixes),
        ] {
            raise(&self.prompts.with_label_values(&[replica, outcome]), count);
        }
        let sum = self.divergence.with_label_values(&[replica]);
        // A counter takes no negative step.
        sum.inc_by((guard.kl_sum - sum.get()).max(0.0));
        let most = self.most.with_label_values(&[replica]);
        most.set(f64::from(guard.kl_max));
        let barred = self.barred.with_label_values(&[replica]);
        barred.set(guard.barred as i64);
    }
}

impl PackMetrics {
    fn new(make: &MetricFactory) -> Self {
        let gauge = |name, help| make.gauge(name, help, &["replica"]);
        Self {
            readable: gauge(
                "headstart_importance_packs",
                "Packs that can be read, one of a layer each.",
            ),
            units: gauge(
                "headstart_importance_pack_units",
                "Units that packs serve, over all layers.",
            ),
            pending: gauge(
                "headstart_importance_packs_pending",
                "Packs that are being made, or wait for it.",
            ),
            made: make.counter(
                "headstart_importance_packs_total",
                "Packs that were made, and those that could not be (failed).",
                &["replica", "outcome"],
            ),
        }
    }

    fn set(&self, replica: &str, counts: &PackCounts) {
        let &PackCounts { packs, units, pending, made, failed } = counts;
        for (gauge, count) in
            [(&self.readable, packs), (&self.units, units), (&self.pending, pending)]
        {
            gauge.with_label_values(&[replica]).set(count as i64);
        }
        for (outcome, count) in [("made", made), ("failed", failed)] {
            raise(&self.made.with_label_values(&[replica, outcome]), count);
        }
    }
}

impl PartMetrics {
    fn new(make: &MetricFactory) -> Self {
        Self {
            kept: make.gauge(
                "headstart_importance_parts",
                "Parts of stored units that stay in memory (kept), and how many may (capacity): \
                 keys that tell what matters (probes), and all else (rest).",
                &["replica", "part", "tier", "what"],
            ),
            uses: make.counter(
                "headstart_importance_part_uses_total",
                "Uses of parts by where they were, the disk if they had not stayed.",
                &["replica", "part", "source"],
            ),
            evictions: make.counter(
                "headstart_importance_part_evictions_total",
                "Parts that had to go from memory, down or out.",
                &["replica", "part", "tier"],
            ),
        }
    }

    fn set(&self, [replica, part]: [&str; 2], counts: &PartCounts) {
        for level in &counts.levels {
            let tier = level.tier.name();
            for (what, count) in [("kept", level.parts), ("capacity", level.capacity)] {
                let gauge = self.kept.with_label_values(&[replica, part, tier, what]);
                gauge.set(count as i64);
            }
            for (counter, count) in [(&self.uses, level.hits), (&self.evictions, level.evictions)] {
                raise(&counter.with_label_values(&[replica, part, tier]), count);
            }
        }
        let misses = self.uses.with_label_values(&[replica, part, "disk"]);
        raise(&misses, counts.misses);
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
