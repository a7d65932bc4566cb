//! Rewrites the requests of a log, one after the other.
//!
//! What was once sent as the newest message is sent so again: a text that was moved into it stays
//! there. The rewriter therefore keeps the last request of each conversation.

use std::collections::HashMap;

use headstart_core::fnv1a;
use headstart_prompt::normalize::Normalizers;
use headstart_trace::format::request_log::{LoggedRequest, PromptPart};
use serde_json::{Map, Value, json};

use super::{MovedText, Remedy};

/// Applies remedies to requests in the order of the log.
pub struct LogRewriter {
    remedies: Vec<Remedy>,
    conversations: HashMap<u64, LastRequest>,
    tools: HashMap<u64, Vec<Value>>,
}

/// The last request of a conversation.
struct LastRequest {
    /// Its messages as they were logged.
    logged: Vec<Value>,
    /// The same, rewritten.
    rewritten: Vec<Value>,
}

impl LogRewriter {
    /// A rewriter of `requests`, which is looked through for tools first.
    #[must_use]
    pub fn new(remedies: Vec<Remedy>, requests: &[LoggedRequest]) -> Self {
        let mut tools: HashMap<u64, Vec<Value>> = HashMap::new();
        if remedies.iter().any(|one| matches!(one, Remedy::AllTools | Remedy::FirstDefinitions)) {
            for request in requests {
                let PromptPart::Chat { messages, tools: Some(Value::Array(sent)) } =
                    &request.prompt
                else {
                    continue;
                };
                let known = tools.entry(conversation(request, messages)).or_default();
                for tool in sent {
                    if !known.iter().any(|one| name(one) == name(tool)) {
                        known.push(tool.clone());
                    }
                }
            }
        }
        Self { remedies, conversations: HashMap::new(), tools }
    }

    /// The line of a request log for `request`, rewritten.
    pub fn line(&mut self, request: &LoggedRequest) -> Value {
        let mut line = Map::new();
        line.insert("request_id".to_owned(), request.name().into());
        if let Some(arrival) = request.arrival {
            line.insert("timestamp".to_owned(), (arrival.0 as f64 / 1e9).into());
        }
        let names = [
            ("model", &request.model),
            ("user", &request.user),
            ("session_id", &request.session),
            ("cache_salt", &request.cache_salt),
        ];
        for (name, value) in names {
            line.extend(value.clone().map(|value| (name.to_owned(), value.into())));
        }
        match &request.prompt {
            PromptPart::Text(text) => {
                line.insert("prompt".to_owned(), text.clone().into());
            }
            PromptPart::Tokens(ids) => {
                line.insert("prompt".to_owned(), ids.clone().into());
            }
            PromptPart::Chat { messages, tools } => {
                let (messages, tools) = self.chat(request, messages, tools.as_ref());
                line.insert("messages".to_owned(), messages);
                line.extend(tools.map(|tools| ("tools".to_owned(), tools)));
            }
        }
        if let Some(tokens) = request.output_tokens {
            line.insert("usage".to_owned(), json!({"completion_tokens": tokens}));
        }
        Value::Object(line)
    }

    fn chat(
        &mut self,
        request: &LoggedRequest,
        messages: &Value,
        tools: Option<&Value>,
    ) -> (Value, Option<Value>) {
        let key = conversation(request, messages);
        let logged = messages.as_array().cloned().unwrap_or_default();
        let mut body = json!({"messages": messages});
        if let Some(tools) = self.tools_of(key, tools) {
            body["tools"] = tools;
        }
        let normalizers: Normalizers = self
            .remedies
            .iter()
            .filter_map(|one| if let Remedy::Normalize(one) = one { Some(*one) } else { None })
            .collect();
        normalizers.apply(&mut body);
        let tools = body.get_mut("tools").map(Value::take);
        let mut rewritten = match body["messages"].take() {
            Value::Array(messages) => messages,
            other => return (other, tools),
        };
        let moved = self.taken_out(&mut rewritten);
        self.keep(key, &logged, &mut rewritten);
        if !moved.is_empty() {
            append(&mut rewritten, &moved.join("\n"));
        }
        let last = LastRequest { logged, rewritten: rewritten.clone() };
        self.conversations.insert(key, last);
        (Value::Array(rewritten), tools)
    }

