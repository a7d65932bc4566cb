//! Replay and simulation in virtual time.
//!
//! The centre's own cache runs here, driven by a trace instead of an engine: this crate holds
//! no policy, no scheduler and no scoring of its own.

pub mod replay;

pub use replay::Replay;
