//! The router's prefix index, fed by KV events.
//!
//! Updates run on a thread of the subscriber, which never takes Python's lock: a program that holds
//! it for long delays no event, and one that waits here stops no other thread.

mod tokens;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headstart_core::block::Namespace;
use headstart_core::{CacheEvent, Nanos, ReplicaId};
use headstart_kv_events::{
    SubscriberConfig, SubscriberHandle, decode_batch, endpoint_of_rank, subscribe,
};
use headstart_router::index::{Prompt, Update};
use headstart_router::stream::{Damage, StreamBatch, StreamUpdate};
use headstart_router::{Overlaps, PrefixIndex, RunIndex};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::runtime::{Builder, Runtime};

use crate::events::unreadable;
use tokens::TokenList;

/// Longest wait for an update that runs when the index is closed.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);

/// An index that threads share, and its clock.
struct ClockedIndex {
    runs: RunIndex,
    opened: Instant,
}

impl ClockedIndex {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn update(&self, replica: ReplicaId, update: Update<'_>) {
        self.runs.update(replica, update, self.now());
    }

    fn on_stream(&self, replica: ReplicaId, update: &StreamUpdate) {
        match update {
            StreamUpdate::Events { events, .. } => self.update(replica, Update::Events(events)),
            StreamUpdate::Clear => self.update(replica, Update::Events(&[CacheEvent::Cleared])),
            StreamUpdate::Doubt { .. } => self.update(replica, Update::Doubt),
            StreamUpdate::Trust => self.update(replica, Update::Trust),
            // The report of the stream tells these.
            StreamUpdate::Skipped { .. } | StreamUpdate::Status(_) => {}
        }
    }

    fn on_batch(&self, replica: ReplicaId, batch: &StreamBatch) {
        self.update(replica, Update::Events(&batch.events));
        // An event that was left out may have removed what the index believes to be there.
        if matches!(batch.damage, Damage::Skipped { may_have_removed: true, .. }) {
            self.update(replica, Update::Doubt);
        }
    }
}

/// A worker, and the subscription to its events.
struct IndexedWorker {
    replica: ReplicaId,
    stream: Option<SubscriberHandle>,
}

/// Workers and their subscriptions. Its lock is never held while Python's is waited for.
#[derive(Default)]
struct WorkerTable {
    workers: BTreeMap<String, IndexedWorker>,
    next_replica: u32,
    runtime: Option<Runtime>,
    is_closed: bool,
}

/// An index of the prefixes that each worker of a fleet has cached, learned from the KV events of
/// vLLM, SGLang and other engines with the same format. The gateway routes by the same index.
///
/// `block_tokens` is the block size of workers that have told none; events tell theirs. Above
/// about `max_bytes` of memory the index forgets what was not used for the longest time.
///
/// An index is a context manager, which closes it, and its methods may be called from any thread.
///
/// >>> from headstart import Index
/// >>> with Index() as index:
/// ...     block = b"\x96\xabBlockStored\x91\x07\xc0\x94\x01\x02\x03\x04\x04\xc0"
/// ...     index.apply("a", b"\x92\x01\x91" + block)
/// ...     index.overlap([1, 2, 3, 4, 5])
/// 1
/// {'a': 4}
#[pyclass(module = "headstart._native", name = "Index", frozen)]
pub(crate) struct WorkerIndex {
    shared: Arc<ClockedIndex>,
    block_tokens: Option<u32>,
    table: Mutex<WorkerTable>,
}

