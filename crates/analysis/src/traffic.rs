//! All requests of the inputs in order of time, in memory, with what their logs said of them.
//!
//! One trace out of several inputs: where all are texts whose requests all have times, they are
//! merged by time. Otherwise each input begins when the one before it ends. Blocks of texts are
//! named by content, so equal prompts of two logs share them; traces number their blocks on their
//! own, so those of a second one are set apart.

mod copies;
mod counts;
mod part;
mod prompt;
mod renderings;
mod source;
mod texts;
mod times;

use headstart_core::figures::counted;
use headstart_core::{Nanos, Progress, SessionId, TraceRequest, UsageError};
use headstart_trace::characterize::Stack;
use headstart_trace::characterize::stack::mix;
use headstart_trace::infer::Inference;
use headstart_trace::{Format, Provenance, TraceInfo};

use crate::error::AnalysisError;
use crate::fleet::hashed;
use copies::DuplicateCounts;
pub use counts::LoggedTokenCounts;
use part::{ParsedLog, RequestMemoryBudget};
pub use prompt::LoggedPrompt;
pub use renderings::Renderings;
pub use source::{LogReaderSettings, LogSource};
pub use times::{Dates, TimestampProvenance, Why};

/// Requests of all inputs, with their texts and remarks.
pub struct LoggedTraffic {
    /// Requests in order of time.
    pub requests: Vec<TraceRequest>,
    /// One for each request where all inputs are texts; else empty.
    pub said: Vec<LoggedPrompt>,
    /// Block size, types and origins of sessions and turns.
    pub info: TraceInfo,
    /// Names of the inputs, without their folders.
    pub files: Vec<String>,
    /// Whether another command can read each of them by its name.
    pub is_file: Vec<bool>,
    /// Formats of the inputs.
    pub formats: Vec<Format>,
    /// Inferred, omitted and approximate data, one sentence each.
    pub remarks: Vec<String>,
    /// Provenance of the arrival times.
    pub times: TimestampProvenance,
    /// Prompt tokens as the log counted them.
    pub counts: LoggedTokenCounts,
    /// Requests that are copies of another one.
    pub copies: u64,
    /// Memory of the requests and texts, bytes.
    pub held_bytes: usize,
    /// Description of the input that was skipped for lack of memory.
    pub left_out: Option<String>,
}

impl LoggedTraffic {
    /// Reads all of `sources`.
    ///
    /// # Errors
    /// When one cannot be read, holds no request or no block, or does not go with the others.
    pub fn read(
        sources: &[LogSource],
        reading: &LogReaderSettings<'_>,
        progress: &dyn Progress,
    ) -> Result<Self, AnalysisError> {
        // One budget for all inputs: two files may not take twice the memory.
        let mut budget = RequestMemoryBudget { held: 0, most: reading.held_bytes, is_spent: false };
        let mut parts = Vec::new();
        for source in sources {
            parts.push(part::part(source, reading, progress, &mut budget)?);
        }
        // Remarks on the template and the tokenizer matter only if a text was rendered.
        let has_text = parts.iter().any(|part| part.has_text);
        let mut traffic = Self::joined(parts, sources)?;
        if let Some(rendering) = reading.rendering.used().filter(|_| has_text) {
            traffic.remarks.extend(rendering.remarks());
        }
        // Implausible counts must go before any figure uses the factor.
        traffic.counts = LoggedTokenCounts::of(&mut traffic.said);
        traffic.remarks.extend(traffic.counts.remark());
        traffic.held_bytes = budget.held;
        if budget.is_spent {
            traffic.left_out = Some(format!(
                "only the first {} are analyzed: more do not fit in {} MiB of memory",
                counted(traffic.requests.len() as u64, "request"),
                reading.held_bytes >> 20
            ));
        }
        traffic.remarks.extend(traffic.times.remark());
        Ok(traffic)
    }

