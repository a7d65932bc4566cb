//! Index of the prefixes that each replica holds, as a trait for the router.
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
//! A block is in one of three states:
//!
//! | a block is | because | until |
//! |---|---|---|
//! | confirmed | an event of its replica says so | it is removed |
//! | doubtful | it was confirmed before events were lost | an event names it, nothing was lost |
//! | | | after all, or [`DOUBT_TTL`] |
//! | assumed | a prompt was just sent there | [`ASSUMPTION_TTL`] |
//!
//! Without assumptions a burst of equal prompts would be spread over the fleet before the first
//! event comes back. Without doubt a replica whose stream broke would either be believed, with
//! blocks that it lost, or lose all that it has.
//!
//! Source: llm-d's speculative entries and their two seconds. Differences: engines' hashes are
//! never compared with ours (see [`ledger`]), and every replica keeps its own block sizes.

mod aliases;
mod approximate;
mod budget;
mod buffer;
mod changes;
mod counters;
mod draft;
pub mod dump;
mod eviction;
mod expiry;
mod extent;
mod forest;
mod holder;
mod holders;
mod holding;
mod keys;
pub mod ledger;
mod left_right;
mod lengths;
mod lookup_hybrid;
mod lookup_single_group;
mod lookup_tiers;
mod marks;
mod names;
mod overflow;
mod overlaps;
mod piece;
mod question;
mod replica;
mod resolve_handles;
mod restore;
mod run_index;
mod slot_profile;
mod spot;
mod standing;
mod sync;
mod table;
mod tier_tokens;
mod tombstones;
mod view;
mod view_change;
mod waiting;
mod walk;
mod writer;

use std::time::Duration;

use headstart_core::block::{Medium, Namespace};
use headstart_core::event::BlockChange;
use headstart_core::{CacheEvent, Nanos, ReplicaId, RouteKey, Tier, TokenId};

pub use approximate::{ApproximateConfig, ApproximateIndex};
pub use budget::Limits;
pub use dump::{DumpError, IndexDump};
pub use keys::{KeyChain, PromptKeys};
pub use lengths::Overlap;
pub use overlaps::Overlaps;
pub use run_index::RunIndex;
pub use tier_tokens::TierTokens;

/// Time for which a replica is assumed to hold a prompt that was sent to it. Published value
/// (llm-d): longer than a usual prefill, and short enough that a lost request does little harm.
pub const ASSUMPTION_TTL: Duration = Duration::from_secs(2);

/// Time for which a doubtful block is remembered. In five minutes a busy engine evicts its whole
/// cache, and the next requests of an idle one confirm the blocks still in use.
pub const DOUBT_TTL: Duration = Duration::from_secs(300);

