//! Eviction policies: who goes first among the blocks that may go.
//!
//! The cache decides *who may go* (not pinned, no resident child); the policy orders them. A
//! policy sees slots, times and [`Access`], never names or bytes. A pin must not change its
//! order: a block that is withdrawn and offered again stands where its own key says.

mod lru;

use headstart_core::{Access, BlockId, Nanos};

pub use lru::Lru;

/// An eviction policy. Calls for one block come in the order
/// `insert (release | offer | withdraw)* remove`; `offer` and `withdraw` alternate.
pub trait Policy: Send {
    /// The block became resident (pinned: not yet a candidate).
    fn insert(&mut self, block: BlockId, access: &Access);

    /// A request that used the block let go of it. Calls of one request come tail first.
    fn release(&mut self, block: BlockId, access: &Access);

    /// The block may be evicted from now on.
    fn offer(&mut self, block: BlockId);

    /// The block must not be evicted until offered again.
    fn withdraw(&mut self, block: BlockId);

    /// The candidate to evict first; `None` when nothing is offered. Changes nothing.
    fn victim(&mut self, now: Nanos) -> Option<BlockId>;

    /// The block is gone; all that is known of it may be forgotten.
    fn remove(&mut self, block: BlockId);
}

/// Makes one policy by its published name, for a cache of `capacity` blocks.
///
/// # Errors
/// The known names, when `name` is none of them.
pub fn by_name(name: &str, capacity: usize) -> Result<Box<dyn Policy>, UnknownPolicy> {
    match name {
        "lru" => Ok(Box::new(Lru::new(capacity))),
        _ => Err(UnknownPolicy {
            name: name.to_owned(),
        }),
    }
}

/// All names that [`by_name`] takes.
pub const NAMES: &[&str] = &["lru"];

/// A policy name that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy {
    name: String,
}

impl std::fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "unknown policy `{}`; known: {}",
            self.name,
            NAMES.join(", ")
        )
    }
}

impl std::error::Error for UnknownPolicy {}
