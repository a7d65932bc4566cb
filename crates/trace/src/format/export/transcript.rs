//! Transcripts of coding agents: Claude Code's and Codex's session files.
//!
//! A transcript has the messages of a session and the token counts of each answer. It leaves out
//! the system prompt and the tools: a short text stands for them, the same in each request.

use std::collections::HashMap;

use serde_json::{Value, json};

/// Reads the records of one transcript, which may have several sessions.
pub(super) enum Transcript {
    Claude(ClaudeCode),
    Codex(Codex),
}

impl Transcript {
    pub(super) fn of_first(value: &Value) -> Option<Self> {
        let kind = value["type"].as_str()?;
        let is_claude = (value.get("sessionId").is_some() && value.get("uuid").is_some())
            || (kind == "summary" && value.get("leafUuid").is_some())
            || matches!(kind, "file-history-snapshot" | "queue-operation");
        if is_claude {
            return Some(Self::Claude(ClaudeCode::default()));
        }
        let is_codex = value.get("payload").is_some() && kind == "session_meta";
        is_codex.then(|| Self::Codex(Codex::default()))
    }

    /// The requests that a record completes.
    pub(super) fn requests(&mut self, record: &Value) -> Vec<Value> {
        match self {
            Self::Claude(transcript) => transcript.request(record).into_iter().collect(),
            Self::Codex(transcript) => transcript.request(record).into_iter().collect(),
        }
    }
}

/// Each record names the one before it. A branch begins where the user went back.
#[derive(Default)]
pub(super) struct ClaudeCode {
    records: Vec<ClaudeRecord>,
    /// The newest record of each name.
    named: HashMap<String, usize>,
    /// The last record of each session, and of the agents below it.
    last: HashMap<(String, bool), usize>,
}

struct ClaudeRecord {
    before: Option<usize>,
    message: Value,
    /// The answer that the record is a part of: an answer has a record for each block.
    answer: Option<String>,
}

impl ClaudeCode {
    fn request(&mut self, record: &Value) -> Option<Value> {
        let text = |name: &str| record[name].as_str().map(str::to_owned);
        let session = text("sessionId")?;
        let thread = (session.clone(), record["isSidechain"] == true);
        if record["subtype"] == "compact_boundary" {
            self.last.remove(&thread);
            return None;
        }
        let message = record.get("message").filter(|message| message["role"].is_string())?;
        let answer = message["id"].as_str().map(str::to_owned);
        let parent = text("parentUuid").and_then(|parent| self.named.get(&parent));
        let before = parent.or(self.last.get(&thread)).copied();
        let is_new = before.is_none_or(|before| self.records[before].answer != answer);
        let request = (is_new && answer.is_some()).then(|| {
            let system = format!(
                "(system prompt and tools of Claude Code {}, which its transcript leaves out)",
                record["version"].as_str().unwrap_or_default()
            );
            json!({
                "request_id": record["requestId"],
                "timestamp": record["timestamp"],
                "session_id": session,
                "model": message["model"],
                "system": system,
                "messages": self.chain(before),
                "usage": message["usage"],
                "stop_reason": message["stop_reason"],
            })
        });
        let at = self.records.len();
        let message = json!({"role": message["role"], "content": message["content"]});
        self.records.push(ClaudeRecord { before, message, answer });
        self.last.insert(thread, at);
        if let Some(name) = text("uuid") {
            self.named.insert(name, at);
        }
        request
    }

    /// The messages up to a record, from the first one. Parts of one answer become one message.
    fn chain(&self, end: Option<usize>) -> Value {
        let record = |at: usize| &self.records[at];
        let mut chain: Vec<&ClaudeRecord> =
            std::iter::successors(end.map(record), |one| one.before.map(record)).collect();
        chain.reverse();
        let mut messages: Vec<Value> = Vec::new();
        let mut answer = None;
        for record in chain {
            let parts = record.message["content"].as_array();
            let is_part = record.answer.is_some() && record.answer == answer;
            let open = messages.last_mut().filter(|_| is_part);
            match open.and_then(|last| last["content"].as_array_mut()).zip(parts) {
                Some((before, parts)) => before.extend(parts.iter().cloned()),
                None => messages.push(record.message.clone()),
            }
            answer.clone_from(&record.answer);
        }
        Value::Array(messages)
    }
}

/// The items of a session, in order. Token counts follow each answer.
#[derive(Default)]
pub(super) struct Codex {
    session: Value,
    model: Value,
    instructions: Value,
    messages: Vec<Value>,
    /// The request whose answer is being written.
    waiting: Option<Value>,
}

impl Codex {
    fn request(&mut self, record: &Value) -> Option<Value> {
        let payload = &record["payload"];
        match record["type"].as_str()? {
            "session_meta" => {
                self.session = payload["id"].clone();
                self.instructions = payload["instructions"].clone();
            }
            "turn_context" => self.model = payload["model"].clone(),
            "compacted" => {
                self.messages = vec![json!({"role": "user", "content": payload["message"]})];
            }
            "response_item" => {
                let (message, is_answer) = codex_message(payload)?;
                if is_answer && self.waiting.is_none() {
                    self.waiting = Some(json!({
                        "timestamp": record["timestamp"],
                        "session_id": self.session,
                        "model": self.model,
                        "system": self.system(),
                        "messages": self.messages,
                    }));
                }
                self.messages.push(message);
            }
            "event_msg" if payload["type"] == "token_count" => {
                let counts = &payload["info"]["last_token_usage"];
                let mut request = self.waiting.take()?;
                request["usage"] = json!({
                    "prompt_tokens": counts["input_tokens"],
                    "cached_tokens": counts["cached_input_tokens"],
                    "completion_tokens": counts["output_tokens"],
                });
                return Some(request);
            }
            _ => {}
        }
        None
    }

