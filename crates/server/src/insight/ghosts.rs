//! Estimated hit rates of caches of other sizes in the last hour, per replica.
//!
//! One ghost per replica, fed with the prompts that were sent there. Its sizes are those of the
//! replica's memory where that is known (replicas of this process); of an engine behind HTTP the
//! memory is taken to be as large as it ever was full, by its events. What an engine generated is
//! in no prompt until the next turn, so a ghost finds a conversation's answers one turn later than
//! the engine does: compare ghosts with one another, not with what was served.

use std::collections::BTreeMap;

use headstart_core::event::BlockChange;
use headstart_core::{Nanos, Tier};
use headstart_insight::ghost::{Estimate, Ghost, GhostConfig, LOOKUPS_MAX};

/// Replicas that have a ghost, of some 3 MiB each; further ones have none.
const GHOSTS: usize = 64;

/// Waiting requests, and blocks of these, at which the ghost gets them all.
const WAITING: (usize, usize) = (32, 1 << 13);

/// Largest cache that a ghost estimates where an engine's memory is unknown, blocks.
const LARGEST: u64 = 1 << 23;

/// Estimated hit rates of one replica's cache in the last hour, by cache size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GhostAnswer {
    /// The replica.
    pub replica: u32,
    /// Its size in blocks, as far as that is known.
    pub capacity_blocks: u64,
    /// Requests of the last hour.
    pub requests: u64,
    /// Their prompt tokens.
    pub prompt_tokens: u64,
    /// Cached tokens of all prompt tokens: as large as it is.
    pub as_it_is: f64,
    /// A quarter larger.
    pub plus_25: f64,
    /// Twice as large.
    pub plus_100: f64,
    /// Without end.
    pub infinite: f64,
}

/// All ghosts.
#[derive(Default)]
pub(super) struct ReplicaGhosts {
    watched: BTreeMap<u32, GhostWatch>,
    /// Replicas that have a ghost.
    watching: usize,
}

struct QueuedPrompt {
    names: Vec<u64>,
    prompt_tokens: u32,
    at: Nanos,
}

#[derive(Default)]
struct GhostWatch {
    ghost: Option<Ghost>,
    /// Requests that the ghost did not get yet: serving many at a time, it finds in the processor's
    /// caches what it would have to fetch for each.
    waiting: Vec<QueuedPrompt>,
    waiting_blocks: usize,
    /// Blocks of its device, where known.
    capacity: Option<u64>,
    /// Blocks on its device by its events, now and at most.
    held: u64,
    most: u64,
}

impl ReplicaGhosts {
    /// Says how large a replica's memory is.
    pub(super) fn set_capacity(&mut self, replica: u32, blocks: u64) {
        self.watched(replica).capacity = Some(blocks);
    }

    /// A prompt was sent to a replica and computed there.
    pub(super) fn record(
        &mut self,
        replica: u32,
        block_size: u32,
        names: Vec<u64>,
        prompt_tokens: u32,
        now: Nanos,
    ) {
        let watching = self.watching;
        let watched = self.watched(replica);
        // Before the first event of a replica its block size is unknown.
        if block_size == 0 || (watched.ghost.is_none() && watching >= GHOSTS) {
            return;
        }
        let (capacity, is_new) = (watched.capacity, watched.ghost.is_none());
        watched.ghost.get_or_insert_with(|| {
            let settings = match capacity {
                Some(capacity) => GhostConfig::around(capacity, block_size),
                None => GhostConfig::curve(LARGEST, block_size),
            };
            Ghost::new(settings).with_lookups_max(LOOKUPS_MAX)
        });
        watched.waiting_blocks += names.len();
        watched.waiting.push(QueuedPrompt { names, prompt_tokens, at: now });
        if watched.waiting.len() >= WAITING.0 || watched.waiting_blocks >= WAITING.1 {
            watched.catch_up();
        }
        self.watching += usize::from(is_new);
    }

    /// A replica said what changed.
    pub(super) fn observe(&mut self, replica: u32, changes: &[BlockChange], now: Nanos) {
        let watched = self.watched(replica);
        for (at, change) in changes.iter().enumerate() {
            match change {
                BlockChange::Stored(_, Tier::Device) => {
                    watched.held += 1;
                    watched.most = watched.most.max(watched.held);
                }
                BlockChange::Removed(_, Tier::Device) => {
                    // The gateway may see the removal of a block that was stored before it followed
                    // the events.
                    watched.held = watched.held.saturating_sub(1);
                }
                BlockChange::Cleared => {
                    // The rest of the list counts from an empty cache.
                    self.clear(replica, now);
                    return self.observe(replica, &changes[at + 1..], now);
                }
                _ => {}
            }
        }
    }

