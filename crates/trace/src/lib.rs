//! What happened: request traces, read as a stream of [`headstart_core::TraceRequest`].
//!
//! | module | holds |
//! |---|---|
//! | [`source`] | plain or zstd bytes, told apart by their first four bytes |
//! | [`mod@format`] | one file per trace format |
//! | [`info`] | [`TraceInfo`]: block size, type names, what is given and what inferred |
//! | [`error`] | [`TraceError`]: which input, which line, what to do |
//!
//! This crate does no I/O of its own: it reads from what the caller opened. It does not know
//! what any policy would do with a trace.

pub mod error;
pub mod format;
pub mod info;
pub mod source;

pub use error::TraceError;
pub use info::{Provenance, TraceInfo};
