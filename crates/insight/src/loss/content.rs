//! Memory of contents seen before, wherever in a prompt they stood.
//!
//! ```text
//! tokens ─► Windows: hashes, anchors ─► Places: where an anchor was seen last ─► Ring: the latest
//!                                                                    texts, a mark for each token
//! ```
//!
//! Every window of [`WINDOW`] tokens has a hash that depends on its tokens alone. Of every
//! [`SPREAD`] in a row one is an *anchor*: equal text has equal anchors, behind whatever prefix. Of
//! an anchor it is remembered where it was seen last, among the latest texts, of which a mark of
//! two bytes per token is kept. From there on, forward and back, marks tell how far the texts
//! agree: so borders are exact, and most anchors of what is known need not be looked up. Marks are
//! of a keyed hash: no token can be told from one, though how often each comes can be counted.
//!
//! Text shorter than a window and a spread together may go unnoticed.
//!
//! Source: matches that are found by the hash of some positions and extended to both sides are
//! those of LZ77 and of rsync (Tridgell 1999); here texts are only compared, and by marks.

mod places;
mod ring;
mod windows;

use headstart_core::TokenId;

use super::key::NameSecret;
use places::Places;
use ring::Ring;
use windows::Windows;

/// Tokens of a window: longer than the markup between two messages.
const WINDOW: usize = 16;

/// Consecutive windows of which at least one is an anchor.
const SPREAD: usize = 32;

/// Tokens in front of a text that are enough for the windows across its border.
pub(super) const REACH: usize = WINDOW + SPREAD;

/// A bounded memory of texts.
#[derive(Clone, Debug)]
pub(super) struct ContentMemory {
    ring: Ring,
    places: Places,
    /// Windows of the current prompt; kept to reuse their memory.
    windows: Windows,
}

/// The parts of a text to remember once it is computed.
#[derive(Clone, Debug, Default)]
pub(super) struct Fresh {
    marks: Vec<u16>,
    /// Windows that are anchors: where in `marks`, and their hashes.
    anchors: Vec<(u32, u64)>,
}

/// A range of known text, and its place in the ring.
#[derive(Clone, Copy)]
struct Match {
    start: usize,
    end: usize,
    /// The place of `start` in the ring.
    place: u64,
}

impl ContentMemory {
    /// Room for the latest `tokens`, or somewhat more, at two bytes and a half each.
    pub(super) fn new(tokens: usize, key: NameSecret) -> Self {
        let ring = Ring::new(tokens.next_power_of_two());
        Self {
            // Winnowing picks about two anchors per row of windows, so this is a place per expected
            // anchor.
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

    /// Calls `visit` with what of `tokens` is known, as ranges in order; gives what
    /// [`ContentMemory::enter`] is to be told when they are computed.
    pub(super) fn look(
        &mut self,
        tokens: &[TokenId],
        visit: &mut dyn FnMut(usize, usize),
    ) -> Fresh {
        self.windows.read(tokens);
        let hashes = self.windows.anchors().map(|(_, hash)| hash);
        // Anchors lie all over the table; fetched one by one, each would wait for memory.
        self.places.fetch(hashes);
        let mut fresh = Fresh::default();
        // Up to where it is known, and remembered well enough.
        let (mut known, mut kept) = (0, 0);
        for (start, hash) in self.windows.anchors() {
            // The marks already covered this window: no look-up is needed.
            if start + WINDOW <= known {
                continue;
            }
            let Some(found) = self.find(start, hash) else {
                continue;
            };
            // Ranges must come in order and apart, and marks may agree backwards into the last one.
            visit(found.start.max(known), found.end);
            known = found.end;
            // What is about to be overwritten is entered once more.
            if !self.ring.is_old(found.place) {
                fresh.add(&self.windows, kept, found.start);
                kept = known;
            }
        }
        fresh.add(&self.windows, kept, tokens.len());
        fresh
    }

    /// Remembers a text.
    pub(super) fn enter(&mut self, fresh: &Fresh) {
        // Places of anchors count from where the text begins, so this is read before the write.
        let base = self.ring.written();
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
        // A tag or an old place matched by chance: then the marks disagree within the window.
        if behind < WINDOW {
            return None;
        }
        let before = self.ring.agree_before(place, &marks[..start]);
        Some(Match { start: start - before, end: start + behind, place: place - before as u64 })
    }
}

impl Fresh {
    /// Adds a part of a text that is not known, and as much around it as windows span.
    fn add(&mut self, windows: &Windows, start: usize, end: usize) {
        if start >= end {
            return;
        }
        let marks = windows.marks();
        // Windows that lie across the border to known text must be found again too.
        let start = start.saturating_sub(WINDOW - 1);
        let end = (end + WINDOW - 1).min(marks.len());
        // A part shorter than a window has no anchor, so nothing could ever find it.
        if end - start < WINDOW {
            return;
        }
        let base = self.marks.len();
        self.marks.extend_from_slice(&marks[start..end]);
        let inside = windows.anchors_in(start, end);
        // `anchors_in` yields starts from `start` on, so the subtraction cannot wrap.
        let anchors = inside.map(|(at, hash)| ((base + at - start) as u32, hash));
        self.anchors.extend(anchors);
    }
}

#[cfg(test)]
mod tests;
