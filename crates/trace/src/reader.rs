//! Any trace as a stream of requests.
//!
//! ```text
//! bytes ─ Lines ─ LineFormat ─┬─ request ─────────────┬─ in order ─ sessions ─▶ requests
//!         (source)  (format)  └─ session ─ Schedule ──┘  of time     (infer)
//! ```
//!
//! What a recorded trace can have wrong, and what is made of it:
//!
//! - A line that is not what its format says: an error with file, line and reason; or, under
//!   [`Options::skip_bad`], left out and counted.
//! - A request that arrives before the one before it in the file: it arrives with that one, and
//!   is counted. The order of the file is the order of the trace.
//! - Blocks for more than twice the prompt's length: counted ([`Tally::oversized`]). The blocks
//!   hold, and the lengths stay as recorded; figures in tokens will be wrong. Likewise a prompt
//!   more than twice as long as its blocks ([`Tally::undersized`]).
//! - Bytes that cannot be read or decompressed: an error, always, and the end.
//!
//! Memory is bounded by the largest line (and by the limits that formats and stages name), not
//! by the length of the trace.

use std::io::Read;
use std::rc::Rc;
use std::time::Duration;

use headstart_core::{Nanos, TraceRequest};

use crate::format::conversation::Tokenize;
use crate::format::line_format::{LineFormat, ParsedLine};
use crate::format::{self, Format};
use crate::infer::Inference;
use crate::schedule::{Arrivals, Schedule};
use crate::source::Lines;
use crate::{TraceError, TraceInfo};

/// Options for reading a trace.
pub struct Options<'a> {
    /// Its format; told by the first line where `None`.
    pub format: Option<Format>,
    /// Bad lines are counted and left out, instead of being errors.
    pub skip_bad: bool,
    /// When sessions start, for the formats that do not say.
    pub arrivals: Arrivals,
    /// Mean time between two requests of a conversation, where starts are drawn: conversation
    /// files have no times at all, so these gaps are drawn (exponential) as well.
    pub turn_gap: Duration,
    /// Sessions that say that they repeat another one are left out.
    pub drop_duplicates: bool,
    /// Tokens per block where the format leaves that open; its usual figure where `None`.
    pub block_tokens: Option<u32>,
    /// Sessions, turns and types are inferred where the trace has none, see [`crate::infer`].
    pub infer: bool,
    /// Text to tokens, needed for conversations and request logs.
    pub tokenize: Option<Rc<Tokenize<'a>>>,
}

impl Default for Options<'_> {
    /// Whatever the first line says; strict; no repetitions; inferring; as λ_chat of "Learned
    /// Prefix Caching" (NeurIPS 2025), 100 s between turns.
    fn default() -> Self {
        Self {
            format: None,
            skip_bad: false,
            arrivals: Arrivals::FileOrder,
            turn_gap: Duration::from_secs(100),
            drop_duplicates: true,
            block_tokens: None,
            infer: true,
            tokenize: None,
        }
    }
}

/// Counters of a reader so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests handed out.
    pub requests: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Bad lines left out (of a session, its rest).
    pub skipped: u64,
    /// Sessions left out because they repeat another one.
    pub duplicates: u64,
    /// Requests that came before the one before them, and were moved to its time.
    pub moved: u64,
    /// Requests whose blocks would hold more than twice their prompt: the block size, the
    /// lengths or the blocks are wrong, and token figures with them.
    pub oversized: u64,
    /// Requests with blocks whose prompt is more than twice as long as these would hold: as
    /// above, the other way round.
    pub undersized: u64,
}

/// Reads a trace request by request, in order of time.
pub struct Reader<'a> {
    lines: Lines<'a>,
    format: Format,
    parser: Box<dyn LineFormat<'a> + 'a>,
    info: TraceInfo,
    schedule: Schedule<'a>,
    inference: Option<Inference>,
    skip_bad: bool,
    is_last_read: bool,
    last_arrival: Nanos,
    tally: Tally,
}

impl<'a> Reader<'a> {
    /// Reads `raw` (plain, gzip or zstd) in the format of its first line, with the default
    /// options; `name` appears in errors.
    ///
    /// # Errors
    /// As [`Reader::with_options`].
    pub fn new(name: impl Into<String>, raw: impl Read + 'a) -> Result<Self, TraceError> {
        Self::with_options(name, raw, Options::default())
    }

    /// Reads `raw` (plain, gzip or zstd) as `options` say; `name` appears in errors.
    ///
    /// # Errors
    /// [`TraceError::Read`] when the input cannot be read at all, [`TraceError::BadLine`] when
    /// its first line fits no format or not the one named, [`TraceError::Unsuitable`] when an
    /// option does not go with the format.
    pub fn with_options(
        name: impl Into<String>,
        raw: impl Read + 'a,
        options: Options<'a>,
    ) -> Result<Self, TraceError> {
        Self::from_lines(Lines::new(name, raw)?, options)
    }