#[pymethods]
impl WorkerIndex {
    /// Raises `ValueError` for a block size of 0.
    #[new]
    #[pyo3(signature = (block_tokens = Some(16), *, max_bytes = 1 << 30),
           text_signature = "(block_tokens=16, *, max_bytes=1073741824)")]
    fn new(block_tokens: Option<u32>, max_bytes: usize) -> PyResult<Self> {
        if block_tokens == Some(0) {
            return Err(PyValueError::new_err("block_tokens: at least 1"));
        }
        let runs = RunIndex::with_budget("", max_bytes);
        let shared = Arc::new(ClockedIndex { runs, opened: Instant::now() });
        Ok(Self { shared, block_tokens, table: Mutex::default() })
    }

    /// Takes over one batch of events of a worker, which becomes known by its first one. `payload`
    /// is the last frame of a message of its publisher. Returns the number of events that were
    /// understood; `decode_events` tells why others were not.
    ///
    /// Batches of a worker are applied in the order of the calls. Nothing notices one that is
    /// missing; `follow` does.
    ///
    /// Raises `ValueError` for bytes that are no batch of events, which change nothing, and for a
    /// worker that is followed.
    fn apply(&self, py: Python<'_>, worker: &str, payload: &[u8]) -> PyResult<usize> {
        let batch = decode_batch(payload).map_err(|error| unreadable(&error))?;
        let replica = {
            let mut table = self.open_table()?;
            if table.workers.get(worker).is_some_and(|known| known.stream.is_some()) {
                let message = format!("worker {worker:?} is followed: its events come by that");
                return Err(PyValueError::new_err(message));
            }
            self.worker(&mut table, worker).replica
        };
        py.detach(|| self.shared.on_batch(replica, &batch));
        Ok(batch.events.len())
    }

    /// Follows the events of a worker from its publisher, on a thread in the background, until
    /// `forget` or `close`. Returns at once; the publisher need not be there yet, and may restart.
    ///
    /// `endpoint` and `replay` are the addresses of the engine's `endpoint` and `replay_endpoint`;
    /// without `replay` events that were missed are lost. `topic` is the start of the topics that
    /// are wanted, and `rank` the data-parallel rank that batches should name. Each rank of an
    /// engine is a worker with an address of its own. What `apply` said of the worker is forgotten.
    ///
    /// Raises `ValueError` for what is no address to connect to, and for a worker that is followed.
    #[pyo3(signature = (endpoint, *, worker, replay = None, topic = "", rank = None))]
    fn follow(
        &self,
        endpoint: &str,
        worker: &str,
        replay: Option<&str>,
        topic: &str,
        rank: Option<u32>,
    ) -> PyResult<()> {
        for address in [Some(endpoint), replay].into_iter().flatten() {
            let checked = endpoint_of_rank(address, 0);
            checked.map_err(|error| PyValueError::new_err(error.to_string()))?;
        }
        let mut table = self.open_table()?;
        if table.workers.get(worker).is_some_and(|known| known.stream.is_some()) {
            let message = format!("worker {worker:?} is followed already; `forget` it first");
            return Err(PyValueError::new_err(message));
        }
        if table.runtime.is_none() {
            let runtime = Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("headstart-events")
                .enable_all()
                .build();
            let no_thread = |error| PyOSError::new_err(format!("no thread for events: {error}"));
            table.runtime = Some(runtime.map_err(no_thread)?);
        }
        let config = SubscriberConfig {
            endpoint: endpoint.to_owned(),
            replay_endpoint: replay.map(str::to_owned),
            topic_prefix: topic.to_owned(),
            rank,
            replica: worker.to_owned(),
            upstream: None,
        };
        // What `apply` said of it may be out of date, and the stream tells it again.
        if let Some(known) = table.workers.remove(worker) {
            self.shared.update(known.replica, Update::Forget);
        }
        let replica = self.worker(&mut table, worker).replica;
        // The index takes an update at once, so nothing piles up between the socket and it.
        let shared = Arc::clone(&self.shared);
        let sink = move |update| shared.on_stream(replica, &update);
        let stream = {
            let _context = table.runtime.as_ref().map(Runtime::enter);
            subscribe(config, sink)
        };
        self.worker(&mut table, worker).stream = Some(stream);
        Ok(())
    }

    /// The leading tokens of a prompt that each worker has cached, in whole blocks; workers that
    /// have none of it are left out. `tokens` is a list or an array of 32 or 64 bits.
    ///
    /// `salt` and `adapter` are the cache salt and the LoRA adapter of the request. With
    /// `device_only` blocks in host memory and below do not count.
    ///
    /// Blocks count for five minutes after events that may have removed them were lost.
    #[pyo3(signature = (tokens, *, salt = None, adapter = None, device_only = false))]
    fn overlap(
        &self,
        py: Python<'_>,
        tokens: TokenList,
        salt: Option<&str>,
        adapter: Option<&str>,
        device_only: bool,
    ) -> PyResult<BTreeMap<String, u32>> {
        let TokenList(tokens) = tokens;
        let prompt = Prompt {
            tokens: &tokens,
            media: &[],
            namespace: Namespace { adapter: filled(adapter), salt: filled(salt) },
        };
        let overlaps = py.detach(|| {
            let mut overlaps = Overlaps::default();
            let keys = self.shared.runs.hash(prompt);
            self.shared.runs.overlaps(&keys, self.shared.now(), &mut overlaps);
            overlaps
        });
        let table = self.open_table()?;
        let found = table.workers.iter().filter_map(|(name, worker)| {
            let overlap = overlaps.of(worker.replica);
            let tokens = if device_only { overlap.device_tokens } else { overlap.any_tier_tokens };
            (tokens > 0).then(|| (name.clone(), tokens))
        });
        Ok(found.collect())
    }

    /// The names of the workers that are known, in alphabetical order.
    fn workers(&self) -> PyResult<Vec<String>> {
        Ok(self.open_table()?.workers.keys().cloned().collect())
    }

    /// The state of a worker's event stream; `None` where the worker is not followed.
    ///
    /// `status` is `down`, `replaying`, `partial` (something is missing for good) or `complete`.
    /// `problem` is a text with a suggested fix, or `None`. `applied_batches`, `lost_batches`,
    /// `damaged_batches` (something of them was skipped), `bad_messages` and `restarts` count since
    /// `follow`.
    fn stream<'py>(&self, py: Python<'py>, worker: &str) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (report, problem) = {
            let table = self.open_table()?;
            let known = table.workers.get(worker);
            let Some(stream) = known.and_then(|known| known.stream.as_ref()) else {
                return Ok(None);
            };
            (stream.report(), stream.reporter().problem())
        };
        let dict = PyDict::new(py);
        dict.set_item("status", report.status.name())?;
        dict.set_item("problem", problem)?;
        dict.set_item("applied_batches", report.applied_batches)?;
        dict.set_item("lost_batches", report.lost_batches)?;
        dict.set_item("damaged_batches", report.damaged_batches)?;
        dict.set_item("bad_messages", report.bad_messages)?;
        dict.set_item("restarts", report.epoch)?;
        Ok(Some(dict))
    }

    /// Forgets a worker and what it holds, and follows it no longer. No effect on one that is not
    /// known.
    fn forget(&self, py: Python<'_>, worker: &str) -> PyResult<()> {
        let removed = self.open_table()?.workers.remove(worker);
        if let Some(IndexedWorker { replica, stream }) = removed {
            py.detach(|| {
                drop(stream);
                self.shared.update(replica, Update::Forget);
            });
        }
        Ok(())
    }

    /// Ends all subscriptions. Other calls raise `RuntimeError` from then on; another `close` does
    /// nothing.
    fn close(&self, py: Python<'_>) {
        let (workers, runtime) = {
            let mut table = self.table();
            table.is_closed = true;
            (std::mem::take(&mut table.workers), table.runtime.take())
        };
        py.detach(|| {
            drop(workers);
            if let Some(runtime) = runtime {
                runtime.shutdown_timeout(CLOSE_TIME_MAX);
            }
        });
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let table = self.table();
        if table.is_closed {
            return "Index(closed)".to_owned();
        }
        format!("Index({} workers)", table.workers.len())
    }
}

impl WorkerIndex {
    fn table(&self) -> MutexGuard<'_, WorkerTable> {
        // A panic under the lock has told of a fault already.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_table(&self) -> PyResult<MutexGuard<'_, WorkerTable>> {
        let table = self.table();
        if table.is_closed {
            return Err(PyRuntimeError::new_err("the index is closed"));
        }
        Ok(table)
    }

    /// The worker of this name, known from now on.
    fn worker<'a>(&self, table: &'a mut WorkerTable, name: &str) -> &'a mut IndexedWorker {
        let WorkerTable { workers, next_replica, .. } = table;
        workers.entry(name.to_owned()).or_insert_with(|| {
            let replica = ReplicaId(*next_replica);
            *next_replica += 1;
            self.shared.update(replica, Update::Track { block_size: self.block_tokens });
            IndexedWorker { replica, stream: None }
        })
    }
}

impl Drop for WorkerIndex {
    fn drop(&mut self) {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = table.runtime.take() {
            // Waits for nothing: the caller may hold Python's lock.
            runtime.shutdown_background();
        }
    }
}

/// A text that says something: engines take an empty salt or adapter for none.
fn filled(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}
