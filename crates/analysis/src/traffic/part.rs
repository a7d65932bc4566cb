//! One input, read.

use headstart_core::{Progress, TraceRequest, UsageError};
use headstart_trace::format::conversation;
use headstart_trace::format::request_log::{self, LogOptions, Requests};
use headstart_trace::source::Lines;
use headstart_trace::{Arrivals, Format, Options, Reader, TraceError, TraceInfo, remarks};

use super::prompt::LoggedPrompt;
use super::source::{LogReaderSettings, LogSource};
use super::texts::TextLogBuilder;
use super::times::Dates;
use crate::error::AnalysisError;

/// Estimated bytes of a request besides its blocks, tokens and text, including the attribution of
/// its tokens.
const REQUEST_BYTES: usize = 512;

/// Contents of one input.
pub(super) struct ParsedLog {
    pub(super) requests: Vec<TraceRequest>,
    pub(super) said: Vec<LoggedPrompt>,
    pub(super) info: TraceInfo,
    pub(super) format: Format,
    pub(super) remarks: Vec<String>,
    /// Its requests' times count from 1970, as those of other inputs.
    pub(super) is_dated: bool,
    pub(super) dates: Dates,
    /// Some prompt was not given as tokens.
    pub(super) has_text: bool,
}

/// Memory budget for held requests, bytes.
pub(super) struct RequestMemoryBudget {
    pub(super) held: usize,
    pub(super) most: usize,
    pub(super) is_spent: bool,
}

impl RequestMemoryBudget {
    /// Whether `request` and what was said of it find room.
    pub(super) fn takes(&mut self, request: &TraceRequest, said: Option<&LoggedPrompt>) -> bool {
        let text = said.map_or(0, |said| said.text.len() + size_of_val(&said.tokens[..]));
        // Consecutive ids take 16 bytes per run, however many blocks it has.
        let bytes = REQUEST_BYTES + size_of_val(request.blocks.runs()) + text;
        // Once a request did not fit, later smaller ones are refused too: the analysis is of a
        // prefix.
        self.is_spent |= self.held + bytes > self.most;
        if !self.is_spent {
            self.held += bytes;
        }
        !self.is_spent
    }
}

/// Reads `source` as far as there is room.
pub(super) fn part(
    source: &LogSource,
    reading: &LogReaderSettings<'_>,
    progress: &dyn Progress,
    budget: &mut RequestMemoryBudget,
) -> Result<ParsedLog, AnalysisError> {
    let (name, raw) = source.open(progress)?;
    let mut lines = Lines::new(name.clone(), raw)?;
    let format = match reading.format {
        Some(format) => format,
        None => Format::of(&mut lines)?,
    };
    // Texts have times or their order in the file; only sessions of agents lack a start.
    let is_drawn = reading.arrivals != Arrivals::FileOrder;
    let part = match format {
        Format::Requests | Format::Conversation if is_drawn => {
            let message = format!(
                "--arrivals: {name} is a log of texts; starts are drawn for agent sessions only"
            );
            return Err(UsageError(message).into());
        }
        Format::Requests | Format::Conversation => texts(lines, format, reading, budget)?,
        _ => trace(lines, reading, budget)?,
    };
    // With a spent budget an input without requests is one that found no room.
    if part.requests.is_empty() && !budget.is_spent {
        return Err(AnalysisError::Empty(format!("{name} has no request")));
    }
    Ok(part)
}

fn trace(
    lines: Lines<'_>,
    reading: &LogReaderSettings<'_>,
    budget: &mut RequestMemoryBudget,
) -> Result<ParsedLog, AnalysisError> {
    let options = Options {
        format: reading.format,
        skip_bad: reading.skip_bad,
        block_tokens: reading.block_tokens,
        arrivals: reading.arrivals,
        ..Options::default()
    };
    let mut reader = Reader::from_lines(lines, options).map_err(AnalysisError::of_trace)?;
    let mut requests = Vec::new();
    for request in reader.by_ref() {
        let request = request?;
        // The rest of the trace is not read; the remark names how many requests are analyzed.
        if !budget.takes(&request, None) {
            break;
        }
        requests.push(request);
    }
    let mut remarks = remarks(&reader);
    if reader.format() == Format::Agent {
        remarks.push(starts(reading.arrivals));
    }
    Ok(ParsedLog {
        dates: Dates::of_trace(&requests),
        requests,
        said: Vec::new(),
        info: reader.info().clone(),
        format: reader.format(),
        remarks,
        // A trace's times count from its own start, which says nothing about other inputs.
        is_dated: false,
        has_text: false,
    })
}

/// Tells the reader how missing session starts were replaced.
fn starts(arrivals: Arrivals) -> String {
    match arrivals {
        Arrivals::FileOrder => "the log has no start times of sessions: each begins with the last \
                                request of the one before, so the span is a sum \
                                (--arrivals SECONDS draws random starts)"
            .to_owned(),
        Arrivals::Poisson { mean_gap, .. } => format!(
            "the log has no start times of sessions: they are random, {} s apart on average, so \
             the span and evictions depend on --arrivals",
            mean_gap.as_secs_f64()
        ),
    }
}

fn texts(
    mut lines: Lines<'_>,
    format: Format,
    reading: &LogReaderSettings<'_>,
    budget: &mut RequestMemoryBudget,
) -> Result<ParsedLog, AnalysisError> {
    let name = lines.name().to_owned();
    let rendering = reading.rendering.get()?;
    let mut texts = TextLogBuilder::new(rendering, reading.block_tokens, &name);
    let mut skipped = 0;
    if format == Format::Conversation {
        for conversation in conversation::each(&mut lines) {
            let conversation = match conversation {
                Err(TraceError::BadLine { .. }) if reading.skip_bad => {
                    skipped += 1;
                    continue;
                }
                other => other?,
            };
            for logged in request_log::of_conversation(&conversation, 0) {
                if !texts.add(&logged, budget)? {
                    break;
                }
            }
            if budget.is_spent {
                break;
            }
        }
    } else {
        let skip_bad = reading.skip_bad;
        let mut requests = Requests::from_lines(lines, LogOptions { skip_bad });
        for logged in requests.by_ref() {
            if !texts.add(&logged?, budget)? {
                break;
            }
        }
        skipped = requests.skipped();
        texts.has_unread(requests.unread_times());
        texts.has_passed_over(requests.passed_over());
    }
    Ok(texts.into_part(format, skipped))
}
