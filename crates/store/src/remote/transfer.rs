//! One record, there and back: put, in parts where it is large, and get, verified.
//!
//! Bytes are sent from the record's own slot and read into one: there is no other buffer of ours.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::retry::{RetryContext, RetryFailure, RetryPolicy};
use object_store::{
    GetOptions, GetResultPayload, MultipartUpload, ObjectStoreExt, PutMode, PutMultipartOptions,
};

use super::key::ObjectKey;
use super::stats::add;
use super::store::{Attempts, Store};
use super::trouble::{Trouble, TroubleKind};
use crate::arena::Slot;
use crate::record::{Record, Wrong};

/// Parts of one record that are sent at once.
const PARTS_AT_ONCE: usize = 4;

/// Longest wait for the end of an upload that failed. What stays behind is for the bucket's own
/// rules to remove.
const ABORT: Duration = Duration::from_secs(5);

/// Knowledge of an object before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// Nothing: most likely it is not there.
    Unknown,
    /// It should be there.
    There,
    /// It is there but too old: it is rewritten, which restarts its age.
    Old,
}

/// A record's bytes during an upload.
struct UploadBytes(Record);

impl AsRef<[u8]> for UploadBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Store {
    /// Writes a record, unless it is there.
    pub(super) async fn put(
        self: &Arc<Self>,
        key: &ObjectKey,
        record: Record,
        presence: Presence,
    ) -> Result<(), Trouble> {
        let object = self.layout.object(key);
        // The index may be out of date, so the store is asked before the upload is saved.
        if presence == Presence::There && self.has(&object).await? {
            add(&self.stats.puts_saved, 1);
            return Ok(());
        }
        // The upload holds the record's slot, so its bytes are not copied.
        let bytes = Bytes::from_owner(UploadBytes(record));
        let mut attempts = Attempts::new(self, bytes.len());
        let mut mode = match presence {
            Presence::Unknown | Presence::There => PutMode::Create,
            Presence::Old => PutMode::Overwrite,
        };
        loop {
            let put = match bytes.len() < self.options.multipart_bytes {
                true => {
                    let options = mode.clone().into();
                    let put = self.objects.put_opts(&object, bytes.clone().into(), options);
                    attempts.within(put).await.map(drop)
                }
                // Uploads in parts know no condition: it is asked before.
                false if mode == PutMode::Create && self.has(&object).await? => {
                    Err(Trouble::new(TroubleKind::There, "it is there"))
                }
                false => self.put_parts(&attempts, &object, &bytes).await,
            };
            let trouble = match put {
                Ok(()) => {
                    add(&self.stats.puts, 1);
                    add(&self.stats.bytes_out, bytes.len());
                    return Ok(());
                }
                Err(trouble) if trouble.kind == TroubleKind::There => {
                    // Some say so while another one writes, who may yet fail.
                    if self.has(&object).await? {
                        add(&self.stats.puts_saved, 1);
                        return Ok(());
                    }
                    // A passing error, so that the put is tried again.
                    Trouble::new(TroubleKind::Unreachable, trouble.text)
                }
                // Not every store has conditions. All that is lost without is a transfer.
                Err(trouble) if trouble.kind == TroubleKind::Refused && mode == PutMode::Create => {
                    // Without counting an attempt: this happens at most once.
                    mode = PutMode::Overwrite;
                    continue;
                }
                Err(trouble) => trouble,
            };
            attempts.again(trouble).await?;
        }
    }

