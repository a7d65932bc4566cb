//! Loading by importance: which tokens of a stored prefix a prompt needs, which parts of which
//! records hold them, and what of that stays in memory.
//!
//! ```text
//! probes' importances ──select──► tokens ──reads──► parts ──► PartCache (device, host)
//!                                   │                 ▲              │ released
//!                                   ▼                 │              ▼
//!                                 Nodes ──Job──► packs written ──► Packs
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`select()`] | top tokens per probe, their agreement, and when to load everything |
//! | [`reads()`] | the fewest parts that hold the tokens |
//! | [`PartCache`] | parts in memory, level above level |
//! | [`Packs`] | the packs on a disk, and which of them serve a prompt |
//! | [`Nodes`] | what was selected where, and which packs are worth making |
//! | [`Guard`] | which prompts are computed twice, and which prefixes in full from then on |
//!
//! It does not know bytes, layers' contents, files or clocks. What is loaded by importance is an
//! approximation: nothing here may name, commit or store a block computed behind it.
//!
//! Source: IMPRESS (FAST '25): probe heads, Jaccard threshold, reordering inside a radix node,
//! score-based cache. We differ in that packs are copies beside the units, not a rewrite of them,
//! and that the parts to read are the fewest, where IMPRESS reads whatever chunk holds a token.

mod cover;
mod fit;
mod guard;
mod nodes;
mod packs;
mod parts;
mod reads;
mod select;

pub use fit::{RetainedTokens, Wish, fit};
pub use guard::{Divergence, Guard, GuardCounts, GuardOptions, Verdict, divergence};
pub use nodes::{Job, NodeOptions, Nodes};
pub use packs::Packs;
pub use parts::{LevelCounts, PartCache, PartCounts};
pub use reads::{Cover, PackView, PartRead, reads};
pub use select::{ALPHA, MOST_SPARED, Merge, SURE, Selecting, Selection, select, threshold};

/// Share of a prefix' bytes that loading by importance cannot go below: the probes' share, and of
/// the rest the kept ratio times the read amplification (tokens read over tokens wanted).
///
/// ```
/// // Four heads, three of them probes (keys only): at best 1 / 0.53, which is 1.88 times less.
/// let share = headstart_selective::bound(3.0 / 8.0, 0.25, 1.0);
/// assert!((1.0 / share - 1.88).abs() < 0.01);
/// ```
#[must_use]
pub fn bound(probe_share: f64, ratio: f64, amplification: f64) -> f64 {
    // The kept tokens drag whole parts in, but never more than all of the rest.
    probe_share + (ratio * amplification).min(1.0) * (1.0 - probe_share)
}
