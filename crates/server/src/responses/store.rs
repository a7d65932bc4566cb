//! Earlier responses, for `previous_response_id` and `GET /v1/responses/ID`. They are kept in
//! memory only, each with its whole conversation, and the oldest go first.
//!
//! Invariant: `order` names each kept response once, and `bytes` is the sum of their sizes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headstart_core::Nanos;
use serde_json::Value;

use crate::lock::lock;

/// Lifetime of a stored response: longer than a user takes for one turn.
pub const KEPT: Duration = Duration::from_secs(3600);

/// Most responses that are kept.
pub const MAX_RESPONSES: usize = 1024;

/// Most bytes of text and JSON that are kept: some 150 turns of 100,000 tokens.
pub const MAX_BYTES: usize = 64 << 20;

/// A response and what led to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredResponse {
    /// The response as the client got it.
    pub response: Value,
    /// The conversation with this answer, in OpenAI's chat form, without `instructions`.
    pub messages: Vec<Value>,
    /// The key of `session` routing of the conversation's first request.
    pub session: Option<String>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct ResponseStore(Mutex<ResponseTable>);

#[derive(Debug, Default)]
struct ResponseTable {
    by_id: HashMap<String, ResponseEntry>,
    /// Oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

#[derive(Debug)]
struct ResponseEntry {
    stored: Arc<StoredResponse>,
    bytes: usize,
    since: Nanos,
}

impl ResponseStore {
    /// Keeps a response under its id. One that is larger than [`MAX_BYTES`] is not kept.
    pub fn put(&self, id: String, stored: StoredResponse, now: Nanos) {
        // Measured before the lock: it visits every value.
        let values = stored.messages.iter().chain([&stored.response]);
        let bytes = values.map(size).sum::<usize>();
        if bytes > MAX_BYTES {
            return;
        }
        let mut kept = lock(&self.0);
        kept.drop_old(now);
        kept.remove(&id);
        kept.bytes += bytes;
        kept.order.push_back(id.clone());
        let stored = Arc::new(stored);
        let entry = ResponseEntry { stored, bytes, since: now };
        kept.by_id.insert(id, entry);
        // One large response may push out several small ones. It fits by itself, so the loop ends.
        while kept.bytes > MAX_BYTES || kept.by_id.len() > MAX_RESPONSES {
            kept.drop_oldest();
        }
    }

    /// A response that is still kept.
    #[must_use]
    pub fn get(&self, id: &str, now: Nanos) -> Option<Arc<StoredResponse>> {
        let mut kept = lock(&self.0);
        kept.drop_old(now);
        kept.by_id.get(id).map(|entry| entry.stored.clone())
    }

    /// Forgets a response. Says whether it was kept.
    pub fn remove(&self, id: &str, now: Nanos) -> bool {
        let mut kept = lock(&self.0);
        kept.drop_old(now);
        kept.remove(id)
    }
}

impl ResponseTable {
    fn drop_old(&mut self, now: Nanos) {
        while let Some(id) = self.order.front() {
            let is_old = |entry: &ResponseEntry| now.since(entry.since) >= KEPT;
            if !self.by_id.get(id).is_none_or(is_old) {
                break;
            }
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(id) = self.order.pop_front()
            && let Some(entry) = self.by_id.remove(&id)
        {
            self.bytes -= entry.bytes;
        }
    }

    fn remove(&mut self, id: &str) -> bool {
        let Some(entry) = self.by_id.remove(id) else {
            return false;
        };
        self.bytes -= entry.bytes;
        self.order.retain(|one| one != id);
        true
    }
}

/// About how many bytes a value takes in memory.
fn size(value: &Value) -> usize {
    const NODE: usize = 64;
    NODE + match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(name, field)| name.len() + size(field)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(bytes: usize) -> StoredResponse {
        StoredResponse {
            messages: vec![Value::String("x".repeat(bytes))],
            ..StoredResponse::default()
        }
    }

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn responses_are_kept_for_their_time() {
        let store = ResponseStore::default();
        store.put("a".to_owned(), stored(1), at(10));
        assert_eq!(store.get("a", at(3609)).as_deref(), Some(&stored(1)));
        assert_eq!(store.get("b", at(11)), None);
        assert_eq!(store.get("a", at(3610)), None);
        assert_eq!(lock(&store.0).bytes, 0);
    }

    #[test]
    fn a_removed_response_is_gone() {
        let store = ResponseStore::default();
        store.put("a".to_owned(), stored(1), at(0));
        store.put("b".to_owned(), stored(1), at(0));
        assert!(store.remove("a", at(1)));
        assert!(!store.remove("a", at(1)));
        assert!(store.get("b", at(1)).is_some());
        assert_eq!(lock(&store.0).order, ["b"]);
    }

    #[test]
    fn number_and_bytes_are_limited() {
        let store = ResponseStore::default();
        for number in 0..=MAX_RESPONSES {
            store.put(number.to_string(), stored(1), at(0));
        }
        assert_eq!(store.get("0", at(0)), None);
        assert!(store.get("1", at(0)).is_some());
        store.put("large".to_owned(), stored(MAX_BYTES - 1000), at(0));
        let kept = lock(&store.0);
        assert!(kept.bytes <= MAX_BYTES && kept.by_id.contains_key("large"));
        assert_eq!(kept.by_id.len(), kept.order.len());
        drop(kept);
        store.put("larger".to_owned(), stored(MAX_BYTES), at(0));
        assert_eq!(store.get("larger", at(0)), None);
    }
}
