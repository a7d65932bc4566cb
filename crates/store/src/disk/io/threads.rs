//! Threads that wait for the disk, where there is no io_uring.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Bell, Buffer, Io, IoCompletion, IoOperation};

/// More threads than this gain nothing: each has one operation with the disk.
const MOST_THREADS: usize = 16;

/// Operations on a few threads.
pub(crate) struct Threads {
    jobs: Option<Sender<(u64, IoOperation)>>,
    signals: Receiver<IoSignal>,
    sender: Sender<IoSignal>,
    threads: Vec<JoinHandle<()>>,
}

enum IoSignal {
    Finished(Box<IoCompletion>),
    Bell,
}

impl Threads {
    /// Threads for `depth` operations at once, within reason.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn new(depth: usize) -> std::io::Result<Self> {
        let (jobs, inbox) = channel::<(u64, IoOperation)>();
        let (sender, signals) = channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let work = |_| {
            let (inbox, sender) = (inbox.clone(), sender.clone());
            let name = "headstart-disk-io".to_owned();
            let thread = std::thread::Builder::new().name(name);
            thread.spawn(move || work(&inbox, &sender))
        };
        let threads = (0..depth.clamp(1, MOST_THREADS)).map(work);
        let threads = threads.collect::<std::io::Result<_>>()?;
        Ok(Self { jobs: Some(jobs), signals, sender, threads })
    }
}

impl Io for Threads {
    fn start(&mut self, id: u64, op: IoOperation) {
        let jobs = self.jobs.as_ref().expect("there until dropped");
        jobs.send((id, op)).expect("the threads live as long");
    }

    fn wait(&mut self, limit: Duration, finished: &mut Vec<IoCompletion>) {
        // One wait, then all that has ended by now: the worker handles them as a batch.
        let first = self.signals.recv_timeout(limit).into_iter();
        for signal in first.chain(self.signals.try_iter()) {
            if let IoSignal::Finished(done) = signal {
                finished.push(*done);
            }
        }
    }

    fn bell(&self) -> Bell {
        let sender = Mutex::new(self.sender.clone());
        Arc::new(move || {
            let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
            // If the receiver is gone, there is nothing to wake.
            let _ = sender.send(IoSignal::Bell);
        })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Without a sender, `recv` fails once the queue is empty, and the threads end.
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn work(inbox: &Mutex<Receiver<(u64, IoOperation)>>, sender: &Sender<IoSignal>) {
    loop {
        // One thread waits in `recv` with the lock; the others wait for the lock.
        let job = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((id, mut op)) = job else { return };
        let result = carry_out(&mut op);
        let done = Box::new(IoCompletion { id, op, result });
        if sender.send(IoSignal::Finished(done)).is_err() {
            return;
        }
    }
}

/// Does it, waiting.
pub(super) fn carry_out(op: &mut IoOperation) -> std::io::Result<()> {
    match op {
        IoOperation::Read { file, offset, buffer, len } => {
            let room = buffer.room().get_mut(..*len);
            file.read_exact_at(room.ok_or(ErrorKind::InvalidInput)?, *offset)
        }
        IoOperation::Write { file, offset, pieces } => write(file, *offset, pieces),
        // The file has its full length from the start, so `fdatasync` is enough.
        IoOperation::Sync { file } => file.sync_data(),
    }
}

fn write(file: &File, mut offset: u64, pieces: &[Buffer]) -> std::io::Result<()> {
    for piece in pieces {
        file.write_all_at(piece.bytes(), offset)?;
        offset += piece.bytes().len() as u64;
    }
    Ok::<(), Error>(())
}