    /// A replica lost all it held; a larger one would have, too.
    pub(super) fn clear(&mut self, replica: u32, now: Nanos) {
        let watched = self.watched(replica);
        watched.held = 0;
        // Requests from before the loss must see the cache as it was.
        watched.catch_up();
        if let Some(ghost) = &mut watched.ghost {
            ghost.clear(now);
        }
    }

    /// Returns all watched replicas, with or without a ghost.
    pub(super) fn replicas(&self) -> Vec<u32> {
        self.watched.keys().copied().collect()
    }

    /// Returns the estimates of one replica; `None` if it has no ghost or its size is unknown.
    pub(super) fn answer(&mut self, replica: u32, now: Nanos) -> Option<GhostAnswer> {
        let watched = self.watched.get_mut(&replica)?;
        // The estimate includes requests that still wait.
        watched.catch_up();
        let capacity = watched.capacity.unwrap_or(watched.most);
        let ghost = watched.ghost.as_ref().filter(|_| capacity > 0)?;
        Some(answer(replica, capacity, &ghost.last_hour(now)))
    }

    fn watched(&mut self, replica: u32) -> &mut GhostWatch {
        self.watched.entry(replica).or_default()
    }
}

impl GhostWatch {
    /// Tells the ghost of all requests so far.
    fn catch_up(&mut self) {
        self.waiting_blocks = 0;
        let Some(ghost) = &mut self.ghost else {
            return;
        };
        for request in self.waiting.drain(..) {
            ghost.record(&request.names, request.prompt_tokens, request.at);
        }
    }
}

fn answer(replica: u32, capacity: u64, hour: &Estimate) -> GhostAnswer {
    // Quarters of the capacity in integers: 4 is the present size, 5 a quarter more, 8 twice.
    let at = |quarters: u64| hit_rate(hour, capacity.saturating_mul(quarters) / 4);
    GhostAnswer {
        replica,
        capacity_blocks: capacity,
        requests: hour.requests,
        prompt_tokens: hour.tokens,
        as_it_is: at(4),
        plus_25: at(5),
        plus_100: at(8),
        infinite: hour.infinite_token_hit_rate,
    }
}

/// The hit rate of a size, between those of the sizes around it.
fn hit_rate(hour: &Estimate, capacity: u64) -> f64 {
    let (mut below, mut rate) = (0, 0.0);
    for point in &hour.points {
        if point.capacity_blocks >= capacity {
            let span = (point.capacity_blocks - below).max(1) as f64;
            // All earlier points are smaller than `capacity`, so the subtraction is safe.
            let share = (capacity - below) as f64 / span;
            return rate + (point.token_hit_rate - rate) * share;
        }
        (below, rate) = (point.capacity_blocks, point.token_hit_rate);
    }
    // Beyond the last point the curve is flat.
    rate
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prompts that came before a replica's first event say nothing of how it cuts them.
    #[test]
    fn a_ghost_waits_for_the_block_size() {
        let mut ghosts = ReplicaGhosts::default();
        ghosts.set_capacity(3, 100);
        ghosts.record(3, 0, Vec::new(), 160, Nanos(0));
        assert!(ghosts.answer(3, Nanos(1)).is_none());
        for round in 0..3 {
            let names = (0..10).map(|block| block * 0x9e37_79b9).collect();
            ghosts.record(3, 16, names, 160, Nanos(round));
        }
        let answer = ghosts.answer(3, Nanos(9)).expect("its size is known");
        assert!((answer.infinite - 2.0 / 3.0).abs() < 0.01, "{answer:?}");
    }

    /// A loop over more blocks than fit: a larger cache would have hit all but the first round.
    #[test]
    fn a_larger_cache_would_have_hit_a_loop_that_is_too_long() {
        for known in [true, false] {
            let mut ghosts = ReplicaGhosts::default();
            if known {
                ghosts.set_capacity(3, 100);
            } else {
                ghosts.watched(3).most = 100;
            }
            for round in 0..10u64 {
                for prompt in 0..12u64 {
                    let names: Vec<u64> = (0..10).map(|block| prompt * 10 + block).collect();
                    let names: Vec<u64> = names.iter().map(|name| name * 0x9e37_79b9).collect();
                    ghosts.record(3, 16, names, 160, Nanos(round * 1_000_000_000));
                }
            }
            assert_eq!(ghosts.replicas(), [3]);
            let answer = ghosts.answer(3, Nanos(10_000_000_000));
            let answer = answer.expect("its size is known");
            assert!(answer.plus_100 > 0.89 && answer.infinite > 0.89, "{answer:?}");
            assert!(answer.as_it_is < answer.plus_100, "{answer:?}");
            if known {
                assert!(answer.plus_25 > 0.89 && answer.as_it_is < 0.01, "{answer:?}");
            }
        }
    }
}
