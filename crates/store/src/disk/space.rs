//! Segments by state (free, open or sealed), the wanted pages of each, and the choice of the one
//! that makes room next. Pure: pages and numbers, no files.
//!
//! A sealed segment of which nothing is wanted is free at once. Otherwise the one is *cleaned*
//! whose wanted records cost least to move for what that gives: `(1 - u) · age / (1 + u)`, `u`
//! its wanted share and its age in segments. Where all are nearly full of wanted records, moving
//! gives nothing, and the oldest is *dropped*.
//!
//! Source: Rosenblum and Ousterhout, "The design and implementation of a log-structured file
//! system", SOSP'91, section 3.5. Unlike there, what is moved goes to where new records go.

/// Above this wanted share a segment is not worth moving: that would write three times what it
/// frees, and with tables and footers more.
const MOST_WANTED: f64 = 0.75;

/// Hundredths of all segments that can be wanted without anything being given up, as long as what
/// is removed is spread evenly at worst: cleaning finds segments emptier than the average
/// (Rosenblum and Ousterhout's figure 4).
pub(crate) const FILL_PERCENT: usize = 75;

/// A segment's number within its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SegmentId(pub(crate) u32);

impl SegmentId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Usage of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentUsage {
    /// Nothing: its file does not exist, or what it holds is not wanted.
    Free,
    /// Records are being added, or soon will be.
    Open,
    /// It is complete.
    Sealed,
}

/// Usage of a segment, its present life and its readers.
#[derive(Clone, Copy, Debug)]
struct SegmentState {
    usage: SegmentUsage,
    /// Number of its present life; higher is younger.
    sequence: u64,
    /// Pages of records that are wanted.
    live: u32,
    /// Reads and moves under way: its pages must not be written meanwhile.
    readers: u32,
    /// Its file cannot be made for now.
    is_barred: bool,
}

impl SegmentState {
    fn is_free(&self) -> bool {
        // To reuse pages under a reader would give it the bytes of another record.
        self.usage == SegmentUsage::Free && self.readers == 0 && !self.is_barred
    }
}

/// Way to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Make {
    /// By moving what is wanted of this one.
    Clean(SegmentId),
    /// By giving up what this one holds.
    Drop(SegmentId),
}

/// All segments of a folder.
#[derive(Debug)]
pub(crate) struct SegmentSpace {
    segments: Vec<SegmentState>,
    /// Pages of a segment that records can use, headers aside.
    pages: u32,
    next_sequence: u64,
}

impl SegmentSpace {
    /// `count` free segments of `pages` pages.
    pub(crate) fn new(count: usize, pages: u32) -> Self {
        let free = SegmentState {
            usage: SegmentUsage::Free,
            sequence: 0,
            live: 0,
            readers: 0,
            is_barred: false,
        };
        Self { segments: vec![free; count], pages, next_sequence: 1 }
    }

    /// A segment was found with this sequence number and `live` wanted pages.
    pub(crate) fn found(&mut self, id: SegmentId, sequence: u64, live: u32) {
        // Sequence numbers are below 2^63 (`SEQUENCES`), so the sum does not overflow.
        self.next_sequence = self.next_sequence.max(sequence + 1);
        let segment = &mut self.segments[id.index()];
        // Recovery calls this twice: with 0 for each file, then with the pages that are wanted.
        segment.usage = if live > 0 { SegmentUsage::Sealed } else { SegmentUsage::Free };
        segment.sequence = sequence;
        segment.live = live;
    }

    /// Segments that nothing is written to or wanted of.
    pub(crate) fn num_free(&self) -> usize {
        let is_free = |segment: &&SegmentState| segment.is_free();
        self.segments.iter().filter(is_free).count()
    }

    /// Segments that will be free as soon as what is read of them was read.
    pub(crate) fn num_leaving(&self) -> usize {
        let is_leaving =
            |segment: &&SegmentState| segment.usage == SegmentUsage::Free && segment.readers > 0;
        self.segments.iter().filter(is_leaving).count()
    }

    /// There is no file for a free segment.
    pub(crate) fn unmake(&mut self, id: SegmentId) {
        // Lives are counted from 1, so 0 marks a segment without a file.
        self.segments[id.index()].sequence = 0;
    }

