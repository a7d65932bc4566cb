//! Who holds which prefix: the question that routing asks, and the trait that answers it.
//!
//! An index listens to every replica's [`CacheEvent`]s and answers, for one prompt, how many of
//! its leading tokens each replica has. It is a hint: engines evict while events travel.
//!
//! ```text
//! prompt   [ block 0 ][ block 1 ][ block 2 ][ rest ]      block size 16
//! replica 3  device     device     host                   device 32, any tier 48
//! replica 7  device     -          device                 device 16, any tier 16
//! ```
//!
//! Two facts feed it. *Events* say what is held. *Assumptions* say what a replica will hold soon
//! because a prompt was just sent there; without them a burst of equal prompts would be spread
//! over the fleet before the first event comes back. An assumption ends when the block's own
//! event arrives, or after [`ASSUMPTION_TTL`].
//!
//! Source: llm-d's speculative entries and their two seconds. Differences: engines' hashes are
//! never compared with ours (see [`map`]), and every replica keeps its own block size.

mod assumptions;
mod handle;
mod handles;
mod holders;
pub mod map;
pub mod reference;
mod tiers;

use std::time::Duration;

use headstart_core::block::Namespace;
use headstart_core::{CacheEvent, Nanos, ReplicaId, TokenId};

pub use map::MapIndex;
pub use reference::ReferenceIndex;

/// How long a replica is assumed to hold a prompt that was sent to it. Published value (llm-d):
/// longer than a usual prefill, shorter than a lost request would mislead.
pub const ASSUMPTION_TTL: Duration = Duration::from_secs(2);

/// What the router asks of an index. Replicas that are not tracked do not exist for it.
pub trait PrefixIndex: Send {
    /// Starts to follow `replica`, which holds nothing yet. `block_size` is what its configuration
    /// says; `None` until its events tell. Tracking a tracked replica starts it anew.
    fn track(&mut self, replica: ReplicaId, block_size: Option<u32>);

    /// Drops `replica` and all that is known of it, in time proportional to its own blocks.
    fn forget(&mut self, replica: ReplicaId);

    /// Takes over a change that `replica` reported. Repeats change nothing.
    fn apply(&mut self, replica: ReplicaId, event: &CacheEvent);

    /// Assumes from `now` on that `replica` holds all full blocks of `prompt`.
    fn assume(&mut self, replica: ReplicaId, prompt: Prompt<'_>, now: Nanos);

    /// How much of `prompt` each replica holds, by ascending replica; those that hold none of it
    /// are left out. Changes nothing; the answer holds until the next call that changes the index.
    fn overlaps(&self, prompt: Prompt<'_>, now: Nanos) -> Vec<Overlap>;

    /// Size and counters.
    fn stats(&self) -> IndexStats;
}

/// A prompt, as far as an index is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompt<'a> {
    /// Its tokens.
    pub tokens: &'a [TokenId],
    /// What sets it apart from the same tokens elsewhere.
    pub namespace: Namespace<'a>,
}

/// How much of a prompt one replica holds: leading tokens, without a hole, in whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The replica.
    pub replica: ReplicaId,
    /// Tokens ready to compute from, or assumed to be soon.
    pub device_tokens: usize,
    /// Tokens in whatever tier; at least `device_tokens`.
    pub any_tier_tokens: usize,
}

/// Size of an index and what it could not use. All counters are in blocks unless they say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Pairs of replica and block that events report, whatever the tier.
    pub entries: usize,
    /// Pairs of replica and block that are assumed only.
    pub assumed: usize,
    /// Blocks waiting for their parent or for their tokens.
    pub held: usize,
    /// Blocks given up while waiting, because too many others came after them.
    pub orphans: u64,
    /// Removals of what was not there.
    pub unknown_removals: u64,
    /// Stored events whose tokens do not fill their blocks.
    pub malformed_events: u64,
    /// Stored events of another block size than that of the blocks already held.
    pub mismatched_events: u64,
}

/// The index that knows nothing: every overlap is 0. For fleets without event streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Empty;

impl PrefixIndex for Empty {
    fn track(&mut self, _replica: ReplicaId, _block_size: Option<u32>) {}

    fn forget(&mut self, _replica: ReplicaId) {}

    fn apply(&mut self, _replica: ReplicaId, _event: &CacheEvent) {}

    fn assume(&mut self, _replica: ReplicaId, _prompt: Prompt<'_>, _now: Nanos) {}

    fn overlaps(&self, _prompt: Prompt<'_>, _now: Nanos) -> Vec<Overlap> {
        Vec::new()
    }

    fn stats(&self) -> IndexStats {
        IndexStats::default()
    }
}
