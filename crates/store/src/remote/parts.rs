//! One part of a record, in ranged requests: one for its front where its header is not known, one
//! for the part unless it was in the front.

use std::ops::Range;
use std::sync::{MutexGuard, PoisonError};

use bytes::Bytes;
use object_store::ObjectStoreExt;

use super::index::Listed;
use super::key::Key;
use super::stats::add;
use super::store::{Attempts, Store};
use super::transfer::cut_off;
use super::trouble::{Kind, Trouble};
use crate::arena::Slot;
use crate::record::{Checked, Header, Headers, PAGE, PartBytes, Wrong};

/// What is read of a record whose header is not known, bytes: no slower than less of it.
const FRONT: u64 = 8 * PAGE as u64;

/// What a get of a part found.
#[derive(Debug)]
pub(super) enum FoundPart {
    /// The part.
    Whole(PartBytes),
    /// The record has no such part.
    None,
    /// Something else.
    Damaged,
}

impl Store {
    /// Reads part number `part` of a record into `slot`.
    pub(super) async fn get_part(
        &self,
        object: Listed,
        part: u16,
        mut slot: Slot,
    ) -> Result<FoundPart, Trouble> {
        let name = object.key.name;
        let known = self.headers().get(name).cloned();
        let known = known.filter(|header| Key::of(&header.header().meta) == object.key);
        let header = match known {
            Some(header) => header,
            None => match self.header(object).await? {
                Ok(header) => header,
                Err(_) => return Ok(FoundPart::Damaged),
            },
        };
        let Some(place) = header.header().parts.get(usize::from(part)) else {
            return Ok(FoundPart::None);
        };
        let range = place.range();
        let Some(room) = slot.get_mut(..range.len()) else {
            let text = format!("part {part} has {} bytes", range.len());
            return Err(Trouble::new(Kind::TooLarge, text));
        };
        if !range.is_empty() {
            let bytes = self
                .range(&object, range.start as u64..range.end as u64)
                .await?;
            room.copy_from_slice(&bytes);
            add(&self.stats.bytes_in, bytes.len());
        }
        let from = range.start;
        let verify = move || PartBytes::verify(slot, from, &header, part);
        let verified = tokio::task::spawn_blocking(verify).await;
        match verified.map_err(|error| Trouble::new(Kind::Refused, error.to_string()))? {
            Ok(part) => {
                add(&self.stats.gets, 1);
                Ok(FoundPart::Whole(part))
            }
            Err(_) => Ok(self.damaged(object)),
        }
    }

    /// Reads the header of a record and remembers it.
    async fn header(&self, object: Listed) -> Result<Result<Checked, Wrong>, Trouble> {
        let mut front = self.range(&object, 0..object.bytes.min(FRONT)).await?;
        let claimed = Header::claimed_bytes(&front).unwrap_or(0) as u64;
        if claimed > front.len() as u64 && claimed <= object.bytes {
            front = self.range(&object, 0..claimed).await?;
        }
        add(&self.stats.bytes_in, front.len());
        let room = usize::try_from(object.bytes).unwrap_or(usize::MAX);
        let header = Checked::read(&front, room, object.key.name);
        let header = header.and_then(
            |header| match Key::of(&header.header().meta) == object.key {
                true => Ok(header),
                false => Err(Wrong::Misplaced),
            },
        );
        if let Ok(header) = &header {
            self.headers().insert(object.key.name, header.clone());
        }
        Ok(header)
    }

    async fn range(&self, object: &Listed, range: Range<u64>) -> Result<Bytes, Trouble> {
        let path = self.layout.object(&object.key);
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut attempts = Attempts::new(self, len);
        loop {
            let read = self.objects.get_range(&path, range.clone());
            let trouble = match attempts.within(read).await {
                Ok(bytes) if bytes.len() == len => return Ok(bytes),
                Ok(_) => cut_off(&path),
                Err(trouble) => trouble,
            };
            attempts.again(trouble).await?;
        }
    }

    fn damaged(&self, object: Listed) -> FoundPart {
        self.headers().remove(object.key.name);
        FoundPart::Damaged
    }

    fn headers(&self) -> MutexGuard<'_, Headers> {
        self.headers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
