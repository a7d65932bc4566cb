//! The integration tests of this crate: one binary, because each one costs time to link.

mod cases;
mod hostile_requests;
mod parity;
mod percent;
mod prefix_tokens;
mod templates;