    /// The tools to send.
    fn tools_of(&self, key: u64, sent: Option<&Value>) -> Option<Value> {
        let known = self.tools.get(&key);
        if self.remedies.contains(&Remedy::AllTools)
            && let Some(known) = known
        {
            return Some(Value::Array(known.clone()));
        }
        let sent = sent?;
        let (true, Some(known), Value::Array(tools)) =
            (self.remedies.contains(&Remedy::FirstDefinitions), known, sent)
        else {
            return Some(sent.clone());
        };
        let first = |tool: &Value| known.iter().find(|one| name(one) == name(tool)).cloned();
        Some(tools.iter().map(|tool| first(tool).unwrap_or_else(|| tool.clone())).collect())
    }

    /// Takes the texts that move out of the messages.
    fn taken_out(&self, messages: &mut [Value]) -> Vec<String> {
        let moved = self.remedies.iter().filter_map(|remedy| match remedy {
            Remedy::Move(text) => taken_out(text, messages),
            _ => None,
        });
        moved.collect()
    }

    /// Sends what was sent before once more.
    fn keep(&self, key: u64, logged: &[Value], rewritten: &mut [Value]) {
        let Some(last) = self.conversations.get(&key) else {
            return;
        };
        // A normalizer may have dropped a message: then the numbers do not fit.
        if rewritten.len() != logged.len() {
            return;
        }
        // The newest message is new.
        let earlier = logged.len().saturating_sub(1).min(last.logged.len());
        let pairs = || logged.iter().zip(&last.logged).take(earlier);
        let is_continued = self.remedies.contains(&Remedy::KeepHistory)
            && earlier == last.logged.len()
            && pairs().all(|(now, before)| now["role"] == before["role"]);
        for (index, (now, before)) in pairs().enumerate() {
            let is_history = !matches!(now["role"].as_str(), Some("system" | "developer"));
            if now == before || (is_continued && is_history) {
                rewritten[index].clone_from(&last.rewritten[index]);
            }
        }
    }
}

/// A conversation: by its name, or else by its first question.
fn conversation(request: &LoggedRequest, messages: &Value) -> u64 {
    if let Some(session) = &request.session {
        return fnv1a(session.as_bytes());
    }
    let mut messages = messages.as_array().into_iter().flatten();
    let first = messages.find(|message| message["role"] == "user");
    fnv1a(first.map(|first| first["content"].to_string()).unwrap_or_default().as_bytes())
}

/// The name of a tool, in the shapes of OpenAI and Anthropic.
fn name(tool: &Value) -> Option<&str> {
    tool["function"]["name"].as_str().or_else(|| tool["name"].as_str())
}

/// Takes a text out of the message where it stands.
fn taken_out(text: &MovedText, messages: &mut [Value]) -> Option<String> {
    let is_it = |message: &&mut Value| {
        let is_system = matches!(message["role"].as_str(), Some("system" | "developer"));
        if text.is_system() { is_system } else { message["role"] == "user" }
    };
    // The newest message is no first message: what stands there is in the right place.
    let last = messages.len().saturating_sub(usize::from(!text.is_system()));
    let message = messages[..last].iter_mut().find(is_it)?;
    match &mut message["content"] {
        Value::String(content) => {
            let (kept, taken) = text.cut(content)?;
            *content = kept;
            Some(taken)
        }
        Value::Array(parts) => parts.iter_mut().find_map(|part| {
            let content = part.get_mut("text")?;
            let (kept, taken) = text.cut(content.as_str()?)?;
            *content = kept.into();
            Some(taken)
        }),
        _ => None,
    }
}

/// Puts a text behind the newest message, or into a message of its own.
fn append(messages: &mut Vec<Value>, text: &str) {
    // The beginning of an answer stays the last message.
    let last = messages.last_mut().filter(|message| message["role"] != "assistant");
    match last.map(|message| &mut message["content"]) {
        Some(Value::String(content)) => *content = format!("{content}\n\n{text}"),
        Some(Value::Array(parts)) => parts.push(json!({"type": "text", "text": text})),
        _ => messages.push(json!({"role": "user", "content": text})),
    }
}

