//! The requests of a file: of a request log, or of recorded conversations, which ask once for each
//! user turn.

use std::ops::ControlFlow;
use std::path::Path;

use headstart_core::{Progress, UsageError};
use headstart_trace::format::conversation;
use headstart_trace::format::request_log::{LogOptions, LoggedRequest, Requests, of_conversation};
use headstart_trace::source::Lines;
use headstart_trace::{Format, TraceError};

use crate::counted_bytes::opened;
use crate::error::AnalysisError;

/// Hands each request of the file at `path` (`-` is standard input) to `take`, in order, for as
/// long as it wants more. The bytes that are read count as progress.
///
/// # Errors
/// A usage error for what cannot be opened or holds no prompts; a bad line, unless those are
/// left out.
pub fn each(
    path: &Path,
    skip_bad: bool,
    progress: &dyn Progress,
    mut take: impl FnMut(&LoggedRequest) -> ControlFlow<()>,
) -> Result<(), AnalysisError> {
    // The name is the whole path here: the messages tell which file to open.
    let name = name(path);
    refuse_address(&name)?;
    let raw = opened(path, &name, "a file in it", progress)?;
    let mut lines = Lines::new(name.clone(), raw)?;
    match Format::of(&mut lines) {
        Ok(Format::Conversation) if !is_request(&mut lines) => {
            return conversations(&mut lines, skip_bad, take);
        }
        // What a request log lacks, its own errors say better.
        Ok(Format::Requests | Format::Conversation) | Err(TraceError::BadLine { .. }) => {}
        Err(error) => return Err(error.into()),
        Ok(other) => {
            let message = format!(
                "{name} is a trace in the format {other}, which holds no prompts; `headstart \
                 analyze` and `headstart replay` read traces of blocks"
            );
            return Err(UsageError(message).into());
        }
    }
    for request in Requests::from_lines(lines, LogOptions { skip_bad }) {
        if take(&request?).is_break() {
            break;
        }
    }
    Ok(())
}

/// The file's name in messages.
pub fn name(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}

/// A user who pastes the server's address gets the option that takes it.
fn refuse_address(name: &str) -> Result<(), UsageError> {
    if !["http://", "https://"].iter().any(|scheme| name.starts_with(scheme)) {
        return Ok(());
    }
    Err(UsageError(format!(
        "{name} is an address, and no file: `headstart why REQUEST --url {name}` asks a running \
         server"
    )))
}

/// Whether the first line asks as a request does: `messages` alone may be either, and a request
/// may have tools and images, which a recorded dialogue has not.
fn is_request(lines: &mut Lines<'_>) -> bool {
    let asks = lines.peek_with(|line| {
        // A line that is not JSON has no fields here; the reader reports it.
        let fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(line).unwrap_or_default();
        Ok(fields.contains_key("messages"))
    });
    matches!(asks, Some(Ok(true)))
}

fn conversations(
    lines: &mut Lines<'_>,
    skip_bad: bool,
    mut take: impl FnMut(&LoggedRequest) -> ControlFlow<()>,
) -> Result<(), AnalysisError> {
    for (record, conversation) in (1..).zip(conversation::each(lines)) {
        let conversation = match conversation {
            Err(TraceError::BadLine { .. }) if skip_bad => continue,
            other => other?,
        };
        for request in of_conversation(&conversation, record) {
            if take(&request).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}
