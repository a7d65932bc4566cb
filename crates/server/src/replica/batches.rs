//! Events of one turn as batches that a subscriber can take.

use headstart_core::CacheEvent;

/// Most blocks of a batch of several events: when a tier loses all that it holds at once, a
/// subscriber still gets no more than a few megabytes at a time.
const BATCH_BLOCKS_MAX: usize = 1 << 16;

/// Splits events, in their order, into as many batches as they need; no batch without events.
pub(super) fn batches(events: Vec<CacheEvent>) -> Vec<Vec<CacheEvent>> {
    let mut batches: Vec<Vec<CacheEvent>> = Vec::new();
    let mut blocks = BATCH_BLOCKS_MAX;
    for event in events {
        // The count is of the open batch and this event together.
        blocks += num_blocks(&event);
        match batches.last_mut() {
            Some(batch) if blocks <= BATCH_BLOCKS_MAX => batch.push(event),
            _ => {
                // An event is never split, so that one large event is a batch by itself, beyond the
                // limit.
                blocks = num_blocks(&event);
                batches.push(vec![event]);
            }
        }
    }
    batches
}

fn num_blocks(event: &CacheEvent) -> usize {
    match event {
        CacheEvent::Stored(stored) => stored.blocks.len(),
        CacheEvent::Removed { blocks, .. } => blocks.len(),
        CacheEvent::Cleared => 0,
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::{BlockHash, Tier};

    use super::*;

    #[test]
    fn batches_have_a_limit_and_keep_the_order() {
        let removed = |count: usize| CacheEvent::Removed {
            blocks: vec![BlockHash([0; 16]); count],
            tier: Tier::Disk,
            group: 0,
        };
        let most = BATCH_BLOCKS_MAX;
        for (counts, expected) in [
            (vec![], vec![]),
            (vec![1, 2], vec![2]),
            (vec![most, 1, most - 1, 1], vec![1, 2, 1]),
            (vec![1, 2 * most, 1], vec![1, 1, 1]),
        ] {
            let events: Vec<CacheEvent> = counts.into_iter().map(removed).collect();
            let batches = batches(events.clone());
            let lengths: Vec<usize> = batches.iter().map(Vec::len).collect();
            assert_eq!(lengths, expected);
            assert_eq!(batches.concat(), events);
        }
        assert_eq!(batches(vec![CacheEvent::Cleared]), [[CacheEvent::Cleared]]);
    }
}
