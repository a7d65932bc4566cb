//! Random calls of any eviction policy, against the contract and against a reference.

pub mod conformance;