    /// Whether an object is there.
    async fn has(&self, object: &Path) -> Result<bool, Trouble> {
        let found = self.retried(|| self.objects.head(object)).await;
        match found {
            Ok(_) => Ok(true),
            Err(trouble) if trouble.kind == TroubleKind::Missing => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// Sends it in parts, all or nothing.
    async fn put_parts(
        self: &Arc<Self>,
        attempts: &Attempts<'_>,
        object: &Path,
        bytes: &Bytes,
    ) -> Result<(), Trouble> {
        // A part is sent again alone; another attempt at the whole would send all of them.
        let options = PutMultipartOptions::default().with_retry_policy(self.clone());
        let begin = self.objects.put_multipart_opts(object, options);
        let mut upload = attempts.within(begin).await?;
        let sent = attempts.within(self.send(upload.as_mut(), bytes)).await;
        if sent.is_err() {
            // The earlier error is reported, whether or not the abort works.
            let _ = tokio::time::timeout(ABORT, upload.abort()).await;
        }
        sent
    }

    async fn send(&self, upload: &mut dyn MultipartUpload, bytes: &Bytes) -> Result<(), Trouble> {
        let part = self.options.part_bytes;
        let starts = (0..bytes.len()).step_by(part);
        let parts = starts.map(|start| bytes.slice(start..bytes.len().min(start + part)));
        // Parts are numbered in the order of these calls; only the sending overlaps.
        let sends: Vec<_> = parts.map(|part| upload.put_part(part.into())).collect();
        futures::stream::iter(sends).buffer_unordered(PARTS_AT_ONCE).try_collect::<()>().await?;
        upload.complete().await?;
        Ok(())
    }

    /// Reads a record into `slot`; returns what is wrong with it where it is damaged.
    pub(super) async fn get(
        &self,
        key: ObjectKey,
        bytes: u64,
        slot: Slot,
    ) -> Result<Result<Record, Wrong>, Trouble> {
        let object = self.layout.object(&key);
        let mut attempts = Attempts::new(self, usize::try_from(bytes).unwrap_or(usize::MAX));
        let mut slot = Some(slot);
        let len = loop {
            let read = self.read(&object, &mut slot);
            match attempts.within(read).await {
                Ok(len) => break len,
                Err(trouble) => attempts.again(trouble).await?,
            }
        };
        let slot = slot.ok_or_else(lost_slot)?;
        let checked = on_a_thread(move || check(key, slot, len)).await?;
        if checked.is_ok() {
            add(&self.stats.gets, 1);
            add(&self.stats.bytes_in, len);
        }
        Ok(checked)
    }

    /// Reads an object to the front of the slot. The slot is gone where a folder does not answer:
    /// its thread holds on to it.
    async fn read(&self, object: &Path, slot: &mut Option<Slot>) -> Result<usize, Trouble> {
        let answer = self.objects.get_opts(object, GetOptions::default()).await?;
        let len = usize::try_from(answer.meta.size).unwrap_or(usize::MAX);
        let room = slot.as_mut().ok_or_else(lost_slot)?;
        let Some(room) = room.get_mut(..len) else {
            let text = format!("{object} has {len} bytes, the slot {}", room.len());
            return Err(Trouble::new(TroubleKind::TooLarge, text));
        };
        match answer.payload {
            GetResultPayload::Stream(mut stream) => {
                let mut filled = 0;
                while let Some(piece) = stream.try_next().await? {
                    let rest = room.get_mut(filled..filled + piece.len());
                    // More bytes than announced must not go beyond the record's room.
                    rest.ok_or_else(|| cut_off(object))?.copy_from_slice(&piece);
                    filled += piece.len();
                }
                (filled == len).then_some(len).ok_or_else(|| cut_off(object))
            }
            GetResultPayload::File(mut file, _) => {
                let mut held = slot.take().ok_or_else(lost_slot)?;
                let (held, read) = on_a_thread(move || {
                    let read = file.read_exact(&mut held[..len]);
                    (held, read)
                })
                .await?;
                // Returned before the error is looked at, because the next attempt needs it.
                *slot = Some(held);
                read?;
                Ok(len)
            }
        }
    }
}

/// Runs `work`, which may block, beside the threads of the network.
pub(super) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Trouble> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Trouble::new(TroubleKind::Refused, error.to_string()))
}

pub(super) fn cut_off(object: &Path) -> Trouble {
    let text = format!("the answer for {object} is not as long as it says");
    Trouble::new(TroubleKind::Unreachable, text)
}

fn lost_slot() -> Trouble {
    Trouble::new(TroubleKind::Refused, "an attempt before did not come back")
}

/// Whether this is the record, the whole record, and the one that its object's name promises.
fn check(key: ObjectKey, slot: Slot, len: usize) -> Result<Record, Wrong> {
    let record = Record::verify(slot, key.name)?;
    // The checksums do not cover bytes after the record, so the length is compared.
    let is_it = record.bytes().len() == len && ObjectKey::of(record.meta()) == key;
    is_it.then_some(record).ok_or(Wrong::Misplaced)
}

/// When a part is sent again: the crate knows the status, so that its own loop is the better one.
#[async_trait]
impl RetryPolicy for Store {
    async fn retry(&self, context: RetryContext) -> bool {
        let is_passing = match context.failure {
            RetryFailure::Status(status) => {
                // Too slow (408) and too many (429) may pass; other refusals
                // of the client are final.
                status.is_server_error() || matches!(status.as_u16(), 408 | 429)
            }
            _ => true,
        };
        let failed = u32::try_from(context.attempt).unwrap_or(u32::MAX);
        let goes_on = is_passing && failed < self.options.attempts;
        if goes_on {
            self.pause(failed).await;
        }
        goes_on
    }
}
