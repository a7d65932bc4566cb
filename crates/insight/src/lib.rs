//! Why prompt tokens were recomputed, the cost of it, and changes that would avoid it: a pure state
//! machine.
//!
//! | module | holds |
//! |---|---|
//! | [`bucket`] | [`Bucket`], where a prompt token lands; [`Waterfall`], how many landed where |
//! | [`text`] | prompts as sketches of keyed hashes; nearest neighbours; which cause it was |
//! | [`loss`] | which bucket each token of a request lands in |
//! | [`documents`] | what reuse without order would find beyond prefixes |
//! | [`ghost`] | what caches of other sizes would have hit |
//! | [`prefill`] | seconds for uncached tokens, fitted to observed times to the first token |
//! | [`prices`] | what an operator pays for cached, computed and generated tokens |
//!
//! It does not know whether its input is a running fleet, a log or a simulation; it keeps no text
//! and no token, only keyed hashes.

pub mod bucket;
pub mod documents;
pub mod ghost;
pub mod loss;
pub mod prefill;
pub mod prices;
pub mod text;

pub use bucket::{Bucket, BucketTokens, Waterfall};
pub use text::Cause;
