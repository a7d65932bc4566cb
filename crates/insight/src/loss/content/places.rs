//! The latest place of each anchor.

use std::hint::black_box;

/// Places of a line of memory.
const WAYS: usize = 8;

/// A bounded map from anchors to places in the ring, of which the lower half is kept.
#[derive(Clone, Debug)]
pub(super) struct Places {
    lines: Vec<CacheLine>,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct CacheLine([TaggedOffset; WAYS]);

#[derive(Clone, Copy, Debug, Default)]
struct TaggedOffset {
    /// None is 0.
    tag: u32,
    at: u32,
}

impl Places {
    /// Room for `capacity` anchors, or somewhat more.
    pub(super) fn new(capacity: usize) -> Self {
        let lines = capacity.div_ceil(WAYS).next_power_of_two();
        Self { lines: vec![CacheLine::default(); lines] }
    }

    /// Has the lines of anchors come from memory together.
    pub(super) fn fetch(&self, hashes: impl Iterator<Item = u64>) {
        let tags = hashes.map(|hash| self.lines[self.line(hash).0].0[0].tag);
        black_box(tags.fold(0, |sum, tag| sum ^ tag));
    }

    /// Returns the latest place of an anchor.
    pub(super) fn find(&self, hash: u64) -> Option<u32> {
        let (line, tag) = self.line(hash);
        // Two anchors may share a tag. The caller compares the marks, so a wrong place is not a
        // match.
        let mut found = self.lines[line].0.iter().filter(|place| place.tag == tag);
        found.next().map(|place| place.at)
    }

    /// An anchor is seen at `at`; in a full line the one that is the farthest from `now` gives way.
    pub(super) fn enter(&mut self, hash: u64, at: u32, now: u32) {
        let (line, tag) = self.line(hash);
        let places = &mut self.lines[line].0;
        let age = |place: &TaggedOffset| match place.tag {
            // The ranks: the anchor itself first, then a free place, then the place farthest from
            // `now`.
            same if same == tag => u64::MAX,
            0 => u64::from(u32::MAX) + 1,
            _ => u64::from(now.wrapping_sub(place.at)),
        };
        // A line has eight places, so there is always one to overwrite.
        if let Some(oldest) = places.iter_mut().max_by_key(|place| age(place)) {
            *oldest = TaggedOffset { tag, at };
        }
    }

    fn line(&self, hash: u64) -> (usize, u32) {
        // Anchors are least hashes: their uppermost bits are not evenly spread, the others are.
        let line = hash as usize & (self.lines.len() - 1);
        // 0 marks a free place, so no anchor has it as its tag.
        (line, ((hash >> 24) as u32).max(1))
    }
}
