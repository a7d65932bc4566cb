//! One part of a record, read and verified without the others.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use headstart_core::BlockHash;

use super::{Header, Meta, PAGE, Part, Record, Wrong};
use crate::arena::Slot;
use crate::checksum;

/// The verified header of a record, checked against its name. Cheap to clone.
#[derive(Clone, Debug)]
pub struct VerifiedHeader(Arc<Header>);

impl VerifiedHeader {
    /// The header at the front of `bytes`, which need not hold the rest of the record called
    /// `name`, of `room` bytes at most.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(bytes: &[u8], room: usize, name: BlockHash) -> Result<Self, Wrong> {
        let header = Header::read(bytes, room)?;
        if header.meta.name == name { Ok(Self(Arc::new(header))) } else { Err(Wrong::Misplaced) }
    }

    /// Wraps the header of a verified record.
    pub(super) fn of(header: Arc<Header>) -> Self {
        Self(header)
    }

    /// Returns the header's fields.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.0
    }

    /// The whole pages of the record in which part number `part` lies, bytes; none where it is
    /// empty. `None` where there is no such part.
    #[must_use]
    pub fn pages_of(&self, part: u16) -> Option<Range<usize>> {
        let range = self.part(part)?.range();
        let first = range.start / PAGE * PAGE;
        let end = range.end.next_multiple_of(PAGE);
        Some(if range.is_empty() { first..first } else { first..end })
    }

    fn part(&self, part: u16) -> Option<&Part> {
        self.0.parts.get(usize::from(part))
    }

    /// Returns the start of part number `part` in `bytes`, which begin at byte `from` of the
    /// record.
    fn find(&self, bytes: &[u8], from: usize, part: u16) -> Result<usize, Wrong> {
        let index = usize::from(part);
        let place = self.part(part).ok_or(Wrong::NoPart(index))?;
        let range = place.range();
        let at = range.start.checked_sub(from).ok_or(Wrong::Part(index))?;
        let bytes = bytes.get(at..at + range.len());
        let found = bytes.map(|bytes| checksum::of_part(self.0.meta.name, index, bytes));
        if found == Some(place.checksum) { Ok(at) } else { Err(Wrong::Part(index)) }
    }
}

/// The verified bytes of one part of a record. Cheap to clone; its slot is free when the last clone
/// is gone.
#[derive(Clone, Debug)]
pub struct PartBytes {
    slot: Arc<Slot>,
    header: VerifiedHeader,
    part: u16,
    /// Start of the bytes in the slot.
    at: usize,
    since: Instant,
    read_bytes: usize,
}

impl PartBytes {
    /// Part number `part` of the record of this header, of which `slot` holds the bytes from
    /// `from` on.
    ///
    /// # Errors
    /// What is wrong with it; the slot is free again.
    pub fn verify(
        slot: Slot,
        from: usize,
        header: &VerifiedHeader,
        part: u16,
    ) -> Result<Self, Wrong> {
        let at = header.find(&slot, from, part)?;
        Ok(Self::unharmed(slot, header, part, at))
    }

    /// The same, which gives the slot back where it holds something else: to be tried again.
    pub(crate) fn verify_or_slot(
        slot: Slot,
        from: usize,
        header: &VerifiedHeader,
        part: u16,
    ) -> Result<Self, Slot> {
        match header.find(&slot, from, part) {
            Ok(at) => Ok(Self::unharmed(slot, header, part, at)),
            Err(_) => Err(slot),
        }
    }

    fn unharmed(slot: Slot, header: &VerifiedHeader, part: u16, at: usize) -> Self {
        Self {
            slot: Arc::new(slot),
            header: header.clone(),
            part,
            at,
            since: Instant::now(),
            read_bytes: header.0.parts[usize::from(part)].bytes as usize,
        }
    }

    /// A copy of part number `part` of a record in memory; memory forgets, too.
    ///
    /// # Errors
    /// What is wrong with it, also where the slot is too small; the slot is free again.
    pub fn copied(record: &Record, part: u16, mut slot: Slot) -> Result<Self, Wrong> {
        let index = usize::from(part);
        if index >= record.num_parts() {
            return Err(Wrong::NoPart(index));
        }
        let bytes = record.part(index);
        let room = slot.get_mut(..bytes.len()).ok_or(Wrong::Part(index))?;
        room.copy_from_slice(bytes);
        let header = record.header();
        // The slot holds the part alone, so its bytes begin at the part's own offset.
        let from = header.0.parts[index].range().start;
        Self::verify(slot, from, &header, part)
    }

