//! The vocabulary of Headstart: ids, time, block identity, cache events, statistics.
//!
//! Every other crate speaks in these types. This crate knows none of them: no policy, no
//! file, no socket, no clock. `now` is always an argument, a [`Nanos`].
//!
//! | module | holds |
//! |---|---|
//! | [`ids`] | token, block, replica, sequence and session ids |
//! | [`time`] | [`Nanos`], a point in (real or virtual) time |
//! | [`block`] | [`BlockHash`] and [`RouteKey`], the two names of a block |
//! | [`tool`] | the tools that an answer calls, as a class |
//! | [`tier`] | where a block's bytes live |
//! | [`transfer`] | what is moved between tiers, and the [`BlockMover`] that does it |
//! | [`access`] | a use of a block, as a cache policy sees it |
//! | [`event`] | [`CacheEvent`], how residency becomes known outside the cache |
//! | [`request`] | one request of a trace |
//! | [`cost`] | [`CostModel`]: how long an engine's step takes |
//! | [`finish`] | the end of an answer: a tool call, a stop, a limit |
//! | [`fnv`] | a hash of names and checksums |
//! | [`figures`] | numbers, shares, money and times as people read them |
//! | [`probability`] | a number in `[0, 1]` that is a number |
//! | [`progress`] | steps of long work, as the caller shows them |
//! | [`runs`] | a chain of numbered blocks, as runs |
//! | [`shown`] | texts of strangers, without what a terminal would obey |
//! | [`stats`] | hit rates and latency summaries, defined once |
//! | [`usage`] | arguments that cannot be |
//! | [`rng`] | the seeded generator that all decisions and tests draw from |

pub mod access;
pub mod block;
pub mod cost;
pub mod event;
pub mod figures;
pub mod finish;
pub mod fnv;
pub mod ids;
pub mod probability;
pub mod progress;
pub mod request;
pub mod rng;
pub mod runs;
pub mod shown;
pub mod stats;
pub mod tier;
pub mod time;
pub mod tool;
pub mod transfer;
pub mod usage;

pub use access::Access;
pub use block::{
    BlockHash, BlockHasher, BlockIdentity, IdentityDigest, RouteHasher, RouteIdentity, RouteKey,
    TenantTag,
};
pub use cost::{CostModel, EngineModel};
pub use event::CacheEvent;
pub use finish::FinishKind;
pub use fnv::fnv1a;
pub use ids::{BlockId, ReplicaId, SeqId, SessionId, TokenId};
pub use probability::Probability;
pub use progress::{NoProgress, Progress};
pub use request::TraceRequest;
pub use rng::Rng;
pub use runs::{BlockRuns, Run};
pub use tier::Tier;
pub use time::Nanos;
pub use tool::ToolClass;
pub use transfer::BlockMover;
pub use usage::UsageError;
