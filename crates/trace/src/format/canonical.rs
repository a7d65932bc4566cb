//! Headstart's own form, which holds all that a [`TraceRequest`] holds, exactly.
//!
//! JSON lines. The first is a header, every other one a request, or names of request types
//! that the trace did not know before:
//!
//! ```text
//! {"headstart_trace":1,"block_tokens":64,"types":["unknown"],"sessions":"given","turns":"given",
//!  "types_from":"given"}                                                  (one line in the file)
//! {"types":["n"]}
//! {"arrival_ns":1500000000,"type":1,"session":0,"turn":1,"input_tokens":130,"blocks":[[0,2]]}
//! ```
//!
//! Times are whole nanoseconds from the start. A type is an index into all names so far, so a
//! trace can be written while it is read, before its last type is known. Blocks are runs
//! `[start, count]`; plain ids are read as well. What is unknown is left out: type 0, turn 0,
//! session, lengths, `finish` and `p_continue`. A field that is not known here is an error, because
//! a misspelt one would otherwise be lost without a word.
//!
//! `tool` is the class of the tools that the answer called, from 1 to 63
//! ([`ToolClass`]); it holds no name.
//!
//! `finish` is how the answer ended: `tool_calls`, `stop`, `length` or `cancelled`; the `hazard`
//! policy learns from it. Builds from before it refuse a trace that has it.
//!
//! `p_continue`, from 0 to 1, is the predicted probability that another request of the session
//! follows, as of this request's arrival; the `lpc` policy reads it. Builds from before it refuse
//! a trace that has it, as they do every field they do not know.

use std::io::{self, Write};

use headstart_core::{FinishKind, Nanos, Probability, SessionId, ToolClass, TraceRequest};
use serde::{Deserialize, Serialize};

use super::chain::PromptChain;
use super::line_format::{LineFormat, OpenTrace, ParsedLine, info};
use crate::info::{TYPE_NAME_BYTES_MAX, TYPES_MAX, printable};
use crate::{Provenance, TraceInfo};

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// Writes a trace, line by line.
pub struct Writer<W> {
    out: W,
    num_types: usize,
}

impl<W: Write> Writer<W> {
    /// Writes the header. Types that are not known yet can be [declared](Self::declare) later.
    ///
    /// # Errors
    /// When `out` does not take it.
    pub fn new(mut out: W, info: &TraceInfo) -> io::Result<Self> {
        let header = TraceHeader {
            headstart_trace: VERSION,
            block_tokens: info.block_tokens,
            types: info.types.clone(),
            sessions: info.sessions,
            turns: info.turns,
            types_from: info.types_from,
        };
        write_line(&mut out, &header)?;
        let num_types = info.types.len();
        Ok(Self { out, num_types })
    }

    /// Tells the names in `types` that were not told before; `types` is the whole list, to
    /// which a reader adds at the end only. Cheap when there is nothing new.
    ///
    /// # Errors
    /// When the output does not take it.
    pub fn declare(&mut self, types: &[String]) -> io::Result<()> {
        let new = types.get(self.num_types..).unwrap_or_default();
        if !new.is_empty() {
            let line = CanonicalLine { types: Some(new.to_vec()), ..CanonicalLine::default() };
            write_line(&mut self.out, &line)?;
            self.num_types = types.len();
        }
        Ok(())
    }

    /// Writes one request.
    ///
    /// # Errors
    /// When the output does not take it, or when the request's type was never told.
    pub fn write(&mut self, request: &TraceRequest) -> io::Result<()> {
        let kind = request.request_type;
        if usize::from(kind) >= self.num_types {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("request type {kind} has no name; declare it before its requests"),
            ));
        }
        let line = CanonicalLine {
            arrival_ns: Some(request.arrival.0),
            request_type: kind,
            session: request.session.map(|session| session.0),
            turn: request.turn,
            input_tokens: request.input_tokens,
            output_tokens: request.output_tokens,
            finish: request.finish,
            tool: request.tool.number(),
            p_continue: request.p_continue.map(Probability::value),
            blocks: PromptChain(request.blocks.clone()),
            types: None,
        };
        write_line(&mut self.out, &line)
    }

    /// Flushes, and gives the output back.
    ///
    /// # Errors
    /// When the output does not take what is left.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

