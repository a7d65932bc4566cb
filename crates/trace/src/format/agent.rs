//! kv-cache-tester's agent sessions: one JSON object a line, a session each.
//!
//! ```text
//! {"id": "trace_0002", "block_size": 64, "hash_id_scope": "local", "dup_of": null, "requests": [
//!   {"t": 0.0, "type": "n", "in": 15818, "out": 154, "hash_ids": [[1, 247]],
//!    "input_types": ["text"]},
//!   {"t": 9.5, "type": "subagent", "subagent_type": "Explore", "requests": [{"t": 0.0, …}]}]}
//! ```
//!
//! - Times are `t`, seconds from the session's start; of a sub-agent's requests, from the
//!   sub-agent's. A sub-agent's requests stand among the others by their time.
//! - Blocks are `hash_ids`, runs or plain ids, made global: each session gets the ids behind the
//!   largest one of the session before. With `hash_id_scope` `global` ids are what they are.
//! - The session is the line's place in the file; a sub-agent belongs to its session.
//! - The type is `type` (`n`, `s`), and for a sub-agent's requests its `subagent_type`.
//! - The turn is how many requests so far, this one included, have `text` among their
//!   `input_types`: the user's own words, and not only `tool_result`. A sub-agent counts its own.
//! - `dup_of` names a session that this one repeats.
//!
//! The types are the trace's, not made from `input_types`: with the turn they tell the times
//! between two requests of a session better apart than user and tool messages do (by likelihood,
//! an exponential per class, on the recorded sessions). The end of the answer before, `stop`, tells
//! them apart best.
//!
//! Source: callanjfox/kv-cache-tester, `traces/`, one file to a line (`jq -c .`).

use std::borrow::Cow;
use std::fmt;

use headstart_core::{BlockRuns, FinishKind, Run, SessionId, TraceRequest};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::chain::PromptChain;
use super::line_format::{LineFormat, OpenTrace, ParsedLine, info, nanos};
use crate::TraceInfo;
use crate::info::Provenance::Given;
use crate::schedule::RecordedSession;

/// Tokens per id where the first session does not say.
pub const BLOCK_TOKENS: u32 = 64;

struct Agent {
    drop_duplicates: bool,
    block_tokens: u32,
    num_lines: u64,
    /// The first global id that no session has yet.
    next_id: u64,
}

pub(super) fn open<'a>(
    first: Option<&str>,
    drop_duplicates: bool,
    block_tokens: Option<u32>,
) -> OpenTrace<'a> {
    #[derive(Deserialize)]
    struct Start {
        block_size: Option<u32>,
    }
    // A bad first line is reported when it is read.
    let start = first.and_then(|first| serde_json::from_str::<Start>(first).ok());
    // A size of 0 is reported with its line, when that one is read.
    let stated = start.and_then(|start| start.block_size).filter(|&s| s > 0);
    let block_tokens = block_tokens.or(stated).unwrap_or(BLOCK_TOKENS);
    let agent = Agent { drop_duplicates, block_tokens, num_lines: 0, next_id: 0 };
    (Box::new(agent), info(block_tokens, [Given; 3]))
}

#[derive(Deserialize)]
struct Line<'a> {
    block_size: Option<u32>,
    hash_id_scope: Option<String>,
    dup_of: Option<IgnoredAny>,
    #[serde(borrow)]
    requests: Vec<AgentStep<'a>>,
}

/// A request, or a sub-agent with requests of its own.
#[derive(Deserialize)]
struct AgentStep<'a> {
    t: f64,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(rename = "in")]
    input: Option<u32>,
    #[serde(rename = "out")]
    output: Option<u32>,
    hash_ids: Option<PromptChain>,
    #[serde(default)]
    input_types: HasText,
    /// The end of the answer.
    #[serde(borrow)]
    stop: Option<Cow<'a, str>>,
    subagent_type: Option<String>,
    #[serde(borrow)]
    requests: Option<Vec<AgentStep<'a>>>,
}

/// Whether a list of words holds `text`.
#[derive(Clone, Copy, Default)]
struct HasText(bool);

impl<'de> Deserialize<'de> for HasText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = HasText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of words")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<HasText, A::Error> {
                let mut has_text = false;
                // The list is read to its end even after a match, or the parser would stop inside
                // of it.
                while let Some(InputType(word)) = words.next_element()? {
                    has_text |= word == "text";
                }
                Ok(HasText(has_text))
            }
        }
        deserializer.deserialize_seq(Words)
    }
}