    /// Reads `lines`, none of which was taken yet, as `options` say.
    ///
    /// # Errors
    /// As [`Reader::with_options`].
    pub fn from_lines(mut lines: Lines<'a>, options: Options<'a>) -> Result<Self, TraceError> {
        let format = match options.format {
            Some(format) => format,
            None => Format::of(&mut lines)?,
        };
        check(format, &options).map_err(|reason| unsuitable(&lines, reason))?;
        // Peeked only: a header is also the first line that the parser gets.
        let opened = lines.peek_with(|first| format::open(format, Some(first), &options));
        let (parser, mut info) = match opened {
            Some(opened) => opened?,
            None => format::open(format, None, &options)
                .map_err(|reason| TraceError::bad_line(lines.name(), 1, reason))?,
        };
        let inference = options.infer.then(|| Inference::new(&mut info)).flatten();
        Ok(Self {
            lines,
            format,
            parser,
            info,
            schedule: Schedule::new(options.arrivals),
            inference,
            skip_bad: options.skip_bad,
            is_last_read: false,
            last_arrival: Nanos(0),
            tally: Tally::default(),
        })
    }

    /// Returns the facts about the trace. Type names are complete after the last request.
    #[must_use]
    pub fn info(&self) -> &TraceInfo {
        &self.info
    }

