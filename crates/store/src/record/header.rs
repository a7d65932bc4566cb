//! The first bytes of a record.

use std::ops::Range;

use headstart_core::{BlockHash, IdentityDigest, TenantTag};

use super::{MAX_PARTS, Meta, PAGE};
use crate::checksum;
use crate::wire::{FieldReader, FieldWriter};

const MAGIC: [u8; 8] = *b"HDST-KV1";

/// Sets these checksums apart from those of parts.
const SEED: u64 = u64::from_le_bytes(MAGIC);

/// Start of the table of parts, bytes.
pub(super) const PARTS_START: usize = 96;

/// An entry of the table of parts, bytes.
pub(super) const PART_BYTES: usize = 16;

/// Whether keys and values are what a full, lossless computation gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exactness {
    /// They are.
    Exact,
    /// They are not: fewer bits, or computed behind a prefix of which a part was left out. Such a
    /// chunk has a name of its own and is never found by an exact one.
    Lossy,
}

impl Exactness {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Lossy => "lossy",
        }
    }
}

/// Kind of the parts of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Content {
    /// Parts of a unit, as the device gave them.
    #[default]
    Unit,
    /// A description, then tokens of units in another order: a copy, which may go at any time.
    Pack,
}

impl Content {
    /// Marks a pack in fields that say whether there is a parent. A pack has one, so that those who
    /// know no packs read it right.
    const PACK: u16 = 2;

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Pack => "pack",
        }
    }

    /// The field that says whether there is a parent, and what a record holds.
    pub(crate) fn flags(self, has_parent: bool) -> u16 {
        let pack = match self {
            Self::Unit => 0,
            Self::Pack => Self::PACK,
        };
        u16::from(has_parent) | pack
    }

    /// The same, read.
    pub(crate) fn of_flags(flags: u16) -> (bool, Self) {
        let content = match flags & Self::PACK {
            0 => Self::Unit,
            _ => Self::Pack,
        };
        (flags & !Self::PACK != 0, content)
    }
}

/// Defect of stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// They do not begin as a record does, or end within the header.
    #[error("no record: it was never written, or is of another format")]
    NoRecord,
    /// The header's checksum differs.
    #[error("the header is damaged")]
    Header,
    /// The header is intact but contradicts itself.
    #[error("the header contradicts itself")]
    Senseless,
    /// It is a record, but not the one that should be there.
    #[error("another record lies in its place")]
    Misplaced,
    /// The checksum of a part differs.
    #[error("part {0} is damaged")]
    Part(usize),
    /// It has no such part.
    #[error("it has no part {0}")]
    NoPart(usize),
}

/// The header of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Metadata of the chunk.
    pub meta: Meta,
    /// Positions of its parts, in order.
    pub parts: Vec<Part>,
}

/// Position of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// From the record's start, bytes.
    pub offset: u32,
    /// Its length, bytes.
    pub bytes: u32,
    /// Its checksum.
    pub checksum: u64,
}

impl Part {
    /// The bytes that it takes of the record.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.offset as usize..self.offset as usize + self.bytes as usize
    }
}

impl Header {
    /// Bytes of the shortest header, that of a record without parts.
    pub(crate) const LEAST_BYTES: u64 = PARTS_START as u64 + 8;

