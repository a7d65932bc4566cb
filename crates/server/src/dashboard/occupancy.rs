//! Blocks that each replica's device holds. A count reads all of the index, so it is made now and
//! then.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use headstart_core::{Nanos, ReplicaId, Tier};
use headstart_router::PrefixIndex;

/// Least time between two counts of what replicas hold.
const COUNT_PERIOD: Duration = Duration::from_secs(5);

/// Shortest pause after a count, as a multiple of its duration: counting takes at most a fiftieth
/// of a core.
const COUNT_PATIENCE: u32 = 50;

/// Blocks that each replica's device holds, as the index knows it, counted now and then.
#[derive(Debug, Default)]
pub(super) struct DeviceOccupancy {
    blocks: BTreeMap<ReplicaId, u64>,
    next: Option<Instant>,
}

impl DeviceOccupancy {
    /// Counts again, if enough time has passed since the last count.
    pub(super) fn refresh(&mut self, index: &dyn PrefixIndex, now: Nanos) {
        let start = Instant::now();
        if self.next.is_some_and(|next| start < next) {
            return;
        }
        self.blocks.clear();
        let blocks = &mut self.blocks;
        index.residents(now, &mut |held| {
            // Of several cache groups the first one tells.
            if held.tier == Tier::Device && held.group == 0 {
                *blocks.entry(held.replica).or_default() += 1;
            }
        });
        let end = Instant::now();
        self.next = Some(end + COUNT_PERIOD.max((end - start) * COUNT_PATIENCE));
    }

    /// Blocks of a replica's device at the last count.
    pub(super) fn blocks(&self, replica: ReplicaId) -> u64 {
        self.blocks.get(&replica).copied().unwrap_or_default()
    }
}