    fn system(&self) -> Value {
        match &self.instructions {
            Value::String(text) => json!(text),
            _ => json!("(system prompt and tools of Codex, which its transcript leaves out)"),
        }
    }
}

/// An item of the Responses API as a message, and whether the model wrote it.
fn codex_message(item: &Value) -> Option<(Value, bool)> {
    Some(match item["type"].as_str()? {
        "message" => {
            let parts = item["content"].as_array().map_or(&[][..], Vec::as_slice);
            let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            let message = json!({"role": item["role"], "content": texts.join("\n")});
            (message, item["role"] == "assistant")
        }
        "function_call" | "custom_tool_call" | "local_shell_call" => {
            let arguments =
                ["arguments", "input", "action"].iter().find_map(|name| item.get(name)).cloned();
            let arguments = match arguments.unwrap_or_default() {
                Value::String(text) => text,
                other => other.to_string(),
            };
            let call = json!({"id": item["call_id"], "type": "function",
                "function": {"name": item["name"], "arguments": arguments}});
            (json!({"role": "assistant", "content": null, "tool_calls": [call]}), true)
        }
        "function_call_output" | "custom_tool_call_output" => {
            let output = match &item["output"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let message =
                json!({"role": "tool", "tool_call_id": item["call_id"], "content": output});
            (message, false)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(records: &[Value]) -> Vec<Value> {
        let mut transcript = Transcript::of_first(&records[0]).expect("a transcript");
        records.iter().flat_map(|record| transcript.requests(record)).collect()
    }

    fn claude(uuid: &str, parent: Option<&str>, message: Value) -> Value {
        json!({"sessionId": "s", "uuid": uuid, "parentUuid": parent, "type": message["role"],
            "version": "2.1", "timestamp": uuid, "message": message})
    }

    fn user(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    fn answer(id: &str, text: &str) -> Value {
        json!({"id": id, "role": "assistant", "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": 4}})
    }

    #[test]
    fn an_answer_of_claude_code_is_one_request_whatever_its_records() {
        let found = requests(&[
            json!({"type": "summary", "leafUuid": "u9"}),
            claude("1", None, user("a")),
            claude("2", Some("1"), answer("m1", "b")),
            claude("3", Some("2"), answer("m1", "c")),
            claude("4", Some("3"), user("d")),
            claude("5", Some("4"), answer("m2", "e")),
            // The user went back and asked something else.
            claude("6", Some("3"), user("f")),
            claude("7", Some("6"), answer("m3", "g")),
        ]);
        let texts = |request: &Value| {
            let messages = request["messages"].as_array().expect("a list").iter();
            let parts = messages.map(|message| match &message["content"] {
                Value::String(text) => text.clone(),
                parts => parts
                    .as_array()
                    .expect("parts")
                    .iter()
                    .map(|p| p["text"].as_str().expect("a text"))
                    .collect(),
            });
            parts.collect::<Vec<String>>()
        };
        let found: Vec<_> = found.iter().map(texts).collect();
        assert_eq!(found, [vec!["a"], vec!["a", "bc", "d"], vec!["a", "bc", "f"]]);
    }

    #[test]
    fn a_compacted_session_begins_with_its_summary() {
        let boundary = json!({"sessionId": "s", "uuid": "3", "type": "system",
            "subtype": "compact_boundary"});
        let found = requests(&[
            claude("1", None, user("a")),
            claude("2", Some("1"), answer("m1", "b")),
            boundary,
            claude("4", None, user("summary")),
            claude("5", Some("4"), answer("m2", "c")),
        ]);
        assert_eq!(found[1]["messages"], json!([user("summary")]));
    }

    #[test]
    fn codex_counts_tokens_behind_each_answer() {
        let item =
            |payload: Value| json!({"timestamp": "T", "type": "response_item", "payload": payload});
        let message = |role: &str, text: &str| {
            item(json!({"type": "message", "role": role, "content": [{"type": "t", "text": text}]}))
        };
        let count = |input: u32| {
            json!({"type": "event_msg", "payload": {"type": "token_count", "info": {
                "last_token_usage": {"input_tokens": input, "cached_input_tokens": 1}}}})
        };
        let found = requests(&[
            json!({"type": "session_meta", "payload": {"id": "s", "instructions": "be"}}),
            json!({"type": "turn_context", "payload": {"model": "m"}}),
            message("user", "a"),
            item(json!({"type": "function_call", "name": "ls", "call_id": "c", "arguments": "{}"})),
            count(7),
            item(json!({"type": "function_call_output", "call_id": "c", "output": "x"})),
            message("assistant", "done"),
            count(9),
        ]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0]["messages"], json!([{"role": "user", "content": "a"}]));
        assert_eq!(
            (found[1]["usage"]["prompt_tokens"].as_u64(), &found[1]["model"]),
            (Some(9), &json!("m"))
        );
        assert_eq!(found[1]["messages"].as_array().map(Vec::len), Some(3));
    }
}