    /// Returns the metadata of the record.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.header.0.meta
    }

    /// The header of the record.
    #[must_use]
    pub fn header(&self) -> &VerifiedHeader {
        &self.header
    }

    /// Returns its index in the record.
    #[must_use]
    pub fn part(&self) -> u16 {
        self.part
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let len = self.header.0.parts[usize::from(self.part)].bytes as usize;
        &self.slot[self.at..self.at + len]
    }

    /// Returns when it became available: when it was verified, or when a backend that withheld it
    /// released it.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Returns the bytes read for it: its own length, unless the reader recorded more.
    #[must_use]
    pub fn read_bytes(&self) -> usize {
        self.read_bytes
    }

    /// Sets the number of bytes read for it: whole pages, and headers.
    #[must_use]
    pub(crate) fn with_read_bytes(self, read_bytes: usize) -> Self {
        Self { read_bytes, ..self }
    }

    /// The same, as if it had been verified at `since`.
    #[must_use]
    pub fn with_since(self, since: Instant) -> Self {
        Self { since, ..self }
    }

    /// Flips a bit and verifies it again. An empty part, or one with another clone, stays as it
    /// was.
    #[cfg(test)]
    pub(crate) fn with_flipped(self, bit: usize) -> Result<Self, Wrong> {
        let bits = self.bytes().len() * 8;
        let Self { slot, header, part, at, since, read_bytes } = self;
        match Arc::try_unwrap(slot) {
            Ok(mut slot) if bits > 0 => {
                let bit = bit % bits;
                slot[at + bit / 8] ^= 1 << (bit % 8);
                let place = header.part(part).ok_or(Wrong::NoPart(usize::from(part)))?;
                let from = place.range().start - at;
                let verified = Self::verify(slot, from, &header, part)?;
                Ok(verified.with_read_bytes(read_bytes))
            }
            slot => Ok(Self {
                slot: slot.map_or_else(|slot| slot, Arc::new),
                header,
                part,
                at,
                since,
                read_bytes,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::{IdentityDigest, TenantTag};

    use super::*;
    use crate::arena::Arena;
    use crate::record::{Content, Draft, Exactness, Layout};

    const PARTS: [usize; 5] = [300, PAGE, 0, 2 * PAGE + 5, 64];

    fn sealed(arena: &Arc<Arena>, layout: Layout) -> Record {
        let meta = Meta {
            name: BlockHash::from_u64(9),
            parent: None,
            identity: IdentityDigest([7; 16]),
            tenant: TenantTag(3),
            tokens: 16,
            exactness: Exactness::Exact,
            content: Content::Unit,
            created_s: 1,
            expires_s: None,
        };
        let slot = arena.take().expect("a slot");
        let mut draft = Draft::laid_out(slot, meta, &PARTS, layout).expect("it fits");
        for part in 0..PARTS.len() {
            draft.part_mut(part).fill(part as u8 + 1);
        }
        draft.seal()
    }

    /// Reads a part as a disk does: its pages alone.
    fn read(arena: &Arc<Arena>, bytes: &[u8], part: u16) -> Result<PartBytes, Wrong> {
        let name = BlockHash::from_u64(9);
        let header = VerifiedHeader::read(&bytes[..PAGE], bytes.len(), name)?;
        let pages = header.pages_of(part).ok_or(Wrong::NoPart(part.into()))?;
        let mut slot = arena.take().expect("a slot");
        slot[..pages.len()].copy_from_slice(&bytes[pages.clone()]);
        PartBytes::verify(slot, pages.start, &header, part)
    }

    #[test]
    fn each_part_is_read_alone() {
        let arena = Arena::new(8 * PAGE, 3).expect("memory");
        for layout in [Layout::Dense, Layout::Paged] {
            let record = sealed(&arena, layout);
            for (part, &len) in PARTS.iter().enumerate() {
                let read = read(&arena, record.bytes(), part as u16).expect("unharmed");
                assert_eq!(read.bytes(), vec![part as u8 + 1; len]);
                drop(read);
                let slot = arena.take().expect("a slot");
                let copy = PartBytes::copied(&record, part as u16, slot).expect("unharmed");
                assert_eq!(copy.bytes(), vec![part as u8 + 1; len]);
            }
            let none = read(&arena, record.bytes(), 5).expect_err("there are five");
            assert_eq!(none, Wrong::NoPart(5));
            let other = VerifiedHeader::read(record.bytes(), 8 * PAGE, BlockHash::from_u64(8));
            assert_eq!(other.expect_err("another"), Wrong::Misplaced);
        }
        assert_eq!(arena.free(), 3);
    }

    #[test]
    fn every_flipped_bit_of_a_part_is_seen_there_and_nowhere_else() {
        let arena = Arena::new(8 * PAGE, 2).expect("memory");
        let record = sealed(&arena, Layout::Paged);
        let header = record.header();
        let end = header.header().end();
        for at in (0..record.bytes().len()).step_by(13).chain(0..end) {
            let mut wrong = record.bytes().to_vec();
            wrong[at] ^= 1 << (at % 8);
            for (part, place) in header.header().parts.iter().enumerate() {
                let is_seen = read(&arena, &wrong, part as u16).is_err();
                let is_harmed = at < end || place.range().contains(&at);
                assert_eq!(is_seen, is_harmed, "byte {at}, part {part}");
            }
        }
    }
}
