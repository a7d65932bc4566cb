//! The blocks of a prompt as Python names them.

use headstart_core::BlockHash;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::key::name_of;

/// Blocks of a prompt: an array of whole numbers, or a sequence of numbers and keys.
pub(crate) struct BlockChain(pub(crate) Vec<BlockHash>);

impl<'py> FromPyObject<'_, 'py> for BlockChain {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        // Lists are no buffers, and the most frequent: an attempt at one costs an exception.
        if !object.is_exact_instance_of::<pyo3::types::PyList>() {
            let array = numbers::<i64>(&object)
                .or_else(|| numbers::<u64>(&object))
                .or_else(|| numbers::<i32>(&object))
                .or_else(|| numbers::<u32>(&object));
            if let Some(names) = array {
                return names.map(Self);
            }
        }
        let blocks: Vec<NamedBlock> = object.extract()?;
        Ok(Self(blocks.iter().map(NamedBlock::name).collect()))
    }
}

/// The names in an array of this type; `None` for any other object.
fn numbers<T: Element + TryInto<u64>>(
    object: &Bound<'_, PyAny>,
) -> Option<PyResult<Vec<BlockHash>>> {
    let numbers = PyBuffer::<T>::get(object).ok()?.to_vec(object.py());
    let name = |number: T| number.try_into().map(BlockHash::from_u64);
    Some(numbers.and_then(|numbers| {
        let names = numbers.into_iter().map(name).collect::<Result<_, _>>();
        names.map_err(|_| PyOverflowError::new_err("the number of a block is negative"))
    }))
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