    fn joined(parts: Vec<ParsedLog>, sources: &[LogSource]) -> Result<Self, AnalysisError> {
        let block_tokens = parts[0].info.block_tokens;
        if let Some(other) = parts.iter().find(|part| part.info.block_tokens != block_tokens) {
            let message = format!(
                "the inputs differ in tokens per block ({block_tokens} and {}); convert them to \
                 one size, or analyze them one by one",
                other.info.block_tokens
            );
            return Err(UsageError(message).into());
        }
        // One input without dates would land at 1970, far from the others.
        let merges = parts.iter().all(|part| part.is_dated);
        let is_text = parts.iter().all(|part| part.format.is_text());
        let mut traffic = Self {
            requests: Vec::new(),
            said: Vec::new(),
            info: TraceInfo::new(block_tokens),
            files: sources.iter().map(LogSource::name).collect(),
            is_file: sources.iter().map(LogSource::is_file).collect(),
            formats: Vec::new(),
            remarks: Vec::new(),
            times: TimestampProvenance::Unknown(Why::OneTime),
            counts: LoggedTokenCounts::default(),
            copies: 0,
            held_bytes: 0,
            left_out: None,
        };
        // Files are compared before their times and blocks are shifted.
        let mut copies = DuplicateCounts::of_files(&parts, &traffic.files);
        let mut dates = Dates::default();
        parts.iter().for_each(|part| dates.add(part.dates));
        let mut end = Nanos(0);
        for (number, part) in parts.into_iter().enumerate() {
            // Merged inputs keep their own times, which all count from 1970.
            let begin = (!merges).then_some(end);
            end = end.max(traffic.append(part, number as u64, begin));
        }
        // `said` has one entry for each request or none, and a trace has no texts.
        if !is_text {
            traffic.said.clear();
        }
        traffic.sort();
        traffic.times = TimestampProvenance::of(&traffic.requests, dates);
        traffic.infer();
        // Copied files explain equal ids already; a second remark would count the same requests.
        if copies.requests == 0 {
            copies.add_ids(&traffic.requests, &traffic.said);
        }
        traffic.copies = copies.requests;
        // Copies change all figures, so their remark comes before the others.
        traffic.remarks.splice(0..0, copies.remarks);
        let has_blocks = traffic.requests.iter().any(|request| !request.blocks.is_empty());
        if !has_blocks && block_tokens == 0 {
            return Err(AnalysisError::Empty(format!(
                "{}: lengths and times only; analyze a log with prompts or a trace with block ids, \
                 which show what prompts share",
                traffic.files.join(", ")
            )));
        }
        if !has_blocks {
            return Err(AnalysisError::Empty(format!(
                "{}: no request has a whole block of {block_tokens} tokens, so nothing can be \
                 found again; analyze a trace with block ids or a log with prompts",
                traffic.files.join(", ")
            )));
        }
        Ok(traffic)
    }

    /// Adds `part`, moved so that its earliest request is at `begin` if that is given; returns the
    /// time of its latest one.
    fn append(&mut self, part: ParsedLog, number: u64, begin: Option<Nanos>) -> Nanos {
        // Lines are in any order, so neither end of the input is the first or the last of them.
        let arrivals = || part.requests.iter().map(|request| request.arrival);
        let first = arrivals().min().unwrap_or_default();
        let last = arrivals().max().unwrap_or_default();
        let types: Vec<u16> =
            part.info.types.iter().map(|name| self.info.type_index(name)).collect();
        let is_numbered = !part.format.is_text();
        // Times of an input may start anywhere; when appended they count from its earliest request.
        let shift = |at: Nanos| match begin {
            Some(begin) => Nanos(begin.0.saturating_add(at.0 - first.0)),
            None => at,
        };
        self.requests.extend(part.requests.into_iter().map(|mut request| {
            request.arrival = shift(request.arrival);
            let index = usize::from(request.request_type);
            // Each input numbers its types on its own, so indices are mapped to the joint list.
            request.request_type = types.get(index).copied().unwrap_or(0);
            // Block numbers of two traces collide; names of texts do not, because they are hashes
            // of content.
            if is_numbered && number > 0 {
                set_apart(&mut request, number);
            }
            request
        }));
        let source = number as u32;
        let said = part.said.into_iter().map(|said| LoggedPrompt { source, ..said });
        self.said.extend(said);
        // The first input decides the provenance of sessions, turns and types.
        if number == 0 {
            self.info.sessions = part.info.sessions;
            self.info.turns = part.info.turns;
            self.info.types_from = part.info.types_from;
        }
        self.formats.push(part.format);
        self.remarks.extend(part.remarks);
        shift(last)
    }

    /// By time, from 0; requests of one time stay in their order.
    fn sort(&mut self) {
        let mut order: Vec<usize> = (0..self.requests.len()).collect();
        order.sort_by_key(|&index| self.requests[index].arrival);
        let start = order.first().map_or(Nanos(0), |&first| self.requests[first].arrival);
        let taken = |requests: &mut Vec<TraceRequest>, index: usize| {
            // Each index occurs once, so every request is taken once and no copy of its blocks is
            // made.
            let mut request = std::mem::take(&mut requests[index]);
            // The first in order is the earliest, so the difference is not negative.
            request.arrival = Nanos(request.arrival.0 - start.0);
            request
        };
        let sorted = order.iter().map(|&index| taken(&mut self.requests, index));
        self.requests = sorted.collect();
        if !self.said.is_empty() {
            let sorted = order.iter().map(|&index| std::mem::take(&mut self.said[index]));
            self.said = sorted.collect();
        }
    }

