//! A tier on disk below an engine's CPU tier.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc::TryRecvError;
use std::sync::{Mutex, PoisonError};

use headstart_cache::policy::{Setting, by_name};
use headstart_cache::tiers::ExternalTier;
use headstart_core::{Access, BlockHash, IdentityDigest, Nanos};
use headstart_store::DiskOptions;
use headstart_store::backend::{Condition, Report};
use headstart_store::disk::DiskError;
use headstart_store::rows::{EndedJob, MoveFailure, RowJob, RowJobKind, RowRecord, RowReport};
use pyo3::exceptions::{PyBlockingIOError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::key::name_of;
use crate::mover::{Mover, OpenedMover};
use crate::region::Region;
use crate::usage::Use;

/// A job that has ended: its id, whether all of it was moved, keys that were, seconds, and bytes.
type EndedTierJob = (u64, bool, Vec<Py<PyBytes>>, f64, u64);

/// Blocks of an engine's CPU tier on disk, each with its checksum.
///
/// `rows` is the engine's memory, a writable matrix of bytes; a row is a block. `identity` are 16
/// bytes that stand for all that decides about a block's bytes beside its key: the weights, the
/// data type, the layout, the rank. A block of another identity is never loaded.
///
/// Raises `ValueError` for a policy that is not known or a matrix of another form,
/// `BlockingIOError` where another process uses the folder, and `OSError` where the folder cannot
/// be used or the budget is too small.
#[pyclass(module = "headstart._native")]
pub(crate) struct DiskTier {
    /// Locked by nothing but `&mut self`, but Python wants an object that threads can share.
    state: Mutex<TierState>,
}

struct TierState {
    /// `None` once closed.
    mover: Option<Mover>,
    index: ExternalTier,
    identity: [u8; 16],
    capacity: usize,
    num_rows: usize,
    /// Keys of the records here, where they are known: after a start only names are.
    keys: HashMap<BlockHash, Py<PyBytes>>,
    jobs: HashMap<u64, TierJob>,
    /// Ended jobs that Python has not taken.
    ended: VecDeque<EndedTierJob>,
    /// Blocks that came and went: key, and whether it came.
    changes: Vec<(Py<PyBytes>, bool)>,
    counts: BlockCounts,
    condition: String,
}

struct TierJob {
    kind: RowJobKind,
    /// The blocks that are moved.
    keys: Vec<(BlockHash, Py<PyBytes>)>,
    /// Blocks were asked for that are not here.
    has_missing: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct BlockCounts {
    stored: u64,
    loaded: u64,
    evicted: u64,
    declined: u64,
    damaged: u64,
    failed: u64,
}

#[pymethods]
impl DiskTier {
    #[new]
    #[pyo3(signature = (folder, budget_bytes, rows, identity, *, policy = "hazard",
                        block_tokens = 16))]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        budget_bytes: u64,
        rows: &Bound<'_, PyAny>,
        identity: [u8; 16],
        policy: &str,
        block_tokens: u32,
    ) -> PyResult<Self> {
        let region = Region::new(rows)?;
        let num_rows = region.num_rows();
        // Made before the folder is opened, so that a wrong name leaves nothing behind.
        let made = |capacity| by_name(policy, Setting { capacity, block_tokens });
        made(1).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let options = DiskOptions::new(folder, budget_bytes);
        let opened = py.detach(|| Mover::open(options, region, IdentityDigest(identity)));
        let OpenedMover { mover, residents, capacity } = opened.map_err(|error| refusal(&error))?;
        let policy = made(capacity).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let mut index = ExternalTier::below(capacity, policy);
        let mut surplus = Vec::new();
        // Newest first where they do not all fit, and inserted oldest first.
        let kept = residents.len().saturating_sub(capacity);
        for (at, resident) in residents.iter().enumerate() {
            let is_here =
                at >= kept && index.insert(resident.name, resident.parent, &Access::default());
            if is_here {
                index.commit(resident.name);
            } else {
                surplus.push(resident.name);
            }
        }
        if !surplus.is_empty() {
            mover.remove(surplus);
        }
        let state = TierState {
            mover: Some(mover),
            index,
            identity,
            capacity,
            num_rows,
            keys: HashMap::new(),
            jobs: HashMap::new(),
            ended: VecDeque::new(),
            changes: Vec::new(),
            counts: BlockCounts::default(),
            condition: String::new(),
        };
        Ok(Self { state: Mutex::new(state) })
    }

    /// Blocks that fit the budget.
    #[getter]
    fn capacity(&mut self) -> usize {
        self.state().capacity
    }

    fn __len__(&mut self) -> usize {
        self.state().index.size().1
    }

    /// `True`: the block can be loaded; `None`: soon; `False`: it is not here.
    fn lookup(&mut self, key: Bound<'_, PyBytes>) -> Option<bool> {
        let state = self.state();
        let name = state.name_of(key.as_bytes());
        if !state.index.knows(name) {
            return Some(false);
        }
        if state.index.is_writing(name) {
            return None;
        }
        // Found at the start: its key is known now, so that routers can hear of it.
        if !state.keys.contains_key(&name) {
            state.changes.push((key.clone().unbind(), true));
            state.keys.insert(name, key.unbind());
        }
        Some(true)
    }

    /// Stores blocks of a prompt from rows; `parents` are the keys before them, where known. Blocks
    /// that are here, or that find no room, are left out. Returns the number that is stored.
    fn store(
        &mut self,
        py: Python<'_>,
        job: u64,
        keys: Vec<Bound<'_, PyBytes>>,
        parents: Vec<Option<PyBackedBytes>>,
        rows: Vec<usize>,
        of: &Use,
    ) -> PyResult<usize> {
        let state = self.state();
        state.check(job, keys.len(), &rows)?;
        let parents = parents.iter().map(|parent| parent.as_ref().map(|key| &key[..]));
        let mut blocks = Vec::new();
        for ((key, parent), &row) in keys.iter().zip(parents).zip(&rows) {
            let name = state.name_of(key.as_bytes());
            if !state.index.knows(name) {
                let parent = parent.map(|parent| state.name_of(parent));
                blocks.push((RowRecord { name, parent, row }, key.clone().unbind()));
            }
        }
        state.make_room(&mut blocks, of.0.now);
        let mut stored = Vec::new();
        let mut kept = Vec::new();
        for (record, key) in blocks {
            // A prompt that has a block twice stores it once.
            if state.index.insert(record.name, record.parent, &of.0) {
                stored.push(record);
                kept.push((record.name, key));
            }
        }
        let store = TierJob { kind: RowJobKind::Store, keys: kept, has_missing: false };
        Ok(state.begin(py, job, store, stored))
    }

    /// Loads blocks into rows. Those that are not here fail.
    fn load(
        &mut self,
        py: Python<'_>,
        job: u64,
        keys: Vec<Bound<'_, PyBytes>>,
        rows: Vec<usize>,
    ) -> PyResult<usize> {
        let state = self.state();
        state.check(job, keys.len(), &rows)?;
        let (mut loaded, mut kept) = (Vec::new(), Vec::new());
        for (key, &row) in keys.iter().zip(&rows) {
            let name = state.name_of(key.as_bytes());
            if state.index.knows(name) && !state.index.is_writing(name) {
                state.index.pin(name);
                loaded.push(RowRecord { name, parent: None, row });
                kept.push((name, key.clone().unbind()));
            }
        }
        let missing = keys.len() - loaded.len();
        state.counts.failed += missing as u64;
        let load = TierJob { kind: RowJobKind::Load, keys: kept, has_missing: missing > 0 };
        Ok(state.begin(py, job, load, loaded))
    }

    /// One request's use of the blocks of its prompt, in order from the first.
    fn touch(&mut self, keys: Vec<PyBackedBytes>, of: &Use) {
        let state = self.state();
        let names: Vec<BlockHash> = keys.iter().map(|key| state.name_of(key)).collect();
        state.index.touch(&names, &of.0);
    }

    /// The jobs that have ended since the last call: id, whether all was moved, the keys that were,
    /// seconds, and bytes.
    fn finished(&mut self, py: Python<'_>) -> Vec<EndedTierJob> {
        let state = self.state();
        while let Some(mover) = &state.mover {
            match mover.report() {
                Ok(report) => state.take(py, report),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => state.stop(py),
            }
        }
        state.ended.drain(..).collect()
    }

    /// Waits until all jobs have ended; `finished` still returns them.
    fn drain(&mut self, py: Python<'_>) {
        let state = self.state();
        while !state.jobs.is_empty() {
            let Some(mover) = &state.mover else { return };
            match py.detach(|| mover.wait()) {
                Some(report) => state.take(py, report),
                None => state.stop(py),
            }
        }
    }

    /// Whether jobs have not ended.
    #[getter]
    fn is_busy(&mut self) -> bool {
        !self.state().jobs.is_empty()
    }

    /// Blocks that came to the disk and went from it since the last call: key, and whether it came.
    fn changes(&mut self) -> Vec<(Py<PyBytes>, bool)> {
        std::mem::take(&mut self.state().changes)
    }

    /// Counts of blocks since the start: stored, loaded, evicted, declined (no room), damaged and
    /// failed.
    fn counts(&mut self) -> [(&'static str, u64); 6] {
        let counts = self.state().counts;
        [
            ("stored", counts.stored),
            ("loaded", counts.loaded),
            ("evicted", counts.evicted),
            ("declined", counts.declined),
            ("damaged", counts.damaged),
            ("failed", counts.failed),
        ]
    }

    /// The fault of the folder in words; empty where it works.
    #[getter]
    fn condition(&mut self) -> String {
        self.state().condition.clone()
    }

    /// Ends what runs and closes the folder.
    fn close(&mut self, py: Python<'_>) {
        self.state().stop(py);
    }
}

