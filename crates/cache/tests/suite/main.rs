//! The integration tests of this crate: one binary, because each one costs time to link.
//!
//! `memory` has a binary of its own, because it replaces the allocator.

mod conformance;
mod definitions;
mod hazard;
mod learned;
mod pins;
mod policies;
mod reference;
mod same_as_radix;
mod sglang_nine_steps;
mod workload_aware;
