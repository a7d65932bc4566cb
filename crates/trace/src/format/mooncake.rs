//! Mooncake's request traces: one JSON object a line,
//! `{"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [..]}`.
//!
//! An id names one block of 512 tokens *and its prefix*; the last one may be partial. Only
//! `hash_ids` is required; without `timestamp`, file order stands for time: request i arrives
//! at i milliseconds. AIPerf adds `session_id`, and `delay` in place of `timestamp`: milliseconds
//! since the request before in the session. A request whose time is before that of the line above
//! moves there. There are no types.
//!
//! Source: Qin et al., "Mooncake", FAST'25, and the traces published with it.

use std::collections::HashMap;

use headstart_core::{SessionId, TraceRequest, fnv1a};
use serde::Deserialize;
use serde_json::Value;

use super::chain::PromptChain;
use super::line_format::{LineFormat, OpenTrace, ParsedLine, info, nanos};
pub use crate::Reader;
use crate::{Provenance, TraceInfo};

/// Tokens per id in the published traces.
pub const BLOCK_TOKENS: u32 = 512;

/// Sessions whose last request is remembered.
const SESSIONS_MAX: usize = 1 << 20;

struct Mooncake {
    read: u64,
    /// The arrival of each session's last request, ms, and its turn.
    sessions: HashMap<u64, (f64, u16)>,
}

pub(super) fn open<'a>(first: Option<&str>, block_tokens: Option<u32>) -> OpenTrace<'a> {
    let first = first.and_then(|line| serde_json::from_str::<MooncakeLine>(line).ok());
    let has_sessions = first.is_some_and(|first| first.session_id.is_some());
    let from = if has_sessions { Provenance::Given } else { Provenance::Absent };
    let info = info(block_tokens.unwrap_or(BLOCK_TOKENS), [from, from, Provenance::Absent]);
    (Box::new(Mooncake { read: 0, sessions: HashMap::new() }), info)
}

#[derive(Deserialize)]
struct MooncakeLine {
    timestamp: Option<f64>,
    delay: Option<f64>,
    session_id: Option<Value>,
    input_length: Option<u32>,
    output_length: Option<u32>,
    hash_ids: Option<PromptChain>,
}

impl<'a> LineFormat<'a> for Mooncake {
    fn read(&mut self, line: &str, _: &mut TraceInfo) -> Result<ParsedLine<'a>, String> {
        // Bad lines count as well, so skipping them moves no later arrival.
        let index = self.read;
        self.read += 1;
        let line: MooncakeLine = serde_json::from_str(line)
            .map_err(|error| format!("not a Mooncake request ({error}); expected an object"))?;
        let Some(PromptChain(blocks)) = line.hash_ids else {
            return Err("`hash_ids` is missing; it is the one required field".to_owned());
        };
        let session = line.session_id.map(|id| fnv1a(id.to_string().as_bytes()));
        let before = session.and_then(|session| self.sessions.get(&session).copied());
        let (last_ms, last_turn) = before.unwrap_or((0.0, 0));
        let delayed = before.and(line.delay).map(|delay| last_ms + delay);
        let arrival_ms = line.timestamp.or(delayed).unwrap_or(index as f64);
        let turn = if session.is_some() { last_turn.saturating_add(1) } else { 0 };
        if let Some(session) = session
            && (before.is_some() || self.sessions.len() < SESSIONS_MAX)
        {
            self.sessions.insert(session, (arrival_ms, turn));
        }
        Ok(ParsedLine::Request(TraceRequest {
            arrival: nanos("timestamp", arrival_ms, 1e6)?,
            session: session.map(SessionId),
            turn,
            blocks,
            input_tokens: line.input_length,
            output_tokens: line.output_length,
            ..TraceRequest::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::Reader;

    fn check(text: &str, expected: Result<(u64, &[u64]), &str>) {
        let options =
            crate::Options { format: Some(crate::Format::Mooncake), ..crate::Options::default() };
        let got =
            Reader::with_options("t.jsonl", text.as_bytes(), options).expect("readable").last();
        match (got.expect("one line"), expected) {
            (Ok(request), Ok((arrival, blocks))) => {
                assert_eq!(request.arrival.0, arrival);
                assert_eq!(request.blocks.iter().collect::<Vec<_>>(), blocks);
            }
            (Err(error), Err(part)) => {
                let error = error.to_string();
                assert!(error.contains(part) && error.contains("t.jsonl"), "{error}");
            }
            (got, expected) => panic!("{got:?} against {expected:?}"),
        }
    }

    #[test]
    fn only_hash_ids_is_required() {
        check(
            r#"{"timestamp": 3000, "input_length": 9, "hash_ids": [0, 7]}"#,
            Ok((3_000_000_000, &[0, 7])),
        );
        check("{\"hash_ids\": [1]}\n{\"hash_ids\": []}", Ok((1_000_000, &[])));
    }

    #[test]
    fn a_bad_line_is_named() {
        check("{\"hash_ids\": [1]}\n{\"input_length\": 3}", Err("line 2: `hash_ids` is missing"));
        check("[1]", Err("line 1: not a Mooncake request"));
        check(r#"{"hash_ids": [-1]}"#, Err("line 1"));
        check(r#"{"hash_ids": [1], "timestamp": -5}"#, Err("`timestamp` is -5"));
    }

    #[test]
    fn sessions_and_delays_of_aiperf_are_read() {
        let line = |fields: &str| format!("{{{fields}, \"hash_ids\": [1]}}\n");
        let text = [
            line(r#""session_id": "a", "timestamp": 100"#),
            line(r#""session_id": "b", "timestamp": 150"#),
            line(r#""session_id": "a", "delay": 700"#),
            line(r#""session_id": "b", "delay": 10"#),
        ];
        let text = text.concat();
        let reader = Reader::new("t", text.as_bytes()).expect("readable");
        let requests: Vec<_> = reader.map(|request| request.expect("good")).collect();
        let shown = requests.iter().map(|one| (one.arrival.0 / 1_000_000, one.turn));
        // The last one is due at 160 ms, and stays behind the line above.
        assert_eq!(shown.collect::<Vec<_>>(), [(100, 1), (150, 1), (800, 2), (800, 2)]);
        assert!(requests[0].session.is_some() && requests[0].session == requests[2].session);
        assert_ne!(requests[0].session, requests[1].session);
    }
}
