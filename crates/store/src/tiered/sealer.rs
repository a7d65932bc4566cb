//! The thread that computes and verifies checksums.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use headstart_core::transfer::TransferId;
use headstart_core::{BlockHash, Tier};

use super::notes;
use crate::backend::Waker;
use crate::record::{Draft, Record};

/// Something to do. Each job holds a slot, so that the arena bounds how many there are.
pub(super) enum Job {
    /// A draft is full.
    Seal {
        id: TransferId,
        draft: Draft,
        to: Vec<Tier>,
    },
    /// The prompts that were used last.
    Note {
        path: PathBuf,
        tails: Vec<BlockHash>,
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
}

impl Sealer {
    /// Starts the thread, which calls `waker` after each job.
    pub(super) fn start(waker: Waker) -> std::io::Result<Self> {
        let (jobs, inbox) = channel();
        let (sender, sealed) = channel();
        let thread = std::thread::Builder::new().name("headstart-seal".to_owned());
        let thread = thread.spawn(move || {
            for job in inbox {
                let Some(sealed) = carry_out(job) else {
                    continue;
                };
                if sender.send(sealed).is_err() {
                    return;
                }
                waker();
            }
        })?;
        Ok(Self {
            jobs: Some(jobs),
            sealed,
            thread: Some(thread),
        })
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
    }
}

fn carry_out(job: Job) -> Option<Sealed> {
    Some(match job {
        Job::Seal { id, draft, to } => Sealed::Record {
            id,
            record: draft.seal(),
            to,
        },
        Job::Note { path, tails } => {
            // A hint, which may be missing.
            let _ = notes::write(&path, &tails);
            return None;
        }
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
    })
}
