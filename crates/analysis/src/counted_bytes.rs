//! Files whose reading is progress.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use headstart_core::{Progress, UsageError};
use headstart_trace::source::CountedBytes;

use crate::error::AnalysisError;

/// Opens the file at `path`, called `name` in messages; `-` is standard input. `advice` follows
/// "name" in the error for a folder, which can be opened on Unix and fails without a hint.
pub(crate) fn opened<'p>(
    path: &Path,
    name: &str,
    advice: &str,
    progress: &'p dyn Progress,
) -> Result<Box<dyn Read + 'p>, AnalysisError> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin()));
    }
    let cannot_open = || AnalysisError::file(format!("cannot open {name}"));
    let file = File::open(path).map_err(cannot_open())?;
    let metadata = file.metadata().map_err(cannot_open())?;
    if metadata.is_dir() {
        return Err(UsageError(format!("{name} is a folder; name {advice}")).into());
    }
    // The length of a pipe is unknown.
    if metadata.is_file() {
        progress.inc_length(metadata.len());
    }
    Ok(Box::new(CountedBytes::new(file, progress)))
}
