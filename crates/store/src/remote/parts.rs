//! One part of a record, in ranged requests: one for its front where its header is not known, one
//! for the part.

use std::ops::Range;
use std::sync::{MutexGuard, PoisonError};

use bytes::Bytes;
use object_store::GetOptions;

use super::index::ListedObject;
use super::key::ObjectKey;
use super::stats::add;
use super::store::{Attempts, Store};
use super::transfer::{cut_off, on_a_thread};
use super::trouble::{Trouble, TroubleKind};
use crate::arena::Slot;
use crate::backend::{CommandOutcome, Failure};
use crate::record::{Header, Headers, PAGE, PartBytes, VerifiedHeader, Wrong};

/// Bytes read first of a record with an unknown header; fewer would not be faster.
const FRONT: u64 = 8 * PAGE as u64;

/// Bytes of an object.
struct ObjectBytes {
    bytes: Bytes,
    /// Length of the object, bytes.
    of: u64,
}

/// Result of reading a part at the position in the header.
enum PartReadOutcome {
    Part(PartBytes),
    /// Something else; with the slot.
    Other(Slot),
    /// Nothing: the store will not have it, maybe since the object ends before.
    Nothing(Slot, Trouble),
}

impl Store {
    /// Reads part number `part` of a record into `slot`.
    ///
    /// A remembered header may belong to an earlier record of the same name. A mismatch counts as
    /// damage only after the header was read again.
    pub(super) async fn get_part(
        &self,
        object: ListedObject,
        part: u16,
        mut slot: Slot,
    ) -> Result<CommandOutcome, Trouble> {
        if let Some(header) = self.remembered(&object, part, slot.len()) {
            match self.read_part(&object, header, part, slot).await {
                Ok(PartReadOutcome::Part(part)) => return Ok(CommandOutcome::Part(part)),
                Ok(
                    PartReadOutcome::Other(given_back) | PartReadOutcome::Nothing(given_back, _),
                ) => slot = given_back,
                Err(trouble) => {
                    // All else says nothing of what the object holds.
                    if trouble.kind == TroubleKind::Missing {
                        self.headers().remove(object.key.name);
                    }
                    return Err(trouble);
                }
            }
        }
        let Ok(header) = self.header(object).await? else {
            return Ok(self.damaged(object));
        };
        let Some(place) = header.header().parts.get(usize::from(part)) else {
            return Ok(CommandOutcome::Missing);
        };
        let len = place.range().len();
        // `read_part` copies to the slot without a check of its own.
        if len > slot.len() {
            let text = format!("part {part} has {len} bytes");
            return Err(Trouble::new(TroubleKind::TooLarge, text));
        }
        match self.read_part(&object, header, part, slot).await? {
            PartReadOutcome::Part(part) => Ok(CommandOutcome::Part(part)),
            PartReadOutcome::Other(_) => Ok(self.damaged(object)),
            PartReadOutcome::Nothing(_, trouble) => Err(trouble),
        }
    }

    /// The header that a record of this key had when it was read last, if it has a part of this
    /// number for which there is room.
    fn remembered(&self, object: &ListedObject, part: u16, room: usize) -> Option<VerifiedHeader> {
        let header = self.headers().get(object.key.name).cloned()?;
        let place = header.header().parts.get(usize::from(part))?;
        let fits = place.range().len() <= room;
        (fits && ObjectKey::of(&header.header().meta) == object.key).then_some(header)
    }

    /// Reads a part from where its record's header says that it is.
    async fn read_part(
        &self,
        object: &ListedObject,
        header: VerifiedHeader,
        part: u16,
        mut slot: Slot,
    ) -> Result<PartReadOutcome, Trouble> {
        let range = header.header().parts[usize::from(part)].range();
        // Stores refuse a request for an empty range.
        if !range.is_empty() {
            let wanted = range.start as u64..range.end as u64;
            let piece = match self.range(object, wanted).await {
                Ok(piece) => piece,
                // Most likely the object ends before this range, so the header
                // may be out of date.
                Err(trouble) if trouble.kind == TroubleKind::Refused => {
                    return Ok(PartReadOutcome::Nothing(slot, trouble));
                }
                Err(trouble) => return Err(trouble),
            };
            // An object of another length has another header.
            if piece.of != header.header().record_bytes() as u64 {
                return Ok(PartReadOutcome::Other(slot));
            }
            slot[..range.len()].copy_from_slice(&piece.bytes);
            add(&self.stats.bytes_in, range.len());
        }
        // On a thread of its own: a checksum of megabytes would hold up the network.
        let verify = move || PartBytes::verify_or_slot(slot, range.start, &header, part);
        match on_a_thread(verify).await? {
            Ok(part) => {
                add(&self.stats.gets, 1);
                Ok(PartReadOutcome::Part(part))
            }
            Err(slot) => Ok(PartReadOutcome::Other(slot)),
        }
    }

    /// Reads the header of a record and remembers it.
    async fn header(&self, object: ListedObject) -> Result<Result<VerifiedHeader, Wrong>, Trouble> {
        // Too short for any header; stores refuse the empty range of an object without bytes.
        if object.bytes < Header::LEAST_BYTES {
            return Ok(Err(Wrong::NoRecord));
        }
        let mut front = self.range(&object, 0..object.bytes.min(FRONT)).await?;
        let claimed = Header::claimed_bytes(&front.bytes).unwrap_or(0) as u64;
        // The length is not verified yet: it is worth a second read
        // only if the object is as long.
        if claimed > front.bytes.len() as u64 && claimed <= front.of {
            front = self.range(&object, 0..claimed).await?;
        }
        add(&self.stats.bytes_in, front.bytes.len());
        let room = usize::try_from(front.of).unwrap_or(usize::MAX);
        let header = VerifiedHeader::read(&front.bytes, room, object.key.name);
        // The object's name also promises the tenant, the parent, the tokens and the end.
        let header = header.and_then(|header| {
            if ObjectKey::of(&header.header().meta) == object.key {
                Ok(header)
            } else {
                Err(Wrong::Misplaced)
            }
        });
        if let Ok(header) = &header {
            self.headers().insert(object.key.name, header.clone());
        }
        Ok(header)
    }

    /// The bytes of an object in this range, fewer where it ends within it.
    async fn range(
        &self,
        object: &ListedObject,
        range: Range<u64>,
    ) -> Result<ObjectBytes, Trouble> {
        let path = self.layout.object(&object.key);
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut attempts = Attempts::new(self, len);
        loop {
            let options = GetOptions::new().with_range(Some(range.clone()));
            let read = async {
                let answer = self.objects.get_opts(&path, options).await?;
                let of = answer.meta.size;
                let bytes = answer.bytes().await?;
                Ok::<_, object_store::Error>(ObjectBytes { bytes, of })
            };
            let trouble = match attempts.within(read).await {
                Ok(piece)
                    // An answer may end early without an error.
                    if piece.bytes.len() as u64
                        == piece.of.min(range.end).saturating_sub(range.start) =>
                {
                    return Ok(piece);
                }
                Ok(_) => cut_off(&path),
                Err(trouble) => trouble,
            };
            attempts.again(trouble).await?;
        }
    }

    fn damaged(&self, object: ListedObject) -> CommandOutcome {
        self.headers().remove(object.key.name);
        CommandOutcome::Failed(Failure::Corrupt)
    }

    fn headers(&self) -> MutexGuard<'_, Headers> {
        self.headers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
