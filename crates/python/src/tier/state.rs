//! The records of a [`super::BlockTier`], and its jobs.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use headstart_cache::tiers::ExternalTier;
use headstart_core::{Access, BlockHash, Nanos};
use headstart_store::backend::{Condition, Report, ResidentRecord};
use headstart_store::rows::{EndedJob, MoveFailure, RowJob, RowJobKind, RowRecord, RowReport};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::EndedTierJob;
use super::evicted::EvictedNames;
use crate::key::name_of;
use crate::line::LoadLine;
use crate::mover::Mover;

/// A block counts as absent for this time after a load that failed: an engine that looks again
/// would load it again, without end.
const FAILED_FOR: Duration = Duration::from_secs(10);

/// Failed loads in a row that are a condition of the place.
const FAILED_MAX: u32 = 5;

pub(super) struct TierState {
    /// `None` once closed.
    pub(super) mover: Option<Mover>,
    pub(super) index: ExternalTier,
    pub(super) identity: [u8; 16],
    pub(super) capacity: usize,
    pub(super) num_rows: usize,
    pub(super) row_bytes: usize,
    /// Keys of the records here, where they are known: after a start only names are.
    pub(super) keys: HashMap<BlockHash, Py<PyBytes>>,
    pub(super) jobs: HashMap<u64, TierJob>,
    /// Ended jobs that Python has not taken.
    pub(super) ended: VecDeque<EndedTierJob>,
    /// Blocks that came and went: key, and whether it came.
    pub(super) changes: Vec<(Py<PyBytes>, bool)>,
    pub(super) counts: BlockCounts,
    pub(super) evicted: EvictedNames,
    /// Blocks whose last load failed although they may be there, and when that was.
    pub(super) failed: HashMap<BlockHash, Instant>,
    /// Loads of blocks that failed like that, since the last one that did not.
    pub(super) failed_in_a_row: u32,
    pub(super) condition: String,
    /// Nothing can be read from the place.
    pub(super) is_gone: bool,
    pub(super) line: LoadLine,
}

pub(super) struct TierJob {
    pub(super) kind: RowJobKind,
    /// The blocks that are moved.
    pub(super) keys: Vec<(BlockHash, Py<PyBytes>)>,
    /// Blocks were asked for that are not here.
    pub(super) has_missing: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockCounts {
    pub(super) stored: u64,
    pub(super) loaded: u64,
    pub(super) evicted: u64,
    pub(super) declined: u64,
    pub(super) damaged: u64,
    pub(super) failed: u64,
}

impl TierState {
    /// The name of a key's block under this identity.
    pub(super) fn name_of(&self, key: &[u8]) -> BlockHash {
        let BlockHash(mut name) = name_of(key);
        for (byte, own) in name.iter_mut().zip(self.identity) {
            *byte ^= own;
        }
        BlockHash(name)
    }

    /// Records that are here, oldest first. Those for which there is no room are left to the other
    /// engines of a shared place, and removed from one of our own.
    pub(super) fn find(&mut self, residents: &[ResidentRecord], is_shared: bool) {
        // The newest that fit, inserted oldest first.
        let older = residents.len().saturating_sub(self.index.free());
        let mut surplus = Vec::new();
        for (at, resident) in residents.iter().enumerate() {
            let (name, parent) = (resident.name, resident.parent);
            if at >= older && self.index.insert(name, parent, &Access::default()) {
                self.index.commit(name);
            } else if !self.index.knows(name) {
                surplus.push(name);
            }
        }
        if !is_shared {
            self.remove(surplus);
        }
    }

