//! The causes that make two prompts diverge that could have shared more, and a detector for each.
//!
//! Each cause is a mistake that users of serving systems reported again and again, with a fix that
//! is theirs to make. Reports, JSON and the dashboard use the same name for it. A detector looks at
//! two aligned prompts and names what changed, or nothing. Their order is their precedence.

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

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::divergence::{self, PromptAlignment, Region, bytes_of};
use super::explain::Evidence;
use super::word::Word;

/// Why two prompts that agree in most of their text part early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A date or a time of day that moves on.
    Clock,
    /// A request id, a random number, a signature: new with every request.
    Nonce,
    /// The same tools in another order.
    ToolOrder,
    /// The same JSON object with its keys in another order.
    JsonKeys,
    /// Spaces, line ends or indentation, and nothing else.
    WhiteSpace,
    /// A thinking block that an earlier prompt or answer had, dropped or rewritten.
    Thinking,
    /// The same text in other tokens, or a marker more or less at a joint: an answer that was
    /// tokenized again, parts that were put together otherwise.
    Seam,
    /// The same documents in another order.
    DocumentOrder,
    /// The same messages in other markup, or instructions in other words: another template, or
    /// another version of it.
    Template,
    /// The front of a history cut off to make it fit.
    Trimmed,
}

/// Each cause with its name, its kind of text and its title, and the fix; in the order of
/// [`Cause`].
const FACTS: &[(Cause, [&str; 3], &str)] = &[
    (
        Cause::Clock,
        ["clock", "time-like", "a date or time that changes"],
        "move the date or time into the last message, or round it to the day",
    ),
    (
        Cause::Nonce,
        ["nonce", "id-like", "an id that is new with every request"],
        "send the id in a header or in metadata; if it must be in the prompt, put it \
              last",
    ),
    (
        Cause::ToolOrder,
        ["tool-order", "tools", "tools in changing order"],
        "sort the tools by name before each request",
    ),
    (
        Cause::JsonKeys,
        ["json-keys", "JSON", "JSON keys in changing order"],
        "serialize with sorted keys",
    ),
    (
        Cause::WhiteSpace,
        ["white-space", "white space", "white space that changes"],
        "build the prompt from one template, without trimming or padding",
    ),
    (
        Cause::Thinking,
        ["thinking", "thinking", "a thinking block dropped or rewritten"],
        "keep thinking blocks in the history as they were sent, or never send them",
    ),
    (
        Cause::Seam,
        ["seam", "text", "the same text in other tokens at a joint"],
        "join the parts of a prompt in one way; send the answer's token ids back, or \
              let the engine keep its tokens",
    ),
    (
        Cause::DocumentOrder,
        ["document-order", "documents", "documents or sections in changing order"],
        "put documents in a fixed order, for example by their ids",
    ),
    (
        Cause::Template,
        ["template", "markup", "a different prompt template or version of it"],
        "use one version of the template for all requests of a kind; roll a new one \
              out at once",
    ),
    (
        Cause::Trimmed,
        ["trimmed", "messages", "a history with its beginning cut off"],
        "cut more of the history and less often, or summarize it after a fixed \
              beginning",
    ),
];

impl Cause {
    /// All of them.
    pub const ALL: [Self; FACTS.len()] = {
        let mut all = [Self::Clock; FACTS.len()];
        let mut index = 0;
        while index < all.len() {
            all[index] = FACTS[index].0;
            index += 1;
        }
        all
    };

    fn words(self) -> [&'static str; 3] {
        let (cause, words, _) = FACTS[self as usize];
        debug_assert_eq!(cause, self, "FACTS has the order of Cause");
        words
    }

    /// Its name in JSON, metrics and on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.words()[0]
    }

    /// Returns a description that fits as the subject of a sentence.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.words()[2]
    }

    /// Returns the suggested fix.
    #[must_use]
    pub fn fix(self) -> &'static str {
        FACTS[self as usize].2
    }

    /// Returns the kind of text that changes, shown in place of the text.
    #[must_use]
    pub fn kind(self) -> &'static str {
        self.words()[1]
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Cause {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|cause| cause.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no cause {name}; known: {names}")
        })
    }
}

/// Words, without white space, that changed.
struct WordSpans {
    old: Range<usize>,
    new: Range<usize>,
}

/// Extends a range of words to all of the value that it is part of.
type WholeValue = fn(&[Word], Range<usize>) -> Range<usize>;

impl WordSpans {
    /// The spans with all of the value on both sides.
    fn widened(self, aligned: &PromptAlignment<'_>, whole: WholeValue) -> Self {
        Self { old: whole(&aligned.old, self.old), new: whole(&aligned.new, self.new) }
    }
}

