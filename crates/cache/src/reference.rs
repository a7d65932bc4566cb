//! Slow or rival structures that the tests compare the production ones with.
//!
//! Policies have slow twins here: [`RankedPolicy`] for those that evict the smallest of something,
//! and lists as in the papers for the rest.

mod arc;
mod periodic;
mod radix;
mod ranked;
mod s3fifo;
mod sieve;

pub use arc::ListArc;
pub use periodic::PeriodicLpc;
pub use radix::RadixCache;
pub use ranked::{RankedPolicy, Resident, Worth};
pub use s3fifo::ListS3Fifo;
pub use sieve::ListSieve;
