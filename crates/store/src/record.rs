//! A chunk as it is stored: a header that says what it is, then its parts.
//!
//! ```text
//! 0        96               +16 a part             +8  to 64    to 64      to 4096
//! ├ fields ┼ table of parts ┼ checksum of all that ┼ part 0 ┼ part 1 ┼ … ┼ zeros ┤
//! ```
//!
//! The same bytes in host memory, on disk and in object storage: a slot of the arena is written
//! and read as it is, without a copy in between. A *part* (a layer's keys and values) can be read
//! and verified alone. [`Draft`] is filled and sealed; a [`Record`] was verified and never changes.
//! There is no other way to a [`Record`], so nothing that holds one needs to ask. [`PartBytes`] are
//! one part of a record, had the same way without reading the others.
//!
//! Does not know what the parts mean.

mod header;
mod headers;
mod layout;
mod part;

use std::sync::Arc;
use std::time::Instant;

use headstart_core::{BlockHash, IdentityDigest, TenantTag};

use crate::arena::Slot;
use crate::checksum;

pub use crate::arena::PAGE;
pub use header::{Content, Exactness, Header, Part, Wrong};
pub(crate) use headers::Headers;
pub use layout::Layout;
pub use part::{PartBytes, VerifiedHeader};

/// Parts begin at multiples of this, bytes: a line of memory, a vector of any kernel.
const PART_ALIGN: usize = 64;

/// Most parts of a record: layers of a model, and heads of some.
pub const MAX_PARTS: usize = 4096;

/// Metadata of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its name: tokens, prefix and identity.
    pub name: BlockHash,
    /// The chunk before it; `None` at the start of a prompt.
    pub parent: Option<BlockHash>,
    /// Identity of its computation.
    pub identity: IdentityDigest,
    /// The tenant that it belongs to.
    pub tenant: TenantTag,
    /// Tokens whose keys and values it holds.
    pub tokens: u32,
    /// Whether these are what a full computation gives.
    pub exactness: Exactness,
    /// Kind of its parts.
    pub content: Content,
    /// When it was made, seconds since 1970.
    pub created_s: u64,
    /// From when on it must not be used, seconds since 1970; `None`: never.
    pub expires_s: Option<u64>,
}

/// Bytes of a record whose parts have these lengths and lie densely.
#[must_use]
pub fn record_bytes(parts: &[usize]) -> usize {
    Layout::Dense.record_bytes(parts)
}

/// A record that is being filled.
#[derive(Debug)]
pub struct Draft {
    slot: Slot,
    header: Header,
    len: usize,
}

impl Draft {
    /// A record in `slot` whose parts have these lengths and lie densely. `None`, and the slot is
    /// free again, where it is too small or the parts are too many.
    #[must_use]
    pub fn new(slot: Slot, meta: Meta, parts: &[usize]) -> Option<Self> {
        Self::laid_out(slot, meta, parts, Layout::Dense)
    }

    /// The same where its parts lie as `layout` says.
    #[must_use]
    pub fn laid_out(slot: Slot, meta: Meta, parts: &[usize], layout: Layout) -> Option<Self> {
        let len = layout.record_bytes(parts);
        if len > slot.len() || parts.len() > MAX_PARTS {
            return None;
        }
        let places = layout.places(parts);
        let parts = places.map(|(offset, bytes)| Part {
            offset: offset as u32,
            bytes: bytes as u32,
            checksum: 0,
        });
        let parts = parts.collect();
        let header = Header { meta, parts };
        Some(Self { slot, header, len })
    }

    /// Returns the number of parts.
    pub(crate) fn num_parts(&self) -> usize {
        self.header.parts.len()
    }

    /// It must not be used from then on.
    pub(crate) fn expires_at(&mut self, expires_s: Option<u64>) {
        self.header.meta.expires_s = expires_s;
    }

