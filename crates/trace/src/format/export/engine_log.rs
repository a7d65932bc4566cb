//! Requests in text logs: those of vLLM and SGLang, and JSON behind a prefix.
//!
//! vLLM writes prompts with `--enable-log-requests` and, since 0.11, the level DEBUG; SGLang with
//! `--log-requests --log-requests-level 3`. Other lines are passed over.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::container::with_time;
use super::python;

/// Words of a line that a program logs.
const LEVELS: [&str; 5] = ["INFO", "DEBUG", "WARN", "ERROR", " | "];

/// Opening braces that are tried in a line of text.
const TRIES: usize = 4;

/// Reads text lines. The first kind of line with a request decides: an engine may write a request
/// twice, in two kinds.
#[derive(Default)]
pub(super) struct EngineLog {
    kind: Option<LineKind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineKind {
    Vllm,
    Sglang,
    Json,
}

impl EngineLog {
    /// The request of a line, if it has one.
    pub(super) fn line(&mut self, line: &str) -> Option<Cow<'static, str>> {
        let kinds = [LineKind::Vllm, LineKind::Sglang, LineKind::Json];
        let mut allowed = kinds.into_iter().filter(|kind| self.kind.is_none_or(|k| k == *kind));
        let (kind, found) = allowed.find_map(|kind| Some((kind, kind.request(line)?)))?;
        self.kind = Some(kind);
        Some(found.into())
    }
}

impl LineKind {
    fn request(self, line: &str) -> Option<String> {
        match self {
            Self::Vllm => vllm(line),
            Self::Sglang => sglang(line),
            Self::Json => behind_prefix(line),
        }
    }
}

/// Whether a file that begins with this line is a log of text.
pub(super) fn is_log_line(line: &str) -> bool {
    let has_level = LEVELS.iter().any(|level| line.contains(level));
    has_level || clock(line).is_some() || behind_prefix(line).is_some()
}

/// `Received request ID: prompt: '…', params: …` and `Request ID details: prompt: '…', …`.
fn vllm(line: &str) -> Option<String> {
    let (before, rest) = line.split_once("prompt: ")?;
    let id = [("Received request ", ": "), ("Request ", " details: ")]
        .iter()
        .find_map(|(start, end)| before.split_once(start)?.1.strip_suffix(end))?;
    let time = clock(before);
    if let Some(prompt) = python::text(rest) {
        return Some(json!({"request_id": id, "timestamp": time, "prompt": prompt}).to_string());
    }
    let ids = python::ids(rest.split_once("prompt_token_ids: ")?.1)?;
    Some(json!({"request_id": id, "timestamp": time, "prompt_token_ids": ids}).to_string())
}

/// `Finish: obj=GenerateReqInput(rid='…', text='…', …), out={… 'meta_info': {…}}`.
fn sglang(line: &str) -> Option<String> {
    let (before, rest) = line.split_once("Finish: obj=")?;
    let (asked, answered) = rest.rsplit_once("out={")?;
    let field = |name: &str| asked.split_once(name).map(|(_, rest)| rest);
    let number = |name: &str| {
        let (_, rest) = answered.split_once(name)?;
        let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u32>().ok()
    };
    let mut request = json!({
        "request_id": field("rid=").and_then(python::text),
        "timestamp": clock(before),
        "usage": {
            "prompt_tokens": number("'prompt_tokens':"),
            "completion_tokens": number("'completion_tokens':"),
            "cached_tokens": number("'cached_tokens':"),
        },
    });
    match field("text=").and_then(python::text) {
        Some(text) => request["prompt"] = json!(text),
        None => request["prompt_token_ids"] = json!(field("input_ids=").and_then(python::ids)?),
    }
    Some(request.to_string())
}

/// SGLang's JSON logs.
pub(super) fn is_record(value: &Value) -> bool {
    let is_event = value["event"].as_str().is_some_and(|event| event.starts_with("request."));
    is_event && value.get("obj").is_some()
}

/// The request, from the record of its end.
pub(super) fn record(value: &Value) -> Vec<Value> {
    if value["event"] != "request.finished" {
        return Vec::new();
    }
    let meta = &value["out"]["meta_info"];
    let mut request = json!({
        "request_id": value["rid"],
        "timestamp": value["timestamp"],
        "usage": {
            "prompt_tokens": meta["prompt_tokens"],
            "completion_tokens": meta["completion_tokens"],
            "cached_tokens": meta["cached_tokens"],
        },
    });
    let asked = &value["obj"];
    match &asked["text"] {
        Value::String(text) => request["prompt"] = json!(text),
        _ => request["prompt_token_ids"] = asked["input_ids"].clone(),
    }
    vec![request]
}

