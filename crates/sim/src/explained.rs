//! Explanation of every simulated prompt token, by the code that explains live traffic.
//!
//! | module | holds |
//! |---|---|
//! | [`replay`] | [`replay::ExplainedReplay`]: a trace over replicas with real prefix caches |
//! | [`runs`] | [`runs::ExplainedRuns`]: the same of block ids under LRU, by runs |
//!
//! The crate `dst` compares the same code with the truth of a simulated world.

pub mod replay;
pub mod runs;