fn write_line(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceHeader {
    headstart_trace: u32,
    block_tokens: u32,
    types: Vec<String>,
    sessions: Provenance,
    turns: Provenance,
    types_from: Provenance,
}

/// A line behind the header: a request, or names.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CanonicalLine {
    #[serde(skip_serializing_if = "is_default")]
    arrival_ns: Option<u64>,
    #[serde(default, rename = "type", skip_serializing_if = "is_default")]
    request_type: u16,
    #[serde(skip_serializing_if = "is_default")]
    session: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    turn: u16,
    #[serde(skip_serializing_if = "is_default")]
    input_tokens: Option<u32>,
    #[serde(skip_serializing_if = "is_default")]
    output_tokens: Option<u32>,
    #[serde(default, with = "FinishName", skip_serializing_if = "is_default")]
    finish: FinishKind,
    #[serde(default, skip_serializing_if = "is_default")]
    tool: u8,
    #[serde(skip_serializing_if = "is_default")]
    p_continue: Option<f64>,
    #[serde(default, skip_serializing_if = "is_default")]
    blocks: PromptChain,
    #[serde(skip_serializing_if = "is_default")]
    types: Option<Vec<String>>,
}

/// The names of [`FinishKind`] in a trace.
#[derive(Serialize, Deserialize)]
#[serde(remote = "FinishKind", rename_all = "snake_case")]
enum FinishName {
    Unknown,
    ToolCalls,
    Stop,
    Length,
    Cancelled,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

struct Canonical {
    is_header_read: bool,
    /// Index in the file to index in the trace's list, which inference may have added to.
    types: Vec<u16>,
}

pub(super) fn open<'a>(first: Option<&str>) -> Result<OpenTrace<'a>, String> {
    let Some(first) = first else {
        return Err("the file is empty; a trace begins with its header".to_owned());
    };
    // The version first: a later one may have other fields.
    #[derive(Deserialize)]
    struct Version {
        headstart_trace: u32,
    }
    let wrong = |error| format!("not the header of a Headstart trace ({error})");
    let Version { headstart_trace } = serde_json::from_str(first).map_err(wrong)?;
    if headstart_trace != VERSION {
        return Err(format!(
            "the trace has version {headstart_trace}; this build reads version {VERSION}"
        ));
    }
    let header: TraceHeader = serde_json::from_str(first).map_err(wrong)?;
    // A request without a type has index 0, so the meaning of 0 is fixed.
    if header.types.first().is_none_or(|name| name != "unknown") {
        return Err("the first of `types` must be `unknown`".to_owned());
    }
    let provenance = [header.sessions, header.turns, header.types_from];
    let mut info = info(header.block_tokens, provenance);
    let mut canonical = Canonical { is_header_read: false, types: vec![0] };
    // `TraceInfo::new` already has `unknown`.
    canonical.learn(&mut info, header.types.into_iter().skip(1))?;
    Ok((Box::new(canonical), info))
}

impl Canonical {
    fn learn(
        &mut self,
        info: &mut TraceInfo,
        names: impl Iterator<Item = String>,
    ) -> Result<(), String> {
        for name in names {
            if info.types.len() >= TYPES_MAX {
                return Err(format!("more than {TYPES_MAX} request types"));
            }
            if name.len() > TYPE_NAME_BYTES_MAX {
                return Err(format!(
                    "the name of a request type is longer than {TYPE_NAME_BYTES_MAX} bytes"
                ));
            }
            // Repeated names are not merged, because indices count all of them. The limit fits 16
            // bits.
            self.types.push(info.types.len() as u16);
            info.types.push(printable(&name).into_owned());
        }
        Ok(())
    }
}

impl<'a> LineFormat<'a> for Canonical {
    fn read(&mut self, line: &str, info: &mut TraceInfo) -> Result<ParsedLine<'a>, String> {
        if !self.is_header_read {
            self.is_header_read = true;
            return Ok(ParsedLine::Nothing);
        }
        let line: CanonicalLine = serde_json::from_str(line)
            .map_err(|error| format!("not a request of a Headstart trace ({error})"))?;
        if let Some(names) = line.types {
            self.learn(info, names.into_iter())?;
            return Ok(ParsedLine::Nothing);
        }
        let Some(arrival_ns) = line.arrival_ns else {
            return Err("`arrival_ns` is missing".to_owned());
        };
        let (kind, known) = (line.request_type, self.types.len());
        let Some(&request_type) = self.types.get(usize::from(kind)) else {
            return Err(format!("`type` is {kind}, but only {known} have a name"));
        };
        // Token figures would all be 0.
        if info.block_tokens == 0 && !line.blocks.0.is_empty() {
            return Err(
                "there are `blocks`, but `block_tokens` in the header is 0; say there how many \
                 tokens a block holds"
                    .to_owned(),
            );
        }
        let p_continue = line.p_continue.map(probability).transpose()?;
        let tool = ToolClass::from_number(line.tool).ok_or_else(|| {
            format!("`tool` is {}, but classes of tools are numbered from 1 to 63", line.tool)
        })?;
        Ok(ParsedLine::Request(TraceRequest {
            arrival: Nanos(arrival_ns),
            blocks: line.blocks.0,
            input_tokens: line.input_tokens,
            output_tokens: line.output_tokens,
            session: line.session.map(SessionId),
            turn: line.turn,
            request_type,
            finish: line.finish,
            tool,
            p_continue,
        }))
    }
}

