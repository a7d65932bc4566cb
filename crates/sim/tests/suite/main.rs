//! The integration tests of this crate: one binary, because each one costs time to link.

mod fleet;
mod ghost_recorded;
mod golden;
mod load_or_compute;
mod mooncake_golden;
mod queued_loads;
mod tier_events;
