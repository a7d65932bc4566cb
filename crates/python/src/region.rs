//! The memory of an engine's CPU tier, as rows.

use std::ptr::NonNull;

use headstart_store::rows::Rows;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Rows of a buffer that an engine shares with its workers.
///
/// Other processes write to rows too. The engine gives each row to one job at a time: a row of a
/// store is not written, and a row of a load is not touched, before the job is reported.
pub(crate) struct Region {
    base: NonNull<u8>,
    num_rows: usize,
    row_bytes: usize,
    stride: usize,
    /// Keeps the memory mapped.
    _buffer: PyBuffer<u8>,
}

// SAFETY: the memory is reached through `base` alone, by the thread that owns the region; the
// buffer is only held, and released where Python allows it.
unsafe impl Send for Region {}

impl Region {
    /// The rows of a writable buffer of bytes with two dimensions, dense within a row.
    pub(crate) fn new(rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<u8>::get(rows)?;
        let wrong = |what: &str| PyValueError::new_err(format!("the rows of the CPU tier: {what}"));
        if buffer.readonly() {
            return Err(wrong("they are read-only"));
        }
        let (&[num_rows, row_bytes], &[stride, 1]) = (buffer.shape(), buffer.strides()) else {
            return Err(wrong("not a matrix of bytes with dense rows"));
        };
        let stride = usize::try_from(stride).map_err(|_| wrong("a negative stride"))?;
        let Some(base) = NonNull::new(buffer.buf_ptr().cast()) else {
            return Err(wrong("they have no memory"));
        };
        Ok(Self { base, num_rows, row_bytes, stride, _buffer: buffer })
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.num_rows
    }

    fn row(&self, row: usize, bytes: usize) -> NonNull<u8> {
        assert!(row < self.num_rows && bytes == self.row_bytes, "rows are checked at a submit");
        // SAFETY: the row is below `num_rows`, so that it lies within the buffer.
        unsafe { self.base.add(row * self.stride) }
    }
}

impl Rows for Region {
    fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    fn read(&self, row: usize, into: &mut [u8]) {
        let from = self.row(row, into.len());
        // SAFETY: a row has as many bytes, `into` is memory of ours, and the engine keeps the row
        // as it is until the job is reported.
        unsafe { from.as_ptr().copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) }
    }

    fn write(&mut self, row: usize, from: &[u8]) {
        let to = self.row(row, from.len());
        // SAFETY: a row has as many bytes, `from` is memory of ours, and the engine touches the row
        // only after the job is reported.
        unsafe { to.as_ptr().copy_from_nonoverlapping(from.as_ptr(), from.len()) }
    }
}
