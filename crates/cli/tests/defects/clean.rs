//! Workloads in which nothing is lost: whatever two prompts have in common stands at the front of
//! both, in the same bytes.
//!
//! They still look suspicious to a detector of defects. Questions hold numbers and dates, results
//! of tools hold times and ids, and documents come in other combinations each time (but always in
//! the order of their numbers). Users have ids of their own, clients differ in their tools, and
//! people ask again or take back what they wrote.

mod agents;
mod chats;
mod texts;

use serde_json::{Value, json};

use crate::log::{Log, MONDAY_NINE_S, Request};
use crate::prose::Prose;

pub(crate) use agents::{agents, thinking_agents};
pub(crate) use chats::{desk, long_chats, owners, passages, reasoning};
pub(crate) use texts::{as_text, few_shot, spoken, spoken_chats, text_passages};

/// All of them by name.
pub(crate) fn all() -> Vec<(&'static str, Log)> {
    vec![
        ("a help desk with tools", desk(1)),
        ("long conversations", long_chats(2)),
        ("coding agents", agents(3)),
        ("agents that think aloud", thinking_agents(4)),
        ("questions about documents", passages(5)),
        ("many users", owners(6)),
        ("reasoning kept in the history", reasoning(7)),
        ("few-shot text prompts", few_shot(8)),
        ("conversations as text", spoken(9, crate::markup::CHAT_ML)),
        ("documents in text prompts", text_passages(10)),
        ("all at once", mixed(11)),
        ("retries and second thoughts", retries(12)),
    ]
}

/// Several applications behind one gateway.
pub(crate) fn mixed(seed: u64) -> Log {
    let parts = [desk(seed), agents(seed + 1), passages(seed + 2), few_shot(seed + 3)];
    let mut requests: Vec<Request> = Vec::new();
    for (index, part) in parts.into_iter().enumerate() {
        let mut part = part.requests;
        part.retain(|request| request.conversation < 40 && request.turn < 9);
        for request in &mut part {
            request.conversation += 1000 * index;
        }
        requests.extend(part);
    }
    requests.truncate(220);
    Log::new(requests)
}

/// Long conversations in which people press the button twice, or go back and ask something else.
pub(crate) fn retries(seed: u64) -> Log {
    let mut prose = Prose::new(seed);
    let mut requests = Vec::new();
    for request in long_chats(seed).requests {
        if request.turn > 7 {
            continue;
        }
        let mut again = request.clone();
        again.at_s += 7;
        match prose.rng.below(4) {
            0 => requests.push(again),
            1 => {
                let last = again.messages().last_mut().expect("a question");
                last["content"] = json!(prose.question(crate::prose::OFFICE));
                requests.push(again);
            }
            _ => {}
        }
        requests.push(request);
    }
    Log::new(requests)
}

/// A conversation that grows.
struct Chat {
    conversation: usize,
    user: String,
    at_s: u64,
    tools: Vec<Value>,
    messages: Vec<Value>,
    asked: Vec<Request>,
}

impl Chat {
    /// Begins within `minutes` after nine.
    fn new(prose: &mut Prose, conversation: usize, minutes: usize, system: String) -> Self {
        Self {
            conversation,
            user: format!("user-{}", conversation % 7),
            at_s: MONDAY_NINE_S + prose.rng.below(60 * minutes) as u64,
            tools: Vec::new(),
            messages: vec![json!({"role": "system", "content": system})],
            asked: Vec::new(),
        }
    }

    fn say(&mut self, role: &str, text: String) {
        self.messages.push(json!({"role": role, "content": text}));
    }

    /// Sends a user's request, with all messages so far.
    fn send(&mut self, prose: &mut Prose) {
        self.send_after(prose, 15, 90);
    }

    /// The same with this many seconds since the last request.
    fn send_after(&mut self, prose: &mut Prose, least_s: u64, spread_s: usize) {
        self.at_s += least_s + prose.rng.below(spread_s) as u64;
        let mut body = json!({"model": "served-model", "messages": self.messages});
        if !self.tools.is_empty() {
            body["tools"] = json!(self.tools);
        }
        body["max_tokens"] = json!(800);
        self.asked.push(Request {
            id: String::new(),
            at_s: self.at_s,
            user: self.user.clone(),
            conversation: self.conversation,
            turn: self.asked.len(),
            body,
            mark: None,
        });
    }

    /// Adds a tool call of the model, and its result.
    fn call(&mut self, prose: &mut Prose, name: &str, arguments: &Value, result: String) {
        let id = format!("call_{}", prose.hex(12));
        self.messages.push(json!({
            "role": "assistant",
            "content": "",
            "tool_calls": [{
                "id": id,
                "type": "function",
                "function": {"name": name, "arguments": arguments.to_string()},
            }],
        }));
        self.messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
    }
}
