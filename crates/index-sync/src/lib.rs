//! A router's index beyond its process: in a folder for the next start, and shared by gateways.
//!
//! | module | holds |
//! |---|---|
//! | [`saved`] | the index in a folder, sealed, for the next start |
//! | [`shared`] | one index for several gateways, by way of a Redis or Valkey server |
//! | [`clock`] | the clock of a process, and wall time, which files and gateways share |
//!
//! Both hold keyed hashes, never text or tokens. A fault in either costs time, never an answer:
//! the router's index is a hint.

pub mod clock;
mod random_key;
pub mod saved;
pub mod shared;

pub use random_key::random_key;
