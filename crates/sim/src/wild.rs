//! The evaluation of "KVCache Cache in the Wild" (Wang et al., USENIX ATC'25), with our own cache,
//! tiers and scheduler in virtual time.
//!
//! ```text
//! cell = model × host memory (0 to 4 times the device's) × policy
//!
//! traffic ─► Scheduler ─ PrefixCache (policy) ─ evicted ─► host: Tiers (the same policy)
//!                └──────────── loaded, where that is faster ◄──┘      SimMover: PCIe
//! ```
//!
//! From the study: models, GPUs and their memory, host memory in multiples of it, policies, and
//! blocks of 16 tokens. As in its code, the first part of a trace fills the caches, the second one
//! counts, and requests only prefill (one token of answer).
//!
//! Our own: the engine's speed (data sheets), the rate (a [`load`](mod@load)), the traffic
//! (drawn after the study's characterization), units of 64 tokens between device and host.
//!
//! The study prints its results as plots and ranges ([`published`]), so that only ranges can stand
//! beside ours.
//!
//! | module | holds |
//! |---|---|
//! | [`model`] | models and GPUs |
//! | [`load`] | how much an engine is asked to do |
//! | [`traffic`] | requests drawn after the study |
//! | [`cell`] | one run |
//! | [`published`] | the study's ranges, and the same figures of ours |

pub mod cell;
pub mod load;
pub mod model;
pub mod published;
pub mod traffic;

pub use cell::{WildCell, WildMeasurements, WildSettings};
pub use model::WildModel;
pub use traffic::WildTraffic;
