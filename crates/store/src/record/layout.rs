//! Positions of the parts in a record.

use super::header::{PART_BYTES, PARTS_START};
use super::{PAGE, PART_ALIGN};

/// Spacing of the parts of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// As close as may be.
    #[default]
    Dense,
    /// Parts of a page or more begin at pages, so that to read one alone touches no page more than
    /// it has. Costs half a page a part, about.
    Paged,
}

impl Layout {
    /// Bytes of a record whose parts have these lengths.
    #[must_use]
    pub fn record_bytes(self, parts: &[usize]) -> usize {
        let header = header_end(parts.len());
        let last = self.places(parts).last();
        let end = last.map_or(header, |(offset, bytes)| offset + bytes);
        end.next_multiple_of(PAGE)
    }

    /// Bytes that a slot needs for any part of this length, wherever it lies: whole pages are read.
    #[must_use]
    pub fn slot_bytes(self, part_bytes: usize) -> usize {
        // The worst case: a dense part begins at the last aligned place of a page.
        let before = match self.align(part_bytes) {
            PART_ALIGN => PAGE - PART_ALIGN,
            _ => 0,
        };
        (before + part_bytes).next_multiple_of(PAGE)
    }

    /// Offset and length of each part.
    pub(super) fn places(self, parts: &[usize]) -> impl Iterator<Item = (usize, usize)> {
        let mut end = header_end(parts.len());
        parts.iter().map(move |&bytes| {
            let offset = end.next_multiple_of(self.align(bytes));
            end = offset + bytes;
            (offset, bytes)
        })
    }

    fn align(self, part_bytes: usize) -> usize {
        match self {
            // For a shorter part, the gap before it could be longer than the part.
            Self::Paged if part_bytes >= PAGE => PAGE,
            Self::Dense | Self::Paged => PART_ALIGN,
        }
    }
}

fn header_end(num_parts: usize) -> usize {
    PARTS_START + num_parts * PART_BYTES + 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paged_parts_touch_no_page_more_than_they_have() {
        let parts = [100, PAGE, 64, 3 * PAGE, PAGE + 1, 0, 5000];
        let mut end = 0;
        for (offset, bytes) in Layout::Paged.places(&parts) {
            assert!(offset >= end && offset.is_multiple_of(PART_ALIGN));
            assert!(bytes < PAGE || offset.is_multiple_of(PAGE));
            end = offset + bytes;
        }
        assert_eq!(Layout::Paged.record_bytes(&parts), 10 * PAGE);
        assert_eq!(Layout::Paged.slot_bytes(3 * PAGE), 3 * PAGE);
        assert_eq!(Layout::Dense.slot_bytes(3 * PAGE), 4 * PAGE);
    }

    /// Existing records keep their layout.
    #[test]
    fn dense_records_are_as_long_as_ever() {
        for (parts, bytes) in [
            (&[][..], PAGE),
            (&[1, 0, 4096, 65, 64], 2 * PAGE),
            (&[PAGE; 3], 4 * PAGE),
            (&[4096 - 128], PAGE),
            (&[4096 - 127], 2 * PAGE),
        ] {
            assert_eq!(Layout::Dense.record_bytes(parts), bytes, "{parts:?}");
        }
    }

    #[test]
    fn any_part_has_room_in_its_slot() {
        for layout in [Layout::Dense, Layout::Paged] {
            for first in (0..3 * PAGE).step_by(61) {
                let parts = [first, first / 2, 1, first + 7];
                for (offset, bytes) in layout.places(&parts) {
                    let first = offset / PAGE * PAGE;
                    let pages = (offset + bytes).next_multiple_of(PAGE) - first;
                    assert!(bytes == 0 || pages <= layout.slot_bytes(bytes));
                }
            }
        }
    }
}
