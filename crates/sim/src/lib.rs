//! Replay and simulation in virtual time.
//!
//! | module | holds |
//! |---|---|
//! | [`calibrate`] | a cost model out of measured times: [`calibrate::EngineFit`] |
//! | [`chat`] | conversations with one replica in a closed loop: [`chat::ChatRun`] |
//! | [`cost`] | how long a scheduler's step takes by a cost model |
//! | [`quality`] | how good predictions are |
//! | [`replay`] | [`Replay`]: one cache driven by a trace |
//! | [`mover`] | [`SimMover`]: units on their way between tiers, in virtual time |
//! | [`tiered`] | [`TieredReplica`]: one replica with lower tiers |
//! | [`noise`] | the truth about what follows, made uncertain to a wanted degree |
//! | [`outcome`] | [`ReplayOutcome`]: what a replay counts, cold and steady apart, per class |
//! | [`saturation`] | how many prefills per second an engine does at a hit rate |
//! | [`sizing`] | how many times device memory a trace is worth |
//! | [`spread`] | what placing requests without looking costs: hits by placement |
//! | [`sweep`] | [`Sweep`]: policies × capacities over one trace, and what no cache can beat |
//! | [`fleet`] | gateways and replicas in virtual time: [`fleet::FleetRun`] |
//! | [`experiment`] | learned prefix caching against its rivals: [`experiment::Arm`] |
//! | [`explained`] | the fate of every prompt token of a replayed trace |
//! | [`knee`] | where a hit-rate curve bends |
//! | [`placement`] | who takes a request for its prefix, within a bound on work |
//! | [`wild`] | the evaluation of "KVCache Cache in the Wild": host memory × policies |
//! | [`workload`] | conversations drawn from published statistics |
//!
//! The centre's own cache and scheduler run here, driven by a trace or a script instead of an
//! engine: this crate holds no policy, no scheduler and no scoring of its own.

pub mod calibrate;
pub mod chat;
pub mod cost;
pub mod experiment;
pub mod explained;
pub mod fleet;
pub mod knee;
pub mod mover;
pub mod noise;
pub mod outcome;
pub mod placement;
pub mod quality;
pub mod replay;
pub mod saturation;
pub mod sizing;
pub mod spread;
pub mod sweep;
pub mod tiered;
pub mod wild;
pub mod workload;

pub use mover::{Channel, SimMover};
pub use outcome::{HitTally, ReplayOutcome, RequestClass};
pub use replay::{Replay, ReplayConfig};
pub use sweep::{Extent, Sweep, SweepConfig};
pub use tiered::{TieredOutcome, TieredReplica, TieredRequest};
