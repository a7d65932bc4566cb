//! The thread that computes and verifies checksums, and the one that notes what was used last: a
//! disk that hangs delays nothing but its own notes.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headstart_core::transfer::TransferId;
use headstart_core::{BlockHash, Tier};

use super::notes;
use crate::backend::Waker;
use crate::record::{Draft, Record};

/// How long the last note may take when all ends.
const NOTE_PATIENCE: Duration = Duration::from_secs(2);

/// Something to do. Each job holds a slot, so that the arena bounds how many there are.
pub(super) enum Job {
    /// A draft is full.
    Seal {
        id: TransferId,
        draft: Draft,
        to: Vec<Tier>,
    },
    /// A record of host memory is to be used: it may have been harmed there.
    Verify { id: TransferId, record: Record },
}

/// What became of it.
pub(super) enum Sealed {
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
}

/// The thread, seen from outside.
pub(super) struct Sealer {
    jobs: Option<Sender<Job>>,
    sealed: Receiver<Sealed>,
    thread: Option<JoinHandle<()>>,
    notes: Option<SyncSender<Note>>,
    /// Closed when nothing is noted any more.
    noting: Receiver<()>,
}

/// Where to, and the ends of the prompts that were used last.
type Note = (PathBuf, Vec<BlockHash>);

impl Sealer {
    /// Starts the thread, which calls `waker` after each job.
    pub(super) fn start(waker: Waker) -> std::io::Result<Self> {
        let (notes, noting) = start_noting()?;
        let (jobs, inbox) = channel();
        let (sender, sealed) = channel();
        let thread = std::thread::Builder::new().name("headstart-seal".to_owned());
        let thread = thread.spawn(move || {
            for job in inbox {
                if sender.send(carry_out(job)).is_err() {
                    return;
                }
                waker();
            }
        })?;
        Ok(Self {
            jobs: Some(jobs),
            sealed,
            thread: Some(thread),
            notes: Some(notes),
            noting,
        })
    }

    /// Notes what was used last, unless two are on their way: more will follow.
    pub(super) fn note(&self, path: PathBuf, tails: Vec<BlockHash>) {
        if let Some(notes) = &self.notes {
            let _ = notes.try_send((path, tails));
        }
    }

    pub(super) fn submit(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // The thread ends with this value only.
            let _ = jobs.send(job);
        }
    }

    pub(super) fn poll(&self) -> Option<Sealed> {
        self.sealed.try_recv().ok()
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.notes = None;
        let _ = self.noting.recv_timeout(NOTE_PATIENCE);
    }
}

/// A thread of its own, which nobody waits for without a limit.
fn start_noting() -> std::io::Result<(SyncSender<Note>, Receiver<()>)> {
    let (notes, inbox) = sync_channel::<Note>(1);
    let (is_noting, noting) = channel();
    let thread = std::thread::Builder::new().name("headstart-note".to_owned());
    thread.spawn(move || {
        for (path, tails) in inbox {
            // A hint, which may be missing.
            let _ = notes::write(&path, &tails);
        }
        drop::<Sender<()>>(is_noting);
    })?;
    Ok((notes, noting))
}

fn carry_out(job: Job) -> Sealed {
    match job {
        Job::Seal { id, draft, to } => Sealed::Record {
            id,
            record: draft.seal(),
            to,
        },
        Job::Verify { id, record } => {
            let mut parts = 0..record.num_parts();
            match parts.try_for_each(|part| record.verify_part(part)) {
                Ok(()) => {
                    let record = record.with_since(Instant::now());
                    Sealed::Unharmed { id, record }
                }
                Err(_) => Sealed::Damaged {
                    id,
                    name: record.meta().name,
                },
            }
        }
    }
}
