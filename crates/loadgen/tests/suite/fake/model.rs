//! A fake model with a prefix cache: a token is a word, the answer follows from the prompt.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::Value;

use super::{Reply, events};

/// Tokens per block: only full blocks are found.
pub(crate) const BLOCK: usize = 4;

/// Prompts in the server's cache, by salt.
#[derive(Default)]
pub(crate) struct Model {
    /// Prompts longer than this are refused.
    pub(crate) context: Option<usize>,
    /// Salts are taken as one, as by a server that does not know them.
    pub(crate) ignores_salt: bool,
    pub(crate) held: Mutex<HashMap<String, Vec<Vec<String>>>>,
}

impl Model {
    /// Answers with the prompt's length, as two words.
    pub(crate) fn respond(&self, body: &Value) -> Reply {
        let prompt = tokens(body);
        if self.context.is_some_and(|context| prompt.len() > context) {
            let body = r#"{"error": {"message": "long", "code": "context_length_exceeded"}}"#;
            return Reply::error("400 Bad Request", body);
        }
        let salt = body["cache_salt"].as_str().filter(|_| !self.ignores_salt);
        let mut held = self.held.lock().unwrap();
        let held = held.entry(salt.unwrap_or_default().to_owned()).or_default();
        let found = held.iter().map(|known| overlap(known, &prompt)).max();
        let answer = format!("answer {}", prompt.len());
        let mut known = prompt.clone();
        known.extend(["<assistant>".to_owned()]);
        known.extend(answer.split_whitespace().map(str::to_owned));
        held.push(known);
        let mut reply = Reply::ok(events(&answer, prompt.len(), found.unwrap_or(0)));
        reply.headers.push(format!("x-headstart-replica: r{}", prompt.len() % 2));
        reply
    }
}

/// Role marks and words of all messages.
fn tokens(body: &Value) -> Vec<String> {
    let mut tokens = Vec::new();
    for message in body["messages"].as_array().expect("messages") {
        tokens.push(format!("<{}>", message["role"].as_str().expect("a role")));
        let content = message["content"].as_str().expect("a content");
        tokens.extend(content.split_whitespace().map(str::to_owned));
    }
    tokens
}

/// Equal leading tokens in full blocks; the last token is always computed.
fn overlap(known: &[String], prompt: &[String]) -> usize {
    let equal = known.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    equal.min(prompt.len() - 1) / BLOCK * BLOCK
}
