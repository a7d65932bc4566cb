//! All requests of the inputs in order of time, in memory, with what their logs said of them.
//!
//! One trace out of several inputs: where all are texts whose requests all have times, they are
//! merged by time. Otherwise each input begins when the one before it ends. Blocks of texts are
//! named by content, so equal prompts of two logs share them; traces number their blocks on their
//! own, so those of a second one are set apart.

mod renderings;
mod texts;
mod times;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use headstart_core::{Nanos, SessionId, TokenId, TraceRequest};
use headstart_trace::characterize::Stack;
use headstart_trace::format::conversation;
use headstart_trace::format::request_log::{self, LogOptions, Requests};
use headstart_trace::infer::Inference;
use headstart_trace::source::Lines;
use headstart_trace::{Format, Options, Reader, TraceError, TraceInfo};

use super::patience::Patience;
use crate::config::UsageError;
use crate::input::{counted, remarks};
pub(crate) use renderings::Renderings;
use texts::Texts;
pub(crate) use times::Times;

/// What a request takes beside its blocks, tokens and text, with what becomes of its tokens,
/// bytes, estimated.
const REQUEST_BYTES: usize = 512;

/// Where requests come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A file; `-` is standard input.
    File(PathBuf),
    /// What was made in memory, by its name.
    Made(&'static str, Vec<u8>),
}

/// How inputs are read.
pub(crate) struct Reading<'r> {
    pub(crate) format: Option<Format>,
    pub(crate) skip_bad: bool,
    pub(crate) block_tokens: Option<u32>,
    pub(crate) arrivals: headstart_trace::Arrivals,
    pub(crate) rendering: &'r Renderings,
    /// Memory for requests and texts.
    pub(crate) held_bytes: usize,
}

/// The requests, and what there is to know of them.
pub(crate) struct Traffic {
    pub(crate) requests: Vec<TraceRequest>,
    /// One for each request where all inputs are texts; else empty.
    pub(crate) said: Vec<Said>,
    pub(crate) info: TraceInfo,
    pub(crate) files: Vec<String>,
    pub(crate) formats: Vec<Format>,
    pub(crate) remarks: Vec<String>,
    pub(crate) times: Times,
    pub(crate) held_bytes: usize,
    /// What was not read, because there was no more room.
    pub(crate) left_out: Option<String>,
}

/// What a log says of a request beside its blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// Its id or line.
    pub(crate) name: String,
    /// The whole prompt as text.
    pub(crate) text: String,
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) model: Option<String>,
    pub(crate) cache_salt: Option<String>,
    pub(crate) user: Option<String>,
    /// Prompt tokens and those of them that a cache served, as the server counted them.
    pub(crate) cached: Option<(u32, u32)>,
    pub(crate) ttft: Option<Duration>,
}

/// One input, read.
struct Part {
    requests: Vec<TraceRequest>,
    said: Vec<Said>,
    info: TraceInfo,
    format: Format,
    remarks: Vec<String>,
    /// Every request of it has a time of its own, since 1970.
    is_dated: bool,
    /// The requests have times at all; otherwise their order stands for them.
    has_times: bool,
}

impl Traffic {
    /// Reads all of `sources`.
    ///
    /// # Errors
    /// When one cannot be read, holds no request or no block, or does not go with the others.
    pub(crate) fn read(
        sources: &[Source],
        reading: &Reading<'_>,
        patience: &mut Patience,
    ) -> Result<Self> {
        let mut budget = Budget {
            held: 0,
            most: reading.held_bytes,
            is_spent: false,
        };
        let mut parts = Vec::new();
        for source in sources {
            parts.push(part(source, reading, patience, &mut budget)?);
        }
        let mut traffic = Self::joined(parts, sources)?;
        traffic.held_bytes = budget.held;
        if budget.is_spent {
            traffic.left_out = Some(format!(
                "only the first {} are looked at: more do not fit the {} MiB that are held",
                counted(traffic.requests.len() as u64, "request"),
                reading.held_bytes >> 20
            ));
        }
        traffic.remarks.extend(traffic.times.remark());
        let texts = traffic.formats.iter().any(|format| format.is_text());
        if let Some(rendering) = reading.rendering.used().filter(|_| texts) {
            traffic.remarks.extend(rendering.remarks());
        }
        Ok(traffic)
    }

