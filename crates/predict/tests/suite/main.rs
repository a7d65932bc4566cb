//! The integration tests of this crate: one binary, because each one costs time to link.

mod bert;
mod planted;
mod training;
