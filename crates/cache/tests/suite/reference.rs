//! Slow versions of the policies, which the tests compare the production ones with.
//!
//! [`RankedPolicy`] stands for the policies that evict the smallest of something, and lists as in
//! the papers for the rest. [`RadixCache`] is a rival of the hash chain.

mod arc;
mod hazard;
mod periodic;
mod radix;
mod ranked;
mod s3fifo;
mod sieve;

pub(crate) use arc::ListArc;
pub(crate) use hazard::PlainHazard;
pub(crate) use periodic::PeriodicLpc;
pub(crate) use radix::RadixCache;
pub(crate) use ranked::RankedPolicy;
pub(crate) use s3fifo::ListS3Fifo;
pub(crate) use sieve::ListSieve;