    /// No more files can be made for now: the disk is smaller than the budget.
    pub(crate) fn bar_unmade(&mut self) {
        let is_unmade = |segment: &&mut SegmentState| {
            segment.usage == SegmentUsage::Free && segment.sequence == 0
        };
        let unmade = self.segments.iter_mut().filter(is_unmade);
        unmade.for_each(|segment| segment.is_barred = true);
    }

    /// It may be tried again.
    pub(crate) fn unbar(&mut self) {
        let segments = self.segments.iter_mut();
        segments.for_each(|segment| segment.is_barred = false);
    }

    /// Whether there is a segment with which one can go on, without any new file.
    pub(crate) fn can_go_on(&self) -> bool {
        let is_made = |segment: &SegmentState| segment.is_free() && segment.sequence > 0;
        let is_useful =
            |segment: &SegmentState| segment.usage == SegmentUsage::Sealed || is_made(segment);
        self.segments.iter().any(is_useful) || self.num_leaving() > 0
    }

    /// Opens a free segment; its new sequence number beside it. Used ones first, because their
    /// files exist.
    pub(crate) fn open(&mut self) -> Option<(SegmentId, u64)> {
        let free = (0..self.segments.len()).filter(|&index| self.segments[index].is_free());
        // Among equals the lowest number: a later start with a smaller
        // budget deletes the highest.
        let index =
            free.max_by_key(|&index| (self.segments[index].sequence > 0, usize::MAX - index))?;
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let segment = &mut self.segments[index];
        segment.usage = SegmentUsage::Open;
        segment.sequence = sequence;
        Some((SegmentId(index as u32), sequence))
    }

    /// Nothing more is added to it.
    pub(crate) fn seal(&mut self, id: SegmentId) {
        let segment = &mut self.segments[id.index()];
        assert_eq!(segment.usage, SegmentUsage::Open, "only an open segment is sealed");
        segment.usage = if segment.live > 0 { SegmentUsage::Sealed } else { SegmentUsage::Free };
    }

    /// Adds `pages` to its wanted pages.
    pub(crate) fn add_live(&mut self, id: SegmentId, pages: u32) {
        self.segments[id.index()].live += pages;
    }

    /// Subtracts `pages` from its wanted pages; a sealed segment without any becomes free.
    pub(crate) fn remove_live(&mut self, id: SegmentId, pages: u32) {
        let segment = &mut self.segments[id.index()];
        // `add_live` or `found` counted the same pages before, so this does not go below zero.
        segment.live -= pages;
        // An open segment without live pages stays open, because groups may still be added.
        if segment.live == 0 && segment.usage == SegmentUsage::Sealed {
            segment.usage = SegmentUsage::Free;
        }
    }

    /// A read or move of its pages began.
    pub(crate) fn add_reader(&mut self, id: SegmentId) {
        self.segments[id.index()].readers += 1;
    }

    /// It ended.
    pub(crate) fn remove_reader(&mut self, id: SegmentId) {
        let readers = &mut self.segments[id.index()].readers;
        *readers = readers.checked_sub(1).expect("each reader leaves once");
    }

    /// Whether anything is read or written now.
    #[cfg(test)]
    pub(crate) fn has_readers(&self) -> bool {
        self.segments.iter().any(|segment| segment.readers > 0)
    }

    /// Chooses a way to free another segment; `None` if none is sealed. `is_futile`: cleaning has
    /// made no room, because large records leave the ends of segments empty.
    pub(crate) fn make_room(&self, is_futile: bool) -> Option<Make> {
        let sealed = (0..self.segments.len() as u32)
            .map(SegmentId)
            .filter(|id| self.segments[id.index()].usage == SegmentUsage::Sealed);
        let best =
            sealed.clone().max_by(|&one, &other| self.worth(one).total_cmp(&self.worth(other)))?;
        if self.wanted(best) <= MOST_WANTED && !is_futile {
            return Some(Make::Clean(best));
        }
        let oldest = sealed.min_by_key(|id| self.segments[id.index()].sequence)?;
        Some(Make::Drop(oldest))
    }

    /// Wanted pages of it.
    pub(crate) fn live(&self, id: SegmentId) -> u32 {
        self.segments[id.index()].live
    }

