//! Will the conversation go on?
//!
//! When a user's prompt has arrived, a [`Situation`] holds what is known; an [`Encoder`] turns its
//! text into numbers; a small classifier turns these into a probability. Only the classifier is
//! trained.
//!
//! Source: Yang, Li, Li, Lloyd, "Learned Prefix Caching", NeurIPS 2025.

pub mod encoder;
mod situation;

pub use encoder::Encoder;
pub use situation::Situation;
