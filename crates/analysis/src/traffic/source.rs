//! Inputs of the analysis, and how to read them.

use std::io::Read;
use std::path::PathBuf;

use headstart_core::Progress;
use headstart_trace::source::CountedBytes;
use headstart_trace::{Arrivals, Format};

use super::renderings::Renderings;
use crate::counted_bytes::opened;
use crate::error::AnalysisError;

/// Source of a log.
#[derive(Clone, Debug)]
pub enum LogSource {
    /// A file; `-` is standard input.
    File(PathBuf),
    /// A log generated in memory, with its name.
    Made(&'static str, Vec<u8>),
}

/// Settings for reading inputs.
pub struct LogReaderSettings<'r> {
    /// Format of all inputs; `None` detects each by its first line.
    pub format: Option<Format>,
    /// Skips and counts bad lines, instead of stopping at the first.
    pub skip_bad: bool,
    /// Tokens per block; `None` for the format's own size.
    pub block_tokens: Option<u32>,
    /// Starts of sessions without times.
    pub arrivals: Arrivals,
    /// Renderer of texts.
    pub rendering: &'r Renderings,
    /// Memory for requests and texts, bytes.
    pub held_bytes: usize,
}

impl LogSource {
    /// Returns the name for messages and reports, without the folder, which stays private.
    pub fn name(&self) -> String {
        match self {
            Self::Made(name, _) => (*name).to_owned(),
            Self::File(path) => match path.file_name() {
                Some(name) if name != "-" => name.to_string_lossy().into_owned(),
                _ => "standard input".to_owned(),
            },
        }
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::File(path) if path.file_name().is_some_and(|name| name != "-"))
    }

    /// Opens it; the bytes that are read count as progress.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(super) fn open<'s>(
        &'s self,
        progress: &'s dyn Progress,
    ) -> Result<(String, Box<dyn Read + 's>), AnalysisError> {
        match self {
            Self::Made(name, bytes) => {
                progress.inc_length(bytes.len() as u64);
                let bytes = CountedBytes::new(&bytes[..], progress);
                Ok(((*name).to_owned(), Box::new(bytes)))
            }
            Self::File(path) => {
                let name = path.display().to_string();
                let raw = opened(path, &name, "its files", progress)?;
                Ok((name, raw))
            }
        }
    }
}