/// Interface of an index for the router, callable from any thread. It ignores replicas that are not
/// tracked.
pub trait PrefixIndex: Send + Sync {
    /// Takes over what became known of `replica` at `now`. Updates of one replica come one after
    /// the other.
    fn update(&self, replica: ReplicaId, update: Update<'_>, now: Nanos);

    /// Takes over `events` as [`Update::Events`], and adds what they change to `changes`: blocks of
    /// the first cache group, by their keys. A block that waits for its parent counts when that
    /// comes; an index that names no blocks says only what is cleared.
    fn update_and_tell(
        &self,
        replica: ReplicaId,
        events: &[CacheEvent],
        now: Nanos,
        changes: &mut Vec<BlockChange>,
    ) {
        self.update(replica, Update::Events(events), now);
        let cleared = events.iter().filter(|&event| *event == CacheEvent::Cleared);
        changes.extend(cleared.map(|_| BlockChange::Cleared));
    }

    /// Names the blocks of `prompt` for [`Self::overlaps`], once per block size in use. While no
    /// size is in use, as after the restart of the only engine, the last ones count. Costs the
    /// prompt's length, and never waits.
    fn hash(&self, prompt: Prompt<'_>) -> PromptKeys;

    /// Writes the overlap of a prompt with each replica into `answer`, by ascending replica;
    /// replicas without any are left out. Never waits for a running update.
    fn overlaps(&self, prompt: &PromptKeys, now: Nanos, answer: &mut Overlaps);

    /// Returns the overlap of a prompt with one replica, tier by tier: for the device and for all
    /// tiers, what [`Self::overlaps`] says. Takes longer per replica, so ask for one that is
    /// chosen. Never waits for a running update.
    fn tier_tokens(&self, prompt: &PromptKeys, replica: ReplicaId, now: Nanos) -> TierTokens;

    /// Visits all that is held at `now`, in no order. For dumps and tests: updates may wait.
    fn residents(&self, now: Nanos, visit: &mut dyn FnMut(ResidentBlock));

    /// Size and counters.
    fn stats(&self) -> IndexStats;
}

/// Update of the state of one replica.
#[derive(Clone, Copy, Debug)]
pub enum Update<'a> {
    /// It exists and holds nothing yet. `block_size` is what its configuration says; `None` until
    /// its events tell. Tracking a tracked replica resets it.
    Track {
        /// Tokens per block.
        block_size: Option<u32>,
    },
    /// It is gone, and all that was known of it: costs its own blocks.
    Forget,
    /// It reported these, in order. Clearing costs its own blocks.
    Events(&'a [CacheEvent]),
    /// Some of its events are lost: what is confirmed so far becomes doubtful.
    Doubt,
    /// Nothing was lost when it was doubted last: what is doubtful because of that, and was neither
    /// removed nor cleared since nor has aged out, is confirmed again. Other doubts stay: earlier
    /// ones, those of removals, those of dumps. Does nothing without a doubt since [`Self::Track`],
    /// since everything was cleared, or since the last of these. Costs its own blocks.
    Trust,
    /// This prompt is sent there: it will hold all its full blocks soon.
    Assume(&'a PromptKeys),
}

/// A prompt, as far as an index is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prompt<'a> {
    /// Its tokens.
    pub tokens: &'a [TokenId],
    /// Its images and other media, sorted by their start.
    pub media: &'a [Medium],
    /// Namespace that separates it from the same tokens elsewhere.
    pub namespace: Namespace<'a>,
}

/// One block that one replica holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResidentBlock {
    /// The replica that holds it.
    pub replica: ReplicaId,
    /// The block, behind its whole prefix.
    pub key: RouteKey,
    /// In which cache group.
    pub group: u8,
    /// In which tier.
    pub tier: Tier,
    /// Whether events were lost since it was confirmed.
    pub is_doubtful: bool,
}

/// Size of an index and what it could not use. All counters are in blocks unless they say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Entries that [`PrefixIndex::residents`] would visit, or slightly more: those expired since
    /// the last update may still count.
    pub entries: usize,
    /// Doubtful entries among them.
    pub doubtful: usize,
    /// Prompts that are assumed somewhere.
    pub assumed_prompts: usize,
    /// Blocks waiting for their parent or for their tokens.
    pub held: usize,
    /// Memory, estimated, bytes.
    pub bytes: usize,
    /// Blocks given up while waiting, because too many others came after them.
    pub orphans: u64,
    /// Removals of what was not there.
    pub unknown_removals: u64,
    /// Stored events whose tokens do not fill their blocks.
    pub malformed_events: u64,
    /// Blocks given up to stay within the byte budget.
    pub evicted: u64,
}

/// The index that knows nothing: every overlap is 0. For fleets without event streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Empty;

impl PrefixIndex for Empty {
    fn update(&self, _replica: ReplicaId, _update: Update<'_>, _now: Nanos) {}

    fn hash(&self, prompt: Prompt<'_>) -> PromptKeys {
        PromptKeys::new(prompt, &[])
    }

    fn overlaps(&self, _prompt: &PromptKeys, _now: Nanos, answer: &mut Overlaps) {
        answer.clear();
    }

    fn tier_tokens(&self, _: &PromptKeys, _replica: ReplicaId, _now: Nanos) -> TierTokens {
        TierTokens::default()
    }

    fn residents(&self, _now: Nanos, _visit: &mut dyn FnMut(ResidentBlock)) {}

    fn stats(&self) -> IndexStats {
        IndexStats::default()
    }
}
