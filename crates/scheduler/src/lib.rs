//! Scheduling of steps: continuous batching, chunked prefill, preemption, queue order.
//!
//! ```text
//! submit ─► waiting ─admit─► running ─► Batch ─► Executor ─► complete ─► Output, CacheEvent
//!              ▲                │
//!              └───preempt──────┘  no block left: the youngest goes back, its blocks stay cached
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`scheduler`] | [`Scheduler`]: `submit`, `cancel`, `schedule`, `complete` |
//! | [`sequence`] | one request while it is here |
//! | `names` | its blocks' names, hashed once where prompts begin alike |
//! | [`queue`] | in which order waiting sequences are admitted |
//! | [`batch`] | what the executor gets and returns |
//! | [`copies`] | what is copied beside a step, part by part |
//! | [`executor`] | the [`Executor`] trait and its null implementation |
//! | [`announce`] | what came and went, on the device and in lower tiers, as events |
//!
//! A pure state machine: `now` is an argument. It knows token ids and blocks, not tensors; the
//! same scheduler runs in the engine and in the simulator.

pub mod announce;
pub mod batch;
pub mod copies;
pub mod executor;
mod names;
pub mod queue;
pub mod scheduler;
pub mod sequence;

pub use batch::{Arrival, Batch, Entry, Sampling};
pub use copies::Copies;
pub use executor::Executor;
pub use queue::QueueOrder;
pub use scheduler::{
    Decode, FullComputation, MadeUp, PartlyDone, PartlyLoadedPrompt, PartlyWhen, Scheduler,
    SchedulerConfig, SchedulerLoad, Submit,
};
pub use sequence::{FinishReason, Output, Submission};