    /// Infers the sessions and turns that the input does not name. Where users are named, no
    /// session spans two users.
    fn infer(&mut self) {
        let Some(mut inference) = Inference::new(&mut self.info) else {
            return;
        };
        let mut has_users = false;
        for (index, request) in self.requests.iter_mut().enumerate() {
            let said = self.said.get(index);
            let Some(user) = said.and_then(|said| said.user.as_deref()) else {
                inference.assign(request);
                continue;
            };
            has_users = true;
            let user = hashed(&user);
            // Blocks that are mixed with the user never match another user's, so no session joins
            // both. The shift leaves a number after every id, at which a run can end.
            let own = request.blocks.iter().map(|id| mix(id ^ user) >> 1);
            let own = own.collect();
            let shared = std::mem::replace(&mut request.blocks, own);
            inference.assign(request);
            // Hits across users are real, so the request gets its own blocks back.
            request.blocks = shared;
        }
        let is_inferred = |provenance| provenance == Provenance::Inferred;
        let what = match (is_inferred(self.info.sessions), is_inferred(self.info.turns)) {
            (true, true) => "sessions and turns",
            (true, false) => "sessions",
            (false, _) => "turns",
        };
        let whose = if has_users { ", user by user" } else { "" };
        self.remarks.push(format!(
            "{what} are inferred from shared prefixes{whose} (plausible, not certain)"
        ));
    }

    /// Different blocks, at most `pieces` runs of them remembered.
    pub fn distinct_blocks(&self, pieces: usize) -> u64 {
        let mut seen: Stack<()> = Stack::new(pieces);
        for request in &self.requests {
            seen.touch(&request.blocks, |_| ());
        }
        let blocks: u64 = seen.pieces().map(|(count, ())| u64::from(count)).sum();
        // Under sampling each block that is counted represents `weight` of them.
        blocks * seen.weight()
    }

    /// Whether its times say which requests were computed at once.
    pub fn tells_what_is_at_once(&self) -> bool {
        self.times.tell_what_is_at_once()
    }

    /// From the first arrival to the last, where there are times.
    pub fn span_s(&self) -> Option<f64> {
        let is_known = matches!(self.times, TimestampProvenance::Known { .. });
        let last = self.requests.last().filter(|_| is_known)?;
        Some(last.arrival.0 as f64 / 1e9)
    }
}

/// Changes blocks and session of a request so that only the `number`th input has them.
fn set_apart(request: &mut TraceRequest, number: u64) {
    // The input's number is mixed first: small numbers alone would flip a few low bits.
    let apart = |id: u64| mix(id ^ mix(number)) >> 1;
    let blocks = request.blocks.iter().map(apart);
    request.blocks = blocks.collect();
    request.session = request.session.map(|SessionId(id)| SessionId(apart(id)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace whose requests arrive at `arrivals` of seconds and have the numbers from `number`.
    fn part(arrivals: &[u64], number: u32) -> ParsedLog {
        let request = |(&second, number)| TraceRequest {
            arrival: Nanos(second * 1_000_000_000),
            blocks: (0..3).collect(),
            input_tokens: Some(number),
            ..TraceRequest::default()
        };
        let requests: Vec<_> = arrivals.iter().zip(number..).map(request).collect();
        ParsedLog {
            dates: Dates::of_trace(&requests),
            requests,
            said: Vec::new(),
            info: TraceInfo::new(16),
            format: Format::Canonical,
            remarks: Vec::new(),
            is_dated: false,
            has_text: false,
        }
    }

    #[test]
    fn an_input_begins_when_the_latest_request_before_it_arrives() {
        let sources = ["one", "two", "three"].map(|name| LogSource::Made(name, Vec::new()));
        let parts = vec![part(&[100, 5], 1), part(&[7, 9, 8], 3), part(&[0], 6)];
        let traffic = LoggedTraffic::joined(parts, &sources).expect("traces");
        let numbered = traffic.requests.iter().map(|request| {
            let number = request.input_tokens.expect("given");
            (number, request.arrival.0 / 1_000_000_000)
        });
        let numbered: Vec<_> = numbered.collect();
        assert_eq!(numbered, [(2, 0), (1, 95), (3, 95), (5, 96), (4, 97), (6, 97)]);
    }
}
