//! Deterministic simulation tests: worlds whose truth is known, against production code.
//!
//! | module | holds |
//! |---|---|
//! | [`streams`] | event streams under every fault, against the engines' true contents |
//! | [`index`] | random updates of any index, against the contract and against a reference |
//! | [`attribution`] | the fate of every prompt token, against the attribution of cache misses |
//! | [`policy`] | random calls of any eviction policy, against its contract and a reference |
//!
//! The worlds run the production router, index, cache and attributor, in virtual time and from one
//! seed. The oracles of [`streams`] and [`attribution`] are written without that code. No product
//! links this crate.

pub mod attribution;
pub mod index;
pub mod policy;
pub mod streams;
