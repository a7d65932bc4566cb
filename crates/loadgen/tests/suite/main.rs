//! The integration tests of this crate: one binary, because each one costs time to link.

mod chat;
mod client;
mod fake;
mod probe;
mod trace;
