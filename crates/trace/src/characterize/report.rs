//! The numbers that characterize a trace, each with its meaning. Times are seconds, sizes blocks
//! unless a name says otherwise, rates and shares are between 0 and 1.
//!
//! A *hit* is a block that was used before, with all blocks in front of it: what a cache without
//! end would have had. Nothing here depends on a policy.
//!
//! Names and order of the fields are those of `headstart analyze --json`.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::fit::Fits;
use super::histogram::Spread;

/// The characterization of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Characterization {
    /// Requests, those without blocks too.
    pub requests: u64,
    /// Tokens per block.
    pub block_tokens: u32,
    /// From the start of the trace to the last arrival.
    pub span_s: f64,
    /// Sampling rates of blocks, sessions and users.
    pub sampling: SamplingRates,
    /// The infinite cache, over the whole trace.
    pub ideal: Ideal,
    /// The same and more by buckets of time.
    pub over_time: OverTime,
    /// Hits of LRU caches of many sizes: exact at each listed size, unless sampled.
    pub curve: Vec<CurvePoint>,
    /// By request type (of the request that hits), in order of the type's index.
    pub types: Vec<TypeShare>,
    /// By turn (of the request that hits), 0 where it is unknown.
    pub turns: Vec<TurnShare>,
    /// Hits by the session and the user of the block's last use.
    pub origins: Origins,
    /// Whether few blocks make most reuses.
    pub block_skew: Skew,
    /// Whether few sessions make most hits.
    pub session_skew: Skew,
    /// The same of users, where the caller names them.
    pub user_skew: Option<Skew>,
    /// Sessions, where the trace names them or they were inferred.
    pub sessions: Sessions,
    /// Users, where the caller names them.
    pub users: Option<Users>,
    /// Continuation of sessions.
    pub next_turn: NextTurn,
    /// Times until a block is used again.
    pub reuse: ReuseTimes,
    /// Hit rates by position in the prompt.
    pub locality: Locality,
    /// Time from a block's first use to its last.
    pub lifespan: Lifespan,
    /// Tokens and bytes of requests, and what device memory holds of them.
    pub sizes: Sizes,
    /// Cache size needed for all hits.
    pub capacity: Capacity,
}

/// Sampling rates, and the pieces kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SamplingRates {
    /// Share of blocks that was tracked: 1, or less where the trace has more pieces than there
    /// is memory for. Below 1 all numbers about blocks are estimates, and each tracked block
    /// counts for as many as it stands for: right on average, so in a small row there can be
    /// more hits than references.
    pub block_rate: f64,
    /// Share of sessions that was tracked; as above.
    pub session_rate: f64,
    /// Share of users that was tracked; as above.
    pub user_rate: f64,
    /// Runs of equal blocks that were kept at the end.
    #[serde(skip)]
    pub pieces: u64,
}

/// Hits of an infinite cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Ideal {
    /// Blocks of all requests.
    pub references: u64,
    /// Of them, hits.
    pub hits: u64,
    /// Hits of references.
    pub block_hit_rate: f64,
    /// Prompt tokens, where the trace says them (else blocks times their tokens).
    #[serde(skip)]
    pub prompt_tokens: u64,
    /// Of them, those that hits serve: tokens of hit blocks, without the block of a prompt's last
    /// token, which is always computed.
    #[serde(skip)]
    pub hit_tokens: u64,
    /// Hit tokens of prompt tokens.
    pub token_hit_rate: f64,
    /// Different blocks.
    pub distinct_blocks: u64,
    /// Of them, used only once.
    pub never_reused: u64,
    /// Never reused of distinct.
    pub never_reused_share: f64,
    /// References to blocks that were used before but stand behind one that was not: a trace
    /// whose ids name blocks without their prefix. 0 in a sound trace.
    pub orphans: u64,
}

/// Counters by bucket of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OverTime {
    /// Length of a bucket.
    pub bucket_s: f64,
    /// The buckets, from the start of the trace, without a gap.
    pub buckets: Vec<Moment>,
}

/// A bucket of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Moment {
    /// Requests that arrived.
    pub requests: u64,
    /// Their blocks.
    pub references: u64,
    /// Of them, hits.
    pub hits: u64,
    /// Hits of references.
    pub hit_rate: f64,
    /// Requests of sessions that arrived and were followed by another one of the session.
    #[serde(skip)]
    pub followed: u64,
    /// Requests that were a session's last, known to be (see [`NextTurn::horizon_s`]).
    #[serde(skip)]
    pub ended: u64,
    /// Followed of both.
    pub p_next: f64,
    /// Blocks that are of use: used before or in this bucket, and again in it or later.
    pub live_blocks: u64,
}

