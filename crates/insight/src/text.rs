//! Prompts as sketches of keyed hashes, nearest neighbours, and what made two prompts diverge.
//!
//! ```text
//! text ─Sketcher─> Sketch ─Neighbours─> nearest prompt ─explain─> PromptDivergence, Cause
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`word`] | [`Word`]: a keyed hash, where it stands, and what kind of word it is |
//! | [`sketch`] | [`Sketcher`] and [`Sketch`]: a text as its words |
//! | [`neighbours`] | [`Neighbours`]: a bounded memory that finds the nearest earlier prompt |
//! | [`divergence`] | [`PromptDivergence`]: where two prompts part, and what agrees behind it |
//! | [`mod@explain`] | [`explain()`]: which of the named causes it was, with the words to show |
//! | [`findings`] | [`Findings`]: causes summed over many prompts |
//! | [`seam()`] | the one cause that only tokens show |
//!
//! **No text is kept.** A word is a 64-bit hash under a secret, an offset, a length and a class;
//! of punctuation and white space the character itself. A caller that has the texts cuts out the
//! spans that an [`Evidence`] names.
//!
//! **What counts as a loss.** Two prompts that part have lost something only if what stands behind
//! agrees again: at least [`LOSS_WORDS`] words of the newer prompt are known from the older one
//! although no earlier prompt had them in the same place. An ordinary next turn, another question
//! behind the same instructions or another document in the same form is no loss by this rule, or
//! no cause explains it; then there is no finding.

mod cause;
mod diff;
pub mod divergence;
pub mod explain;
pub mod findings;
mod hashed;
pub mod neighbours;
mod scan;
mod seam;
pub mod sketch;
pub mod word;

pub use cause::Cause;

pub use divergence::{LOSS_WORDS, PromptChange, PromptDivergence};
pub use explain::{Evidence, Explanation, explain};
pub use findings::{Finding, Findings, Loss};
pub use neighbours::{Near, NeighbourComparison, NeighbourLimits, Neighbours};
pub use seam::{Seam, seam};
pub use sketch::{Sketch, Sketcher};
pub use word::{Class, Word};

#[cfg(test)]
mod testing;
