//! The tokens of a prompt as Python has them.

use headstart_core::TokenId;
use pyo3::prelude::*;

use crate::arrays::whole_numbers;

/// Tokens of a prompt: an array of whole numbers, or a sequence of them.
pub(super) struct TokenList(pub(super) Vec<TokenId>);

impl<'py> FromPyObject<'_, 'py> for TokenList {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let tokens = whole_numbers(&object).unwrap_or_else(|| object.extract());
        tokens.map(Self)
    }
}