/// A size and what it hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Blocks that the cache holds.
    pub capacity_blocks: u64,
    /// The same in tokens.
    pub capacity_tokens: u64,
    /// Blocks hit.
    #[serde(skip)]
    pub hits: u64,
    /// Of all references.
    pub block_hit_rate: f64,
    /// Tokens that hits serve, as [`Ideal::hit_tokens`], of all prompt tokens.
    pub token_hit_rate: f64,
}

/// Look-ups and hits of some requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Requests.
    pub requests: u64,
    /// Their blocks.
    pub references: u64,
    /// Of them, hits.
    pub hits: u64,
}

/// With the rate behind the counts.
impl Serialize for Hits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Hits", 4)?;
        object.serialize_field("requests", &self.requests)?;
        object.serialize_field("references", &self.references)?;
        object.serialize_field("hits", &self.hits)?;
        object.serialize_field("hit_rate", &self.rate())?;
        object.end()
    }
}

/// A request type's part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TypeShare {
    /// Index into the trace's names of types.
    pub request_type: u16,
    /// Its requests.
    pub all: Hits,
    /// Of them, those of sessions with this one request only.
    pub single: Hits,
    /// Of them, those of sessions with several requests.
    pub multi: Hits,
    /// Of them, first turns (and unknown ones).
    pub first_turn: Hits,
    /// Of them, later turns.
    pub later_turns: Hits,
    /// Its hits of all hits.
    pub share_of_hits: f64,
}

/// A turn's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TurnShare {
    /// The turn; the last row holds all later ones too.
    pub turn: u16,
    /// Its requests.
    pub all: Hits,
    /// Its hits of all hits.
    pub share_of_hits: f64,
}

/// Hit blocks by the session and the user of their last use before the hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Origins {
    /// The same session.
    pub same_session: u64,
    /// Another session.
    pub other_session: u64,
    /// One of the two requests has no session.
    pub unknown_session: u64,
    /// The same user.
    pub same_user: u64,
    /// Another user.
    pub other_user: u64,
    /// One of the two requests has no user.
    pub unknown_user: u64,
}

/// Skew of a quantity over its owners.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Skew {
    /// Owners, those who have nothing too.
    pub owners: u64,
    /// Sum over all owners.
    pub total: u64,
    /// 0 where all have the same, towards 1 where one has all.
    pub gini: f64,
    /// Share of the total that the richest 1 % have.
    pub top_1_percent: f64,
    /// Share of the total that the richest 10 % have.
    pub top_10_percent: f64,
    /// The Lorenz curve from the poorest to the richest: share of owners, share of the total.
    pub lorenz: Vec<(f64, f64)>,
}

/// Sessions and their requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sessions {
    /// Number of sessions.
    pub count: u64,
    /// Requests of a session.
    pub requests: Spread,
    /// The last turn that a session reached.
    pub turns: Spread,
    /// From a session's first request to its last, seconds.
    pub length_s: Spread,
    /// Sessions of one request: their requests and tokens.
    pub single: SessionKind,
    /// Sessions of several requests: their requests and tokens.
    pub multi: SessionKind,
    /// Requests without a session, in neither kind.
    pub without: u64,
}

/// Sessions of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SessionKind {
    /// Number of sessions.
    pub sessions: u64,
    /// Their requests and hits.
    pub all: Hits,
    /// Their hits of all hits of sessions.
    pub share_of_hits: f64,
    /// Prompt tokens of a request, mean.
    pub prompt_tokens_mean: f64,
}

/// Users and their requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Users {
    /// Number of users.
    pub count: u64,
    /// Requests of a user.
    pub requests: Spread,
    /// Sessions that a user began. Where sessions are sampled, only the mean is reliable.
    pub sessions: Spread,
    /// Turns of a user: of each request with a later turn than the session had. Where sessions are
    /// sampled, only the mean is reliable.
    pub turns: Spread,
    /// Blocks that a user's requests hit.
    pub hits: Spread,
}