    /// Wanted pages of all.
    pub(crate) fn all_live(&self) -> u64 {
        let live = self.segments.iter().map(|segment| u64::from(segment.live));
        live.sum()
    }

    /// Returns the number of segments.
    pub(crate) fn count(&self) -> usize {
        self.segments.len()
    }

    /// The last sequence number given, and the lowest one of a segment whose file may be there.
    pub(crate) fn sequences(&self) -> (u64, u64) {
        let sequences = self.segments.iter().map(|segment| segment.sequence);
        let oldest = sequences.filter(|&sequence| sequence > 0).min();
        let last = self.next_sequence - 1;
        // Without any file no noted purge is needed, and `note_purge` drops all of them.
        (last, oldest.unwrap_or(self.next_sequence))
    }

    /// Returns the state of a segment.
    #[cfg(test)]
    pub(crate) fn usage(&self, id: SegmentId) -> SegmentUsage {
        self.segments[id.index()].usage
    }

    /// Number of the present life of a segment.
    pub(crate) fn sequence(&self, id: SegmentId) -> u64 {
        self.segments[id.index()].sequence
    }

    fn wanted(&self, id: SegmentId) -> f64 {
        f64::from(self.live(id)) / f64::from(self.pages)
    }

    fn worth(&self, id: SegmentId) -> f64 {
        // Only sealed segments are compared. Their numbers are below `next_sequence`; that of a
        // blocked segment is not.
        let age = self.next_sequence - self.segments[id.index()].sequence;
        let wanted = self.wanted(id);
        (1.0 - wanted) * age as f64 / (1.0 + wanted)
    }

    /// Numbers up to this one were used before: no segment gets them again.
    pub(crate) fn skip_to(&mut self, sequence: u64) {
        self.next_sequence = self.next_sequence.max(sequence + 1);
    }

    /// Something that is no segment is in its place: it is never free, and never sealed.
    pub(crate) fn block(&mut self, id: SegmentId) {
        let segment = &mut self.segments[id.index()];
        segment.usage = SegmentUsage::Open;
        // Holds nothing, and is not the oldest that does.
        segment.sequence = u64::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns three sealed segments of 100 pages with `live` wanted ones.
    fn sealed(live: [u32; 3]) -> SegmentSpace {
        let mut space = SegmentSpace::new(3, 100);
        for pages in live {
            let (id, _) = space.open().expect("a free one");
            space.add_live(id, pages);
            space.seal(id);
        }
        space
    }

    #[test]
    fn what_nobody_wants_is_free_but_not_while_it_is_read() {
        let mut space = sealed([50, 50, 50]);
        assert_eq!((space.num_free(), space.open()), (0, None));
        let id = SegmentId(1);
        space.add_reader(id);
        space.remove_live(id, 50);
        assert_eq!((space.usage(id), space.num_free()), (SegmentUsage::Free, 0));
        space.remove_reader(id);
        assert_eq!(space.open(), Some((id, 4)), "a life of its own");
    }

    #[test]
    fn the_emptier_and_the_older_are_cleaned_first() {
        assert_eq!(sealed([70, 20, 70]).make_room(false), Some(Make::Clean(SegmentId(1))));
        assert_eq!(sealed([50, 50, 50]).make_room(false), Some(Make::Clean(SegmentId(0))));
        assert_eq!(
            sealed([99, 99, 74]).make_room(false),
            Some(Make::Clean(SegmentId(2))),
            "only what gives something"
        );
        assert_eq!(sealed([99, 80, 99]).make_room(false), Some(Make::Drop(SegmentId(0))));
        assert_eq!(SegmentSpace::new(3, 100).make_room(false), None);
        let drop = Some(Make::Drop(SegmentId(0)));
        assert_eq!(sealed([50, 20, 50]).make_room(true), drop, "in vain");
    }

    #[test]
    fn found_segments_are_older_than_new_ones() {
        let mut space = SegmentSpace::new(3, 100);
        space.found(SegmentId(2), 9, 10);
        space.found(SegmentId(0), 4, 0);
        assert_eq!(space.open(), Some((SegmentId(0), 10)), "its file exists");
        assert_eq!(space.open(), Some((SegmentId(1), 11)));
        assert_eq!(space.all_live(), 10);
    }
}