    /// The format that is read.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Bad lines left out so far.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.tally.skipped
    }

    /// The next request as its format and the schedule give it.
    fn pull(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        loop {
            // Sessions under way come first; a further line is read only if it could begin earlier.
            if let Some(next) = self.schedule.next(self.is_last_read) {
                let name = self.lines.name();
                return Some(
                    next.map_err(|(line, reason)| TraceError::bad_line(name, line, reason)),
                );
            }
            if self.is_last_read {
                return None;
            }
            let (parser, info) = (&mut self.parser, &mut self.info);
            match self.lines.next_with(|line| parser.read(line, info)) {
                // Sessions may still be under way, so the loop continues.
                None => self.is_last_read = true,
                Some(Ok(ParsedLine::Nothing)) => {}
                Some(Ok(ParsedLine::Duplicate)) => self.tally.duplicates += 1,
                Some(Ok(ParsedLine::Request(request))) => return Some(Ok(request)),
                Some(Ok(ParsedLine::Session(session))) => {
                    if let Err(reason) = self.schedule.add(session, self.lines.line()) {
                        self.is_last_read = true;
                        return Some(Err(unsuitable(&self.lines, reason)));
                    }
                }
                Some(Err(error)) => return Some(Err(error)),
            }
        }
    }

    /// Puts `request` in its place among the others.
    fn admit(&mut self, request: &mut TraceRequest) {
        if request.arrival < self.last_arrival {
            request.arrival = self.last_arrival;
            self.tally.moved += 1;
        }
        self.last_arrival = request.arrival;
        self.tally.requests += 1;
        self.tally.blocks += request.blocks.len() as u64;
        self.tally.oversized += u64::from(is_oversized(request, self.info.block_tokens));
        self.tally.undersized += u64::from(is_undersized(request, self.info.block_tokens));
        // After the arrival is final, in the order in which requests are handed out.
        if let Some(inference) = &mut self.inference {
            inference.assign(request);
        }
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<TraceRequest, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.pull()? {
                Ok(mut request) => {
                    self.admit(&mut request);
                    return Some(Ok(request));
                }
                // Only bad lines are skipped. The other errors concern the whole input.
                Err(TraceError::BadLine { .. }) if self.skip_bad => self.tally.skipped += 1,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

fn unsuitable(lines: &Lines<'_>, reason: String) -> TraceError {
    TraceError::Unsuitable { input: lines.name().to_owned(), reason }
}

/// Whether `options` go with `format`.
fn check(format: Format, options: &Options<'_>) -> Result<(), String> {
    let draws = options.arrivals != Arrivals::FileOrder;
    if draws && !format.has_sessions_without_start() {
        return Err(format!(
            "the format {format} has arrival times; starts are drawn for agent and conversation \
             sessions only"
        ));
    }
    match (options.block_tokens, format) {
        (Some(0), _) => Err("a block holds at least one token".to_owned()),
        (Some(_), Format::Azure) => Err("the format azure has no blocks".to_owned()),
        (Some(_), Format::Canonical) => {
            Err("the trace's header says how many tokens a block holds".to_owned())
        }
        (_, format) if format.is_text() && options.tokenize.is_none() => {
            Err(format!("the format {format} is text; pass a tokenizing function"))
        }
        _ => Ok(()),
    }
}

fn is_oversized(request: &TraceRequest, block_tokens: u32) -> bool {
    let Some(input) = request.input_tokens else {
        return false;
    };
    let held = request.blocks.len() as u64 * u64::from(block_tokens);
    // A prompt shorter than a block still has a block.
    held > 2 * u64::from(input.max(block_tokens))
}

fn is_undersized(request: &TraceRequest, block_tokens: u32) -> bool {
    let blocks = request.blocks.len() as u64;
    let input = request.input_tokens.unwrap_or(0);
    // Halved, because the product of large numbers doubled may not fit.
    blocks > 0 && u64::from(input.div_ceil(2)) > blocks * u64::from(block_tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open<'a>(text: &'a str, options: Options<'a>) -> Result<Reader<'a>, TraceError> {
        Reader::with_options("t", text.as_bytes(), options)
    }

    #[test]
    fn bad_lines_are_errors_or_counted() {
        let text = "{\"hash_ids\": [1]}\n{\"hash_ids\": 7}\n\n{\"hash_ids\": [2, 3]}\n";
        let mut reader = open(text, Options::default()).expect("readable");
        assert!(reader.next().expect("a line").is_ok());
        let error = reader.next().expect("a line").expect_err("bad");
        assert!(error.to_string().starts_with("t, line 2: "), "{error}");
        let skip = Options { skip_bad: true, ..Options::default() };
        let mut reader = open(text, skip).expect("readable");
        assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 2);
        let tally = reader.tally();
        assert_eq!((tally.requests, tally.blocks, tally.skipped), (2, 3, 1));
    }

    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }

    #[test]
    fn an_error_of_reading_is_never_skipped_and_is_the_end() {
        let options = Options { skip_bad: true, ..Options::default() };
        let raw = &b"{\"hash_ids\": [1]}\n"[..];
        let mut reader = Reader::with_options("t", raw.chain(Broken), options).expect("readable");
        assert!(reader.next().expect("a line").is_ok());
        let error = reader.next().expect("more").expect_err("it is gone");
        assert!(error.to_string().contains("after line 1: the disk"), "{error}");
        assert!(reader.next().is_none());
    }

    #[test]
    fn file_order_is_the_order_of_the_trace() {
        let text = [5, 3, 4, 9].map(|ms| format!("{{\"timestamp\": {ms}, \"hash_ids\": []}}"));
        let text = text.join("\n");
        let mut reader = open(&text, Options::default()).expect("readable");
        let times: Vec<_> =
            reader.by_ref().map(|request| request.expect("good").arrival.0 / 1_000_000).collect();
        assert_eq!(times, [5, 5, 5, 9]);
        assert_eq!(reader.tally().moved, 2);
    }

    #[test]
    fn blocks_far_beyond_the_prompt_or_far_behind_it_are_counted() {
        let check = |input: u32, blocks: &str, block_tokens: Option<u32>, expected: [u64; 2]| {
            let text = format!("{{\"input_length\": {input}, \"hash_ids\": {blocks}}}");
            let options = Options { block_tokens, ..Options::default() };
            let mut reader = open(&text, options).expect("readable");
            assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 1);
            let tally = reader.tally();
            assert_eq!([tally.oversized, tally.undersized], expected, "{text}");
        };
        check(1, "[1, 2]", None, [0, 0]);
        check(513, "[1, 2]", None, [0, 0]);
        check(64, "[1, 2, 3, 4]", None, [1, 0]);
        check(64, "[1, 2, 3, 4]", Some(16), [0, 0]);
        check(128, "[1, 2, 3, 4]", Some(16), [0, 0]);
        check(129, "[1, 2, 3, 4]", Some(16), [0, 1]);
        check(1_000_000, "[1]", None, [0, 1]);
        check(1_000_000, "[]", None, [0, 0]);
    }

    fn check_refused(text: &str, options: Options<'_>, part: &str) {
        let error = open(text, options).err().expect("refused").to_string();
        assert!(error.starts_with('t') && error.contains(part), "{error}");
    }

    #[test]
    fn what_cannot_be_read_is_refused_at_once() {
        let drawn = || Options {
            arrivals: Arrivals::Poisson { mean_gap: Duration::from_secs(1), seed: 0 },
            ..Options::default()
        };
        let blocks =
            |block_tokens| Options { block_tokens: Some(block_tokens), ..Options::default() };
        check_refused("", Options::default(), "empty");
        check_refused("\n?\n", Options::default(), "line 2: the first line is neither");
        check_refused("{\"hash_ids\": []}", drawn(), "has arrival times");
        check_refused("{\"hash_ids\": []}", blocks(0), "at least one token");
        check_refused("{\"turns\": []}", Options::default(), "tokenizing function");
        let azure = "TIMESTAMP,ContextTokens,GeneratedTokens";
        check_refused(azure, blocks(16), "no blocks");
    }

    #[test]
    fn an_empty_trace_of_a_named_format_has_no_requests() {
        let options = Options { format: Some(Format::Mooncake), ..Options::default() };
        assert_eq!(open("\n", options).expect("readable").count(), 0);
    }
}
