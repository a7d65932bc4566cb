//! One detector per cause. Each looks at two aligned prompts and either names what changed or has
//! nothing to say; the order in which they are asked is the order of precedence.

mod clock;
mod document_order;
mod joint;
mod json_keys;
mod nonce;
mod order;
mod template;
mod thinking;
mod tool_order;
mod trimmed;
mod value;
mod version;
mod white_space;

use std::ops::Range;

use super::divergence::{self, PromptAlignment, Region, bytes_of};
use super::explain::Evidence;
use super::word::Word;
use crate::Cause;

/// Words, without white space, that changed.
struct WordSpans {
    old: Range<usize>,
    new: Range<usize>,
}

type Detector = fn(&PromptAlignment<'_>) -> Option<WordSpans>;

/// In order of precedence. White space has no words; it is asked before these. What only looks
/// like another order is asked last.
const DETECTORS: [(Cause, Detector); 13] = [
    (Cause::Seam, joint::find),
    (Cause::JsonKeys, json_keys::find),
    (Cause::ToolOrder, tool_order::find),
    (Cause::DocumentOrder, document_order::find),
    (Cause::Clock, clock::find),
    (Cause::Nonce, nonce::find),
    (Cause::Thinking, thinking::find),
    (Cause::Template, template::find),
    (Cause::Trimmed, trimmed::find),
    (Cause::ToolOrder, tool_order::find_some),
    (Cause::DocumentOrder, document_order::find_some),
    (Cause::Template, version::find_labels),
    (Cause::Template, version::find_wording),
];

/// Index of the wording detector, the only one of [`Cause::Template`] that names a place.
const WORDING: usize = DETECTORS.len() - 1;

/// The first cause that explains where two prompts part.
pub(super) fn find(aligned: &PromptAlignment<'_>) -> Option<Evidence> {
    if let Some((old, new)) = white_space::find(aligned) {
        return Some(Evidence {
            cause: Cause::WhiteSpace,
            old,
            new,
            place: 0,
            version: 0,
            also: None,
        });
    }
    let mut detectors = DETECTORS.iter().enumerate();
    let found = detectors.find_map(|(number, (cause, detector))| {
        let spans = detector(aligned)?;
        let is_placed = number == WORDING || matches!(cause, Cause::Clock | Cause::Nonce);
        let place = divergence::place(&aligned.new[..spans.new.start]);
        Some(evidence(
            aligned,
            *cause,
            spans,
            if is_placed { place } else { 0 },
        ))
    });
    found.or_else(|| find_before_an_order(aligned))
}

/// Causes of values, with whether they explain changes, and the whole of a changed value.
type Value = (
    Cause,
    fn(&PromptAlignment<'_>, &Region) -> bool,
    fn(&[Word], Range<usize>) -> Range<usize>,
);

const VALUES: [Value; 2] = [
    (Cause::Clock, clock::is_clock, clock::whole),
    (Cause::Nonce, nonce::is_nonce, nonce::whole),
];

/// Most changes of a value in front of another order.
const VALUE_CHANGES: usize = 16;

/// A time or an id right in front of parts in another order: too little agrees between both for
/// the value alone to explain the difference.
fn find_before_an_order(aligned: &PromptAlignment<'_>) -> Option<Evidence> {
    let most = aligned.regions.first()?.changes.end.min(VALUE_CHANGES);
    (1..=most).rev().find_map(|count| {
        let region = Region {
            changes: 0..count,
            agrees: 0,
        };
        let (cause, _, whole) = VALUES.iter().find(|value| value.1(aligned, &region))?;
        let behind = aligned.without_first(count);
        let is_order = |cause: &Cause| {
            let orders = [Cause::JsonKeys, Cause::ToolOrder, Cause::DocumentOrder];
            orders.contains(cause)
        };
        let mut orders = DETECTORS.iter().filter(|(cause, _)| is_order(cause));
        let (also, _) = orders.find(|(_, detector)| detector(&behind).is_some())?;
        let (old, new) = aligned.span(&region);
        let spans = WordSpans {
            old: whole(&aligned.old, old),
            new: whole(&aligned.new, new),
        };
        let place = divergence::place(&aligned.new[..spans.new.start]);
        Some(Evidence {
            also: Some(*also),
            ..evidence(aligned, *cause, spans, place)
        })
    })
}

/// Finds a seam: the only cause reported for small losses and for prompts of token ids.
pub(super) fn find_joint(aligned: &PromptAlignment<'_>) -> Option<Evidence> {
    joint::find(aligned).map(|spans| evidence(aligned, Cause::Seam, spans, 0))
}

/// A value that changes, or a wording, sits in one `place`; the other causes show at a different
/// one each time, and theirs is 0.
fn evidence(aligned: &PromptAlignment<'_>, cause: Cause, spans: WordSpans, place: u64) -> Evidence {
    let came = &aligned.new[spans.new.clone()];
    Evidence {
        cause,
        place,
        version: divergence::hash(came),
        old: bytes_of(&aligned.old, spans.old),
        new: bytes_of(&aligned.new, spans.new),
        also: None,
    }
}

#[cfg(test)]
mod testing;
