//! Metrics of stored prefixes that are loaded in part: how much of them, where from, what it
//! changed in answers, and what was packed.

use headstart_engine::importance::{ImportanceReport, PackCounts, PartialLoadTally};
use headstart_selective::PartCounts;

use super::Metrics;

/// Places that parts come from, as a tally has them.
const SOURCES: [&str; 4] = ["device", "host", "disk", "shared"];

impl Metrics {
    /// Brings the metrics of a replica's partial loads up to date. They are absent where prefixes
    /// are never loaded in part.
    pub fn set_importance(&self, replica: &str, report: &ImportanceReport) {
        self.set_tally(replica, &report.tally);
        self.set_checks(replica, report);
        self.set_packs(replica, &report.packs);
        self.set_parts([replica, "probes"], &report.probes);
        self.set_parts([replica, "rest"], &report.rest);
    }

    fn set_tally(&self, replica: &str, tally: &PartialLoadTally) {
        for (name, label, count) in [
            ("headstart_importance_prompts_total", "loaded", tally.prompts),
            ("headstart_importance_prompts_total", "failed", tally.failed),
            ("headstart_importance_prompts_total", "late", tally.late),
            ("headstart_importance_prompts_total", "left", tally.left),
            ("headstart_importance_bytes_total", "whole", tally.whole_bytes),
            ("headstart_importance_bytes_total", "probes", tally.probe_bytes),
            ("headstart_importance_bytes_total", "rest", tally.rest_bytes),
            ("headstart_importance_tokens_total", "selected", tally.selected_tokens),
            ("headstart_importance_tokens_total", "read", tally.read_tokens),
            ("headstart_importance_layers_total", "all", tally.layers),
            ("headstart_importance_layers_total", "full", tally.full_layers),
        ] {
            self.set(name, &[replica, label], count as f64);
        }
        for (source, bytes) in SOURCES.iter().zip(tally.bytes) {
            let labels = [replica, source];
            self.set("headstart_importance_loaded_bytes_total", &labels, bytes as f64);
        }
        // None says anything before there was a layer.
        if tally.layers > 0 {
            let layers = tally.layers as f64;
            let amplification = tally.read_amplification();
            self.set("headstart_importance_read_amplification", &[replica], amplification);
            self.set("headstart_importance_agreement", &[replica], tally.agreement / layers);
            self.set("headstart_importance_missed", &[replica], tally.missed / layers);
        }
    }

    /// Results of prompts that were recomputed in full as a check.
    fn set_checks(&self, replica: &str, report: &ImportanceReport) {
        let guard = &report.guard;
        for (outcome, count) in [
            ("compared", guard.compared),
            ("agreed", guard.agreed),
            ("barred", report.barred.prefixes),
        ] {
            self.set("headstart_importance_checks_total", &[replica, outcome], count as f64);
        }
        self.set("headstart_importance_check_kl_nats_total", &[replica], guard.kl_sum);
        self.set("headstart_importance_check_kl_nats_max", &[replica], f64::from(guard.kl_max));
        self.set("headstart_importance_barred_prefixes", &[replica], guard.barred as f64);
    }

    /// Packs and the units in them.
    fn set_packs(&self, replica: &str, counts: &PackCounts) {
        let &PackCounts { packs, units, pending, made, failed } = counts;
        self.set("headstart_importance_packs", &[replica], packs as f64);
        self.set("headstart_importance_pack_units", &[replica], units as f64);
        self.set("headstart_importance_packs_pending", &[replica], pending as f64);
        self.set("headstart_importance_packs_total", &[replica, "made"], made as f64);
        self.set("headstart_importance_packs_total", &[replica, "failed"], failed as f64);
    }

    /// Parts kept in memory, and their uses and evictions.
    fn set_parts(&self, [replica, part]: [&str; 2], counts: &PartCounts) {
        let used = |source: &str, uses: u64| {
            let labels = [replica, part, source];
            self.set("headstart_importance_part_uses_total", &labels, uses as f64);
        };
        for level in &counts.levels {
            let tier = level.tier.name();
            for (what, parts) in [("kept", level.parts), ("capacity", level.capacity)] {
                let labels = [replica, part, tier, what];
                self.set("headstart_importance_parts", &labels, parts as f64);
            }
            used(tier, level.hits);
            let (labels, evictions) = ([replica, part, tier], level.evictions as f64);
            self.set("headstart_importance_part_evictions_total", &labels, evictions);
        }
        used("disk", counts.misses);
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
        metrics.set_importance("1", &report());
        let mut later = report();
        later.guard.kl_sum = 1.0;
        later.guard.barred = 0;
        later.tally.prompts = 9;
        metrics.set_importance("1", &later);
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
        metrics.set_importance("0", &nothing);
        let text = metrics.render();
        assert!(!text.contains("amplification{") && !text.contains("agreement{"));
        assert!(text.contains("headstart_importance_prompts_total"));
    }
}
