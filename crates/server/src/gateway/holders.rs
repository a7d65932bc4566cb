//! Finds the engine that holds a stored response which this gateway did not pass on itself: another
//! gateway did, or this one before it restarted.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderMap, Method};

use super::{HttpGateway, Pin};
use crate::upstream::Outgoing;

/// Longest wait for engines to say whether they hold a response.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// Most engines that are asked at once.
const ENGINES_MAX: usize = 64;

/// Longest id that is asked for, bytes.
const ID_BYTES: usize = 200;

impl HttpGateway {
    /// Finds the replica that holds the response `id`. If this gateway does not know it, it asks
    /// the engines with the client's headers.
    pub async fn holder(&self, id: &str, headers: &HeaderMap) -> Option<Pin> {
        if let Some(pin) = self.pins.find(id) {
            return Some(pin);
        }
        // The id becomes a part of a path to the engine: a client must not write `/` or `..` into
        // it.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if id.is_empty() || id.len() > ID_BYTES || !id.bytes().all(is_plain) {
            return None;
        }
        let up = self.fleet.engines().filter(|(replica, _)| !self.is_down(*replica));
        let engines: Vec<_> = up.take(ENGINES_MAX).collect();
        // With one engine up there is no choice: the request goes there, and its own answer is the
        // client's.
        if engines.len() < 2 {
            return None;
        }
        let path = format!("/v1/responses/{id}");
        let question = Outgoing { method: &Method::GET, path: &path, headers, body: Bytes::new() };
        // With the client's headers, since an engine may check the client's key.
        let asked = engines.iter().map(|(_, engine)| async {
            engine.of_rank(None).forward(&question, ASK_TIMEOUT).await
        });
        // At the same time, so that a slow engine delays the request by one time limit at most.
        let answers = join_all(asked).await;
        let holds = |answer: &Result<http::Response<_>, _>| {
            answer.as_ref().is_ok_and(|answer| answer.status().is_success())
        };
        let at = answers.iter().position(holds)?;
        // The chain before this response is unknown, so that its root is this id.
        self.pins.learn(id, None, engines[at].0);
        self.pins.find(id)
    }
}