    fn joined(parts: Vec<Part>, sources: &[Source]) -> Result<Self> {
        let block_tokens = parts[0].info.block_tokens;
        if let Some(other) = parts
            .iter()
            .find(|part| part.info.block_tokens != block_tokens)
        {
            bail!(UsageError(format!(
                "the inputs differ in tokens per block ({block_tokens} and {}); convert them to \
                 one size, or analyze them one by one",
                other.info.block_tokens
            )));
        }
        let merges = parts.iter().all(|part| part.is_dated);
        let is_text = parts.iter().all(|part| part.format.is_text());
        let mut traffic = Self {
            requests: Vec::new(),
            said: Vec::new(),
            info: TraceInfo::new(block_tokens),
            files: sources.iter().map(Source::name).collect(),
            formats: Vec::new(),
            remarks: Vec::new(),
            times: Times::Unknown,
            held_bytes: 0,
            left_out: None,
        };
        let has_times = parts.iter().all(|part| part.has_times);
        for (number, part) in parts.into_iter().enumerate() {
            traffic.append(part, number as u64, merges);
        }
        if !is_text {
            traffic.said.clear();
        }
        traffic.sort();
        if has_times {
            traffic.times = Times::of(&traffic.requests);
        }
        traffic.infer();
        let has_blocks = traffic
            .requests
            .iter()
            .any(|request| !request.blocks.is_empty());
        if !has_blocks && block_tokens == 0 {
            bail!(
                "{}: the trace has lengths only, no blocks and no prompts (as Azure's has), so \
                 nothing can be found again; analyze a trace with block ids or a log with prompts",
                traffic.files.join(", ")
            );
        }
        if !has_blocks {
            bail!(
                "{}: no request has a whole block of {block_tokens} tokens, so nothing can be \
                 found again; analyze a trace with block ids or a log with prompts",
                traffic.files.join(", ")
            );
        }
        Ok(traffic)
    }

    fn append(&mut self, part: Part, number: u64, merges: bool) {
        let end = self.requests.last().map_or(Nanos(0), |last| last.arrival);
        let first = part
            .requests
            .iter()
            .map(|it| it.arrival)
            .min()
            .unwrap_or_default();
        let types: Vec<u16> = part
            .info
            .types
            .iter()
            .map(|it| self.info.type_index(it))
            .collect();
        let is_numbered = !part.format.is_text();
        let shift = |at: Nanos| match merges {
            true => at,
            false => Nanos(end.0.saturating_add(at.0.saturating_sub(first.0))),
        };
        self.requests
            .extend(part.requests.into_iter().map(|mut request| {
                request.arrival = shift(request.arrival);
                let index = usize::from(request.request_type);
                request.request_type = types.get(index).copied().unwrap_or(0);
                if is_numbered && number > 0 {
                    set_apart(&mut request, number);
                }
                request
            }));
        self.said.extend(part.said);
        if number == 0 {
            self.info.sessions = part.info.sessions;
            self.info.turns = part.info.turns;
            self.info.types_from = part.info.types_from;
        }
        self.formats.push(part.format);
        self.remarks.extend(part.remarks);
    }

    /// By time, from 0; requests of one time stay in their order.
    fn sort(&mut self) {
        let mut order: Vec<usize> = (0..self.requests.len()).collect();
        order.sort_by_key(|&index| self.requests[index].arrival);
        let start = order
            .first()
            .map_or(Nanos(0), |&first| self.requests[first].arrival);
        let taken = |requests: &mut Vec<TraceRequest>, index: usize| {
            let mut request = std::mem::take(&mut requests[index]);
            request.arrival = Nanos(request.arrival.0 - start.0);
            request
        };
        let sorted = order.iter().map(|&index| taken(&mut self.requests, index));
        self.requests = sorted.collect();
        if !self.said.is_empty() {
            let sorted = order
                .iter()
                .map(|&index| std::mem::take(&mut self.said[index]));
            self.said = sorted.collect();
        }
    }

    /// Sessions and turns where nobody named them.
    fn infer(&mut self) {
        if let Some(mut inference) = Inference::new(&mut self.info) {
            self.requests
                .iter_mut()
                .for_each(|request| inference.assign(request));
            self.remarks.push(
                "sessions or turns are inferred from shared prefixes (plausible, not certain)"
                    .to_owned(),
            );
        }
    }

    /// Different blocks, at most `pieces` runs of them remembered.
    pub(crate) fn distinct_blocks(&self, pieces: usize) -> u64 {
        let mut seen: Stack<()> = Stack::new(pieces);
        for request in &self.requests {
            seen.touch(&request.blocks, |_| ());
        }
        let blocks: u64 = seen.pieces().map(|(count, ())| u64::from(count)).sum();
        blocks * seen.weight()
    }

    /// Whether its times say which requests were computed at once.
    pub(crate) fn tells_what_is_at_once(&self) -> bool {
        self.times.tell_what_is_at_once()
    }

    /// From the first arrival to the last, where there are times.
    pub(crate) fn span_s(&self) -> Option<f64> {
        let last = self
            .requests
            .last()
            .filter(|_| self.times != Times::Unknown)?;
        Some(last.arrival.0 as f64 / 1e9)
    }
}

