//! An index as plain values, so that a router that restarts need not learn it again.
//!
//! The edge stores them. Events since the dump are unknown, so all that is restored is doubtful
//! until an event confirms it, and ages out otherwise. What was in doubt already keeps its age, so
//! that restarts do not prolong it. What waited or was assumed is not kept.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use headstart_core::event::CacheGroup;
use headstart_core::{ReplicaId, RouteKey, Tier};

use super::table::{MAX_HANDLE, MAX_RUN_BLOCKS};

/// Blocks and holdings that a dump may have: some 2 GiB of memory. One that says more is damaged.
pub const MAX_DUMP_BLOCKS: usize = 1 << 25;

/// All that is held at some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexDump {
    /// The model of the replicas; the keys are valid for this model only.
    pub model: String,
    /// Pieces of chains, without a key in common.
    pub runs: Vec<RunDump>,
    /// Blocks of the runs that each replica holds.
    pub replicas: Vec<ReplicaDump>,
}

/// Consecutive blocks of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDump {
    /// Tokens per block.
    pub block_size: u32,
    /// One per block.
    pub keys: Vec<RouteKey>,
}

/// Blocks that one replica holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaDump {
    /// The replica.
    pub replica: ReplicaId,
    /// Its cache groups, each with its block size.
    pub groups: Vec<(CacheGroup, u32)>,
    /// Blocks by tier, cache group and doubt.
    pub places: Vec<PlaceDump>,
}

/// Blocks of one cache group in one tier, all confirmed or all in doubt since the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceDump {
    /// Number of the cache group.
    pub group: u8,
    /// The tier.
    pub tier: Tier,
    /// For how long that had been in doubt when the dump was made; nothing where it was confirmed.
    pub doubtful_for: Option<Duration>,
    /// The blocks.
    pub blocks: Vec<BlockDump>,
}

/// A block that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDump {
    /// Number of its run in the dump.
    pub run: u32,
    /// Blocks before it in its run.
    pub offset: u32,
    /// The engine's hash, as the index keeps it.
    pub handle: u64,
}

/// Why a dump was not restored. Nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpError {
    /// It is of another model: `found` instead of `expected`.
    OtherModel {
        /// The index's model.
        expected: String,
        /// The dump's.
        found: String,
    },
    /// The index knows blocks already; restore before events are applied.
    NotEmpty,
    /// It says more than [`MAX_DUMP_BLOCKS`].
    TooLarge,
    /// This run has no keys, or no block size, or a key that was there before.
    BadRun(usize),
    /// A block of this replica is in no run, or its handle is used for two blocks.
    BadBlock(ReplicaId),
}

impl fmt::Display for DumpError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherModel { expected, found } => write!(
                formatter,
                "the dump is of model {found:?}, the index of {expected:?}: begin without it"
            ),
            Self::NotEmpty => {
                formatter.write_str("the index knows blocks already: restore before any event")
            }
            Self::TooLarge => write!(
                formatter,
                "the dump has more than {MAX_DUMP_BLOCKS} blocks: delete it, it is damaged"
            ),
            Self::BadRun(run) => write!(
                formatter,
                "run {run} of the dump is empty or too long, has no block size or repeats a key: \
                 delete the dump, it is damaged"
            ),
            Self::BadBlock(replica) => write!(
                formatter,
                "replica {replica} has a block in no run, or two of one name: delete the dump, it \
                 is damaged"
            ),
        }
    }
}

impl std::error::Error for DumpError {}

impl IndexDump {
    /// Holdings: blocks times the places that hold them.
    #[must_use]
    pub fn num_holdings(&self) -> usize {
        let places = self.replicas.iter().flat_map(|replica| &replica.places);
        places.map(|place| place.blocks.len()).sum()
    }

    /// Whether an index can take it over: its numbers fit each other, and the limits.
    pub(super) fn validate(&self) -> Result<(), DumpError> {
        let num_blocks: usize = self.runs.iter().map(|run| run.keys.len()).sum();
        // Checked first, because the sets below take memory for each block.
        if num_blocks.saturating_add(self.num_holdings()) > MAX_DUMP_BLOCKS {
            return Err(DumpError::TooLarge);
        }
        let mut keys = HashSet::new();
        for (number, run) in self.runs.iter().enumerate() {
            let is_new = run.keys.iter().all(|&key| keys.insert(key));
            let is_long = run.keys.len() > MAX_RUN_BLOCKS as usize;
            if run.keys.is_empty() || is_long || run.block_size == 0 || !is_new {
                return Err(DumpError::BadRun(number));
            }
        }
        self.replicas.iter().try_for_each(|replica| self.validate_replica(replica))
    }

    fn validate_replica(&self, replica: &ReplicaDump) -> Result<(), DumpError> {
        let mut spots = std::collections::HashMap::new();
        let blocks = replica.places.iter().flat_map(|place| &place.blocks);
        for &BlockDump { run, offset, handle } in blocks {
            let known = self.runs.get(run as usize);
            let is_there = known.is_some_and(|run| (offset as usize) < run.keys.len());
            let is_same = *spots.entry(handle).or_insert((run, offset)) == (run, offset);
            if !is_there || !is_same || handle > MAX_HANDLE {
                return Err(DumpError::BadBlock(replica.replica));
            }
        }
        let is_sized = replica.groups.iter().all(|&(_, block_size)| block_size > 0);
        is_sized.then_some(()).ok_or(DumpError::BadBlock(replica.replica))
    }
}
