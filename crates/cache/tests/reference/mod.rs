//! Slow versions of the policies, which the tests compare the production ones with.
//!
//! [`RankedPolicy`] stands for the policies that evict the smallest of something, and lists as in
//! the papers for the rest. The radix tree, a rival of the hash chain, is in `radix.rs`.

mod arc;
mod periodic;
mod ranked;
mod s3fifo;
mod sieve;

pub(crate) use arc::ListArc;
pub(crate) use periodic::PeriodicLpc;
pub(crate) use ranked::RankedPolicy;
pub(crate) use s3fifo::ListS3Fifo;
pub(crate) use sieve::ListSieve;
