//! A prefix cache that serves one request after the other, as `headstart replay` does.

use std::sync::{Arc, Mutex, PoisonError};

use headstart_cache::policy::{DEFAULT, Setting, by_name};
use headstart_cache::{Grow, Policy, PrefixCache};
use headstart_core::{Access, BlockHash};
use headstart_sim::replay::fill;
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::blocks::BlockChain;
use crate::own_policy::{PolicyLink, PythonOrder};
use crate::usage::Use;

/// A prefix cache of `capacity` blocks that serves one request after the other, as
/// `headstart replay` does.
///
/// A block is a number, or a key of bytes, that stands for its tokens and all tokens before it.
///
/// `policy` is a name of `POLICIES` with its options, or an object with a method
/// `use(blocks, hits, of)`, which is called once for each request. `blocks` are the slots, from 0
/// to `capacity - 1`, that hold the request's blocks, in prompt order. The first `hits` were cached
/// before; the others are new, whatever their slots held. `of` is the request. The method returns a
/// score for each block, as a list or an array. The block with the lowest score is evicted first;
/// of equal scores, any. A block with a cached block behind it stays until that one is gone,
/// whatever its score. A score holds until a request uses the block again.
///
/// >>> from headstart import PrefixCache, Use
/// >>> class Lru:
/// ...     clock = 0
/// ...     def use(self, blocks, hits, of):
/// ...         self.clock += len(blocks)
/// ...         return range(self.clock, self.clock - len(blocks), -1)
/// >>> cache = PrefixCache(Lru(), capacity=4)
/// >>> [cache.serve(prompt, Use(now)) for now, prompt in enumerate([[1, 2, 3], [1, 2, 4], [1, 2]])]
/// [0, 2, 2]
///
/// Raises `ValueError` for a policy that is not known, and for a capacity of 0 or of 2**32 blocks
/// and more; `TypeError` for an object that is no policy.
#[pyclass(module = "headstart._native", name = "PrefixCache")]
pub(crate) struct SerialCache {
    /// Locked by nothing but `&mut self`, but Python wants an object that threads can share.
    cache: Mutex<PrefixCache>,
    /// For messages.
    policy: String,
    /// The policy that is written in Python.
    link: Option<Arc<PolicyLink>>,
    lookups: u64,
    hits: u64,
}

#[pymethods]
impl SerialCache {
    #[new]
    #[pyo3(signature = (policy = PolicyChoice::default(), *, capacity, block_tokens = 16),
           text_signature = "(policy=\"hazard\", *, capacity, block_tokens=16)")]
    fn new(policy: PolicyChoice<'_>, capacity: usize, block_tokens: u32) -> PyResult<Self> {
        if capacity == 0 || u32::try_from(capacity).is_err() {
            let message = format!("capacity {capacity}: 1 to {} blocks", u32::MAX);
            return Err(PyValueError::new_err(message));
        }
        let (policy, link, made): (_, _, Box<dyn Policy>) = match policy {
            PolicyChoice::Name(name) => {
                let made = by_name(&name, Setting { capacity, block_tokens });
                let made = made.map_err(|error| PyValueError::new_err(error.to_string()))?;
                (name, None, made)
            }
            PolicyChoice::Object(object) => {
                let link = PolicyLink::new(&object)?;
                let made = PythonOrder::policy(capacity, Arc::clone(&link));
                (object.get_type().name()?.to_string(), Some(link), Box::new(made))
            }
        };
        let cache = Mutex::new(PrefixCache::new(capacity, made));
        Ok(Self { cache, policy, link, lookups: 0, hits: 0 })
    }

    /// Serves a request: looks up the leading `blocks`, and caches the others. Returns the hits.
    /// `blocks` are numbers or keys in a list, or an array of whole numbers.
    ///
    /// With `step` blocks are cached as an engine does: it evicts for `step` blocks at once, and
    /// may decline none. Otherwise they are cached one by one, and a policy may decline a block.
    ///
    /// An exception of a policy written in Python is raised behind the request, which has been
    /// served by then. Blocks of it that have no score go first.
    #[pyo3(signature = (blocks, of, *, step = None))]
    fn serve(
        &mut self,
        py: Python<'_>,
        blocks: BlockChain,
        of: &Bound<'_, Use>,
        step: Option<usize>,
    ) -> PyResult<usize> {
        let BlockChain(chain) = blocks;
        if let Some(link) = &self.link {
            link.begin(of.as_unbound(), py);
        }
        let access = &of.get().0;
        // A panic under the lock has told of a fault already.
        let cache = self.cache.get_mut().unwrap_or_else(PoisonError::into_inner);
        let hits = match step {
            Some(step) => fill_in_steps(cache, &chain, access, step.max(1)),
            None => fill(cache, &chain, access).0,
        };
        cache.drain_effects();
        self.lookups += chain.len() as u64;
        self.hits += hits as u64;
        self.link.as_ref().map_or(Ok(()), |link| link.end())?;
        Ok(hits)
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

    /// Python's collector finds cycles through the policy.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.link.as_ref().map_or(Ok(()), |link| visit.call(link.policy()))
    }

    fn __repr__(&self) -> String {
        format!("PrefixCache({:?}, {} of {} blocks hit)", self.policy, self.hits, self.lookups)
    }
}

/// A policy as Python names it.
#[derive(FromPyObject)]
enum PolicyChoice<'py> {
    Name(String),
    Object(Bound<'py, PyAny>),
}

impl Default for PolicyChoice<'_> {
    fn default() -> Self {
        Self::Name(DEFAULT.to_owned())
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
