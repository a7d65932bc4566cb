//! Metrics of the places below host memory: how well they work, what they hold, what they moved,
//! and what wears them.

use std::collections::HashMap;
use std::time::Instant;

use headstart_core::transfer::{
    DevicePart, PartName, Transfer, TransferId, TransferReport, TransferResult,
};
use headstart_core::{BlockHash, BlockMover, Tier};
use prometheus::HistogramVec;

use super::{MetricFactory, Metrics};

/// Seconds; from a unit in host memory to an object store that is nearly given up.
const LOADS: [f64; 15] =
    [5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 2.0, 10.0];

/// Report of one tier below host memory, which all replicas share. Counts are since the start;
/// `None` marks a value that the tier cannot provide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierReport {
    /// The tier reported on.
    pub tier: Tier,
    /// Whether it can be read.
    pub reads: bool,
    /// Whether it can be written.
    pub writes: bool,
    /// Records that can be read.
    pub records: u64,
    /// Bytes of these.
    pub record_bytes: Option<u64>,
    /// Bytes of its files, which count for its budget.
    pub file_bytes: Option<u64>,
    /// Bytes of records that were read.
    pub read_bytes: u64,
    /// Bytes of records that were stored on request.
    pub stored_bytes: u64,
    /// Bytes of records that were moved to make room.
    pub moved_bytes: Option<u64>,
    /// Bytes that were written, all together: what wears it.
    pub written_bytes: u64,
    /// Records that were stored.
    pub stored: u64,
    /// Records that were read intact.
    pub loaded: u64,
    /// Parts of records that were read alone and intact, by kind of record.
    pub parts: Vec<(&'static str, u64)>,
    /// Commands that failed.
    pub failed: u64,
    /// Attempts after the first, of any request.
    pub retries: Option<u64>,
    /// Segments that were emptied to make room.
    pub cleaned_segments: Option<u64>,
    /// Records that were found damaged and set aside.
    pub quarantined: u64,
    /// Records that went, by reason.
    pub lost: Vec<(&'static str, u64)>,
}

/// Times of loads by tier.
pub(super) fn load_seconds(make: &MetricFactory) -> HistogramVec {
    make.histogram("headstart_tier_load_seconds", &LOADS)
}

impl Metrics {
    /// Brings what a tier says of itself up to date.
    pub fn set_tier(&self, report: &TierReport) {
        let tier = report.tier.name();
        for (what, is_so) in [("reads", report.reads), ("writes", report.writes)] {
            self.set("headstart_tier_up", &[tier, what], f64::from(u8::from(is_so)));
        }
        self.set("headstart_tier_records", &[tier], report.records as f64);
        // Before anything is stored, the ratio says nothing.
        if report.stored_bytes > 0 {
            let ratio = report.written_bytes as f64 / report.stored_bytes as f64;
            self.set("headstart_tier_write_amplification", &[tier], ratio);
        }
        for (name, label, count) in [
            ("headstart_tier_bytes", "records", report.record_bytes),
            ("headstart_tier_bytes", "files", report.file_bytes),
            ("headstart_tier_bytes_total", "read", Some(report.read_bytes)),
            ("headstart_tier_bytes_total", "stored", Some(report.stored_bytes)),
            ("headstart_tier_bytes_total", "moved", report.moved_bytes),
            ("headstart_tier_bytes_total", "written", Some(report.written_bytes)),
            ("headstart_tier_commands_total", "stored", Some(report.stored)),
            ("headstart_tier_commands_total", "loaded", Some(report.loaded)),
            ("headstart_tier_commands_total", "failed", Some(report.failed)),
        ] {
            if let Some(count) = count {
                self.set(name, &[tier, label], count as f64);
            }
        }
        for (name, count) in [
            ("headstart_tier_retries_total", report.retries),
            ("headstart_tier_cleaned_segments_total", report.cleaned_segments),
            ("headstart_tier_quarantined_records_total", Some(report.quarantined)),
        ] {
            if let Some(count) = count {
                self.set(name, &[tier], count as f64);
            }
        }
        for (name, counts) in [
            ("headstart_tier_parts_total", &report.parts),
            ("headstart_tier_lost_records_total", &report.lost),
        ] {
            for &(label, count) in counts {
                self.set(name, &[tier, label], count as f64);
            }
        }
    }
}

/// A mover whose loads are timed, for the metrics.
pub(crate) struct TimedMover {
    mover: Box<dyn BlockMover>,
    load_seconds: HistogramVec,
    /// As many as may be on their way.
    loads: HashMap<TransferId, (Tier, Instant)>,
}

impl TimedMover {
    pub(crate) fn new(mover: Box<dyn BlockMover>, load_seconds: HistogramVec) -> Self {
        Self { mover, load_seconds, loads: HashMap::new() }
    }
}

impl BlockMover for TimedMover {
    fn submit(&mut self, transfer: Transfer) {
        if let Transfer::Load { id, from, .. } = &transfer {
            self.loads.insert(*id, (*from, Instant::now()));
        }
        self.mover.submit(transfer);
    }

    fn read(&mut self, part: usize, device: &dyn DevicePart) {
        self.mover.read(part, device);
    }

    fn end_reads(&mut self) {
        self.mover.end_reads();
    }

    fn poll(&mut self, moved: &mut Vec<TransferReport>) {
        let before = moved.len();
        self.mover.poll(moved);
        for moved in &moved[before..] {
            let TransferReport::Loaded { id, result, ago } = moved else {
                continue;
            };
            if let Some((tier, asked_at)) = self.loads.remove(id)
                && *result == TransferResult::Done
            {
                let histogram = self.load_seconds.with_label_values(&[tier.name()]);
                // The load ended before this poll, by `ago`.
                let took = asked_at.elapsed().saturating_sub(*ago);
                histogram.observe(took.as_secs_f64());
            }
        }
    }

    fn part(&self, name: BlockHash, part: usize) -> Option<&[u8]> {
        self.mover.part(name, part)
    }

    fn loaded_part(&self, name: PartName) -> Option<&[u8]> {
        self.mover.loaded_part(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_as_it_is() {
        let metrics = Metrics::new();
        let mut report = TierReport {
            tier: Tier::Disk,
            reads: true,
            writes: false,
            records: 7,
            record_bytes: Some(700),
            file_bytes: None,
            read_bytes: 1,
            stored_bytes: 100,
            moved_bytes: Some(40),
            written_bytes: 150,
            stored: 10,
            loaded: 3,
            parts: vec![("unit", 11), ("pack", 12)],
            failed: 2,
            retries: None,
            cleaned_segments: Some(4),
            quarantined: 5,
            lost: vec![("evicted", 6)],
        };
        metrics.set_tier(&report);
        report.quarantined = 8;
        metrics.set_tier(&report);
        let text = metrics.render();
        for line in [
            "headstart_tier_up{tier=\"disk\",what=\"reads\"} 1",
            "headstart_tier_up{tier=\"disk\",what=\"writes\"} 0",
            "headstart_tier_records{tier=\"disk\"} 7",
            "headstart_tier_bytes{tier=\"disk\",what=\"records\"} 700",
            "headstart_tier_bytes_total{tier=\"disk\",what=\"written\"} 150",
            "headstart_tier_write_amplification{tier=\"disk\"} 1.5",
            "headstart_tier_commands_total{outcome=\"failed\",tier=\"disk\"} 2",
            "headstart_tier_parts_total{content=\"unit\",tier=\"disk\"} 11",
            "headstart_tier_parts_total{content=\"pack\",tier=\"disk\"} 12",
            "headstart_tier_cleaned_segments_total{tier=\"disk\"} 4",
            "headstart_tier_quarantined_records_total{tier=\"disk\"} 8",
            "headstart_tier_lost_records_total{reason=\"evicted\",tier=\"disk\"} 6",
        ] {
            assert!(text.lines().any(|row| row == line), "{line} in {text}");
        }
        assert!(!text.contains("retries_total{tier"), "none where none are");
        assert!(!text.contains("what=\"files\""));
    }

    /// Every other load works, all at once.
    #[derive(Default)]
    struct Every(Vec<TransferId>);

    impl BlockMover for Every {
        fn submit(&mut self, transfer: Transfer) {
            if let Transfer::Load { id, .. } = transfer {
                self.0.push(id);
            }
        }

        fn read(&mut self, _: usize, _: &dyn DevicePart) {}

        fn end_reads(&mut self) {}

        fn poll(&mut self, moved: &mut Vec<TransferReport>) {
            let loaded = self.0.drain(..).map(|id| TransferReport::Loaded {
                id,
                result: match id.0 % 2 {
                    0 => TransferResult::Done,
                    _ => TransferResult::Failed,
                },
                ago: std::time::Duration::ZERO,
            });
            moved.extend(loaded);
        }

        fn part(&self, _: BlockHash, _: usize) -> Option<&[u8]> {
            None
        }

        fn loaded_part(&self, _: PartName) -> Option<&[u8]> {
            None
        }
    }

    #[test]
    fn loads_that_worked_are_timed_by_tier() {
        let metrics = Metrics::new();
        let mut mover = TimedMover::new(Box::new(Every::default()), metrics.load_seconds.clone());
        for number in 0..6 {
            let (id, name) = (TransferId(number), BlockHash::from_u64(number));
            let from = [Tier::Host, Tier::Disk][usize::from(number > 2)];
            let load = Transfer::Load { id, name, from };
            mover.submit(load);
        }
        let mut moved = Vec::new();
        mover.poll(&mut moved);
        assert_eq!(moved.len(), 6);
        assert!(mover.loads.is_empty(), "none is remembered for ever");
        let text = metrics.render();
        for line in [
            "headstart_tier_load_seconds_count{tier=\"host\"} 2",
            "headstart_tier_load_seconds_count{tier=\"disk\"} 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
