//! Counters of one replica's events that were not usable.

use super::IndexStats;

/// Counters of events that were not usable, by reason.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) orphans: u64,
    pub(super) unknown_removals: u64,
    pub(super) malformed_events: u64,
}

impl Counters {
    pub(super) fn add_to(self, stats: &mut IndexStats) {
        stats.orphans += self.orphans;
        stats.unknown_removals += self.unknown_removals;
        stats.malformed_events += self.malformed_events;
    }
}
