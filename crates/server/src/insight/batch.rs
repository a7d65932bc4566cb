//! Events of requests and replicas that wait to be explained.
//!
//! Explaining costs little while its code and data are in the processor's caches, and a gateway's
//! other work evicts them between two requests. So operations wait here, in order and in flat
//! memory that is reused, until a batch is full or a reader asks.

use headstart_core::event::BlockChange;
use headstart_core::{Nanos, ReplicaId, RouteKey, TokenId};
use headstart_insight::loss::ServedTokens;
use headstart_insight::text::Sketch;

use super::records::RequestRecord;

/// Operations that fill a batch: those of about sixteen requests. The batch is as small as pays
/// off, because one request waits while all of it is applied.
pub(super) const OPS: usize = 64;

/// Tokens that make a batch however few are the requests.
const TOKENS: usize = 1 << 16;

/// Changes of blocks that make a batch.
const CHANGES: usize = 1 << 13;

/// Operations that wait, with their data in flat lists.
#[derive(Default)]
pub(super) struct InsightBatch {
    pub(super) ops: Vec<InsightOp>,
    pub(super) tokens: Vec<TokenId>,
    pub(super) keys: Vec<RouteKey>,
    pub(super) overlaps: Vec<(ReplicaId, u32)>,
    pub(super) changes: Vec<BlockChange>,
}

/// One thing that was said. Requests are known by numbers.
pub(super) enum InsightOp {
    Arrived(u64, BatchArrival, Nanos),
    Computed(u64, Nanos),
    Finished(u64, Box<AnsweredRequest>, Nanos),
    Abandoned(u64),
    /// A request whose tokens are not known was answered.
    Unknown(Box<(RequestRecord, Option<Sketch>)>),
    /// Block changes of a replica, up to this index of [`InsightBatch::changes`].
    Changed(ReplicaId, usize, Nanos),
    Cleared(ReplicaId, Nanos),
    /// A replica serves models that this number stands for.
    Serves(ReplicaId, u64),
}

/// A request that was placed. Its lists are those of the batch, from the one before it up to here.
pub(super) struct BatchArrival {
    pub(super) replica: ReplicaId,
    pub(super) block_size: u32,
    pub(super) namespace: u64,
    pub(super) capacity_blocks: Option<u64>,
    pub(super) tokens: usize,
    pub(super) keys: usize,
    pub(super) overlaps: usize,
}

/// A request that was answered.
pub(super) struct AnsweredRequest {
    /// All but what became of its tokens.
    pub(super) record: RequestRecord,
    /// Key of the prompt's early prefix: its 16th block, or its last block if it has fewer.
    pub(super) prefix: Option<RouteKey>,
    pub(super) block_size: u32,
    pub(super) served: Option<ServedTokens>,
    pub(super) sketch: Option<Sketch>,
}

impl InsightBatch {
    /// Whether it is time to look at it.
    pub(super) fn is_full(&self, ops: usize) -> bool {
        self.ops.len() >= ops || self.tokens.len() >= TOKENS || self.changes.len() >= CHANGES
    }

    /// Empties it; what takes much memory is given back.
    pub(super) fn clear(&mut self) {
        self.ops.clear();
        self.tokens.clear();
        // One long prompt must not keep its memory for good.
        self.tokens.shrink_to(2 * TOKENS);
        self.keys.clear();
        self.keys.shrink_to(TOKENS);
        self.overlaps.clear();
        self.changes.clear();
        self.changes.shrink_to(2 * CHANGES);
    }
}