impl DiskTier {
    fn state(&mut self) -> &mut TierState {
        // A panic under the lock has told of a fault already.
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TierState {
    /// The name of a key's block under this identity.
    fn name_of(&self, key: &[u8]) -> BlockHash {
        let BlockHash(mut name) = name_of(key);
        for (byte, own) in name.iter_mut().zip(self.identity) {
            *byte ^= own;
        }
        BlockHash(name)
    }

    fn check(&self, job: u64, num_keys: usize, rows: &[usize]) -> PyResult<()> {
        let wrong = |message: String| Err(PyValueError::new_err(message));
        if self.jobs.contains_key(&job) {
            return wrong(format!("job {job} has not ended"));
        }
        if num_keys != rows.len() {
            return wrong(format!("job {job} has {num_keys} keys and {} rows", rows.len()));
        }
        match rows.iter().find(|&&row| row >= self.num_rows) {
            Some(row) => wrong(format!("row {row} of {} rows", self.num_rows)),
            None => Ok(()),
        }
    }

    /// Evicts for new blocks, and drops those at the end for which there is no room.
    fn make_room(&mut self, blocks: &mut Vec<(RowRecord, Py<PyBytes>)>, now: Nanos) {
        let keep: Vec<_> = blocks.iter().filter_map(|(record, _)| record.parent).collect();
        let (fits, evicted) = self.index.make_room(blocks.len(), &keep, now);
        self.counts.declined += (blocks.len() - fits) as u64;
        blocks.truncate(fits);
        self.counts.evicted += evicted.len() as u64;
        for name in &evicted {
            if let Some(key) = self.keys.remove(name) {
                self.changes.push((key, false));
            }
        }
        self.remove(evicted);
    }

    /// Removes records from the disk.
    fn remove(&self, names: Vec<BlockHash>) {
        if let (false, Some(mover)) = (names.is_empty(), &self.mover) {
            mover.remove(names);
        }
    }

    /// Begins a job; where the tier is closed it fails at once. Returns its number of records.
    fn begin(&mut self, py: Python<'_>, id: u64, job: TierJob, records: Vec<RowRecord>) -> usize {
        let (count, kind) = (records.len(), job.kind);
        self.jobs.insert(id, job);
        match &self.mover {
            Some(mover) => mover.submit(RowJob { id, kind, records }),
            None => self.fail_all(py),
        }
        count
    }

    /// Stops the thread, after which no row is touched, and fails the jobs that have not ended.
    fn stop(&mut self, py: Python<'_>) {
        let mover = self.mover.take();
        py.detach(|| drop(mover));
        self.fail_all(py);
    }

    fn take(&mut self, py: Python<'_>, report: RowReport) {
        match report {
            RowReport::Done(ended) => self.end(py, &ended),
            RowReport::Lost(names) => names.into_iter().for_each(|name| self.lose(name)),
            RowReport::Other(Report::Condition(condition)) => {
                self.condition = match condition {
                    Condition::Well => String::new(),
                    Condition::WritesFail(why) => format!("nothing is written: {why}"),
                    Condition::Gone(why) => format!("the folder is gone: {why}"),
                };
            }
            RowReport::Other(_) => {}
        }
    }

    fn end(&mut self, py: Python<'_>, ended: &EndedJob) {
        let Some(job) = self.jobs.remove(&ended.id) else {
            return;
        };
        let mut moved = Vec::with_capacity(job.keys.len());
        let mut is_whole = !job.has_missing;
        let failed: HashMap<BlockHash, MoveFailure> = ended.failed.iter().copied().collect();
        let mut not_stored = Vec::new();
        for (name, key) in job.keys {
            match (job.kind, failed.get(&name)) {
                (RowJobKind::Store, None) => {
                    self.index.commit(name);
                    self.changes.push((key.clone_ref(py), true));
                    self.keys.insert(name, key.clone_ref(py));
                    self.counts.stored += 1;
                    moved.push(key);
                }
                (RowJobKind::Store, Some(_)) => {
                    self.counts.failed += 1;
                    is_whole = false;
                    self.index.remove(name);
                    not_stored.push(name);
                }
                (RowJobKind::Load, None) => {
                    self.index.unpin(name);
                    self.counts.loaded += 1;
                    moved.push(key);
                }
                (RowJobKind::Load, Some(why)) => {
                    self.counts.failed += 1;
                    is_whole = false;
                    self.index.unpin(name);
                    if is_gone(*why) {
                        self.counts.damaged += u64::from(*why != MoveFailure::Missing);
                        self.lose(name);
                    }
                }
            }
        }
        // The bytes of a store that was given up may be written later.
        self.remove(not_stored);
        let seconds = ended.elapsed.as_secs_f64();
        self.ended.push_back((ended.id, is_whole, moved, seconds, ended.bytes));
    }

    /// A block is gone.
    fn lose(&mut self, name: BlockHash) {
        if self.index.knows(name) && !self.index.is_writing(name) {
            self.index.remove(name);
        }
        if let Some(key) = self.keys.remove(&name) {
            self.changes.push((key, false));
        }
    }

    fn fail_all(&mut self, py: Python<'_>) {
        let ids: Vec<u64> = self.jobs.keys().copied().collect();
        for id in ids {
            let names = self.jobs[&id].keys.iter().map(|(name, _)| (*name, MoveFailure::GivenUp));
            let failed = names.collect();
            self.end(py, &EndedJob { id, failed, bytes: 0, elapsed: std::time::Duration::ZERO });
        }
    }
}

/// The exception for a folder that could not be opened.
fn refusal(error: &DiskError) -> PyErr {
    let text = error.to_string();
    match error {
        DiskError::InUse { .. } => PyBlockingIOError::new_err(text),
        _ => PyOSError::new_err(text),
    }
}

/// Whether a record that could not be loaded never can be.
fn is_gone(why: MoveFailure) -> bool {
    use headstart_store::backend::Failure;

    matches!(
        why,
        MoveFailure::Missing | MoveFailure::Foreign | MoveFailure::Backend(Failure::Corrupt)
    )
}
