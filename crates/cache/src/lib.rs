//! Residency and eviction of KV blocks: a pure state machine.
//!
//! ```text
//!            acquire            grow              commit             release
//! chain ──► match + pin ──► allocate (evict) ──► matchable ──► tail first, unpinned
//!               │                  │                │                │
//!             Lease             Effect::Evicted  Effect::Stored    Policy::offer
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`prefix`] | [`PrefixCache`]: match, pin, allocate, commit, release over one device tier |
//! | [`lease`] | [`Lease`]: the blocks that one sequence holds; dropped, it gives them back |
//! | [`effect`] | [`Effect`]: what changed, in order, for others to execute or announce |
//! | [`policy`] | [`Policy`]: who goes first; one file per published policy |
//! | [`tiers`] | [`Tiers`]: what lower tiers hold, and whether to load or to compute |
//! | [`future`] | [`Future`]: what offline bounds know of a trace |
//!
//! It does not know bytes, files, clocks, text or models. Its invariants, checked by
//! [`PrefixCache::check`]: free + cached + pinned + in flight = capacity; a block that is pinned
//! or has a resident child is never a victim; a pin on a block pins its whole prefix.

pub mod effect;
pub mod future;
mod ghosts;
mod lanes;
pub mod lease;
mod linked;
mod names;
pub mod policy;
pub mod prefix;
mod queues;
mod recency;
mod slots;
pub mod tiers;

pub use effect::Effect;
pub use future::Future;
pub use lease::Lease;
pub use policy::Policy;
pub use prefix::{Admit, Commit, Grow, Occupancy, PrefixCache};
pub use tiers::Tiers;
