//! Request traces, read as a stream of [`headstart_core::TraceRequest`].
//!
//! | module | holds |
//! |---|---|
//! | [`reader`] | [`Reader`], any trace as a stream of requests in order of time |
//! | [`remarks()`] | sentences on what was inferred, moved or left out |
//! | [`source`] | plain, gzip or zstd bytes, told apart by their first four bytes |
//! | [`mod@format`] | one file per trace format |
//! | [`schedule`] | recorded sessions into one stream, in file order or with drawn starts |
//! | [`infer`] | sessions, turns and types of traces that name none |
//! | [`info`] | [`TraceInfo`]: block size, type names, what is given and what inferred |
//! | [`sample`] | fewer sessions of a trace, each of them whole |
//! | [`materialize`] | prompts for a live server: tokens for blocks that had none |
//! | [`synth`] | traces made up from a seed |
//! | [`mod@characterize`] | what a trace looks like: hits, sessions, reuse times, sizes |
//! | [`error`] | [`TraceError`]: which input, which line, what to do |
//!
//! This crate does no I/O of its own: it reads from what the caller opened. It does not know
//! what any policy would do with a trace.

pub mod characterize;
pub mod error;
pub mod format;
pub mod infer;
pub mod info;
pub mod materialize;
pub mod reader;
mod remarks;
pub mod sample;
pub mod schedule;
pub mod source;
pub mod synth;

pub use error::TraceError;
pub use format::Format;
pub use info::{Provenance, TraceInfo};
pub use reader::{Options, Reader, Tally};
pub use remarks::remarks;
pub use schedule::Arrivals;
