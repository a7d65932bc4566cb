//! Replay and simulation in virtual time.
//!
//! | module | holds |
//! |---|---|
//! | [`replay`] | [`Replay`]: one cache driven by a trace |
//! | [`outcome`] | [`Outcome`]: what a replay counts, cold and steady apart, per class |
//! | [`sweep`] | [`Sweep`]: policies × capacities over one trace, and what no cache can beat |
//! | [`knee`] | where a hit-rate curve bends |
//!
//! The centre's own cache runs here, driven by a trace instead of an engine: this crate holds
//! no policy, no scheduler and no scoring of its own.

pub mod knee;
pub mod outcome;
pub mod replay;
pub mod sweep;

pub use outcome::{Class, Outcome, Tally};
pub use replay::{Replay, ReplayConfig};
pub use sweep::{Extent, Sweep, SweepConfig};
