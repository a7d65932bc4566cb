//! Replay and simulation in virtual time.
//!
//! | module | holds |
//! |---|---|
//! | [`calibrate`] | a cost model out of measured times: [`calibrate::EngineFit`] |
//! | [`cost`] | how long a scheduler's step takes by a cost model |
//! | [`replay`] | [`Replay`]: one cache driven by a trace |
//! | [`mover`] | [`SimMover`]: units on their way between tiers, in virtual time |
//! | [`tier_replay`] | [`TierReplay`]: one cache with lower tiers driven by a trace |
//! | [`tiered`] | [`TieredReplica`]: one replica with lower tiers |
//! | [`outcome`] | [`ReplayOutcome`]: what a replay counts, cold and steady apart, per class |
//! | [`sizing`] | how many times device memory a trace is worth |
//! | [`spread`] | hits of a fleet by the way in which requests are spread over it |
//! | [`sweep`] | [`Sweep`]: policies × capacities over one trace, and what no cache can beat |
//! | [`fleet`] | gateways and replicas in virtual time: [`fleet::FleetRun`] |
//! | [`explained`] | the fate of every prompt token of a replayed trace |
//! | [`knee`] | where a hit-rate curve bends |
//! | [`placement`] | who takes a request for its prefix, within a bound on work |
//! | [`tokens`] | tokens of prompts that have no text |
//! | [`vllm_pool`] | vLLM's device cache, request by request |
//! | [`wild`] | models and GPUs of "KVCache Cache in the Wild": [`wild::WildModel`] |
//!
//! The centre's own cache and scheduler run here, driven by a trace or a script instead of an
//! engine: this crate holds no policy, no scheduler and no scoring of its own.

pub mod calibrate;
pub mod cost;
pub mod explained;
pub mod fleet;
pub mod knee;
pub mod mover;
pub mod outcome;
pub mod placement;
pub mod replay;
pub mod sizing;
pub mod spread;
pub mod sweep;
pub mod tier_replay;
pub mod tiered;
pub mod tokens;
pub mod vllm_pool;
pub mod wild;

pub use mover::{Channel, SimMover};
pub use outcome::{HitTally, ReplayOutcome, RequestClass};
pub use replay::{Replay, ReplayConfig};
pub use sweep::{Extent, Sweep, SweepConfig};
pub use tier_replay::{TierReplay, TierReplayOutcome};
pub use tiered::{TieredOutcome, TieredReplica, TieredRequest};
