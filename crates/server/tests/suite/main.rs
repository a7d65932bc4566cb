//! The integration tests of this crate: one binary, because each one costs time to link.
//!
//! Tests that run for minutes have binaries of their own.

mod api;
mod clients;
mod dashboard;
mod edge;
mod emulator;
mod event_troubles;
mod explained;
mod faults;
mod grafana;
mod learned;
mod media_events;
mod normalize;
mod pass_on;
mod predictions;
mod ranks;
mod saved_index;
mod self_check;
mod shadow;
mod slow_upstreams;
mod spans;
mod support;
mod upstream_tiers;
mod upstreams;
mod without_tokens;
