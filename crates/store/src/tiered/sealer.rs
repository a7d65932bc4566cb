//! The thread that computes and verifies checksums, and the one that notes what was used last: a
//! disk that hangs delays nothing but its own notes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headstart_core::transfer::{PartName, TokenFormat, TransferId};
use headstart_core::{BlockHash, Tier};

use super::notes;
use crate::arena::Slot;
use crate::backend::Waker;
use crate::record::{Draft, PartBytes, Record};

/// Time that the last note may take at the end.
const NOTE_PATIENCE: Duration = Duration::from_secs(2);

/// Something to do. Each job but the last one of a pack holds a slot, so that arenas bound how many
/// there are.
pub(super) enum SealerJob {
    /// A draft is full.
    Seal { id: TransferId, draft: Draft, to: Vec<Tier> },
    /// A record of host memory is to be used: it may have been harmed there.
    Verify { id: TransferId, record: Record },
    /// The same of one part, which is copied to a slot of its own.
    CopyPart { name: PartName, record: Record, slot: Slot },
    /// A pack is begun; one that was not ended is given up.
    BeginPack { draft: Draft, description: Vec<u8> },
    /// Tokens of a unit go to their places in it.
    CopyTokens { tokens: Tokens, format: Arc<dyn TokenFormat> },
    /// Everything is in its place.
    EndPack { pack: u64, expires_s: Option<u64> },
}

/// Tokens of a part, and where they go in a pack.
pub(super) struct Tokens {
    pub(super) from: PartBytes,
    /// Moves of tokens: their positions in the part and in the pack.
    pub(super) moves: Vec<(u32, u32)>,
    pub(super) unit_tokens: u32,
}

/// Result of a job.
pub(super) enum SealerResult {
    Record {
        id: TransferId,
        record: Record,
        to: Vec<Tier>,
    },
    Unharmed {
        id: TransferId,
        record: Record,
    },
    Damaged {
        id: TransferId,
        name: BlockHash,
    },
    /// A part of a record of host memory, as it is or not.
    Part {
        name: PartName,
        copied: Option<PartBytes>,
    },
    /// Tokens are in their places, and the slot that they were read to is free.
    Copied,
    Packed {
        pack: u64,
        record: Record,
    },
}

/// The thread, seen from outside.
pub(super) struct Sealer {
    jobs: Option<Sender<SealerJob>>,
    sealed: Receiver<SealerResult>,
    thread: Option<JoinHandle<()>>,
    notes: Option<SyncSender<Note>>,
    /// Closed when nothing is noted any more.
    noting: Receiver<()>,
}

/// The file, and the ends of the last used prompts.
type Note = (PathBuf, Vec<BlockHash>);

impl Sealer {
    /// Starts the thread, which calls `waker` after each job.
    pub(super) fn start(waker: Waker) -> std::io::Result<Self> {
        let (notes, noting) = start_noting()?;
        let (jobs, inbox) = channel();
        let (sender, sealed) = channel();
        let thread = std::thread::Builder::new().name("headstart-seal".to_owned());
        let thread = thread.spawn(move || {
            let mut pack = None;
            for job in inbox {
                let Some(sealed) = carry_out(job, &mut pack) else {
                    continue;
                };
                if sender.send(sealed).is_err() {
                    return;
                }
                waker();
            }
        })?;
        Ok(Self { jobs: Some(jobs), sealed, thread: Some(thread), notes: Some(notes), noting })
    }

    /// Notes what was used last, unless two are on their way: more will follow.
    pub(super) fn note(&self, path: PathBuf, tails: Vec<BlockHash>) {
        if let Some(notes) = &self.notes {
            let _ = notes.try_send((path, tails));
        }
    }

    pub(super) fn submit(&self, job: SealerJob) {
        if let Some(jobs) = &self.jobs {
            // The thread ends with this value only.
            let _ = jobs.send(job);
        }
    }

    pub(super) fn poll(&self) -> Option<SealerResult> {
        self.sealed.try_recv().ok()
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        // Closes the channel: the thread ends after the jobs that wait.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.notes = None;
        // A disk may hang: after this time the thread is left to itself.
        let _ = self.noting.recv_timeout(NOTE_PATIENCE);
    }
}

/// Starts the thread that writes notes; it is waited for with a timeout only.
fn start_noting() -> std::io::Result<(SyncSender<Note>, Receiver<()>)> {
    let (notes, inbox) = sync_channel::<Note>(1);
    let (is_noting, noting) = channel();
    let thread = std::thread::Builder::new().name("headstart-note".to_owned());
    thread.spawn(move || {
        for (path, tails) in inbox {
            // A hint, which may be missing.
            let _ = notes::write(&path, &tails);
        }
        // The thread owns the sender, so its end closes the channel that `drop` waits for.
        drop::<Sender<()>>(is_noting);
    })?;
    Ok((notes, noting))
}

/// Does a job, beside the pack that was begun.
fn carry_out(job: SealerJob, pack: &mut Option<Draft>) -> Option<SealerResult> {
    Some(match job {
        SealerJob::Seal { id, draft, to } => SealerResult::Record { id, record: draft.seal(), to },
        SealerJob::Verify { id, record } => {
            let mut parts = 0..record.num_parts();
            match parts.try_for_each(|part| record.verify_part(part)) {
                Ok(()) => {
                    let record = record.with_since(Instant::now());
                    SealerResult::Unharmed { id, record }
                }
                Err(_) => SealerResult::Damaged { id, name: record.meta().name },
            }
        }
        SealerJob::CopyPart { name, record, slot } => {
            let copied = PartBytes::copied(&record, name.part, slot).ok();
            SealerResult::Part { name, copied }
        }
        SealerJob::BeginPack { mut draft, description } => {
            draft.part_mut(0).copy_from_slice(&description);
            // The last chunk may be longer than its tokens.
            let last = draft.num_parts() - 1;
            draft.part_mut(last).fill(0);
            *pack = Some(draft);
            return None;
        }
        SealerJob::CopyTokens { tokens, format } => {
            if let Some(draft) = pack {
                copy(&tokens, &*format, draft);
            }
            SealerResult::Copied
        }
        SealerJob::EndPack { pack: number, expires_s } => {
            let mut draft = pack.take()?;
            draft.expires_at(expires_s);
            SealerResult::Packed { pack: number, record: draft.seal() }
        }
    })
}

fn copy(tokens: &Tokens, format: &dyn TokenFormat, draft: &mut Draft) {
    for &(at, to) in &tokens.moves {
        // Part 0 is the description.
        let chunk = 1 + (to / tokens.unit_tokens) as usize;
        let to_at = (to % tokens.unit_tokens) as usize;
        let to = draft.part_mut(chunk);
        format.copy_token(tokens.from.bytes(), at as usize, to, to_at);
    }
}