type Detector = fn(&PromptAlignment<'_>) -> Option<WordSpans>;

/// A kind of value that changes from request to request.
struct ChangingValue {
    /// Whether a change of the value explains all that changed in a region.
    explains: fn(&PromptAlignment<'_>, &Region) -> bool,
    whole: WholeValue,
}

/// A detector of a cause.
struct DetectorRow {
    cause: Cause,
    find: Detector,
    /// Whether its finding sits in one place of every prompt.
    is_placed: bool,
    value: Option<ChangingValue>,
}

/// In order of precedence. White space has no words; its detector runs before these. Detectors of
/// differences that only look like another order run last.
const DETECTORS: &[DetectorRow] = &[
    anywhere(Cause::Seam, joint::find),
    anywhere(Cause::JsonKeys, json_keys::find),
    anywhere(Cause::ToolOrder, tool_order::find),
    anywhere(Cause::DocumentOrder, document_order::find),
    value(Cause::Clock, clock::find, clock::is_clock, clock::whole),
    value(Cause::Nonce, nonce::find, nonce::is_nonce, nonce::whole),
    anywhere(Cause::Thinking, thinking::find),
    anywhere(Cause::Template, template::find),
    anywhere(Cause::Trimmed, trimmed::find),
    anywhere(Cause::ToolOrder, tool_order::find_some),
    anywhere(Cause::DocumentOrder, document_order::find_some),
    anywhere(Cause::Template, version::find_labels),
    placed(Cause::Template, version::find_wording),
];

const fn anywhere(cause: Cause, find: Detector) -> DetectorRow {
    DetectorRow { cause, find, is_placed: false, value: None }
}

const fn placed(cause: Cause, find: Detector) -> DetectorRow {
    DetectorRow { cause, find, is_placed: true, value: None }
}

/// A row for a value that changes: it also explains changes in front of another value, and in
/// front of parts in another order.
const fn value(
    cause: Cause,
    find: Detector,
    explains: fn(&PromptAlignment<'_>, &Region) -> bool,
    whole: WholeValue,
) -> DetectorRow {
    let value = Some(ChangingValue { explains, whole });
    DetectorRow { cause, find, is_placed: true, value }
}

/// Whether a value that changes explains all that changed in a region.
fn is_changed_value(aligned: &PromptAlignment<'_>, region: &Region) -> bool {
    let mut values = DETECTORS.iter().filter_map(|row| row.value.as_ref());
    values.any(|value| (value.explains)(aligned, region))
}

/// The first cause that explains where two prompts part.
pub(super) fn find(aligned: &PromptAlignment<'_>) -> Option<Evidence> {
    // The detectors see words only, and where only white space changed those are all equal.
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
    let found = DETECTORS.iter().find_map(|row| {
        let spans = (row.find)(aligned)?;
        let place = divergence::place(&aligned.new[..spans.new.start]);
        Some(evidence(aligned, row.cause, spans, if row.is_placed { place } else { 0 }))
    });
    found.or_else(|| find_before_an_order(aligned))
}

/// Most changes of a value in front of another order.
const VALUE_CHANGES: usize = 16;

/// A time or an id right in front of parts in another order: too little agrees between both for
/// the value alone to explain the difference.
fn find_before_an_order(aligned: &PromptAlignment<'_>) -> Option<Evidence> {
    let most = aligned.regions.first()?.changes.end.min(VALUE_CHANGES);
    // The most changes first: a time may change in several words, and all of them must go.
    (1..=most).rev().find_map(|count| {
        let region = Region { changes: 0..count, agrees: 0 };
        let (cause, value) = DETECTORS.iter().find_map(|row| {
            let value = row.value.as_ref()?;
            (value.explains)(aligned, &region).then_some((row.cause, value))
        })?;
        let behind = aligned.without_first(count);
        let is_order = |cause: &Cause| {
            let orders = [Cause::JsonKeys, Cause::ToolOrder, Cause::DocumentOrder];
            orders.contains(cause)
        };
        let mut orders = DETECTORS.iter().filter(|row| is_order(&row.cause));
        let also = orders.find(|row| (row.find)(&behind).is_some())?.cause;
        let (old, new) = aligned.span(&region);
        let spans = WordSpans { old, new }.widened(aligned, value.whole);
        let place = divergence::place(&aligned.new[..spans.new.start]);
        Some(Evidence { also: Some(also), ..evidence(aligned, cause, spans, place) })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_found_by_their_names() {
        for cause in Cause::ALL {
            assert_eq!(cause.name().parse(), Ok(cause));
            assert!(!cause.fix().is_empty() && !cause.title().is_empty());
        }
        let error = "weather".parse::<Cause>().expect_err("no such cause");
        assert!(error.contains("clock, nonce"), "{error}");
    }
}