impl Source {
    /// The name in messages and reports, without the folder, which is nobody's business.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Made(name, _) => (*name).to_owned(),
            Self::File(path) => match path.file_name() {
                Some(name) if name != "-" => name.to_string_lossy().into_owned(),
                _ => "standard input".to_owned(),
            },
        }
    }

    fn open<'s>(&'s self, patience: &Patience) -> Result<(String, Box<dyn Read + 's>)> {
        match self {
            Self::Made(name, bytes) => Ok(((*name).to_owned(), Box::new(&bytes[..]))),
            Self::File(path) => Ok((path.display().to_string(), opened(path, patience)?)),
        }
    }
}

fn opened(path: &Path, patience: &Patience) -> Result<Box<dyn Read>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin()));
    }
    let cannot_open = || format!("cannot open {}", path.display());
    let file = File::open(path).with_context(cannot_open)?;
    let metadata = file.metadata().with_context(cannot_open)?;
    if metadata.is_dir() {
        bail!(UsageError(format!(
            "{} is a folder; name its files",
            path.display()
        )));
    }
    Ok(patience.counted(file, metadata.len()))
}

/// What may still be held.
struct Budget {
    held: usize,
    most: usize,
    is_spent: bool,
}

impl Budget {
    /// Whether `request` and what was said of it find room.
    fn takes(&mut self, request: &TraceRequest, said: Option<&Said>) -> bool {
        let text = said.map_or(0, |said| said.text.len() + size_of_val(&said.tokens[..]));
        let bytes = REQUEST_BYTES + size_of_val(request.blocks.runs()) + text;
        self.is_spent |= self.held + bytes > self.most;
        if !self.is_spent {
            self.held += bytes;
        }
        !self.is_spent
    }
}

fn part(
    source: &Source,
    reading: &Reading<'_>,
    patience: &mut Patience,
    budget: &mut Budget,
) -> Result<Part> {
    let (name, raw) = source.open(patience)?;
    let mut lines = Lines::new(name.clone(), raw)?;
    let format = match reading.format {
        Some(format) => format,
        None => Format::of(&mut lines)?,
    };
    let part = match format {
        Format::Requests | Format::Conversation => texts(lines, format, reading, patience, budget)?,
        _ => trace(lines, reading, patience, budget)?,
    };
    if part.requests.is_empty() && !budget.is_spent {
        bail!("{name} holds no request");
    }
    Ok(part)
}

fn trace(
    lines: Lines<'_>,
    reading: &Reading<'_>,
    patience: &mut Patience,
    budget: &mut Budget,
) -> Result<Part> {
    let options = Options {
        format: reading.format,
        skip_bad: reading.skip_bad,
        block_tokens: reading.block_tokens,
        arrivals: reading.arrivals,
        ..Options::default()
    };
    let mut reader = Reader::from_lines(lines, options).map_err(usage)?;
    let mut requests = Vec::new();
    for request in reader.by_ref() {
        let request = request?;
        patience.look(requests.len());
        if !budget.takes(&request, None) {
            break;
        }
        requests.push(request);
    }
    Ok(Part {
        has_times: times::are_given(&requests),
        requests,
        said: Vec::new(),
        info: reader.info().clone(),
        format: reader.format(),
        remarks: remarks(&reader),
        is_dated: false,
    })
}

fn texts(
    mut lines: Lines<'_>,
    format: Format,
    reading: &Reading<'_>,
    patience: &mut Patience,
    budget: &mut Budget,
) -> Result<Part> {
    let name = lines.name().to_owned();
    let rendering = reading.rendering.get()?;
    let mut texts = Texts::new(rendering, reading.block_tokens, &name);
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
                if !texts.add(&logged, patience, budget)? {
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
            if !texts.add(&logged?, patience, budget)? {
                break;
            }
        }
        skipped = requests.skipped();
    }
    Ok(texts.into_part(format, skipped))
}

/// Blocks and session of the `number`th input as nobody else's.
fn set_apart(request: &mut TraceRequest, number: u64) {
    let apart = |id: u64| mixed(id ^ mixed(number)) >> 1;
    let blocks = request.blocks.iter().map(apart);
    request.blocks = blocks.collect();
    request.session = request.session.map(|SessionId(id)| SessionId(apart(id)));
}

/// A permutation of 64-bit numbers. Source: the finalizer of SplitMix64 (Steele et al., OOPSLA'14).
fn mixed(mut number: u64) -> u64 {
    number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Errors that another command line would avoid are usage errors.
fn usage(error: TraceError) -> anyhow::Error {
    match error {
        TraceError::Unsuitable { .. } => UsageError(error.to_string()).into(),
        other => other.into(),
    }
}
