//! The integration tests of this crate: one binary, because each one costs time to link.

mod index_runs;
mod index_twin;
mod ledger;
mod routing;
mod same_as_reference;
mod stream;
