//! The integration tests of this crate: one binary, because each one costs time to link.
//!
//! `corpus` has a binary of its own, because it replaces the allocator.

mod sockets;
mod troubles;