fn probability(number: f64) -> Result<Probability, String> {
    let number = Some(number).filter(|number| (0.0..=1.0).contains(number));
    let probability = number.and_then(Probability::new);
    probability.ok_or_else(|| "`p_continue` is a probability, a number from 0 to 1".to_owned())
}

#[cfg(test)]
mod tests {
    use headstart_core::{BlockRuns, Rng, Run};

    use super::*;
    use crate::{Options, Reader};

    fn request(rng: &mut Rng, arrival: &mut u64, num_types: usize) -> TraceRequest {
        *arrival += rng.next_u64() >> rng.below(64).max(20);
        let mut blocks = BlockRuns::default();
        for _ in 0..rng.below(5) {
            blocks.push_run(Run {
                start: rng.next_u64() >> rng.below(64),
                count: rng.below(1000) as u32,
            });
        }
        let p_continue = match rng.below(4) {
            0 => None,
            1 => Probability::new(rng.below(2) as f64),
            _ => Probability::new(rng.next_f64().powi(1 + rng.below(9) as i32)),
        };
        let mut maybe = |value: u64| (rng.below(3) > 0).then_some(value);
        TraceRequest {
            arrival: Nanos(*arrival),
            session: maybe(u64::MAX - *arrival).map(SessionId),
            input_tokens: maybe(*arrival >> 40).map(|tokens| tokens as u32),
            output_tokens: maybe(*arrival >> 33).map(|tokens| tokens as u32),
            turn: maybe(*arrival & 0xffff).unwrap_or(0) as u16,
            request_type: rng.below(num_types) as u16,
            finish: FinishKind::ALL[rng.below(FinishKind::ALL.len())],
            tool: ToolClass::from_number(rng.below(64) as u8).expect("a class"),
            blocks,
            p_continue,
        }
    }

    /// A random trace whose types become known one by one.
    fn check_round_trip(seed: u64) {
        let mut rng = Rng::new(seed);
        let origins = [Provenance::Given, Provenance::Inferred, Provenance::Absent];
        let mut info = TraceInfo {
            sessions: origins[rng.below(3)],
            turns: origins[rng.below(3)],
            types_from: origins[rng.below(3)],
            ..TraceInfo::new(1 + rng.below(1000) as u32)
        };
        let mut writer = Writer::new(Vec::new(), &info).expect("memory takes it");
        let mut arrival = 0;
        let requests: Vec<_> = (0..rng.below(30))
            .map(|index| {
                if rng.below(4) == 0 {
                    info.type_index(&format!("type \"{index}\" \u{2028}"));
                    writer.declare(&info.types).expect("memory takes it");
                }
                let request = request(&mut rng, &mut arrival, info.types.len());
                writer.write(&request).expect("memory takes it");
                request
            })
            .collect();
        let written = writer.finish().expect("memory takes it");
        let options = Options { infer: false, ..Options::default() };
        let mut reader = Reader::with_options("t", &written[..], options).expect("readable");
        let read: Vec<_> = reader.by_ref().collect::<Result<_, _>>().expect("good");
        assert_eq!(read, requests, "seed {seed}");
        assert_eq!(reader.info(), &info, "seed {seed}");
    }

    #[test]
    fn what_was_written_is_read() {
        (0..500).for_each(check_round_trip);
    }

    #[test]
    fn a_prediction_is_written_where_there_is_one() {
        let check = |p: Option<f64>, field: &str| {
            let mut writer = Writer::new(Vec::new(), &TraceInfo::new(16)).expect("memory");
            let request = TraceRequest {
                p_continue: p.and_then(Probability::new),
                ..TraceRequest::default()
            };
            writer.write(&request).expect("memory takes it");
            let text = String::from_utf8(writer.finish().expect("memory")).expect("JSON");
            let line = text.lines().nth(1).expect("a request");
            assert_eq!(line, format!("{{\"arrival_ns\":0{field}}}"));
        };
        check(None, "");
        check(Some(0.25), ",\"p_continue\":0.25");
        check(Some(1.0), ",\"p_continue\":1.0");
    }

