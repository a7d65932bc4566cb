//! One detector per cause. Each looks at two aligned prompts and either names what changed or has
//! nothing to say; the order in which they are asked is the order of precedence.

mod clock;
mod document_order;
mod json_keys;
mod nonce;
mod order;
mod template;
mod thinking;
mod tool_order;
mod trimmed;
mod value;
mod white_space;

use std::ops::Range;

use super::divergence::{self, Aligned, bytes_of};
use super::explain::Evidence;
use crate::Cause;

/// Words, without white space, that changed.
struct Spans {
    old: Range<usize>,
    new: Range<usize>,
}

type Detector = fn(&Aligned<'_>) -> Option<Spans>;

/// In order of precedence. White space has no words; it is asked before these. What only looks
/// like another order is asked last.
const DETECTORS: [(Cause, Detector); 10] = [
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
];

/// The first cause that explains where two prompts part.
pub(super) fn find(aligned: &Aligned<'_>) -> Option<Evidence> {
    if let Some((old, new)) = white_space::find(aligned) {
        return Some(Evidence {
            cause: Cause::WhiteSpace,
            old,
            new,
            place: 0,
        });
    }
    DETECTORS.iter().find_map(|(cause, detector)| {
        let spans = detector(aligned)?;
        Some(Evidence {
            cause: *cause,
            place: place(*cause, aligned, spans.new.start),
            old: bytes_of(&aligned.old, spans.old),
            new: bytes_of(&aligned.new, spans.new),
        })
    })
}

/// A value that changes sits in one place; the other causes show at a different one each time.
fn place(cause: Cause, aligned: &Aligned<'_>, at: usize) -> u64 {
    if !matches!(cause, Cause::Clock | Cause::Nonce) {
        return 0;
    }
    divergence::place(&aligned.new[..at])
}

#[cfg(test)]
mod testing;
