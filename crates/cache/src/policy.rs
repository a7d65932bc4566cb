//! Eviction policies: who goes first among the blocks that may go.
//!
//! The cache decides *who may go* (not pinned, no resident child); the policy orders them. A
//! pin must not change its order: a block that is withdrawn and offered again stands where its
//! own key says. Blocks that may not go are in no queue, or leave it when a sweep first meets
//! them, so a pinned chain of thousands of blocks does not slow the search for a victim.
//!
//! One file per published policy, and a row for it in `ONLINE` or, where it reads the future, in
//! `OFFLINE`. Most are a [`KeyedPolicy`] order of blocks.

mod arc;
mod belady;
mod continuation;
mod fifo;
mod gdsf;
mod hazard;
mod importance;
mod keyed;
mod learned;
mod lfu;
mod lru;
pub(crate) mod options;
mod random;
mod s3fifo;
mod sieve;
mod tlru;
mod workload_aware;

use headstart_core::{Access, BlockHash, BlockId, Nanos};

use crate::future::Future;
pub use crate::names::{by_name, learns_ends, offline, reads_predictions};
pub use arc::Arc;
pub use belady::Belady;
pub use continuation::ContinuationOracle;
pub use fifo::Fifo;
pub use gdsf::Gdsf;
pub use hazard::{ForeignTables, Hazard, HazardCurve, HazardOptions};
pub use importance::Importance;
pub use keyed::{KeyedPolicy, Priority};
pub use learned::{Lpc, LpcOptions, Pooling};
pub use lfu::Lfu;
pub use lru::Lru;
use options::SpecOptions;
pub use options::{PolicyError, Setting, split_charge};
pub use random::Random;
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;
pub use tlru::TailLru;
pub use workload_aware::{Life, Shape, WaOptions, WorkloadAware};