/// Requests of sessions by whether another request of the session follows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NextTurn {
    /// A session's last request counts as the last where at least so much of the trace came
    /// after it, and is *open* otherwise: the 90th percentile of the time to the next request.
    pub horizon_s: f64,
    /// Over all classes.
    pub all: Next,
    /// By class: type and turn, in order.
    pub classes: Vec<ClassNext>,
    /// Time from a request to the next of its session, seconds.
    pub gap_s: Spread,
    /// Seconds, and the share of the resolved requests that were followed within them.
    pub within: Vec<(f64, f64)>,
}

/// Requests by what came after them in their session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Next {
    /// Another one came.
    pub followed: u64,
    /// None came, and enough of the trace did.
    pub ended: u64,
    /// None came, and the trace ended too soon to say.
    pub open: u64,
    /// Followed of followed and ended: slightly high, as open ones are left out.
    pub p_next: f64,
}

/// The same of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassNext {
    /// Index into the trace's names of types.
    pub request_type: u16,
    /// The turn, 0 where unknown; the highest holds all later ones too.
    pub turn: u16,
    /// Outcomes of the class's requests.
    pub next: Next,
}

/// Times until a block is used again. Of hits only.
///
/// Censoring: what is not used again before the trace ends has no reuse time; it counts in
/// `never_reused` and in no fit. So fits are of the reuse times that were seen, and long ones
/// are rarer there than in endless traffic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReuseTimes {
    /// All.
    pub all: Reuse,
    /// By type of the request that used the block before, in order.
    pub by_type: Vec<(u16, Reuse)>,
    /// By turn of that request, in order; the highest holds all later ones too.
    pub by_turn: Vec<(u16, Reuse)>,
}

/// Reuse times of some blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reuse {
    /// Of them, within a millisecond: the same instant, in no fit.
    pub at_once: u64,
    /// Seconds, `at_once` included.
    pub seconds: Spread,
    /// Distributions fitted to the others.
    #[serde(flatten)]
    pub fits: Fits,
    /// The cumulative distribution: seconds, share of blocks reused until then.
    pub cdf: Vec<(f64, f64)>,
}

/// Hit rates by position in the prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Locality {
    /// Hit rate by the block's place in the prompt.
    pub by_offset: Vec<OffsetRate>,
    /// Hit rate of the block one stride behind a block that hits.
    pub by_stride: Vec<StrideRate>,
}

/// Blocks at some offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OffsetRate {
    /// The first offset, in blocks.
    pub from: u64,
    /// The offset behind the last one.
    pub until: u64,
    /// Blocks of requests there.
    pub references: u64,
    /// Of them, hits.
    pub hits: u64,
    /// Hits of references.
    pub hit_rate: f64,
}

/// Pairs of blocks of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StrideRate {
    /// Blocks between the first and the second of the pair, the second included.
    pub stride: u64,
    /// Pairs whose first block hits.
    pub pairs: u64,
    /// Of them, those whose second block hits too.
    pub both: u64,
    /// Both of pairs.
    pub hit_rate: f64,
}

/// From a block's first use to its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Lifespan {
    /// Of reused blocks, seconds.
    pub reused_s: Spread,
    /// Of all blocks, seconds: 0 where a block is used once.
    pub all_s: Spread,
    /// Censoring: share of reused blocks last used so late (less than the 90th percentile of
    /// reuse times before the end) that they may well be used again: their lifespans are cut
    /// short.
    pub open_share: f64,
}

/// Sizes of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sizes {
    /// Prompt tokens of a request.
    pub prompt_tokens: Spread,
    /// Generated tokens of a request, where the trace says them.
    pub output_tokens: Spread,
    /// Bytes of keys and values of a token, as the caller says.
    pub kv_bytes_per_token: Option<f64>,
    /// Bytes of keys and values of a request (prompt and answer), mean.
    pub request_bytes_mean: Option<f64>,
    /// Bytes of device memory for keys and values, as the caller says.
    pub device_bytes: Option<f64>,
    /// Mean requests that fit there at once.
    pub requests_in_device: Option<f64>,
}

/// Blocks that a cache must hold to hit every reuse: each block from its first to its last use, if
/// it is used again. No policy knows that ahead: a lower bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Capacity {
    /// Most blocks of use in one bucket of time.
    pub peak_blocks: u64,
    /// The same, mean over buckets.
    pub mean_blocks: f64,
    /// The peak in bytes.
    pub peak_bytes: Option<f64>,
    /// The peak as a multiple of device memory.
    pub peak_of_device: Option<f64>,
    /// The smallest listed size at which LRU has 99 % of all hits.
    pub lru_99_percent_blocks: u64,
}
