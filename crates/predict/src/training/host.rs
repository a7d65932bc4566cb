//! The program around a training: its screen, its clocks and its files.

use std::io::{self, Write};
use std::path::Path;

use headstart_core::{Nanos, Progress};

/// Amount of work in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageWork {
    /// Bytes, whose number becomes known later.
    Bytes,
    /// This number of steps; further ones may become known later.
    Steps(usize),
}

/// Writes the contents of a file.
pub type WriteContents<'w> = dyn FnMut(&mut dyn Write) -> io::Result<()> + 'w;

/// Services that a training needs from its caller.
pub trait TrainingHost {
    /// Shows the progress of a stage, until the value is dropped.
    fn begin(&self, stage: &'static str, work: StageWork) -> Box<dyn Progress>;

    /// Tells the user something beside the result.
    fn note(&self, text: &str);

    /// Time since any fixed point. It never goes back.
    fn now(&self) -> Nanos;

    /// Seconds since 1970, for the date in the model; 0 where the time is not known.
    fn unix_s(&self) -> u64;

    /// Replaces the file at `path` by the written contents: by all of them, or not at all.
    ///
    /// # Errors
    /// When the file cannot be written. The old file then stays as it was.
    fn replace(&self, path: &Path, write: &mut WriteContents<'_>) -> io::Result<()>;
}