// A word with an escape cannot be borrowed from the line.
#[derive(Deserialize)]
struct InputType<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> LineFormat<'a> for Agent {
    fn read(&mut self, line: &str, info: &mut TraceInfo) -> Result<ParsedLine<'a>, String> {
        // Counted before anything can fail: a bad line leaves the ids of later sessions as they
        // are.
        let session = SessionId(self.num_lines);
        self.num_lines += 1;
        let line: Line<'_> = serde_json::from_str(line)
            .map_err(|error| format!("not a kv-cache-tester session ({error})"))?;
        if let Some(size) = line.block_size.filter(|&size| size != self.block_tokens) {
            return Err(format!(
                "`block_size` is {size}, but the trace began with {}; one trace has one",
                self.block_tokens
            ));
        }
        // Before any id is taken, so a session that is left out uses none.
        if self.drop_duplicates && line.dup_of.is_some() {
            return Ok(ParsedLine::Duplicate);
        }
        let mut flat = Flat { requests: Vec::new(), session, info };
        flat.add(line.requests, 0.0, None)?;
        let mut requests = flat.requests;
        // A stable sort: requests of one time keep their order.
        requests.sort_by_key(|request| request.arrival);
        let base = match line.hash_id_scope.as_deref() {
            None | Some("local") => self.take_ids(&requests)?,
            Some("global") => 0,
            Some(other) => {
                return Err(format!("`hash_id_scope` is `{other}`; known: local, global"));
            }
        };
        let bytes = requests.iter().map(bytes).sum();
        let global = requests.into_iter().map(move |request| Ok(shifted(request, base)));
        Ok(ParsedLine::Session(RecordedSession { requests: Box::new(global), bytes }))
    }
}

impl Agent {
    /// The number that makes the ids of `requests` global; later sessions get larger ids.
    fn take_ids(&mut self, requests: &[TraceRequest]) -> Result<u64, String> {
        let runs = requests.iter().flat_map(|request| request.blocks.runs());
        let num_ids = runs.map(end).max().unwrap_or(0);
        let base = self.next_id;
        self.next_id = base.checked_add(num_ids).ok_or_else(|| {
            format!("ids up to {num_ids} leave none for later sessions; local ids begin near 0")
        })?;
        Ok(base)
    }
}

/// The requests of a session and of its sub-agents.
struct Flat<'i> {
    requests: Vec<TraceRequest>,
    session: SessionId,
    info: &'i mut TraceInfo,
}

impl Flat<'_> {
    /// Adds `steps`, which began `start_s` after the session; of the type `kind`, or each of
    /// its own.
    fn add(
        &mut self,
        steps: Vec<AgentStep<'_>>,
        start_s: f64,
        kind: Option<&str>,
    ) -> Result<(), String> {
        let mut turn: u16 = 0;
        for step in steps {
            let at_s = start_s + step.t;
            if let Some(nested) = step.requests {
                let kind = step.subagent_type.as_deref().unwrap_or(&step.kind);
                // serde_json nests at most 128 levels, which bounds the recursion.
                self.add(nested, at_s, Some(kind))?;
                continue;
            }
            let Some(PromptChain(blocks)) = step.hash_ids else {
                return Err("a request has no `hash_ids`".to_owned());
            };
            turn = turn.saturating_add(u16::from(step.input_types.0));
            self.requests.push(TraceRequest {
                arrival: nanos("t", at_s, 1e9)?,
                blocks,
                input_tokens: step.input,
                output_tokens: step.output,
                finish: step.stop.as_deref().map_or(FinishKind::Unknown, FinishKind::from_reason),
                session: Some(self.session),
                turn,
                request_type: self.info.type_index(kind.unwrap_or(&step.kind)),
                ..TraceRequest::default()
            });
        }
        Ok(())
    }
}

/// Behind the last id of `run`.
fn end(run: &Run) -> u64 {
    run.start + u64::from(run.count)
}

fn shifted(mut request: TraceRequest, base: u64) -> TraceRequest {
    let mut blocks = BlockRuns::default();
    for &Run { start, count } in request.blocks.runs() {
        // `take_ids` checked that the highest id fits.
        let start = start + base;
        blocks.push_run(Run { start, count });
    }
    request.blocks = blocks;
    request
}

