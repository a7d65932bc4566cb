//! Hits under the policy `hazard` beside LRU's, in one cache as large as the fleet's.

use headstart_cache::Policy;
use headstart_cache::policy::{Hazard, HazardOptions, Lru};
use headstart_core::{Progress, TraceRequest};
use headstart_sim::Replay;

use crate::fleet::UniformFleet;
use crate::memory::{self, Bounds};
use crate::results::{EvictionHits, MemoryEstimate};
use crate::traffic::LoggedTraffic;

/// Most block look-ups of a replay: a second's work for both. In a longer log several blocks count
/// as one, which is as if the block size were larger.
const LOOKUPS_MAX: usize = 1 << 23;

/// Hits under both policies, and the memory for them.
pub(crate) struct EvictionComparison {
    pub(crate) figures: EvictionHits,
    pub(crate) kept: MemoryEstimate,
}

/// Replays the traffic under both policies.
pub(crate) fn compared(
    traffic: &LoggedTraffic,
    fleet: UniformFleet,
    bounds: &Bounds,
    progress: &dyn Progress,
) -> EvictionComparison {
    let lookups: usize = traffic.requests.iter().map(|request| request.blocks.len()).sum();
    let merged = lookups.div_ceil(LOOKUPS_MAX).max(1);
    let fleet_blocks = fleet.capacity_blocks.saturating_mul(fleet.replicas as u64);
    // More than there are look-ups would change nothing.
    let wanted = fleet_blocks.min(lookups as u64) / merged as u64;
    let blocks = wanted.min(bounds.fleet_blocks / 2).max(1) as usize;
    let progress = progress.beside("comparing policies", 2 * traffic.requests.len());
    let block_tokens = u64::from(traffic.info.block_tokens) * merged as u64;
    let replay = |policy: Box<dyn Policy>| {
        let mut replay = Replay::new(blocks, policy);
        let hits = traffic.requests.iter().map(|request| {
            progress.inc(1);
            let found = replay.serve(&coarse(request, merged)) as u64 * block_tokens;
            // The last block may be partial.
            request.input_tokens.map_or(found, |tokens| found.min(tokens.into()))
        });
        hits.sum()
    };
    let figures = EvictionHits {
        blocks: (blocks * merged) as u64,
        lru_tokens: replay(Box::new(Lru::new(blocks))),
        hazard_tokens: replay(Box::new(Hazard::new(blocks, HazardOptions::default()))),
    };
    EvictionComparison { figures, kept: memory::policies(blocks as u64, wanted.max(1), bounds) }
}

/// A request of larger blocks: each stands for `merged`, and has the name of the last of them,
/// which stands for all before it.
fn coarse(request: &TraceRequest, merged: usize) -> TraceRequest {
    let blocks = request.blocks.iter().skip(merged - 1).step_by(merged).collect();
    TraceRequest { blocks, ..request.clone() }
}

#[cfg(test)]
mod tests {
    use headstart_core::BlockRuns;

    use super::*;

    #[test]
    fn a_larger_block_has_the_name_of_its_last() {
        let blocks: BlockRuns = (10..17).collect();
        let request = TraceRequest { blocks, ..TraceRequest::default() };
        let check = |merged, expected: &[u64]| {
            assert_eq!(coarse(&request, merged).blocks.iter().collect::<Vec<_>>(), expected);
        };
        check(1, &[10, 11, 12, 13, 14, 15, 16]);
        check(3, &[12, 15]);
        check(7, &[16]);
        check(8, &[]);
    }
}