    /// `lines` behind a header; what is wrong with them.
    fn check_bad(lines: &str, part: &str) {
        let header = Writer::new(Vec::new(), &TraceInfo::new(16)).expect("memory takes it");
        let mut text = header.finish().expect("memory takes it");
        text.extend_from_slice(lines.as_bytes());
        let mut reader = Reader::new("t", &text[..]).expect("readable");
        let error = reader.find_map(Result::err).expect("bad").to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn a_bad_line_is_named() {
        check_bad("{}", "line 2: `arrival_ns` is missing");
        check_bad(r#"{"arrival_ns": 1, "block": []}"#, "unknown field `block`");
        check_bad(r#"{"arrival_ns": 1.5}"#, "line 2: not a request");
        check_bad("[5]", "line 2: not a request");
        check_bad(r#"{"arrival_ns": 1, "type": 1}"#, "`type` is 1, but only 1 have");
        for wrong in ["1.5", "-0.1", "1e300"] {
            check_bad(
                &format!("{{\"arrival_ns\": 1, \"p_continue\": {wrong}}}"),
                "line 2: `p_continue` is a probability, a number from 0 to 1",
            );
        }
        check_bad(r#"{"arrival_ns": 1, "p_continue": "high"}"#, "expected f64");
        let many = vec!["\"x\""; TYPES_MAX].join(",");
        check_bad(&format!("{{\"types\": [{many}]}}"), "more than 1024 request types");
        let long = "x".repeat(TYPE_NAME_BYTES_MAX + 1);
        check_bad(&format!("{{\"types\": [\"{long}\"]}}"), "longer than 256 bytes");
    }

    #[test]
    fn blocks_of_no_tokens_are_refused_and_lengths_alone_are_fine() {
        let check = |line: &str, expected: Option<&str>| {
            let header = Writer::new(Vec::new(), &TraceInfo::new(0)).expect("memory takes it");
            let mut text = header.finish().expect("memory takes it");
            text.extend_from_slice(line.as_bytes());
            let mut reader = Reader::new("t", &text[..]).expect("readable");
            let got = reader.next().expect("a line").err();
            let got = got.map(|error| error.to_string());
            assert_eq!(got.is_some(), expected.is_some(), "{got:?}");
            let (got, part) = (got.unwrap_or_default(), expected.unwrap_or_default());
            assert!(got.contains(part), "{got}");
        };
        check(
            r#"{"arrival_ns": 1, "blocks": [[0, 2]]}"#,
            Some("t, line 2: there are `blocks`, but `block_tokens`"),
        );
        check(r#"{"arrival_ns": 1, "input_tokens": 9}"#, None);
    }

    #[test]
    fn control_characters_of_type_names_are_not_kept() {
        let header = Writer::new(Vec::new(), &TraceInfo::new(16)).expect("memory takes it");
        let mut text = header.finish().expect("memory takes it");
        text.extend_from_slice(b"{\"types\": [\"a\\u001b[2J\"]}\n");
        let mut reader = Reader::new("t", &text[..]).expect("readable");
        assert!(reader.next().is_none());
        assert!(reader.info().types.contains(&"a?[2J".to_owned()));
    }

    fn check_bad_header(header: &str, part: &str) {
        let error = Reader::new("t", header.as_bytes()).err().expect("bad");
        assert!(error.to_string().contains(part), "{error}");
    }

    #[test]
    fn a_header_of_another_kind_is_refused() {
        check_bad_header(r#"{"headstart_trace": 2, "more": 1}"#, "this build reads version 1");
        check_bad_header(r#"{"headstart_trace": 1}"#, "line 1: not the header");
        let nameless = concat!(
            r#"{"headstart_trace": 1, "block_tokens": 1, "types": [], "sessions": "given","#,
            r#" "turns": "given", "types_from": "given"}"#
        );
        check_bad_header(nameless, "must be `unknown`");
    }

    #[test]
    fn a_type_without_a_name_is_not_written() {
        let mut writer = Writer::new(Vec::new(), &TraceInfo::new(16)).expect("memory takes it");
        let request = TraceRequest { request_type: 1, ..TraceRequest::default() };
        assert!(writer.write(&request).is_err());
        writer.declare(&["unknown".to_owned(), "chat".to_owned()]).expect("memory takes it");
        assert!(writer.write(&request).is_ok());
    }
}
