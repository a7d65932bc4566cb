//! Fleets in virtual time: gateways with the real router, replicas with the real scheduler and
//! cache, and a cost model in place of tensors.
//!
//! ```text
//! Workload ──arrival──► Gateway ──route──► Replica: Scheduler, PrefixCache, CostModel
//!                          ▲  ▲                │ a step takes what the cost model says
//!                          │  └───scrape───────┤
//!                          └──events, delayed──┘──first token, end──► Outcome, rung by rung
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`workload`] | what arrives when: [`FleetWorkload`], [`Rung`], [`Request`] |
//! | [`ladder`] | shared prefixes under a ladder of rates |
//! | [`recorded`] | requests of a trace: [`TraceConversion`] |
//! | [`preset`] | published runs: [`FleetPreset`] |
//! | [`replica`] | one engine: steps that take time |
//! | [`prompts`] | prompts with their names, made once |
//! | [`publisher`] | what it publishes of its cache |
//! | [`gateway`] | one router, its event streams, and what it hears of the replicas |
//! | [`config`] | what a fleet is like: [`FleetConfig`], [`Network`], [`Slo`], [`Fault`] |
//! | [`run`] | the loop of what happens next: [`FleetRun`] |
//! | [`outcome`] | what is measured, per rung |
//! | [`recovery`] | how hit rates come back after a fault: [`Recovery`] |
//!
//! Nothing here decides anything: who serves is the router's choice, what runs the scheduler's,
//! what stays the cache's. Same seed, same bytes out.

pub mod config;
pub mod gateway;
pub mod ladder;
pub mod outcome;
pub mod preset;
pub mod prompts;
pub mod publisher;
pub mod recorded;
pub mod recovery;
pub mod replica;
pub mod run;
mod timeline;
pub mod workload;

pub use config::{Fault, FleetConfig, Network, Slo};
pub use ladder::{Crowd, Ladder, Order, RequestPacing};
pub use outcome::{FleetOutcome, RungObservations, RungOutcome, ServedRequest};
pub use preset::{FleetPreset, PublishedRung};
pub use recorded::{TraceArrivals, TraceConversion};
pub use recovery::Recovery;
pub use run::FleetRun;
pub use workload::{FleetWorkload, FollowUpRequest, Request, Rung, Segment};
