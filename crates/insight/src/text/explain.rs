//! Explanation of a divergence of two prompts by one of the named causes.

use std::ops::Range;

use super::cause;
use super::divergence::{PromptAlignment, PromptDivergence};
use super::sketch::Sketch;
use crate::Cause;

/// Words that must be lost for a joint to be told: the next question behind it.
const JOINT_WORDS: usize = 12;

/// The words that show a cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The cause that the words show.
    pub cause: Cause,
    /// The bytes of the older prompt that changed; empty where something was added.
    pub old: Range<usize>,
    /// The bytes of the newer prompt that stand there instead; empty where something went.
    pub new: Range<usize>,
    /// Names the place: a keyed hash of the words in front, for causes that sit in one place.
    pub place: u64,
    /// Names the words that stand there now: a keyed hash of them.
    pub version: u64,
    /// The cause of a further change right behind, where the first one alone explains too little.
    pub also: Option<Cause>,
}

impl Evidence {
    /// The cause as the subject of a sentence: [`Cause::title`]. A date or time in only one of the
    /// prompts was inserted or removed.
    #[must_use]
    pub fn title(&self) -> &'static str {
        match (self.cause, self.old.is_empty(), self.new.is_empty()) {
            (Cause::Clock, true, false) => "a date or time was inserted",
            (Cause::Clock, false, true) => "a date or time was removed",
            _ => self.cause.title(),
        }
    }

    /// The suggested fix.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match (self.cause, self.old.is_empty() != self.new.is_empty()) {
            (Cause::Clock, true) => {
                "send the date or time in every prompt or in none, behind everything that stays \
                 the same"
            }
            _ => self.cause.fix(),
        }
    }
}

/// Differences of a prompt from an earlier one, and their cause where that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The differences.
    pub divergence: PromptDivergence,
    /// The cause. Nothing where too little was lost to look for one, or none explains it.
    pub evidence: Option<Evidence>,
}

/// Explains how the prompt `new` differs from the earlier `old`; nothing where one of both begins
/// with the other. `served_words` of the newer prompt's first words, white space among them, were
/// had anyway, from whichever earlier prompt.
///
/// Of the causes the first that explains the first difference is taken: white space, seam, JSON
/// keys, tool order, document order, clock, nonce, thinking, template, trimmed; between prompts of
/// token ids a seam only. Work grows with the prompts' words and is bounded. Both sketches must be
/// by one secret.
#[must_use]
pub fn explain(old: &Sketch, new: &Sketch, served_words: usize) -> Option<Explanation> {
    let aligned = PromptAlignment::new(old, new)?;
    let divergence = aligned.divergence(served_words);
    // Ids say nothing of dates, tools or markup: only that they were joined in another way.
    let is_text = !old.is_of_tokens() && !new.is_of_tokens();
    let evidence = match divergence.is_loss() {
        true if is_text => cause::find(&aligned),
        _ if divergence.lost_words >= JOINT_WORDS => cause::find_joint(&aligned),
        _ => None,
    };
    Some(Explanation { divergence, evidence })
}
