//! The integration tests of this crate: one binary, because each one costs time to link.
//!
//! Tests that run for minutes have binaries of their own.

mod analyze;
mod bench_tiers;
mod cache_command;
mod columns;
mod commands;
mod context_cache;
mod convert;
mod fleet;
#[cfg(feature = "ablations")]
mod importance;
mod index;
mod kill;
mod materialize;
mod outages;
mod plan;
mod planted;
mod predict;
mod predictors;
mod progress;
mod replay;
mod restart;
mod simulate;
mod spans;
mod support;
mod tier_events;
mod tiers;
mod train;
mod validate;
mod warnings;
mod why_and_lint;
