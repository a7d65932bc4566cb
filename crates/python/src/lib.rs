//! The native module of the Python package `headstart`.
//!
//! It wraps and decides nothing. Bytes that Python passes are keys of an engine; errors are Python
//! exceptions with a message that says what to do.

mod arrays;
mod blocks;
mod events;
mod index;
mod key;
mod line;
mod mover;
mod order;
mod own_policy;
mod place;
mod prefix;
mod region;
mod tier;
mod usage;

use pyo3::prelude::*;

/// Native parts of the package `headstart`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::events::decode_events;
    #[pymodule_export]
    use crate::index::WorkerIndex;
    #[pymodule_export]
    use crate::order::EvictionOrder;
    #[pymodule_export]
    use crate::prefix::SerialCache;
    #[pymodule_export]
    use crate::tier::BlockTier;
    #[pymodule_export]
    use crate::usage::Use;

    use super::*;
    use headstart_cache::policy::NAMES;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("POLICIES", NAMES.to_vec())
    }
}
