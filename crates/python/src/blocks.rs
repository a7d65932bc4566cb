//! The blocks of a prompt as Python names them.

use headstart_core::BlockHash;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::arrays::whole_numbers;
use crate::key::name_of;

/// Blocks of a prompt: an array of whole numbers, or a sequence of numbers and keys.
pub(crate) struct BlockChain(pub(crate) Vec<BlockHash>);

impl<'py> FromPyObject<'_, 'py> for BlockChain {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Some(numbers) = whole_numbers(&object) {
            return Ok(Self(numbers?.into_iter().map(BlockHash::from_u64).collect()));
        }
        let blocks: Vec<NamedBlock> = object.extract()?;
        Ok(Self(blocks.iter().map(NamedBlock::name).collect()))
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
