//! Shared parts of the detectors of changing values: the regions that a kind of value explains, and
//! the agreement behind them before another difference.

use std::ops::Range;

use super::{WordSpans, is_changed_value};
use crate::text::divergence::{LOSS_WORDS, PromptAlignment, Region};
use crate::text::word::Word;

/// The words of the first region, if `explains` it and enough agrees behind it, over further
/// regions of changed values.
pub(super) fn first(
    aligned: &PromptAlignment<'_>,
    explains: impl Fn(&PromptAlignment<'_>, &Region) -> bool,
) -> Option<WordSpans> {
    let region = aligned.regions.first().filter(|region| explains(aligned, region))?;
    let mut agrees = region.agrees;
    for next in &aligned.regions[1..] {
        // Agreement adds up over further values, or two dates close together would hide each other.
        if agrees >= LOSS_WORDS || !is_changed_value(aligned, next) {
            break;
        }
        agrees += next.agrees;
    }
    let (old, new) = aligned.span(region);
    (agrees >= LOSS_WORDS).then_some(WordSpans { old, new })
}

/// Whether `is_it` of every changed word of a region, on both sides. Each is asked with its side's
/// words and its index there.
pub(super) fn all_changed(
    aligned: &PromptAlignment<'_>,
    region: &Region,
    is_it: impl Fn(&[Word], usize) -> bool,
) -> bool {
    let changes = &aligned.changes[region.changes.clone()];
    let holds = |words: &[Word], range: &Range<usize>| range.clone().all(|at| is_it(words, at));
    changes
        .iter()
        .all(|change| holds(&aligned.old, &change.old) && holds(&aligned.new, &change.new))
}

/// Whether `is_it` of some changed word of each side that has any.
pub(super) fn some_changed(
    aligned: &PromptAlignment<'_>,
    region: &Region,
    is_it: impl Fn(&[Word], usize) -> bool,
) -> bool {
    let changes = &aligned.changes[region.changes.clone()];
    let old = changes.iter().flat_map(|change| change.old.clone());
    let new = changes.iter().flat_map(|change| change.new.clone());
    let (old, new): (Vec<usize>, Vec<usize>) = (old.collect(), new.collect());
    let holds = |words: &[Word], places: &[usize]| {
        places.is_empty() || places.iter().any(|at| is_it(words, *at))
    };
    holds(&aligned.old, &old) && holds(&aligned.new, &new)
}