    pub(super) fn check(&self, job: u64, num_keys: usize, rows: &[usize]) -> PyResult<()> {
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
    pub(super) fn make_room(&mut self, blocks: &mut Vec<(RowRecord, Py<PyBytes>)>, now: Nanos) {
        let keep: Vec<_> = blocks.iter().filter_map(|(record, _)| record.parent).collect();
        let (fits, evicted) = self.index.make_room(blocks.len(), &keep, now);
        self.counts.declined += (blocks.len() - fits) as u64;
        blocks.truncate(fits);
        self.counts.evicted += evicted.len() as u64;
        for name in &evicted {
            self.evicted.insert(*name);
            if let Some(key) = self.keys.remove(name) {
                self.changes.push((key, false));
            }
        }
        self.remove(evicted);
    }

    /// Removes blocks that nothing uses. Returns their number.
    pub(super) fn remove_idle(&mut self, mut names: Vec<BlockHash>) -> usize {
        names.retain(|&name| self.index.is_idle(name));
        names.iter().for_each(|&name| self.lose(name));
        let count = names.len();
        self.remove(names);
        count
    }

    /// Removes records from their place.
    pub(super) fn remove(&self, names: Vec<BlockHash>) {
        if let (false, Some(mover)) = (names.is_empty(), &self.mover) {
            mover.remove(names);
        }
    }

    /// Begins a job; where the tier is closed it fails at once. Returns its number of records.
    pub(super) fn begin(
        &mut self,
        py: Python<'_>,
        id: u64,
        job: TierJob,
        records: Vec<RowRecord>,
    ) -> usize {
        let (count, kind) = (records.len(), job.kind);
        self.jobs.insert(id, job);
        match &self.mover {
            Some(mover) => mover.submit(RowJob { id, kind, records }),
            None => self.fail_all(py),
        }
        count
    }

    /// Stops the thread, after which no row is touched, and fails the jobs that have not ended.
    pub(super) fn stop(&mut self, py: Python<'_>) {
        let mover = self.mover.take();
        py.detach(|| drop(mover));
        self.fail_all(py);
    }

    pub(super) fn take(&mut self, py: Python<'_>, report: RowReport) {
        match report {
            RowReport::Done(ended) => self.end(py, &ended),
            RowReport::Lost(names) => names.into_iter().for_each(|name| self.lose(name)),
            RowReport::Other(Report::Found(residents)) => self.find(&residents, true),
            RowReport::Other(Report::Condition(condition)) => {
                self.is_gone = matches!(condition, Condition::Gone(_));
                self.condition = match condition {
                    Condition::Well => String::new(),
                    Condition::WritesFail(why) => format!("nothing is written: {why}"),
                    Condition::Gone(why) => format!("nothing is read or written: {why}"),
                };
            }
            RowReport::Other(_) => {}
        }
    }

    pub(super) fn end(&mut self, py: Python<'_>, ended: &EndedJob) {
        let Some(job) = self.jobs.remove(&ended.id) else {
            return;
        };
        if job.kind == RowJobKind::Load {
            self.line.end(job.keys.len() * self.row_bytes, ended.bytes);
        }
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
                    self.failed.remove(&name);
                    self.failed_in_a_row = 0;
                    moved.push(key);
                }
                (RowJobKind::Load, Some(why)) => {
                    self.counts.failed += 1;
                    is_whole = false;
                    self.index.unpin(name);
                    if is_gone(*why) {
                        self.counts.damaged += u64::from(*why != MoveFailure::Missing);
                        self.lose(name);
                    } else {
                        self.failed.retain(|_, at| at.elapsed() < FAILED_FOR);
                        self.failed.insert(name, Instant::now());
                        self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
                    }
                }
            }
        }
        // The bytes of a store that was given up may be written later.
        self.remove(not_stored);
        let seconds = ended.elapsed.as_secs_f64();
        self.ended.push_back((ended.id, is_whole, moved, seconds, ended.bytes));
    }

    /// Whether the last load of a block failed not long ago.
    pub(super) fn has_failed(&self, name: BlockHash) -> bool {
        self.failed.get(&name).is_some_and(|at| at.elapsed() < FAILED_FOR)
    }

    /// The fault of the place in words; empty where it works.
    pub(super) fn condition(&self) -> String {
        if self.condition.is_empty() && self.failed_in_a_row >= FAILED_MAX {
            return "loads fail, though blocks are listed; may the engine read there?".to_owned();
        }
        self.condition.clone()
    }

    /// A block is gone.
    pub(super) fn lose(&mut self, name: BlockHash) {
        if self.index.knows(name) && !self.index.is_writing(name) {
            self.index.remove(name);
        }
        if let Some(key) = self.keys.remove(&name) {
            self.changes.push((key, false));
        }
    }

    pub(super) fn fail_all(&mut self, py: Python<'_>) {
        let ids: Vec<u64> = self.jobs.keys().copied().collect();
        for id in ids {
            let names = self.jobs[&id].keys.iter().map(|(name, _)| (*name, MoveFailure::GivenUp));
            let failed = names.collect();
            self.end(py, &EndedJob { id, failed, bytes: 0, elapsed: Duration::ZERO });
        }
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
