//! An eviction policy that is written in Python.
//!
//! Python is called once for each request. It gives every block of the request a score, and the
//! queue of candidates here does the rest: a call for each block, or for each victim, would cost
//! more than the cache itself.

use std::sync::{Arc, Mutex, PoisonError};

use headstart_cache::policy::{KeyedPolicy, Priority};
use headstart_core::{Access, BlockId};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::usage::Use;

/// The score of a block without one: it goes before all others.
const UNSCORED: f64 = f64::NEG_INFINITY;

/// A score as Python gave it, never NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Score(f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Not `total_cmp`, to which -0.0 and 0.0 are two scores.
        self.0.partial_cmp(&other.0).expect("no score is NaN")
    }
}

/// The policy's object, and what passes between a request and its policy.
pub(crate) struct PolicyLink {
    policy: Py<PyAny>,
    /// The request that is served, as Python knows it.
    request: Mutex<Option<Py<Use>>>,
    /// The exception of the last call.
    raised: Mutex<Option<PyErr>>,
}

fn put<T>(place: &Mutex<Option<T>>, value: Option<T>) -> Option<T> {
    let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut place, value)
}

impl PolicyLink {
    /// Checks that `policy` has the method.
    pub(crate) fn new(policy: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        let method = policy.getattr("use").ok().filter(|method| method.is_callable());
        if method.is_none() {
            let message = format!(
                "policy: a name of POLICIES, or an object with a method `use(blocks, hits, of)`, \
                 not {}",
                policy.get_type().name()?
            );
            return Err(PyTypeError::new_err(message));
        }
        Ok(Arc::new(Self {
            policy: policy.clone().unbind(),
            request: Mutex::new(None),
            raised: Mutex::new(None),
        }))
    }

    pub(crate) fn policy(&self) -> &Py<PyAny> {
        &self.policy
    }

    /// The next request that is served.
    pub(crate) fn begin(&self, of: &Py<Use>, py: Python<'_>) {
        put(&self.request, Some(of.clone_ref(py)));
    }

    /// The request has been served: the exception of its policy.
    pub(crate) fn end(&self) -> PyResult<()> {
        put(&self.request, None);
        put(&self.raised, None).map_or(Ok(()), Err)
    }

    /// Asks Python for the scores of `blocks`.
    fn ask(&self, blocks: &[BlockId], hits: usize) -> PyResult<Vec<f64>> {
        Python::attach(|py| {
            let ids: Vec<u32> = blocks.iter().map(|block| block.0).collect();
            let of = put(&self.request, None);
            let answer = self.policy.bind(py).call_method1("use", (ids, hits, of))?;
            let scores = scores(&answer)?;
            if scores.len() != blocks.len() {
                let (blocks, scores) = (blocks.len(), scores.len());
                let message = format!("the policy gave {scores} scores for {blocks} blocks");
                return Err(PyValueError::new_err(message));
            }
            if let Some(at) = scores.iter().position(|score| score.is_nan()) {
                let message = format!("the policy's score of block {at} of the request is NaN");
                return Err(PyValueError::new_err(message));
            }
            Ok(scores)
        })
    }
}

/// The numbers of an array, or of a sequence.
fn scores(answer: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    let py = answer.py();
    if let Ok(buffer) = PyBuffer::<f64>::get(answer) {
        return buffer.to_vec(py);
    }
    if let Ok(buffer) = PyBuffer::<i64>::get(answer) {
        return Ok(buffer.to_vec(py)?.into_iter().map(|score| score as f64).collect());
    }
    answer.extract().map_err(|error| {
        let message = "the policy's `use` must return a list or an array of numbers";
        let wrong = PyTypeError::new_err(message);
        wrong.set_cause(py, Some(error));
        wrong
    })
}

/// The order of a policy in Python.
pub(crate) struct PythonOrder {
    link: Arc<PolicyLink>,
    /// Per slot.
    scores: Vec<f64>,
    /// Per slot: whether its block came with the request that is served.
    is_new: Vec<bool>,
}

impl PythonOrder {
    /// The policy of a cache of `capacity` blocks.
    pub(crate) fn policy(capacity: usize, link: Arc<PolicyLink>) -> KeyedPolicy<Self> {
        let order = Self { link, scores: vec![UNSCORED; capacity], is_new: vec![false; capacity] };
        KeyedPolicy::over(capacity, order)
    }
}

impl Priority for PythonOrder {
    type Key = Score;

    fn insert(&mut self, block: BlockId) {
        self.scores[block.index()] = UNSCORED;
        self.is_new[block.index()] = true;
    }

    fn release(&mut self, blocks: &[BlockId], _: &Access) {
        if blocks.is_empty() {
            return;
        }
        let hits = blocks.iter().take_while(|block| !self.is_new[block.index()]).count();
        for block in &blocks[hits..] {
            self.is_new[block.index()] = false;
        }
        match self.link.ask(blocks, hits) {
            Ok(scores) => {
                // From the tail, so that a block that the prompt repeats has its first score.
                for (block, score) in blocks.iter().zip(scores).rev() {
                    self.scores[block.index()] = score;
                }
            }
            // The cache continues; `serve` raises this.
            Err(raised) => drop(put(&self.link.raised, Some(raised))),
        }
    }

    fn key(&self, block: BlockId) -> Score {
        Score(self.scores[block.index()])
    }
}
