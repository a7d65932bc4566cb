//! Event streams under every fault, from simulated engines to the production index.
//!
//! ```text
//! engine ──► publisher ──► channel ──► Follower ──► RunIndex ──► residents, overlaps
//!   │        (numbers,     (loses,     └──── under test ───┘            │
//!   │         buffer)      repeats, …)       │ applied position         ▼
//!   └──────► truth at every number ──────────┴────────────────────► compared
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`scenario`] | what one seed stands for |
//! | [`catalog`], [`texts`] | blocks and prompts |
//! | [`engine`], [`announce`] | a prefix cache, and how it tells of itself |
//! | [`publisher`] | numbers, timestamps, replay buffer; what each number stood for |
//! | [`channel`] | what is lost, repeated, late, cut off |
//! | [`station`] | one replica: all of the above, and the follower at the end |
//! | [`truth`], [`checks`] | what the engine held at the applied position, and what must hold |
//! | [`tally`] | what has happened, to show that it was not nothing |
//!
//! The claim, for every seed:
//!
//! - At every moment, what the index reports as confirmed is what the engine held after the last
//!   applied batch; what a lost batch may have removed is not.
//! - While a stream claims to be complete, the index equals that truth, and overlaps of random
//!   prompts are those of the truth.
//! - When faults end, every stream reaches the engine's last batch; it is complete unless
//!   something was lost for good. What is in doubt ages out. After a clear it is complete; after a
//!   restart too, where replays are possible.
//! - When replicas are forgotten, nothing is left.
//!
//! - A stream that has evidence of being late confirms nothing. A doubt is taken back only where
//!   nothing was applied behind it, and not when it is old.
//!
//! In the middle of some runs the index is dumped and restored, and followers start over.
//!
//! Nothing here decides anything: [`headstart_router::stream::Follower`] and
//! [`headstart_router::RunIndex`] are the production code. What no subscriber could notice is left
//! out: a restart that breaks no connection and whose first batch is lost, or that no clock tells;
//! late messages of a process of which nothing else arrived; without a clock, a replay answered by
//! a process whose predecessor's connection still looks alive, and one that says the very same as
//! its predecessor did. Without a correct clock, or without replays, a batch that comes late passes
//! for a new process, and that is no evidence.

pub mod announce;
pub mod catalog;
pub mod channel;
pub mod checks;
pub mod engine;
pub mod publisher;
pub mod scenario;
pub mod station;
pub mod tally;
pub mod texts;
pub mod truth;
mod world;

pub use tally::CoverageTally;
use world::StreamWorld;

/// A seed that failed a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedFailure {
    /// The seed.
    pub seed: u64,
    /// The difference from the expected state.
    pub difference: String,
}

/// Simulates the scenario of `seed`.
///
/// # Errors
/// What the index or the stream got wrong.
///
/// # Panics
/// When an invariant of the stream or the index is broken.
pub fn run(seed: u64) -> Result<CoverageTally, SeedFailure> {
    let mut world = StreamWorld::new(seed, None);
    match world.run() {
        Ok(()) => Ok(world.into_notes().1),
        Err(difference) => Err(SeedFailure { seed, difference }),
    }
}

/// Returns the log of the scenario of `seed` up to its failure or its end, line by line.
#[must_use]
pub fn tell(seed: u64) -> Vec<String> {
    let mut world = StreamWorld::new(seed, Some(Vec::new()));
    let outcome = world.run();
    let mut lines = world.into_notes().0;
    lines.push(format!("{outcome:?}"));
    lines
}