/// Makes a policy for a cache, with the options that it reads.
type PolicyConstructor = fn(Setting, &mut SpecOptions<'_>) -> Result<Box<dyn Policy>, PolicyError>;

/// Makes a policy that reads the future.
type OfflineConstructor = fn(usize, std::sync::Arc<Future>) -> Box<dyn Policy>;

/// A policy by name.
pub(crate) struct NamedPolicy<M> {
    pub(crate) name: &'static str,
    /// Whether it reads [`Access::p_continue`].
    pub(crate) reads_predictions: bool,
    /// Whether it learns from [`Access::finish`].
    pub(crate) learns_ends: bool,
    pub(crate) make: M,
}

/// The policies that serve. A policy reads its options, and says so for each.
pub(crate) const ONLINE: &[NamedPolicy<PolicyConstructor>] = &[
    named("lru", |at, _| Ok(Box::new(Lru::new(at.capacity)))),
    named("fifo", |at, _| Ok(Box::new(Fifo::new(at.capacity)))),
    named("lfu", |at, _| Ok(Box::new(Lfu::new(at.capacity)))),
    // Shares of the capacity.
    named("s3fifo", |at, options| {
        let small = options.share("small", 0.1)?;
        let ghost = options.share("ghost", 0.9)?;
        Ok(Box::new(S3Fifo::new(at.capacity, small, ghost)))
    }),
    named("sieve", |at, _| Ok(Box::new(Sieve::new(at.capacity)))),
    named("arc", |at, _| Ok(Box::new(Arc::new(at.capacity)))),
    // `depth`: tokens at which a block costs twice as much.
    named("gdsf", |at, options| {
        let depth = options.number("depth", 32_768.0, |depth| depth >= 1.0)?;
        let gdsf = Gdsf::new(at.capacity, at.blocks(depth));
        Ok(if options.flag("admit-all") { Box::new(gdsf.admitting_all()) } else { Box::new(gdsf) })
    }),
    // `allowance`: ξ, tokens.
    named("tlru", |at, options| {
        let allowance = options.positive("allowance", 1_024.0)?;
        Ok(Box::new(TailLru::new(at.capacity, at.blocks(allowance))))
    }),
    named("wa", |at, options| {
        let options = WaOptions::read(options)?;
        Ok(Box::new(WorkloadAware::new(at.capacity, options)))
    }),
    NamedPolicy {
        learns_ends: true,
        ..named("hazard", |at, options| {
            Ok(Box::new(Hazard::new(at.capacity, HazardOptions::read(options))))
        })
    },
    NamedPolicy {
        reads_predictions: true,
        ..named("lpc", |at, options| {
            let options = LpcOptions::read(options)?;
            Ok(Box::new(Lpc::new(at.capacity, options)))
        })
    },
    // `half-life`: uses of the cache after which one counts half; without it no use fades.
    named("importance", |at, options| {
        Ok(match options.number("half-life", 0.0, |uses| uses > 0.0)? {
            // The default. No half-life that the option accepts is 0.
            0.0 => Box::new(Importance::new(at.capacity)),
            uses => Box::new(Importance::fading(at.capacity, uses)),
        })
    }),
    named("random", |at, options| {
        let seed = options.whole("seed", 1)?;
        Ok(Box::new(Random::new(at.capacity, seed)))
    }),
];

/// Bounds, for replay only.
pub(crate) const OFFLINE: &[NamedPolicy<OfflineConstructor>] = &[
    named("belady", |capacity, future| Box::new(Belady::new(capacity, future))),
    named("belady-bypass", |capacity, future| Box::new(Belady::with_bypass(capacity, future))),
    named("continuation-oracle", |capacity, future| {
        Box::new(ContinuationOracle::new(capacity, future))
    }),
];

const fn named<M: Copy>(name: &'static str, make: M) -> NamedPolicy<M> {
    NamedPolicy { name, reads_predictions: false, learns_ends: false, make }
}

const fn names<M, const N: usize>(policies: &[NamedPolicy<M>]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut index = 0;
    // A constant cannot use `for`.
    while index < N {
        names[index] = policies[index].name;
        index += 1;
    }
    names
}

/// The policy of an engine of ours unless another one is named.
pub const DEFAULT: &str = "hazard";

/// Policies that [`by_name`] makes.
pub const NAMES: &[&str] = &names::<_, { ONLINE.len() }>(ONLINE);

/// Policies that [`offline`] makes: bounds that read the future.
pub const OFFLINE_NAMES: &[&str] = &names::<_, { OFFLINE.len() }>(OFFLINE);

/// An eviction policy. Calls for one block come in the order
/// `(insert | store) (release | offer | withdraw)* (remove | forget)`; `offer` and `withdraw`
/// alternate, and a block is released, or forgotten, only while it is not offered.
pub trait Policy: Send {
    /// The block named `hash` became resident (pinned: not yet a candidate).
    fn insert(&mut self, block: BlockId, hash: BlockHash, access: &Access);

    /// A request lets go of the resident prefix that it used: one use of each of `blocks`, which
    /// stand in prompt order (a block's index is its offset). Recency runs tail first: the last
    /// block counts as released before the one in front of it.
    fn release(&mut self, blocks: &[BlockId], access: &Access);

    /// The same in a lower tier, for a whole prompt: the blocks named `missing` stand behind those
    /// of `blocks`, and are not here. A policy that learns counts them as evicted.
    fn release_some(&mut self, blocks: &[BlockId], missing: &[BlockHash], access: &Access) {
        let _ = missing;
        self.release(blocks, access);
    }

    /// The tables that the policy has learned, to start another one from; `None` if it learns
    /// nothing that outlives its blocks. They hold counts, and no names of blocks.
    fn learned(&self) -> Option<Vec<u8>> {
        None
    }

    /// Starts from the tables of another policy of this kind. Called before any block is inserted.
    ///
    /// # Errors
    /// When these are not the tables of this version; nothing has changed then.
    fn learn_from(&mut self, learned: &[u8]) -> Result<(), ForeignTables> {
        let _ = learned;
        Err(ForeignTables::LearnsNothing)
    }

    /// The policy serves a lower tier. Called once, before all else.
    fn serve_tier(&mut self) {}

    /// The chance that `newcomer` is used again while a lower tier has it; `None` when unknown.
    fn chance_of_use(&mut self, newcomer: &Newcomer) -> Option<f64> {
        let _ = newcomer;
        None
    }

    /// Whether a lower tier that is full should write `newcomer`, for which it must evict another.
    fn admits(&mut self, newcomer: &Newcomer) -> bool {
        let _ = newcomer;
        true
    }

    /// A lower tier begins to write the block named `hash`, which requests may have used before:
    /// it is inserted, and used once.
    fn store(&mut self, block: BlockId, hash: BlockHash, access: &Access) {
        self.insert(block, hash, access);
        self.release(&[block], access);
    }

    /// The block may be evicted from now on.
    fn offer(&mut self, block: BlockId);

    /// The block must not be evicted until offered again.
    fn withdraw(&mut self, block: BlockId);

    /// The candidate to evict first, to make room for `newcomer` where that is known. `None`
    /// when nothing is offered, or when the policy would rather not admit the newcomer; without
    /// a newcomer it may not decline. Asked twice in a row it gives the same answer.
    fn victim(&mut self, now: Nanos, newcomer: Option<&Newcomer>) -> Option<BlockId>;

    /// The block named `hash`, which [`Policy::victim`] has just named, is evicted; all but its
    /// ghost may be forgotten.
    fn remove(&mut self, block: BlockId, hash: BlockHash);

    /// The block named `hash`, which is not offered, is gone though the policy did not choose it:
    /// its bytes are lost, or its owner had to give one up. Those that keep something of what is
    /// not offered (lengths, places in a queue) let go of it; it leaves no ghost.
    fn forget(&mut self, block: BlockId, hash: BlockHash);
}

/// A block that wants to become resident.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer {
    /// Its name.
    pub hash: BlockHash,
    /// The use that wants it; `offset` is the block's.
    pub access: Access,
}
