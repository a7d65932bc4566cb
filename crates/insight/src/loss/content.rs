//! Which contents were seen before, wherever in a prompt they stood.
//!
//! ```text
//! tokens ─► Windows: hashes, anchors ─► Places: where an anchor was seen last ─► Ring: the latest
//!                                                                    texts, a mark for each token
//! ```
//!
//! Every window of [`WINDOW`] tokens has a hash that depends on its tokens alone. Of every
//! [`SPREAD`] in a row one is an *anchor*: equal text has equal anchors, behind whatever prefix. Of
//! an anchor it is remembered where it was seen last, among the latest texts, of which a mark of one
//! byte per token is kept. From there on, forward and back, marks tell how far the texts agree: so
//! borders are exact, and most anchors of what is known need not be looked up. Marks are of a keyed
//! hash: no token can be told from one.
//!
//! Known text that stands at the very front of a prompt, as it did before, can only be new here
//! because its namespace is another one, or because the memory of blocks has forgotten it.
//!
//! Text shorter than a window and a spread together may go unnoticed, unless it is a prompt's front.
//!
//! Source: matches that are found by the hash of some positions and extended to both sides are
//! those of LZ77 and of rsync (Tridgell 1999); here texts are only compared, and by marks.

mod places;
mod ring;
mod windows;

use headstart_core::TokenId;

use super::key::Key;
use places::Places;
use ring::{Part, Ring};
use windows::Windows;

/// Tokens of a window: longer than the markup between two messages.
const WINDOW: usize = 16;

/// Of so many windows in a row at least one is an anchor.
const SPREAD: usize = 32;

/// So many tokens in front of a text are enough for windows that span its border.
pub(super) const REACH: usize = WINDOW + SPREAD;

/// A bounded memory of texts.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    ring: Ring,
    places: Places,
    /// Of the prompt at hand; kept for its memory.
    windows: Windows,
}

/// Part of a prompt, to be looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    pub(super) tokens: &'a [TokenId],
    /// Where in its prompt it begins.
    pub(super) offset: usize,
    /// That of the prompt.
    pub(super) namespace: u32,
}

/// Tokens of a text that are known, and to what end they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The namespace of a prompt that had all up to the end in the same places.
    pub(super) front_of: Option<u32>,
}

/// What is to be remembered of a text when it is computed.
#[derive(Clone, Debug, Default)]
pub(super) struct Fresh {
    marks: Vec<u8>,
    /// Where each part begins: in `marks`, and in the prompt.
    parts: Vec<(u32, u32)>,
    /// Windows that are anchors: where in `marks`, and their hashes.
    anchors: Vec<(u32, u64)>,
    namespace: u32,
}

/// Where known text was found.
#[derive(Clone, Copy)]
struct Match {
    start: usize,
    end: usize,
    /// The place of `start` in the ring, and that of the window by which it was found.
    place: u64,
    window: u64,
}

impl Contents {
    /// Room for the latest `tokens`, or somewhat more, at a byte and a half each.
    pub(super) fn new(tokens: usize, key: Key) -> Self {
        let ring = Ring::new(tokens.next_power_of_two());
        Self {
            places: Places::new(ring.capacity() / (SPREAD / 2)),
            windows: Windows::new(key),
            ring,
        }
    }

    /// Tokens entered, and those that had to go for others.
    pub(super) fn counts(&self) -> (u64, u64) {
        let written = self.ring.written();
        (written, written.saturating_sub(self.capacity() as u64))
    }

    /// Tokens that there is room for.
    pub(super) fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Calls `visit` with what of a text is known, as ranges in order; gives what
    /// [`Contents::enter`] is to be told when it is computed.
    pub(super) fn look(&mut self, text: Text<'_>, visit: &mut dyn FnMut(Known)) -> Fresh {
        self.windows.read(text.tokens, text.offset == 0);
        self.places.fetch(self.windows.anchors().map(|(_, hash)| hash));
        let mut fresh = Fresh {
            namespace: text.namespace,
            ..Fresh::default()
        };
        // Up to where all is known, is remembered well enough, is a prompt's front.
        let (mut known, mut kept, mut front) = (0, 0, 0);
        for (start, hash) in self.windows.anchors() {
            if start + WINDOW <= known {
                continue;
            }
            let Some(found) = self.find(start, hash) else {
                continue;
            };
            let front_of = self.front(&text, &found, front);
            if front_of.is_some() {
                front = found.end;
            }
            visit(Known {
                start: found.start.max(known),
                end: found.end,
                front_of,
            });
            known = found.end;
            // What is about to be overwritten is entered once more.
            if !self.ring.is_old(found.place) {
                fresh.add(&self.windows, (kept, found.start), text.offset);
                kept = known;
            }
        }
        fresh.add(&self.windows, (kept, text.tokens.len()), text.offset);
        fresh
    }

    /// Remembers a text.
    pub(super) fn enter(&mut self, fresh: &Fresh) {
        let base = self.ring.written();
        for &(at, offset) in &fresh.parts {
            self.ring.begin(Part {
                place: base + u64::from(at),
                offset,
                namespace: fresh.namespace,
            });
        }
        self.ring.write(&fresh.marks);
        self.places.fetch(fresh.anchors.iter().map(|anchor| anchor.1));
        for &(at, hash) in &fresh.anchors {
            let place = base + u64::from(at);
            self.places.enter(hash, place as u32, base as u32);
        }
    }

    /// The known text around a window.
    fn find(&self, start: usize, hash: u64) -> Option<Match> {
        let place = self.ring.place(self.places.find(hash)?)?;
        let marks = self.windows.marks();
        let behind = self.ring.agree_from(place, &marks[start..]);
        if behind < WINDOW {
            return None;
        }
        let before = self.ring.agree_before(place, &marks[..start]);
        Some(Match {
            start: start - before,
            end: start + behind,
            place: place - before as u64,
            window: place,
        })
    }

    /// Whose front this is, if all in front of it is one up to `front`.
    fn front(&self, text: &Text<'_>, found: &Match, front: usize) -> Option<u32> {
        let part = self.ring.part(found.window)?;
        let here = (text.offset + found.start) as i64 - found.place as i64;
        let there = i64::from(part.offset) - part.place as i64;
        // By chance it may reach back before its part.
        let is_whole = found.start == 0 || found.place <= part.place && found.start <= front;
        (here == there && is_whole).then_some(part.namespace)
    }
}

impl Fresh {
    /// Adds a part of a text that is not known, and as much around it as windows span.
    fn add(&mut self, windows: &Windows, (start, end): (usize, usize), offset: usize) {
        if start >= end {
            return;
        }
        let marks = windows.marks();
        let start = start.saturating_sub(WINDOW - 1);
        let end = (end + WINDOW - 1).min(marks.len());
        if end - start < WINDOW {
            return;
        }
        let base = self.marks.len();
        self.parts.push((base as u32, (offset + start) as u32));
        self.marks.extend_from_slice(&marks[start..end]);
        let inside = windows.anchors_in(start, end);
        let anchors = inside.map(|(at, hash)| ((base + at - start) as u32, hash));
        self.anchors.extend(anchors);
    }
}

#[cfg(test)]
mod tests;
