//! The cause of one pair of prompts that part: a kind of word, or a place in the prompt's form.
//! `analyze`, `lint` and `why` all ask here, so that they name the same.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use headstart_insight::Cause;
use headstart_insight::text::{Evidence, Explanation, PromptDivergence, Sketch, explain};

use crate::structure::{ChangeForm, ChangePlace, holds_message_start, slice};

/// Words of the last requests of conversations, which are kept beside the neighbours: some 100 MB.
const SESSION_WORDS_MAX: usize = 4 << 20;

/// A change with its place in the form of the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacedChange {
    pub(crate) place: ChangePlace,
    pub(crate) old: Range<usize>,
    pub(crate) new: Range<usize>,
}

/// The place of a change, with its bytes, where it says more than the kind of word: nothing has a
/// name, or only that the wording or the order is another one, or that text went which is no whole
/// message. `is_same` says whether both prompts are of one conversation; `None` if that is unknown.
pub(crate) fn placed_change(
    texts: (&str, &str),
    divergence: &PromptDivergence,
    evidence: Option<&Evidence>,
    is_same: Option<bool>,
) -> Option<PlacedChange> {
    let (old, new) = texts;
    let change = divergence.changes.first()?;
    let spans = (change.old.clone(), change.new.clone());
    // Another conversation has another history, which no one rewrote.
    let is_same = is_same.unwrap_or(divergence.kept_words * 4 >= divergence.rest_words * 3);
    let any_place = || ChangePlace::of(old, new, &spans);
    let place = || any_place().filter(|place| place.form != ChangeForm::History || is_same);
    let same = same_content(texts, divergence, evidence);
    let found = same.or_else(|| match evidence {
        None if divergence.is_loss() => place(),
        Some(evidence) if evidence.cause == Cause::Template && evidence.place != 0 => place(),
        Some(evidence) if evidence.cause == Cause::Trimmed => any_place().filter(|place| {
            let is_message = place.form == ChangeForm::SystemMessage;
            // Whole messages that went are a history cut off, which is the cause itself.
            let mut changes = divergence.changes.iter();
            let is_within = !changes.any(|change| holds_message_start(slice(old, &change.old)));
            let is_rewritten = place.form == ChangeForm::History && !place.detail.is_empty();
            is_message || (is_rewritten && is_within)
        }),
        Some(evidence) if evidence.cause == Cause::ToolOrder => {
            any_place().filter(|place| place.form == ChangeForm::ToolDefinition)
        }
        Some(evidence) if evidence.cause == Cause::DocumentOrder => {
            // No documents stand in an answer.
            place().filter(|place| {
                let is_history = place.form == ChangeForm::History;
                place.is_other_writing() || (is_history && place.role == "assistant")
            })
        }
        Some(evidence) if matches!(evidence.cause, Cause::Template | Cause::Seam) => {
            place().filter(ChangePlace::is_other_writing)
        }
        _ => None,
    });
    found.map(|place| PlacedChange { place, old: spans.0, new: spans.1 })
}

/// Whether the kind of word may be the cause: no history is cut between two conversations, and
/// what a user wrote is no wording of instructions.
pub(crate) fn is_plausible(
    texts: (&str, &str),
    evidence: &Evidence,
    is_same: Option<bool>,
) -> bool {
    match evidence.cause {
        Cause::Trimmed => is_same != Some(false),
        Cause::Template if evidence.place != 0 => {
            let spans = (evidence.old.clone(), evidence.new.clone());
            let place = ChangePlace::of(texts.0, texts.1, &spans);
            place.is_some_and(|place| place.form != ChangeForm::History)
        }
        _ => true,
    }
}

/// A change that leaves the content as it is, where the kind of word says less.
fn same_content(
    texts: (&str, &str),
    divergence: &PromptDivergence,
    evidence: Option<&Evidence>,
) -> Option<ChangePlace> {
    let cause = evidence.map(|evidence| evidence.cause);
    let is_asked = match cause {
        None => divergence.is_loss(),
        Some(
            Cause::Nonce
            | Cause::Clock
            | Cause::Template
            | Cause::Trimmed
            | Cause::DocumentOrder
            | Cause::Seam,
        ) => true,
        Some(_) => false,
    };
    if !is_asked {
        return None;
    }
    let place = ChangePlace::of_same_content(texts.0, texts.1, &divergence.changes)?;
    // A time or an id that changed is no matter of order or characters.
    let is_value = matches!(cause, Some(Cause::Nonce | Cause::Clock));
    (!is_value || place.is_name_of_content()).then_some(place)
}

/// The last request of each conversation: what it is compared with if no other one explains more.
pub(crate) struct LastOfSessions<K, N> {
    last: HashMap<K, (N, Sketch)>,
    words: usize,
}

impl<K, N> Default for LastOfSessions<K, N> {
    fn default() -> Self {
        Self { last: HashMap::new(), words: 0 }
    }
}

impl<K: Eq + Hash, N: Clone> LastOfSessions<K, N> {
    /// The better one of the `nearest` earlier prompt and the one before in the conversation, each
    /// with the explanation of the difference.
    pub(crate) fn better(
        &self,
        session: Option<&K>,
        sketch: &Sketch,
        served_words: usize,
        nearest: Option<(N, Explanation)>,
    ) -> Option<(N, Explanation)> {
        // A cut or another order between two conversations may be chance.
        let is_weak =
            |cause| matches!(cause, Cause::Trimmed | Cause::DocumentOrder | Cause::Template);
        let evidence = nearest.as_ref().and_then(|near| near.1.evidence.as_ref());
        let is_named = evidence.is_some_and(|evidence| !is_weak(evidence.cause));
        let session = session.filter(|_| !is_named);
        let before = session.and_then(|session| self.last.get(session));
        let before = before
            .and_then(|(old, before)| Some((old.clone(), explain(before, sketch, served_words)?)));
        // The request before in its conversation, where that one would have saved more.
        let lost = |found: &(N, Explanation)| found.1.divergence.lost_words;
        let better = before.filter(|before| lost(before) > nearest.as_ref().map_or(0, lost));
        better.or(nearest)
    }

    /// Whether a request of this conversation is remembered.
    pub(crate) fn contains(&self, session: &K) -> bool {
        self.last.contains_key(session)
    }

    pub(crate) fn insert(&mut self, session: K, name: N, sketch: Sketch) {
        self.words += sketch.words().len();
        if let Some((_, before)) = self.last.insert(session, (name, sketch)) {
            self.words -= before.words().len();
        }
        // At the limit it starts over.
        if self.words > SESSION_WORDS_MAX {
            *self = Self::default();
        }
    }
}