    /// Returns the bytes of part number `part`. They are arbitrary until written.
    ///
    /// # Panics
    /// When there is no such part.
    pub fn part_mut(&mut self, part: usize) -> &mut [u8] {
        &mut self.slot[self.header.parts[part].range()]
    }

    /// Computes the checksums: from now on it never changes. O(bytes), so better not on the thread
    /// that computes.
    #[must_use]
    pub fn seal(self) -> Record {
        let Self { mut slot, mut header, len } = self;
        let name = header.meta.name;
        for (index, part) in header.parts.iter_mut().enumerate() {
            part.checksum = checksum::of_part(name, index, &slot[part.range()]);
        }
        // The header comes last, because it holds the checksums of the parts.
        let mut end = header.write(&mut slot);
        // The gaps hold bytes of an earlier record, perhaps of another
        // tenant: these must not reach a disk.
        for part in &header.parts {
            slot[end..part.range().start].fill(0);
            end = part.range().end;
        }
        slot[end..len].fill(0);
        Record { slot: Arc::new(slot), header: Arc::new(header), len, since: Instant::now() }
    }
}

/// A chunk that is what it says. Cheap to clone; its slot is free when the last clone is gone.
#[derive(Clone, Debug)]
pub struct Record {
    slot: Arc<Slot>,
    header: Arc<Header>,
    len: usize,
    since: Instant,
}

impl Record {
    /// Verifies the record called `name` in `slot`, with all its parts.
    ///
    /// # Errors
    /// What is wrong with it; the slot is free again.
    pub fn verify(slot: Slot, name: BlockHash) -> Result<Self, Wrong> {
        let header = verify_bytes(&slot, name)?;
        let len = header.record_bytes();
        Ok(Self { slot: Arc::new(slot), header: Arc::new(header), len, since: Instant::now() })
    }

    /// Returns its metadata.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.header.meta
    }

    /// Returns its header, for reading parts of it elsewhere.
    #[must_use]
    pub fn header(&self) -> VerifiedHeader {
        VerifiedHeader::of(self.header.clone())
    }

    /// Returns the number of parts.
    #[must_use]
    pub fn num_parts(&self) -> usize {
        self.header.parts.len()
    }

    /// The bytes of part number `part`.
    ///
    /// # Panics
    /// When there is no such part.
    #[must_use]
    pub fn part(&self, part: usize) -> &[u8] {
        &self.slot[self.header.parts[part].range()]
    }

    /// Whether part number `part` is still what was sealed: host memory forgets, too.
    ///
    /// # Errors
    /// When it is not.
    ///
    /// # Panics
    /// When there is no such part.
    pub fn verify_part(&self, part: usize) -> Result<(), Wrong> {
        let found = checksum::of_part(self.meta().name, part, self.part(part));
        let is_right = found == self.header.parts[part].checksum;
        is_right.then_some(()).ok_or(Wrong::Part(part))
    }

    /// The whole record as it is stored, a multiple of [`PAGE`] bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.slot[..self.len]
    }

    /// Returns when it became available: when it was sealed or verified, or when a backend that
    /// withheld it released it.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// The same, as if it had been verified at `since`.
    #[must_use]
    pub fn with_since(self, since: Instant) -> Self {
        Self { since, ..self }
    }

    /// Turns it back into its slot if no other clone exists.
    #[cfg(test)]
    pub(crate) fn into_slot(self) -> Result<Slot, Self> {
        let Self { slot, header, len, since } = self;
        Arc::try_unwrap(slot).map_err(|slot| Self { slot, header, len, since })
    }
}

