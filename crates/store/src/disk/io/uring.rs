//! io_uring: many operations, one thread, two system calls for a batch of them.

use std::collections::{HashMap, VecDeque};
use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::event::EventfdFlags;

use super::{Bell, Io, IoCompletion, IoOperation};

/// Id of the bell's own read.
const BELL: u64 = u64::MAX;

/// Operations through a ring.
pub(crate) struct Uring {
    ring: IoUring,
    /// Known to the kernel; each box stays where it is until its completion was seen.
    flying: HashMap<u64, Box<Flying>>,
    /// Beyond what the ring takes at once.
    queue: VecDeque<(u64, IoOperation)>,
    depth: usize,
    bell: Arc<OwnedFd>,
    /// The bell's count, written by the kernel.
    count: Box<u64>,
    is_listening: bool,
}

struct Flying {
    op: IoOperation,
    pieces: Vec<libc::iovec>,
    bytes: usize,
}

// SAFETY: the pointers in `pieces` lead into buffers that `op` owns and that are themselves `Send`;
// only the kernel follows them.
unsafe impl Send for Flying {}

impl Uring {
    /// A ring for `depth` operations at once.
    ///
    /// # Errors
    /// When the kernel gives none, or one that cannot wait with a limit (before 5.11).
    pub(crate) fn new(depth: usize) -> std::io::Result<Self> {
        let depth = depth.clamp(1, 1024);
        // One entry more than the depth: the bell's read is always under way.
        let entries = (depth as u32 + 1).next_power_of_two();
        let ring = IoUring::builder().setup_clamp().build(entries)?;
        if !ring.params().is_feature_ext_arg() {
            return Err(ErrorKind::Unsupported.into());
        }
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self {
            ring,
            flying: HashMap::new(),
            queue: VecDeque::new(),
            depth,
            bell: Arc::new(bell),
            count: Box::new(0),
            is_listening: false,
        })
    }

    /// Moves queued operations into the ring.
    fn fill(&mut self) {
        if !self.is_listening {
            let bell = Fd(self.bell.as_raw_fd());
            let count: *mut u64 = &raw mut *self.count;
            // The bell is a pending read in the ring, so that one wait
            // covers the disk and the bell.
            let entry = opcode::Read::new(bell, count.cast(), 8).build();
            self.is_listening = self.push(entry.user_data(BELL));
        }
        while self.flying.len() < self.depth {
            let Some((id, op)) = self.queue.pop_front() else {
                return;
            };
            let mut flying = Box::new(Flying { op, pieces: Vec::new(), bytes: 0 });
            let entry = flying.entry().user_data(id);
            // The map owns it before the kernel gets pointers into it.
            self.flying.insert(id, flying);
            let is_taken = self.push(entry);
            assert!(is_taken, "the ring has room for its depth and the bell");
        }
    }

    fn push(&mut self, entry: Entry) -> bool {
        // SAFETY: what the entry points to is owned by a box in `flying`, or is `count`. Both are
        // only dropped after the completion was seen (`Drop` waits for that).
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }

    fn collect(&mut self, finished: &mut Vec<IoCompletion>) {
        for completion in self.ring.completion() {
            let (id, result) = (completion.user_data(), completion.result());
            if id == BELL {
                // The next `fill` starts the read again.
                self.is_listening = false;
                continue;
            }
            let flying = self.flying.remove(&id).expect("completions are of ours");
            let result = match result {
                code if code < 0 => Err(Error::from_raw_os_error(-code)),
                // A short read means the end of the file. A short write is not
                // continued: it counts as failed.
                bytes if (bytes as usize) < flying.bytes => Err(ErrorKind::UnexpectedEof.into()),
                _ => Ok(()),
            };
            let op = flying.op;
            finished.push(IoCompletion { id, op, result });
        }
    }
}

impl Flying {
    fn entry(&mut self) -> Entry {
        match &mut self.op {
            IoOperation::Read { file, offset, buffer, len } => {
                let room = buffer.room();
                self.bytes = *len;
                assert!(*len <= room.len(), "what is read fits its buffer");
                let read = opcode::Read::new(Fd(file.as_raw_fd()), room.as_mut_ptr(), *len as u32);
                read.offset(*offset).build()
            }
            IoOperation::Write { file, offset, pieces } => {
                let pieces = pieces.iter().map(|piece| libc::iovec {
                    iov_base: piece.bytes().as_ptr().cast_mut().cast(),
                    iov_len: piece.bytes().len(),
                });
                self.pieces = pieces.collect();
                self.bytes = self.pieces.iter().map(|piece| piece.iov_len).sum();
                let count = self.pieces.len() as u32;
                let write = opcode::Writev::new(Fd(file.as_raw_fd()), self.pieces.as_ptr(), count);
                write.offset(*offset).build()
            }
            IoOperation::Sync { file } => {
                opcode::Fsync::new(Fd(file.as_raw_fd())).flags(FsyncFlags::DATASYNC).build()
            }
        }
    }
}

impl Io for Uring {
    fn start(&mut self, id: u64, op: IoOperation) {
        self.queue.push_back((id, op));
    }

    fn flush(&mut self) {
        if !self.queue.is_empty() {
            self.fill();
            // What the kernel does not take now it takes with the next call.
            let _ = self.ring.submit();
        }
    }

    fn wait(&mut self, limit: Duration, finished: &mut Vec<IoCompletion>) {
        self.fill();
        let limit = Timespec::from(limit);
        let arguments = SubmitArgs::new().timespec(&limit);
        // Interrupted or out of time: whatever is there is collected all the same.
        let _ = self.ring.submitter().submit_with_args(1, &arguments);
        self.collect(finished);
        // Completions have made room in the ring for queued operations.
        self.flush();
    }

    fn bell(&self) -> Bell {
        let bell = self.bell.clone();
        Arc::new(move || {
            // It only fails when it was rung 2^64 times unheard.
            let _ = rustix::io::write(bell.as_fd(), &1u64.to_ne_bytes());
        })
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.queue.clear();
        // Ends the bell's read, or the kernel could later write to the freed `count`.
        self.bell()();
        let mut finished = Vec::new();
        while !self.flying.is_empty() || self.is_listening {
            if let Err(error) = self.ring.submit_and_wait(1)
                && error.kind() != ErrorKind::Interrupted
            {
                // The kernel may still write to these: better lost than freed.
                std::mem::forget(std::mem::take(&mut self.flying));
                std::mem::forget(std::mem::take(&mut self.count));
                return;
            }
            self.collect(&mut finished);
        }
    }
}