/// Memory of a request, with what a vector may have to spare.
fn bytes(request: &TraceRequest) -> usize {
    size_of::<TraceRequest>() + 2 * size_of::<Run>() * request.blocks.runs().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Reader};

    /// Two sessions, the first with a sub-agent; plain ids and runs.
    const TRACE: &str = concat!(
        r#"{"id": "a", "block_size": 32, "hash_id_scope": "local", "dup_of": null, "requests": ["#,
        r#"{"t": 0, "type": "n", "in": 64, "out": 9, "hash_ids": [1, 2],"#,
        r#" "input_types": ["text"]},"#,
        r#"{"t": 1.5, "type": "subagent", "subagent_type": "Explore", "requests": ["#,
        r#"{"t": 0, "type": "n", "hash_ids": [[3, 2]], "input_types": ["text"]},"#,
        r#"{"t": 3, "type": "n", "hash_ids": [[3, 3]], "input_types": ["tool_result"]}]},"#,
        r#"{"t": 2, "type": "n", "hash_ids": [[1, 2], [6, 1]], "input_types": ["tool_result"]},"#,
        r#"{"t": 4, "type": "s", "hash_ids": [[1, 2], [6, 2]],"#,
        r#" "input_types": ["text", "tool_result"]}]}"#,
        "\n",
        r#"{"id": "b", "block_size": 32, "dup_of": "a", "requests": []}"#,
        "\n",
        r#"{"id": "c", "block_size": 32, "requests": [{"t": 1, "type": "n", "hash_ids": [1]}]}"#,
    );

    fn read(text: &str, drop_duplicates: bool) -> (Vec<TraceRequest>, Reader<'_>) {
        let options = Options { drop_duplicates, ..Options::default() };
        let mut reader = Reader::with_options("t", text.as_bytes(), options).expect("readable");
        let requests = reader.by_ref().collect::<Result<_, _>>().expect("good");
        (requests, reader)
    }

    #[test]
    fn sub_agents_stand_among_the_others_and_count_their_own_turns() {
        let (requests, reader) = read(TRACE, true);
        let shown: Vec<String> = requests
            .iter()
            .map(|r| {
                let ms = r.arrival.0 / 1_000_000;
                let kind = &reader.info().types[usize::from(r.request_type)];
                let session = r.session.expect("given").0;
                format!("{ms} {kind} s{session} turn {} blocks {}", r.turn, r.blocks.len())
            })
            .collect();
        let expected = [
            "0 n s0 turn 1 blocks 2",
            "1500 Explore s0 turn 1 blocks 2",
            "2000 n s0 turn 1 blocks 3",
            "4000 s s0 turn 2 blocks 4",
            "4500 Explore s0 turn 1 blocks 3",
            "5500 n s2 turn 0 blocks 1",
        ];
        assert_eq!(shown, expected);
        assert_eq!(reader.info().block_tokens, 32);
        assert_eq!(reader.tally().duplicates, 1);
        let lengths = (requests[0].input_tokens, requests[0].output_tokens);
        assert_eq!(lengths, (Some(64), Some(9)));
    }

    #[test]
    fn local_ids_become_global_and_stay_compact() {
        let (requests, _) = read(TRACE, true);
        let ids: Vec<Vec<u64>> = requests.iter().map(|r| r.blocks.iter().collect()).collect();
        assert_eq!(ids[3], [1, 2, 6, 7]);
        // The first session's largest id is 7, so the next one's 0 is 8.
        assert_eq!(ids[5], [9]);
        let global = concat!(
            r#"{"hash_id_scope": "global","#,
            r#" "requests": [{"t": 1, "type": "n", "hash_ids": [1]}]}"#
        );
        let (requests, _) = read(&[TRACE, global].join("\n"), true);
        assert_eq!(requests[6].blocks, [1].into_iter().collect());
    }

    #[test]
    fn copies_are_kept_when_asked() {
        let (requests, reader) = read(TRACE, false);
        assert_eq!((requests.len(), reader.tally().duplicates), (6, 0));
    }

    fn check_bad(line: &str, part: &str) {
        let text = format!("{{\"block_size\": 64, \"requests\": []}}\n{line}");
        let mut reader = Reader::new("t", text.as_bytes()).expect("readable");
        let error = reader.next().expect("a line").expect_err("bad").to_string();
        assert!(error.contains("line 2: ") && error.contains(part), "{error}");
    }

    #[test]
    fn a_bad_session_is_named() {
        check_bad("{}", "missing field `requests`");
        check_bad(r#"{"block_size": 16, "requests": []}"#, "`block_size` is 16");
        check_bad(r#"{"hash_id_scope": "user", "requests": []}"#, "`user`; known");
        check_bad(r#"{"requests": [{"t": 1, "type": "n"}]}"#, "no `hash_ids`");
        check_bad(r#"{"requests": [{"t": -1, "type": "n", "hash_ids": []}]}"#, "`t` is -1");
    }

    #[test]
    fn ids_that_leave_none_for_later_sessions_are_refused() {
        let huge = r#"{"requests": [{"t": 0, "type": "n", "hash_ids": [18446744073709551614]}]}"#;
        let text = format!("{huge}\n{huge}");
        let mut reader = Reader::new("t", text.as_bytes()).expect("readable");
        assert!(reader.next().expect("a line").is_ok());
        let error = reader.next().expect("a line").expect_err("no ids left");
        assert!(error.to_string().contains("leave none"), "{error}");
    }
}
