//! Bytes whose reading is progress.

use std::io::{Read, Result};

use headstart_core::Progress;

/// Bytes that count as they are read.
pub struct CountedBytes<'p, R> {
    raw: R,
    progress: &'p dyn Progress,
}

impl<'p, R> CountedBytes<'p, R> {
    /// Counts the bytes of `raw` on `progress`.
    pub fn new(raw: R, progress: &'p dyn Progress) -> Self {
        Self { raw, progress }
    }
}

impl<R: Read> Read for CountedBytes<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = self.raw.read(buffer)?;
        self.progress.inc(count as u64);
        Ok(count)
    }
}