/// Verifies the record called `name` at the front of `bytes`, and returns its header.
///
/// # Errors
/// What is wrong with it.
pub fn verify_bytes(bytes: &[u8], name: BlockHash) -> Result<Header, Wrong> {
    let header = Header::read(bytes, bytes.len())?;
    // A whole record, but another one: an earlier one of this place, or a misdirected write.
    if header.meta.name != name {
        return Err(Wrong::Misplaced);
    }
    for (index, part) in header.parts.iter().enumerate() {
        if checksum::of_part(name, index, &bytes[part.range()]) != part.checksum {
            return Err(Wrong::Part(index));
        }
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use headstart_core::Rng;

    fn meta(name: u64) -> Meta {
        Meta {
            name: BlockHash::from_u64(name),
            parent: Some(BlockHash::from_u64(name + 1)),
            identity: IdentityDigest([7; 16]),
            tenant: TenantTag(3),
            tokens: 16,
            exactness: Exactness::Exact,
            content: Content::Unit,
            created_s: 1,
            expires_s: Some(2),
        }
    }

    /// A sealed record of `parts` in an arena's only slot but one.
    fn sealed(arena: &Arc<Arena>, name: u64, parts: &[usize]) -> Record {
        let slot = arena.take().expect("a slot is free");
        let mut draft = Draft::new(slot, meta(name), parts).expect("it fits");
        for (index, &len) in parts.iter().enumerate() {
            let bytes = draft.part_mut(index);
            assert_eq!(bytes.len(), len);
            bytes.fill(index as u8 + 1);
        }
        draft.seal()
    }

    fn read_back(arena: &Arc<Arena>, bytes: &[u8], name: u64) -> Result<Record, Wrong> {
        let mut slot = arena.take().expect("a slot is free");
        slot[..bytes.len()].copy_from_slice(bytes);
        Record::verify(slot, BlockHash::from_u64(name))
    }

    #[test]
    fn what_was_sealed_is_read_back() {
        let arena = Arena::new(4 * PAGE, 2).expect("memory");
        let parts = [1, 0, 4096, 65, 64];
        let record = sealed(&arena, 9, &parts);
        assert_eq!(record.bytes().len(), record_bytes(&parts));
        let again = read_back(&arena, record.bytes(), 9).expect("it is unharmed");
        assert_eq!(again.meta(), record.meta());
        assert_eq!(again.num_parts(), parts.len());
        for (index, &len) in parts.iter().enumerate() {
            assert_eq!(again.part(index), vec![index as u8 + 1; len]);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let arena = Arena::new(PAGE, 1).expect("memory");
        let slot = arena.take().expect("a slot is free");
        assert!(Draft::new(slot, meta(1), &[PAGE]).is_none());
        assert_eq!(arena.free(), 1, "the slot came back");
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let arena = Arena::new(2 * PAGE, 2).expect("memory");
        let record = sealed(&arena, 9, &[300, 64, 5000]);
        let bytes = record.bytes().to_vec();
        let unused = |at: usize| {
            let used = record.header.parts.iter().any(|part| part.range().contains(&at));
            at >= record.header.end() && !used
        };
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1 << (at % 8);
            let is_seen = read_back(&arena, &wrong, 9).is_err();
            assert_eq!(is_seen, !unused(at), "byte {at}");
        }
    }

    #[test]
    fn another_name_is_not_it_and_noise_is_nothing() {
        let arena = Arena::new(2 * PAGE, 2).expect("memory");
        let record = sealed(&arena, 9, &[300]);
        let misplaced = read_back(&arena, record.bytes(), 8).expect_err("it is another one");
        assert_eq!(misplaced, Wrong::Misplaced);
        let mut rng = Rng::new(1);
        for _ in 0..2_000 {
            // Headers that are right but for some bytes, so that every check is met.
            let mut bytes = record.bytes().to_vec();
            for _ in 0..=rng.below(4) {
                // The header and the part, without the unread bytes between them.
                let at = rng.below(220);
                let between = record.header.end()..record.header.parts[0].range().start;
                if !between.contains(&at) {
                    bytes[at] = rng.next_u64() as u8;
                }
            }
            let cut = rng.below(bytes.len() + 1);
            bytes[cut..].fill(0);
            if bytes != record.bytes() {
                assert!(read_back(&arena, &bytes, 9).is_err());
            }
        }
    }
}
