//! A tier below an engine's CPU tier, on disk or in object storage.

mod evicted;
mod state;

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc::TryRecvError;
use std::sync::{Mutex, PoisonError};

use headstart_cache::policy::{Setting, by_name};
use headstart_cache::tiers::{ExternalTier, StoredRun};
use headstart_core::{BlockHash, IdentityDigest};
use headstart_store::rows::{RowJobKind, RowRecord, Rows};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::line::LoadLine;
use crate::mover::{Mover, OpenedMover};
use crate::place::TierPlace;
use crate::region::Region;
use crate::usage::Use;
use evicted::EvictedNames;
use state::{BlockCounts, TierJob, TierState};

/// A job that has ended: its id, whether all of it was moved, keys that were, seconds, and bytes.
type EndedTierJob = (u64, bool, Vec<Py<PyBytes>>, f64, u64);

/// Blocks of an engine's CPU tier on disk or in object storage, each with its checksum.
///
/// `place` is a folder, which one process uses at a time, or a URL such as `s3://BUCKET/PREFIX`,
/// which engines share. `rows` is the engine's memory, a writable matrix of bytes; a row is a
/// block. `identity` are 16 bytes that stand for all that decides about a block's bytes beside its
/// key: the weights, the data type, the layout, the rank. A block of another identity is never
/// loaded.
///
/// Raises `ValueError` for a policy that is not known or a matrix of another form,
/// `BlockingIOError` where another process uses the folder, and `OSError` where the place cannot
/// be used or the budget is too small. A store that does not answer is tried again later.
#[pyclass(module = "headstart._native")]
pub(crate) struct BlockTier {
    /// Locked by nothing but `&mut self`, but Python wants an object that threads can share.
    state: Mutex<TierState>,
}