/// A JSON object at the end of a line of text.
fn behind_prefix(line: &str) -> Option<String> {
    let opening = line.match_indices('{').map(|(at, _)| at).take(TRIES);
    for at in opening {
        let (prefix, rest) = line.split_at(at);
        if serde_json::from_str::<serde::de::IgnoredAny>(rest).is_ok() {
            return Some(with_time(rest, clock(prefix).map(Value::from).as_ref()));
        }
    }
    None
}

/// A time in the words before a request. vLLM's lines leave out the year.
fn clock(before: &str) -> Option<String> {
    let words: Vec<&str> = before.split([' ', '[', ']']).filter(|word| !word.is_empty()).collect();
    let is_time = |word: &str| word.len() >= 8 && word.as_bytes()[2] == b':';
    words.iter().enumerate().find_map(|(at, word)| {
        let digits = word.as_bytes();
        let next = words.get(at + 1).copied().filter(|next| is_time(next));
        match digits {
            [_, _, b'-', _, _] => Some(format!("2000-{word}T{}Z", next?)),
            [_, _, _, _, b'-', _, _, b'-', _, _] => Some(format!("{word}T{}Z", next?)),
            [_, _, _, _, b'-', _, _, b'-', _, _, b'T', ..] => Some((*word).to_owned()),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[&str], expected: &[Value]) {
        let mut log = EngineLog::default();
        let found = lines.iter().filter_map(|line| log.line(line));
        let found: Vec<Value> =
            found.map(|line| serde_json::from_str(&line).expect("JSON")).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn vllm_writes_prompts_in_two_ways() {
        let time = "2000-11-24T10:00:00Z";
        let prompt = |id: &str| json!({"request_id": id, "timestamp": time, "prompt": "a\nb"});
        let info = |text: &str| format!("INFO 11-24 10:00:00 [logger.py:39] {text}");
        check(
            &[
                &info("vLLM API server version 0.10.0"),
                &info(r"Received request c-1: prompt: 'a\nb', params: SamplingParams(n=1)."),
                &info("Received request c-2: params: SamplingParams(n=1), lora_request: None."),
            ],
            &[prompt("c-1")],
        );
        let debug = |text: &str| {
            format!("(APIServer pid=7) DEBUG 11-24 10:00:00 [request_logger.py:55] Request {text}")
        };
        let ids = json!({"request_id": "c-4", "timestamp": time, "prompt_token_ids": [1, 2]});
        check(
            &[
                &debug(
                    r"c-3 details: prompt: 'a\nb', prompt_token_ids: [1], prompt_embeds shape: .",
                ),
                &debug(
                    "c-4 details: prompt: None, prompt_token_ids: [1, 2], prompt_embeds shape: .",
                ),
            ],
            &[prompt("c-3"), ids],
        );
    }

    #[test]
    fn sglang_writes_a_request_at_its_end_too() {
        let usage = json!({"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 4});
        let finish = "[2026-11-24 10:00:01] Finish: obj=GenerateReqInput(rid='r1', text='x y', \
                      input_ids=None), out={'text': 'z', 'meta_info': {'id': 'r1', \
                      'prompt_tokens': 9, 'completion_tokens': 2, 'cached_tokens': 4}}";
        check(
            &["[2026-11-24 10:00:00] Receive: obj=GenerateReqInput(rid='r1', text='x y')", finish],
            &[json!({"request_id": "r1", "timestamp": "2026-11-24T10:00:01Z", "usage": usage,
                "prompt": "x y"})],
        );
        let json = json!({"event": "request.finished", "rid": "r1", "timestamp": 7,
            "obj": {"text": null, "input_ids": [1]}, "out": {"meta_info": {"prompt_tokens": 1}}});
        assert!(is_record(&json));
        assert_eq!(record(&json)[0]["prompt_token_ids"], json!([1]));
    }

    #[test]
    fn json_behind_a_prefix_is_found() {
        check(
            &[
                "web-1  | starting {up}",
                r#"web-1  | {"prompt": "x"}"#,
                r#"2026-11-24T10:00:00Z {"prompt": "y"}"#,
                r#"Nov 24 10:00:00 host api[7]: {"time": 7, "prompt": "z"}"#,
            ],
            &[
                json!({"prompt": "x"}),
                json!({"timestamp": "2026-11-24T10:00:00Z", "prompt": "y"}),
                json!({"time": 7, "prompt": "z"}),
            ],
        );
    }
}