    /// Bytes of the whole record.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        let end = self.parts.last().map_or(self.end(), |part| part.range().end);
        end.next_multiple_of(PAGE)
    }

    /// Returns the end of the header, bytes.
    pub(super) fn end(&self) -> usize {
        PARTS_START + self.parts.len() * PART_BYTES + 8
    }

    /// Writes it to the front of `bytes` and returns its length.
    pub(super) fn write(&self, bytes: &mut [u8]) -> usize {
        let meta = &self.meta;
        let mut out = FieldWriter::new(bytes);
        out.bytes(&MAGIC);
        out.bytes(&meta.name.0);
        out.bytes(&meta.parent.map_or([0; 16], |parent| parent.0));
        out.bytes(&meta.identity.0);
        out.u64(meta.tenant.0);
        out.u64(meta.created_s);
        out.u64(meta.expires_s.unwrap_or(0));
        out.u32(meta.tokens);
        out.u16(meta.content.flags(meta.parent.is_some()));
        out.u16(u16::from(meta.exactness == Exactness::Lossy));
        out.u32(self.parts.len() as u32);
        out.u32(self.record_bytes() as u32);
        debug_assert_eq!(out.len(), PARTS_START);
        for part in &self.parts {
            out.u32(part.offset);
            out.u32(part.bytes);
            out.u64(part.checksum);
        }
        let sum = checksum::of_fields(SEED, out.written());
        out.u64(sum);
        out.len()
    }

    /// The header at the front of `bytes`, of a record that lies within `room` bytes.
    ///
    /// # Errors
    /// When `bytes` hold no header, or it is damaged.
    pub fn read(bytes: &[u8], room: usize) -> Result<Self, Wrong> {
        let (meta, num_parts, record_bytes) = fields(bytes).ok_or(Wrong::NoRecord)?;
        // Bounds the table before its checksum can be compared.
        if num_parts > MAX_PARTS {
            return Err(Wrong::Header);
        }
        let checked = PARTS_START + num_parts * PART_BYTES;
        let sum = bytes.get(checked..checked + 8).ok_or(Wrong::NoRecord)?;
        if checksum::of_fields(SEED, &bytes[..checked]).to_le_bytes() != *sum {
            return Err(Wrong::Header);
        }
        let table = bytes[PARTS_START..checked].chunks_exact(PART_BYTES);
        let parts = table.map(part).collect::<Option<_>>();
        let header = Self { meta, parts: parts.ok_or(Wrong::Senseless)? };
        // A correct checksum does not prove sense. Later slicing
        // relies on parts in order, within the room.
        let is_sensible = header.parts_are_in_order()
            && header.record_bytes() == record_bytes
            && record_bytes <= room;
        is_sensible.then_some(header).ok_or(Wrong::Senseless)
    }

    /// Length in bytes of the header at the front of `bytes`, if it is one. It follows from the
    /// first bytes, and is verified by [`Header::read`] only.
    #[must_use]
    pub(crate) fn claimed_bytes(bytes: &[u8]) -> Option<usize> {
        let (_, num_parts, _) = fields(bytes)?;
        (num_parts <= MAX_PARTS).then_some(PARTS_START + num_parts * PART_BYTES + 8)
    }

    fn parts_are_in_order(&self) -> bool {
        let mut end = self.end();
        self.parts.iter().all(|part| {
            let range = part.range();
            let is_behind = range.start >= end;
            end = range.end;
            is_behind
        })
    }
}

/// Reads the fields before the table of parts: the metadata, the number of parts, the record's
/// length.
fn fields(bytes: &[u8]) -> Option<(Meta, usize, usize)> {
    let mut from = FieldReader::new(bytes);
    if from.array()? != MAGIC {
        return None;
    }
    let name = BlockHash(from.array()?);
    let parent = BlockHash(from.array()?);
    let identity = IdentityDigest(from.array()?);
    let tenant = TenantTag(from.u64()?);
    let created_s = from.u64()?;
    let expires_s = from.u64()?;
    let tokens = from.u32()?;
    let (has_parent, content) = Content::of_flags(from.u16()?);
    let is_lossy = from.u16()? != 0;
    let num_parts = from.u32()? as usize;
    let record_bytes = from.u32()? as usize;
    let meta = Meta {
        name,
        parent: has_parent.then_some(parent),
        identity,
        tenant,
        tokens,
        exactness: if is_lossy { Exactness::Lossy } else { Exactness::Exact },
        content,
        created_s,
        expires_s: (expires_s != 0).then_some(expires_s),
    };
    Some((meta, num_parts, record_bytes))
}

fn part(entry: &[u8]) -> Option<Part> {
    let mut from = FieldReader::new(entry);
    Some(Part { offset: from.u32()?, bytes: from.u32()?, checksum: from.u64()? })
}