#[pymethods]
impl BlockTier {
    #[new]
    #[pyo3(signature = (place, budget_bytes, rows, identity, *, policy = "hazard",
                        block_tokens = 16))]
    fn new(
        py: Python<'_>,
        place: PathBuf,
        budget_bytes: u64,
        rows: &Bound<'_, PyAny>,
        identity: [u8; 16],
        policy: &str,
        block_tokens: u32,
    ) -> PyResult<Self> {
        let region = Region::new(rows)?;
        let (num_rows, row_bytes) = (region.num_rows(), region.row_bytes());
        // Made before the folder is opened, so that a wrong name leaves nothing behind.
        let made = |capacity| by_name(policy, Setting { capacity, block_tokens });
        made(1).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let place = TierPlace::new(place, budget_bytes);
        let is_shared = place.is_shared();
        let opened = py.detach(|| Mover::open(place, region, IdentityDigest(identity)));
        let OpenedMover { mover, residents, capacity } = opened?;
        let policy = made(capacity).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let index = ExternalTier::below(capacity, policy);
        let mut state = TierState {
            mover: Some(mover),
            index,
            identity,
            capacity,
            num_rows,
            row_bytes,
            keys: HashMap::new(),
            jobs: HashMap::new(),
            ended: VecDeque::new(),
            changes: Vec::new(),
            counts: BlockCounts::default(),
            evicted: EvictedNames::new(capacity),
            failed: HashMap::new(),
            failed_in_a_row: 0,
            condition: String::new(),
            is_gone: false,
            line: LoadLine::new(),
        };
        state.find(&residents, is_shared);
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

    /// `True`: the block can be loaded; `None`: soon; `False`: it is not here, or nothing can be
    /// read now.
    fn lookup(&mut self, key: Bound<'_, PyBytes>) -> Option<bool> {
        let state = self.state();
        let name = state.name_of(key.as_bytes());
        if state.is_gone || !state.index.knows(name) || state.has_failed(name) {
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

    /// The reason why `lookup` of this key is `False`.
    fn absence(&mut self, key: &[u8]) -> &'static str {
        let state = self.state();
        let name = state.name_of(key);
        if state.is_gone {
            "unreachable"
        } else if state.has_failed(name) {
            "failed"
        } else if state.evicted.contains(name) {
            "evicted"
        } else {
            "not_stored"
        }
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
        state.line.begin(loaded.len() * state.row_bytes);
        let load = TierJob { kind: RowJobKind::Load, keys: kept, has_missing: missing > 0 };
        Ok(state.begin(py, job, load, loaded))
    }

    /// The engine computed tokens of several prompts in one step: tokens before, and new ones.
    fn observe_step(&mut self, entries: Vec<(usize, usize)>, seconds: f64) {
        self.state().line.observe_step(&entries, seconds);
    }

    /// A load for which `advise` promised `expected_s` reached the engine after `seconds`.
    fn observe_wait(&mut self, expected_s: f64, seconds: f64) {
        self.state().line.observe_wait(expected_s, seconds);
    }

    /// The number of blocks to load from the front of `keys`, the seconds until they are there, and
    /// those that this saves, where they are known. The prompt has `prompt_tokens`, of which the
    /// engine has the first `before_tokens`. Blocks behind the first one that is not here, and
    /// behind the first `most`, do not count.
    fn advise(
        &mut self,
        keys: Vec<PyBackedBytes>,
        most: usize,
        before_tokens: usize,
        block_tokens: usize,
        prompt_tokens: usize,
    ) -> (usize, Option<f64>, Option<f64>) {
        let state = self.state();
        let names = keys.iter().take(most).map(|key| state.name_of(key));
        let is_here = |name| !state.is_gone && state.index.holds(name) && !state.has_failed(name);
        let units = names.take_while(|&name| is_here(name)).count();
        if units == 0 || block_tokens == 0 {
            return (0, None, None);
        }
        let run = StoredRun {
            before_tokens,
            units,
            unit_tokens: block_tokens,
            unit_bytes: state.row_bytes,
            prompt_tokens,
            waiting_bytes: state.line.waiting_bytes(),
        };
        let advice = state.line.advise(&run);
        (advice.units, advice.load_s, advice.gain_s)
    }

    /// One request's use of the blocks of its prompt, in order from the first.
    fn touch(&mut self, keys: Vec<PyBackedBytes>, of: &Use) {
        let state = self.state();
        let names: Vec<BlockHash> = keys.iter().map(|key| state.name_of(key)).collect();
        state.index.touch(&names, &of.0);
    }

    /// Keeps blocks until as many calls of `unpin`. Returns whether each is here and can be loaded;
    /// those that are not are not pinned.
    fn pin(&mut self, keys: Vec<PyBackedBytes>) -> Vec<bool> {
        let state = self.state();
        let names = keys.iter().map(|key| state.name_of(key)).collect::<Vec<_>>();
        names.into_iter().map(|name| state.index.pin(name)).collect()
    }

    /// Ends a `pin`. No effect on blocks that nothing keeps.
    fn unpin(&mut self, keys: Vec<PyBackedBytes>) {
        let state = self.state();
        for key in &keys {
            let name = state.name_of(key);
            state.index.unpin(name);
        }
    }

    /// Removes blocks. Those that are being written or loaded, and those that are pinned, stay.
    /// Returns the number that went. Until their space is used again, a restart finds them.
    fn remove(&mut self, keys: Vec<PyBackedBytes>) -> usize {
        let state = self.state();
        let names = keys.iter().map(|key| state.name_of(key)).collect::<Vec<_>>();
        state.remove_idle(names)
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

    /// Blocks that came here and went since the last call: key, and whether it came.
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

    /// The fault of the place in words; empty where it works.
    #[getter]
    fn condition(&mut self) -> String {
        self.state().condition()
    }

    /// Ends what runs and closes the place.
    fn close(&mut self, py: Python<'_>) {
        self.state().stop(py);
    }
}

impl BlockTier {
    fn state(&mut self) -> &mut TierState {
        // A panic under the lock has told of a fault already.
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
