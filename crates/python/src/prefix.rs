//! A prefix cache that serves one request after the other, as `headstart replay` does.

use std::sync::{Mutex, PoisonError};

use headstart_cache::policy::{Setting, by_name};
use headstart_cache::{Grow, PrefixCache};
use headstart_core::{Access, BlockHash};
use headstart_sim::replay::fill;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::key::name_of;
use crate::usage::Use;

/// A prefix cache of `capacity` blocks that serves one request after the other, as
/// `headstart replay` does.
///
/// A block is a number, or a key of bytes, that stands for its tokens and all tokens before it.
///
/// Raises `ValueError` for a policy that is not known.
#[pyclass(module = "headstart._native", name = "PrefixCache")]
pub(crate) struct SerialCache {
    /// Locked by nothing but `&mut self`, but Python wants an object that threads can share.
    cache: Mutex<PrefixCache>,
    policy: String,
    lookups: u64,
    hits: u64,
}

#[pymethods]
impl SerialCache {
    #[new]
    #[pyo3(signature = (policy = "hazard", *, capacity, block_tokens = 16))]
    fn new(policy: &str, capacity: usize, block_tokens: u32) -> PyResult<Self> {
        let made = by_name(policy, Setting { capacity, block_tokens });
        let made = made.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let cache = PrefixCache::new(capacity, made);
        Ok(Self { cache: Mutex::new(cache), policy: policy.to_owned(), lookups: 0, hits: 0 })
    }

    /// Serves a request: looks up the leading `blocks`, and caches the others. Returns the hits.
    ///
    /// With `step` blocks are cached as an engine does: it evicts for `step` blocks at once, and
    /// may decline none. Otherwise they are cached one by one, and a policy may decline a block.
    #[pyo3(signature = (blocks, of, *, step = None))]
    fn serve(&mut self, blocks: Vec<NamedBlock>, of: &Use, step: Option<usize>) -> usize {
        let chain: Vec<BlockHash> = blocks.iter().map(NamedBlock::name).collect();
        // A panic under the lock has told of a fault already.
        let cache = self.cache.get_mut().unwrap_or_else(PoisonError::into_inner);
        let hits = match step {
            Some(step) => fill_in_steps(cache, &chain, &of.0, step.max(1)),
            None => fill(cache, &chain, &of.0).0,
        };
        cache.drain_effects();
        self.lookups += chain.len() as u64;
        self.hits += hits as u64;
        hits
    }

    /// Blocks looked up so far.
    #[getter]
    fn lookups(&self) -> u64 {
        self.lookups
    }

    /// Blocks found so far.
    #[getter]
    fn hits(&self) -> u64 {
        self.hits
    }

    fn __repr__(&self) -> String {
        format!("PrefixCache({:?}, {} of {} blocks hit)", self.policy, self.hits, self.lookups)
    }
}

/// A block as Python names it.
#[derive(FromPyObject)]
enum NamedBlock {
    Number(u64),
    Key(PyBackedBytes),
}

impl NamedBlock {
    fn name(&self) -> BlockHash {
        match self {
            Self::Number(number) => BlockHash::from_u64(*number),
            Self::Key(key) => name_of(key),
        }
    }
}

/// Serves a chain as an engine does, which gets the memory of a whole step before it computes.
fn fill_in_steps(
    cache: &mut PrefixCache,
    chain: &[BlockHash],
    access: &Access,
    step: usize,
) -> usize {
    let mut lease = cache.acquire(chain);
    let hits = lease.matched();
    for (number, blocks) in chain[hits..].chunks(step).enumerate() {
        if cache.grow(&mut lease, blocks.len(), access.now) != Grow::Done {
            break;
        }
        for (at, &hash) in blocks.iter().enumerate() {
            let offset = (hits + number * step + at) as u32;
            cache.commit(&mut lease, hash, &Access { offset, ..*access });
        }
    }
    cache.release(lease, access);
    hits
}