#[cfg(test)]
mod tests {
    use headstart_trace::format::request_log::{LogOptions, Requests};
    use headstart_trace::source::Lines;

    use super::super::ChangeSample;
    use super::*;

    fn requests(lines: &[Value]) -> Vec<LoggedRequest> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let lines = Lines::new("log".to_owned(), std::io::Cursor::new(text)).expect("lines");
        let requests = Requests::from_lines(lines, LogOptions { skip_bad: false });
        requests.collect::<Result<_, _>>().expect("requests")
    }

    fn rewritten(remedies: Vec<Remedy>, lines: &[Value]) -> Vec<Value> {
        let requests = requests(lines);
        let mut rewriter = LogRewriter::new(remedies, &requests);
        requests.iter().map(|request| rewriter.line(request)).collect()
    }

    fn said(role: &str, text: &str) -> Value {
        json!({"role": role, "content": text})
    }

    fn line(messages: &[Value]) -> Value {
        json!({"id": "a", "session_id": "s", "messages": messages})
    }

    #[test]
    fn a_moved_text_stays_where_it_was_sent() {
        let prompt = |id: &str| format!("<|im_start|>system\nID: {id}\nBe kind.<|im_end|>\n");
        let (one, other) = (prompt("1a"), prompt("2b"));
        let sample = |text| ChangeSample { text, start: 23, end: 25 };
        let remedy = Remedy::of("nonce", &[sample(&one), sample(&other)]).expect("a remedy");
        let system = |id: &str| said("system", &format!("ID: {id}\nBe kind."));
        let first = line(&[system("1a"), said("user", "hi")]);
        let second =
            line(&[system("2b"), said("user", "hi"), said("assistant", "yo"), said("user", "why")]);
        let lines = rewritten(vec![remedy], &[first, second]);
        assert_eq!(lines[0]["messages"][0]["content"], "Be kind.");
        assert_eq!(lines[0]["messages"][1]["content"], "hi\n\nID: 1a");
        assert_eq!(lines[1]["messages"][1], lines[0]["messages"][1], "as it was sent");
        assert_eq!(lines[1]["messages"][3]["content"], "why\n\nID: 2b");
    }

    #[test]
    fn history_is_sent_as_it_was_sent_first() {
        let first = line(&[said("user", "pay 12.50")]);
        let second =
            line(&[said("user", "pay 12,5"), said("assistant", "done"), said("user", "more")]);
        let kept = rewritten(vec![Remedy::KeepHistory], &[first.clone(), second.clone()]);
        assert_eq!(kept[1]["messages"][0]["content"], "pay 12.50");
        let cut = line(&[said("assistant", "done"), said("user", "more")]);
        let kept = rewritten(vec![Remedy::KeepHistory], &[second, cut]);
        assert_eq!(kept[1]["messages"][0]["content"], "done", "a history that was cut is new");
        assert_eq!(rewritten(Vec::new(), &[first])[0]["session_id"], "s");
    }

    #[test]
    fn tools_are_those_of_the_conversation() {
        let tool = |name: &str, text: &str| {
            let function = json!({"name": name, "description": text});
            json!({"type": "function", "function": function})
        };
        let with = |tools: Value| {
            let mut line = line(&[said("user", "x")]);
            line["tools"] = tools;
            line
        };
        let lines = [with(json!([tool("a", "1")])), with(json!([tool("b", "1"), tool("a", "2")]))];
        let all = rewritten(vec![Remedy::AllTools], &lines);
        assert_eq!(all[0]["tools"], json!([tool("a", "1"), tool("b", "1")]));
        assert_eq!(all[1]["tools"], all[0]["tools"]);
        let first = rewritten(vec![Remedy::FirstDefinitions], &lines);
        assert_eq!(first[1]["tools"], json!([tool("b", "1"), tool("a", "1")]));
    }
}
