//! The blocks that LRU would keep: the most recently used ones, up to the cache's size.
//!
//! A request's blocks are used together, and LRU evicts a request's tail first. So it keeps all
//! that is left of the youngest pieces, evicted or not, and the front of one older piece, the
//! boundary.
//! Uses move blocks from older pieces to a new one, so the boundary only moves towards younger
//! pieces, and the blocks that LRU would have found are counted without a second directory.
//!
//! Source: the inclusion property of LRU (Mattson et al., "Evaluation techniques for storage
//! hierarchies", 1970), for pieces instead of blocks.

/// The blocks that LRU would keep.
#[derive(Debug)]
pub(super) struct LruWindow {
    capacity: u64,
    /// The oldest piece that LRU keeps some of; `None` while it keeps everything.
    boundary: Option<Boundary>,
    /// Blocks of all younger pieces.
    younger: u64,
}

/// The oldest piece that LRU keeps some of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Boundary {
    /// Its place; `None` when it has ended and no younger one was there.
    pub(super) place: Option<u32>,
    /// Its number, which those of younger pieces exceed.
    pub(super) number: u32,
}

impl LruWindow {
    /// For a cache of `capacity` blocks.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity as u64, boundary: None, younger: 0 }
    }

    pub(super) fn boundary(&self) -> Option<Boundary> {
        self.boundary
    }

    /// Blocks of the boundary piece that LRU keeps, or more than it has.
    pub(super) fn kept_of_boundary(&self) -> u64 {
        self.capacity.saturating_sub(self.younger)
    }

    /// A piece that is younger than the boundary has grown, or shrunk.
    pub(super) fn changed(&mut self, before: u64, after: u64) {
        self.younger = (self.younger + after).saturating_sub(before);
    }

    /// Whether nothing of the boundary piece is kept any more.
    pub(super) fn is_past_boundary(&self) -> bool {
        let has_ended = self.boundary.is_some_and(|boundary| boundary.place.is_none());
        self.younger >= self.capacity || has_ended
    }

    /// The boundary has ended, and was the youngest piece: LRU keeps nothing of what is there.
    pub(super) fn end(&mut self) {
        if let Some(boundary) = &mut self.boundary {
            boundary.place = None;
        }
    }

    /// The boundary moves to the next younger piece, which has `blocks` left.
    pub(super) fn move_to(&mut self, place: u32, number: u32, blocks: u64) {
        self.boundary = Some(Boundary { place: Some(place), number });
        self.younger = self.younger.saturating_sub(blocks);
    }
}
