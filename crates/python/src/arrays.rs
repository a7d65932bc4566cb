//! Arrays of whole numbers, as numpy and `array` have them.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// The numbers of an array; `None` for another object.
pub(crate) fn whole_numbers<N>(object: &Bound<'_, PyAny>) -> Option<PyResult<Vec<N>>>
where
    N: TryFrom<i64> + TryFrom<u64> + TryFrom<i32> + TryFrom<u32>,
{
    // Lists are frequent and no arrays, and each attempt costs an exception.
    if object.is_exact_instance_of::<PyList>() {
        return None;
    }
    numbers_of::<i64, N>(object)
        .or_else(|| numbers_of::<u64, N>(object))
        .or_else(|| numbers_of::<i32, N>(object))
        .or_else(|| numbers_of::<u32, N>(object))
}

/// The numbers of an array of `T`.
fn numbers_of<T: Element, N: TryFrom<T>>(object: &Bound<'_, PyAny>) -> Option<PyResult<Vec<N>>> {
    let numbers = PyBuffer::<T>::get(object).ok()?.to_vec(object.py());
    Some(numbers.and_then(|numbers| {
        let converted = numbers.into_iter().map(N::try_from).collect::<Result<_, _>>();
        converted.map_err(|_| PyOverflowError::new_err("a number is negative or too large"))
    }))
}
