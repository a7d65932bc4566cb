//! Qwen-Bailian's request traces: one JSON object a line,
//! `{"chat_id": n, "parent_chat_id": n, "timestamp": s, "input_length": n, "output_length": n,
//! "type": "text", "turn": n, "hash_ids": [..]}`.
//!
//! A chat is one request. Its parent is the turn before it, -1 for a first turn; the session is
//! the chat that the chain of parents begins with. An id names one block of 16 tokens and its
//! prefix; the last one may be filled up. Only `chat_id` and `hash_ids` are required.
//!
//! A parent that was not seen, because the trace begins behind it or because more than
//! [`CHATS_MAX`] chats came since, counts as the first of its session.
//!
//! Source: "KVCache Cache in the Wild" (USENIX ATC 2025), and the traces published with it.

use std::collections::HashMap;

use headstart_core::{SessionId, TraceRequest};
use serde::Deserialize;

use super::chain::PromptChain;
use super::line_format::{LineFormat, OpenTrace, ParsedLine, info, nanos};
use crate::TraceInfo;
use crate::info::Provenance::Given;

/// Tokens per id in the published traces.
pub const BLOCK_TOKENS: u32 = 16;

/// Chats whose session is remembered: hours of a large service, some 40 MiB.
pub const CHATS_MAX: usize = 1 << 20;

struct Bailian {
    sessions: SessionRoots,
    read: u64,
}

pub(super) fn open<'a>(block_tokens: Option<u32>) -> OpenTrace<'a> {
    let block_tokens = block_tokens.unwrap_or(BLOCK_TOKENS);
    let bailian = Bailian { sessions: SessionRoots::default(), read: 0 };
    (Box::new(bailian), info(block_tokens, [Given; 3]))
}

#[derive(Deserialize)]
struct BailianLine {
    chat_id: i64,
    parent_chat_id: Option<i64>,
    timestamp: Option<f64>,
    input_length: Option<u32>,
    output_length: Option<u32>,
    #[serde(rename = "type")]
    request_type: Option<String>,
    turn: Option<u16>,
    hash_ids: PromptChain,
}

impl<'a> LineFormat<'a> for Bailian {
    fn read(&mut self, line: &str, info: &mut TraceInfo) -> Result<ParsedLine<'a>, String> {
        // Bad lines count as well, so skipping them moves no later arrival.
        let index = self.read;
        self.read += 1;
        let line: BailianLine = serde_json::from_str(line)
            .map_err(|error| format!("not a Qwen-Bailian request ({error})"))?;
        let chat = u64::try_from(line.chat_id)
            .map_err(|_| format!("`chat_id` is {}; expected a number from 0", line.chat_id))?;
        // Without times, file order stands for them: request i arrives at i milliseconds.
        let seconds = line.timestamp.unwrap_or(index as f64 / 1e3);
        let arrival = nanos("timestamp", seconds, 1e9)?;
        // A first turn has the parent -1, which is no `u64`.
        let parent = line.parent_chat_id.and_then(|id| u64::try_from(id).ok());
        Ok(ParsedLine::Request(TraceRequest {
            arrival,
            blocks: line.hash_ids.0,
            input_tokens: line.input_length,
            output_tokens: line.output_length,
            session: Some(SessionId(self.sessions.of(chat, parent))),
            turn: line.turn.unwrap_or(0),
            request_type: line.request_type.map_or(0, |name| info.type_index(&name)),
            ..TraceRequest::default()
        }))
    }
}

/// The first chat of each chat's session. When the younger half is full, the older one is
/// forgotten.
#[derive(Default)]
struct SessionRoots {
    younger: HashMap<u64, u64>,
    older: HashMap<u64, u64>,
}

impl SessionRoots {
    fn of(&mut self, chat: u64, parent: Option<u64>) -> u64 {
        let first = match parent {
            None => chat,
            Some(parent) => {
                *self.younger.get(&parent).or_else(|| self.older.get(&parent)).unwrap_or(&parent)
            }
        };
        // Half the limit per map, so both together keep within it.
        if self.younger.len() >= CHATS_MAX / 2 {
            self.older = std::mem::take(&mut self.younger);
        }
        // Each turn enters the younger half, so a session in use is not forgotten.
        self.younger.insert(chat, first);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    fn line(chat: i64, parent: i64, seconds: &str, turn: u16, kind: &str) -> String {
        format!(r#"{{"chat_id": {chat}, "parent_chat_id": {parent}, "timestamp": {seconds}, "#)
            + &format!(
                r#""input_length": 40, "output_length": 5, "type": "{kind}", "turn": {turn}, "#
            )
            + &format!(r#""hash_ids": [0, {chat}, 9]}}"#)
    }

    #[test]
    fn a_session_is_the_root_of_the_parents() {
        let lines = [
            line(5, -1, "0.25", 1, "text"),
            line(6, -1, "1", 1, "search"),
            line(7, 5, "2.5", 2, "text"),
            line(8, 7, "3", 3, "text"),
            line(9, 99, "3", 4, "file"),
            line(10, 99, "3", 4, "file"),
        ];
        let mut reader = Reader::new("t", lines.join("\n").leak().as_bytes()).expect("readable");
        let requests: Vec<_> = reader.by_ref().collect::<Result<_, _>>().expect("good");
        let sessions: Vec<_> = requests.iter().map(|r| r.session.map(|s| s.0)).collect();
        assert_eq!(sessions, [5, 6, 5, 5, 99, 99].map(Some));
        let turns: Vec<_> = requests.iter().map(|r| r.turn).collect();
        assert_eq!(turns, [1, 1, 2, 3, 4, 4]);
        let types: Vec<_> = requests.iter().map(|r| r.request_type).collect();
        assert_eq!(types, [1, 2, 1, 1, 3, 3]);
        assert_eq!(requests[0].arrival.0, 250_000_000);
        let info = reader.info();
        assert_eq!(info.types, ["unknown", "text", "search", "file"]);
        assert_eq!((info.block_tokens, info.sessions), (16, Given));
    }

    #[test]
    fn forgotten_parents_begin_a_session() {
        let mut sessions = SessionRoots::default();
        assert_eq!(sessions.of(0, None), 0);
        assert_eq!(sessions.of(1, Some(0)), 0);
        for chat in 2..=CHATS_MAX as u64 {
            sessions.of(chat, None);
        }
        assert_eq!(sessions.of(u64::MAX, Some(1)), 1, "0 if it were remembered");
        assert!(sessions.younger.len() + sessions.older.len() <= CHATS_MAX);
    }

    #[test]
    fn a_bad_line_is_named() {
        for (line, part) in [
            (r#"{"chat_id": 1}"#, "missing field `hash_ids`"),
            (r#"{"chat_id": -1, "hash_ids": []}"#, "`chat_id` is -1"),
            (r#"{"chat_id": "a", "hash_ids": []}"#, "not a Qwen-Bailian"),
        ] {
            let options = crate::Options {
                format: Some(crate::Format::Bailian),
                ..crate::Options::default()
            };
            let mut reader = Reader::with_options("t", line.as_bytes(), options).expect("readable");
            let error = reader.next().expect("a line").expect_err("bad").to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
