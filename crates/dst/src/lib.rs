//! Deterministic simulation tests: worlds whose truth is known, against production code.
//!
//! | module | holds |
//! |---|---|
//! | [`streams`] | event streams under every fault, against the engines' true contents |
//! | [`attribution`] | the fate of every prompt token, against the attribution of cache misses |
//!
//! The worlds run the production router, index, cache and attributor, in virtual time and from one
//! seed. Their oracles are written without that code. No product links this crate.

pub mod attribution;
pub mod streams;
