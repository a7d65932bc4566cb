//! The order in which the blocks of a cache go whose memory an engine manages.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use headstart_cache::policy::{Setting, by_name};
use headstart_cache::tiers::ExternalTier;
use headstart_core::{Access, BlockHash, Nanos};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::key::name_of;
use crate::usage::Use;

/// The order in which the blocks of a cache are evicted.
///
/// The engine owns the memory and the keys. It inserts a block, says when its bytes are there
/// (`readable`), when it is read (`pin`, `unpin`), which blocks a request used (`touch`), and asks
/// for victims (`evict`). A block with a cached block behind it stays, and so does one whose
/// request still runs, unless there are too few others.
///
/// Times are nanoseconds from any origin, and never fall.
#[pyclass(module = "headstart._native")]
pub(crate) struct EvictionOrder {
    /// Locked by nothing but `&mut self`, but Python wants an object that threads can share.
    tier: Mutex<ExternalTier>,
    keys: HashMap<BlockHash, Py<PyBytes>>,
    policy: String,
    setting: Setting,
}

fn tier(policy: &str, setting: Setting, learned: Option<&[u8]>) -> PyResult<Mutex<ExternalTier>> {
    let error = |message: String| PyValueError::new_err(message);
    let mut policy = by_name(policy, setting).map_err(|found| error(found.to_string()))?;
    if let Some(learned) = learned {
        policy.learn_from(learned).map_err(|found| error(found.to_string()))?;
    }
    Ok(Mutex::new(ExternalTier::new(setting.capacity, policy)))
}

impl EvictionOrder {
    fn tier(&mut self) -> &mut ExternalTier {
        // A panic under the lock has told of a fault already.
        self.tier.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl EvictionOrder {
    /// An empty cache of `capacity` blocks of `block_tokens` tokens. `policy` is a name of
    /// `POLICIES` with its options, as in `headstart replay --policy`; `learned` are tables that
    /// `learned()` returned.
    ///
    /// Raises `ValueError` for a policy or tables that are not known, and for a capacity of 0 or of
    /// 2**32 blocks and more.
    #[new]
    #[pyo3(signature = (policy, capacity, block_tokens = 16, *, learned = None))]
    fn new(
        policy: &str,
        capacity: usize,
        block_tokens: u32,
        learned: Option<&[u8]>,
    ) -> PyResult<Self> {
        if capacity == 0 || u32::try_from(capacity).is_err() {
            let message = format!("capacity {capacity}: 1 to {} blocks", u32::MAX);
            return Err(PyValueError::new_err(message));
        }
        let setting = Setting { capacity, block_tokens };
        let tier = tier(policy, setting, learned)?;
        Ok(Self { tier, keys: HashMap::new(), policy: policy.to_owned(), setting })
    }

    /// The policy with its options.
    #[getter]
    fn policy(&self) -> &str {
        &self.policy
    }

    fn __len__(&self) -> usize {
        self.keys.len()
    }

    fn __contains__(&self, key: &[u8]) -> bool {
        self.keys.contains_key(&name_of(key))
    }

    fn __repr__(&self) -> String {
        let (capacity, held) = (self.setting.capacity, self.keys.len());
        format!("EvictionOrder({:?}, {held} of {capacity} blocks)", self.policy)
    }

    /// A block gets a free slot for the request `of`, and its bytes are on their way. `parent` is
    /// the key of the block before it in the prompt, where that is known, and `offset` the number
    /// of blocks before it.
    ///
    /// Raises `RuntimeError` where no slot is free, or the block is here.
    #[pyo3(signature = (key, parent = None, *, of, offset = 0))]
    fn insert(
        &mut self,
        key: Bound<'_, PyBytes>,
        parent: Option<&[u8]>,
        of: &Use,
        offset: u32,
    ) -> PyResult<()> {
        let name = name_of(key.as_bytes());
        if !self.tier().insert(name, parent.map(name_of), &Access { offset, ..of.0 }) {
            let message = "the cache is full, or the block is in it: evict first";
            return Err(PyRuntimeError::new_err(message));
        }
        self.keys.insert(name, key.unbind());
        Ok(())
    }

    /// The bytes of a block that was inserted are there; of any other block, one read has ended.
    fn readable(&mut self, key: &[u8]) {
        let name = name_of(key);
        if self.tier().is_writing(name) {
            self.tier().commit(name);
        } else {
            self.tier().unpin(name);
        }
    }

    /// A block is read: it stays until `unpin`.
    fn pin(&mut self, key: &[u8]) {
        self.tier().pin(name_of(key));
    }

    /// One read of a block has ended.
    fn unpin(&mut self, key: &[u8]) {
        self.tier().unpin(name_of(key));
    }

    /// A block is gone, though the policy did not choose it.
    fn remove(&mut self, key: &[u8]) {
        let name = name_of(key);
        self.tier().remove(name);
        self.keys.remove(&name);
    }

    /// The request `of` ends: one use of the blocks of its prompt, all of them in order from the
    /// first, whether they are here or not.
    #[pyo3(signature = (keys, *, of))]
    fn touch(&mut self, keys: Vec<PyBackedBytes>, of: &Use) {
        let names: Vec<BlockHash> = keys.iter().map(|key| name_of(key)).collect();
        self.tier().touch(&names, &of.0);
    }

    /// Evicts `count` blocks, but for those of `keep` and the blocks before them. Returns their
    /// keys; `None`, and evicts nothing, where fewer may go.
    #[pyo3(signature = (count, keep = Vec::new(), *, now))]
    fn evict(
        &mut self,
        count: usize,
        keep: Vec<PyBackedBytes>,
        now: u64,
    ) -> PyResult<Option<Vec<Py<PyBytes>>>> {
        let keep: Vec<BlockHash> = keep.iter().map(|key| name_of(key)).collect();
        let Some(evicted) = self.tier().evict(count, &keep, Nanos(now)) else {
            return Ok(None);
        };
        let keys = evicted.iter().map(|name| {
            let lost =
                || PyRuntimeError::new_err("an evicted block has no key: a fault of headstart");
            self.keys.remove(name).ok_or_else(lost)
        });
        keys.collect::<PyResult<_>>().map(Some)
    }

    /// Drops all blocks, but not what the policy has learned.
    fn clear(&mut self) -> PyResult<()> {
        let learned = self.tier().learned();
        self.tier = tier(&self.policy, self.setting, learned.as_deref())?;
        self.keys.clear();
        Ok(())
    }

    /// The tables that the policy has learned, some 40 KB; `None` where it learns none.
    fn learned<'py>(&mut self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.tier().learned().map(|tables| PyBytes::new(py, &tables))
    }
}
