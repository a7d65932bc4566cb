//! Prompts of logs, of texts and of folders of texts.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use headstart_core::{FinishKind, Progress, ToolClass, UsageError};
use headstart_trace::format::request_log::{LoggedRequest, PromptPart};

use crate::error::AnalysisError;
use crate::logs;

/// Files that hold one prompt each.
const TEXTS: [&str; 3] = ["txt", "md", "prompt"];

/// Longest text file, bytes.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// Hands each prompt of `files` to `take`, in order. `begin` shows the progress of one input.
pub(super) fn each(
    files: &[PathBuf],
    skip_bad: bool,
    begin: &dyn Fn(Option<usize>) -> Box<dyn Progress>,
    mut take: impl FnMut(&LoggedRequest),
) -> Result<(), AnalysisError> {
    for file in files {
        if file.is_dir() {
            let texts = texts(file)?;
            let progress = begin(Some(texts.len()));
            for text in texts {
                take(&text_prompt(&text)?);
                progress.inc(1);
            }
        } else if is_text(file) {
            take(&text_prompt(file)?);
        } else {
            // Each log shows progress of its own, in bytes.
            logs::each(file, skip_bad, &*begin(None), |request| {
                take(request);
                ControlFlow::Continue(())
            })?;
        }
    }
    Ok(())
}

fn is_text(file: &Path) -> bool {
    // The content does not decide: a text that holds JSON is still one prompt.
    let extension = file.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| TEXTS.contains(&extension))
}

/// The text files of a folder, by name.
fn texts(folder: &Path) -> Result<Vec<PathBuf>, AnalysisError> {
    let cannot_read =
        || AnalysisError::file(format!("cannot read the folder {}", folder.display()));
    let entries = fs::read_dir(folder).map_err(cannot_read())?;
    let paths = entries.map(|entry| match entry {
        // An entry that cannot be read fails the check: a skipped prompt could hide a finding.
        Ok(entry) => Ok(entry.path()),
        Err(error) => Err(cannot_read()(error)),
    });
    let mut paths = paths.collect::<Result<Vec<_>, AnalysisError>>()?;
    // Other files of the folder, such as a README without an extension, are no prompts.
    paths.retain(|path| path.is_file() && is_text(path));
    // The order of a folder's entries differs by file system; the result must not.
    paths.sort();
    Ok(paths)
}

fn text_prompt(file: &Path) -> Result<LoggedRequest, AnalysisError> {
    let name = file.display().to_string();
    let cannot_read = || AnalysisError::file(format!("cannot read {name}"));
    let bytes = fs::metadata(file).map_err(cannot_read())?.len();
    // A log that is named .txt would count as one huge prompt.
    if bytes > TEXT_BYTES_MAX {
        let message = format!(
            "{name} has {bytes} bytes, more than a prompt of {TEXT_BYTES_MAX}; is it a log? Name \
             it .jsonl"
        );
        return Err(UsageError(message).into());
    }
    let text = fs::read_to_string(file).map_err(cannot_read())?;
    Ok(LoggedRequest {
        // A text file has no id of its own, so its path names it in findings.
        id: Some(name),
        line: 1,
        arrival: None,
        model: None,
        cache_salt: None,
        user: None,
        session: None,
        prompt: PromptPart::Text(text),
        prompt_tokens: None,
        cached_tokens: None,
        output_tokens: None,
        finish: FinishKind::Unknown,
        tool: ToolClass::default(),
        ttft: None,
        settings: Vec::new(),
    })
}
