//! The thread that moves records between a place and an engine's memory.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headstart_core::{BlockHash, IdentityDigest};
use headstart_store::arena::Arena;
use headstart_store::backend::ResidentRecord;
use headstart_store::record::record_bytes;
use headstart_store::rows::{JOB_LIMIT, RowJob, RowReport, RowTransfers, Rows};
use pyo3::prelude::*;

use crate::place::{PlaceError, TierPlace};
use crate::region::Region;

/// Records under way at once: they and their buffers are bounded by this and by
/// [`MOST_BUFFER_BYTES`].
const MOST_RECORDS: usize = 128;

/// Memory for records under way, bytes.
const MOST_BUFFER_BYTES: usize = 256 << 20;

/// Fewest records under way, however large they are.
const FEWEST_RECORDS: usize = 4;

/// A job that hangs is looked for so often.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A wait for all jobs ends after this, because each of them has.
const LONGEST_WAIT: Duration = JOB_LIMIT.saturating_add(Duration::from_secs(5));

enum MoverOrder {
    Job(RowJob),
    Remove(Vec<BlockHash>),
    /// The backend has something to report.
    Wake,
    Stop,
}

/// Moves records on a thread of its own, until dropped.
pub(crate) struct Mover {
    orders: Sender<MoverOrder>,
    /// Read by one thread at a time; locked, because the lock of Python is not held meanwhile.
    reports: Mutex<Receiver<RowReport>>,
    thread: Option<JoinHandle<()>>,
}

/// A mover, and the records that its place had.
pub(crate) struct OpenedMover {
    pub(crate) mover: Mover,
    pub(crate) residents: Vec<ResidentRecord>,
    /// Records that fit the place.
    pub(crate) capacity: usize,
}

impl Mover {
    /// Opens the place and starts the thread.
    pub(crate) fn open(
        place: TierPlace,
        region: Region,
        identity: IdentityDigest,
    ) -> Result<OpenedMover, PlaceError> {
        let (orders, inbox) = channel();
        let wake = orders.clone();
        // The thread may have ended; then there is nothing to wake.
        let waker = Arc::new(move || drop(wake.send(MoverOrder::Wake)));
        let name = place.name();
        let start = |source| PlaceError::Start { place: name.clone(), source };
        let bytes = record_bytes(&[region.row_bytes()]);
        let opened = place.open(bytes, waker)?;
        let slots = (MOST_BUFFER_BYTES / bytes).clamp(FEWEST_RECORDS, MOST_RECORDS);
        let arena = Arena::new(bytes, slots).map_err(start)?;
        let transfers = RowTransfers::new(opened.backend, arena, region, identity);
        let (sender, reports) = channel();
        let thread = std::thread::Builder::new()
            .name("headstart-tier".to_owned())
            .spawn(move || run(transfers, &inbox, &sender))
            .map_err(start)?;
        let mover = Self { orders, reports: Mutex::new(reports), thread: Some(thread) };
        Ok(OpenedMover { mover, residents: opened.residents, capacity: opened.capacity })
    }

    pub(crate) fn submit(&self, job: RowJob) {
        self.order(MoverOrder::Job(job));
    }

    pub(crate) fn remove(&self, names: Vec<BlockHash>) {
        self.order(MoverOrder::Remove(names));
    }

    /// The next report. `Disconnected`: the thread has failed, and moves nothing any more.
    pub(crate) fn report(&self) -> Result<RowReport, TryRecvError> {
        self.reports().try_recv()
    }

    /// Waits for the next report; `None` where none came for longer than a job may take.
    pub(crate) fn wait(&self) -> Option<RowReport> {
        self.reports().recv_timeout(LONGEST_WAIT).ok()
    }

    fn reports(&self) -> MutexGuard<'_, Receiver<RowReport>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, order: MoverOrder) {
        // Fails only where the thread has panicked, which the next `report` says.
        let _ = self.orders.send(order);
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.order(MoverOrder::Stop);
        let Some(thread) = self.thread.take() else {
            return;
        };
        // The thread releases its buffer under Python's lock, which the caller may hold. A panic
        // there has been printed.
        let ended = Python::try_attach(|py| py.detach(|| thread.join()));
        // At the interpreter's end there is no lock any more: the process ends the thread.
        let _ = ended;
    }
}

fn run(
    mut transfers: RowTransfers<Region>,
    inbox: &Receiver<MoverOrder>,
    reports: &Sender<RowReport>,
) {
    let mut out = Vec::new();
    loop {
        let first = match inbox.recv_timeout(LOOK_AGAIN) {
            Ok(order) => Some(order),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        for order in first.into_iter().chain(std::iter::from_fn(|| inbox.try_recv().ok())) {
            match order {
                MoverOrder::Job(job) => transfers.submit(job, Instant::now()),
                MoverOrder::Remove(names) => transfers.remove(names),
                MoverOrder::Wake => {}
                MoverOrder::Stop => {
                    transfers.give_up(Instant::now(), &mut out);
                    return;
                }
            }
        }
        transfers.advance(Instant::now(), &mut out);
        for report in out.drain(..) {
            if reports.send(report).is_err() {
                return;
            }
        }
    }
}
