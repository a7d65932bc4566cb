//! Reading and writing pages of files without waiting: started here, finished later.
//!
//! The buffers of an operation belong to it until it is finished, so that neither the kernel nor a
//! thread ever reaches memory that is in use elsewhere.

#[cfg(test)]
#[path = "../../tests/suite/faults.rs"]
pub(crate) mod faults;
pub(crate) mod threads;
#[cfg(target_os = "linux")]
pub(crate) mod uring;

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use memmap2::MmapMut;

use crate::arena::Slot;
use crate::record::{PAGE, Record};

/// Starts operations and waits for them.
pub trait Io: Send {
    /// Starts `op`, which is known as `id` when it is finished.
    fn start(&mut self, id: u64, op: IoOperation);

    /// Hands over what was started, without waiting; for those that do not do so at once.
    fn flush(&mut self) {}

    /// Adds what is finished to `finished`; waits for that, or for the bell, at most `limit`.
    fn wait(&mut self, limit: Duration, finished: &mut Vec<IoCompletion>);

    /// Returns a bell that ends a wait from another thread.
    fn bell(&self) -> Bell;
}

/// Ends a wait. Cheap; may be called at any time, also after the [`Io`] is gone.
pub type Bell = Arc<dyn Fn() + Send + Sync>;

/// One operation.
#[derive(Debug)]
pub enum IoOperation {
    /// Reads `len` bytes from `offset` on.
    Read {
        /// The file to read.
        file: Arc<File>,
        /// First byte in the file.
        offset: u64,
        /// Room for the bytes.
        buffer: Buffer,
        /// Number of bytes.
        len: usize,
    },
    /// Writes the pieces one behind the other from `offset` on.
    Write {
        /// The file to write.
        file: Arc<File>,
        /// First byte in the file.
        offset: u64,
        /// The bytes.
        pieces: Vec<Buffer>,
    },
    /// Makes what was written durable.
    Sync {
        /// The file to make durable.
        file: Arc<File>,
    },
}

/// An operation that ended.
#[derive(Debug)]
pub struct IoCompletion {
    /// Its id, as given at its start.
    pub id: u64,
    /// The operation, with its buffers.
    pub op: IoOperation,
    /// Whether it worked.
    pub result: std::io::Result<()>,
}

/// Page-aligned bytes.
#[derive(Debug)]
pub enum Buffer {
    /// To be read into.
    Slot(Slot),
    /// To be read into or written, of the store's own.
    Pages(MmapMut),
    /// To be written: all of it.
    Record(Record),
}

impl Buffer {
    /// Allocates `count` zeroed pages, at least one.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn pages(count: usize) -> std::io::Result<MmapMut> {
        MmapMut::map_anon(count.max(1) * PAGE)
    }

    /// Returns the bytes to write.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Slot(slot) => slot,
            Self::Pages(pages) => pages,
            Self::Record(record) => record.bytes(),
        }
    }

    /// Returns the room to read into; empty for a record.
    pub fn room(&mut self) -> &mut [u8] {
        match self {
            Self::Slot(slot) => slot,
            Self::Pages(pages) => pages,
            Self::Record(_) => &mut [],
        }
    }
}

/// Interface for disk access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoKind {
    /// `Uring` where the kernel allows it, `Threads` otherwise.
    #[default]
    Auto,
    /// io_uring.
    Uring,
    /// A few threads that wait.
    Threads,
}

/// The way that `kind` names, for `depth` operations at once; its name beside it.
///
/// # Errors
/// When it cannot be had here.
pub fn open(kind: IoKind, depth: usize) -> std::io::Result<(Box<dyn Io>, &'static str)> {
    let threads = || -> std::io::Result<(Box<dyn Io>, &'static str)> {
        Ok((Box::new(threads::Threads::new(depth)?), "threads"))
    };
    #[cfg(target_os = "linux")]
    {
        if kind != IoKind::Threads {
            match uring::Uring::new(depth) {
                Ok(uring) => return Ok((Box::new(uring), "io_uring")),
                // Only `Auto` falls back to threads: a kind that was asked for by name fails.
                Err(error) if kind == IoKind::Uring => return Err(error),
                Err(_) => {}
            }
        }
        threads()
    }
    #[cfg(not(target_os = "linux"))]
    match kind {
        IoKind::Uring => Err(std::io::ErrorKind::Unsupported.into()),
        IoKind::Auto | IoKind::Threads => threads(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;

    /// Writes pages, reads them back in another order, and is woken.
    fn check(io: &mut dyn Io) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pages");
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = Arc::new(options.open(path).expect("a file"));
        let page = |fill: u8| {
            let mut pages = Buffer::pages(1).expect("memory");
            pages.fill(fill);
            Buffer::Pages(pages)
        };
        for id in 0..10 {
            let op = IoOperation::Write {
                file: file.clone(),
                offset: id * 2 * PAGE as u64,
                pieces: vec![page(id as u8 * 2), page(id as u8 * 2 + 1)],
            };
            io.start(id, op);
            io.flush();
        }
        let mut finished = Vec::new();
        let long = Duration::from_secs(30);
        while finished.len() < 10 {
            io.wait(long, &mut finished);
        }
        assert!(finished.iter().all(|done| done.result.is_ok()));
        io.start(10, IoOperation::Sync { file: file.clone() });
        let arena = Arena::new(PAGE, 20).expect("memory");
        for id in 0..21 {
            let op = IoOperation::Read {
                file: file.clone(),
                offset: (20 - id) * PAGE as u64,
                buffer: Buffer::Slot(arena.take().unwrap_or_else(|| {
                    finished.clear();
                    io.wait(long, &mut finished);
                    finished.retain(|done| done.id >= 100);
                    panic!("20 slots for 20 reads and one beyond the end")
                })),
                len: PAGE,
            };
            if id > 0 {
                io.start(100 + 20 - id, op);
            }
        }
        finished.clear();
        while finished.len() < 21 {
            io.wait(long, &mut finished);
        }
        for done in &finished {
            if let IoOperation::Read { buffer, .. } = &done.op {
                assert!(done.result.is_ok(), "{:?}", done.result);
                let fill = (done.id - 100) as u8;
                assert!(buffer.bytes().iter().all(|&byte| byte == fill));
            }
        }
        let beyond =
            IoOperation::Read { file, offset: 100 * PAGE as u64, buffer: page(0), len: PAGE };
        io.start(7, beyond);
        finished.clear();
        while finished.is_empty() {
            io.wait(long, &mut finished);
        }
        assert!(finished[0].result.is_err(), "there is nothing");
        let bell = io.bell();
        std::thread::spawn(move || bell());
        finished.clear();
        io.wait(long, &mut finished);
        assert!(finished.is_empty(), "woken for nothing but the bell");
    }

    #[test]
    fn threads_read_and_write() {
        check(&mut threads::Threads::new(4).expect("threads"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_ring_reads_and_writes() {
        match uring::Uring::new(4) {
            Ok(mut uring) => check(&mut uring),
            Err(error) => eprintln!("SKIPPED: this kernel gives no io_uring: {error}"),
        }
    }
}
