//! Report of the tier below host memory, with the names of the metrics.

use std::sync::atomic::Ordering::Relaxed;

use headstart_core::Tier;
use headstart_server::metrics::TierReport;
use headstart_store::backend::{Condition, Failure, LossReason};
use headstart_store::record::Content;
use headstart_store::shared::Status;

use super::Stats;

/// A place's counts, as metrics name them.
pub(super) fn report(tier: Tier, stats: &Stats, status: Status) -> TierReport {
    let lost = |wanted: LossReason| {
        let mut lost = status.lost.iter();
        lost.find(|(loss, _)| *loss == wanted).map_or(0, |(_, n)| *n)
    };
    let common = TierReport {
        tier,
        // Failed writes leave reads possible, so the two are reported apart.
        reads: !matches!(status.condition, Condition::Gone(_)),
        writes: status.condition == Condition::Well,
        records: status.records as u64,
        record_bytes: None,
        file_bytes: None,
        read_bytes: 0,
        stored_bytes: 0,
        moved_bytes: None,
        written_bytes: 0,
        stored: 0,
        loaded: 0,
        failed: 0,
        retries: None,
        cleaned_segments: None,
        parts: Vec::new(),
        quarantined: lost(LossReason::Corrupt),
        lost: vec![
            ("expired", lost(LossReason::Expired)),
            ("corrupt", lost(LossReason::Corrupt)),
            ("evicted", lost(LossReason::Evicted)),
            ("offline", lost(LossReason::Offline)),
        ],
    };
    match stats {
        Stats::Disk(stats) => TierReport {
            record_bytes: Some(stats.live_bytes.get()),
            file_bytes: Some(stats.file_bytes.get()),
            read_bytes: stats.read_bytes.get(),
            stored_bytes: stats.put_bytes.get(),
            moved_bytes: Some(stats.moved_bytes.get()),
            written_bytes: stats.written_bytes.get(),
            stored: stats.stored.get(),
            loaded: stats.loaded.get(),
            failed: stats.failed.get(),
            cleaned_segments: Some(stats.cleaned.get()),
            parts: vec![
                (Content::Unit.name(), stats.unit_parts.get()),
                (Content::Pack.name(), stats.pack_parts.get()),
            ],
            ..common
        },
        Stats::Remote(stats) => TierReport {
            read_bytes: stats.bytes_in.load(Relaxed),
            stored_bytes: stats.bytes_out.load(Relaxed),
            written_bytes: stats.bytes_out.load(Relaxed),
            stored: stats.puts.load(Relaxed),
            loaded: stats.gets.load(Relaxed),
            // Each kind of failure has a counter of its own; the metric is their sum.
            failed: Failure::ALL.iter().map(|&why| stats.failures(why)).sum(),
            retries: Some(stats.retries.load(Relaxed)),
            ..common
        },
    }
}
