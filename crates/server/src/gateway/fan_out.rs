//! Requests that act on all engines: each engine gets the request once, whatever the number of its
//! data-parallel ranks.

use std::time::Duration;

use http::StatusCode;
use http_body_util::{BodyExt, Limited};

use super::HttpGateway;
use crate::upstream::{Outgoing, Upstream};

/// Most of an engine's answer that is read, bytes: these routes answer with a sentence.
const ANSWER_BYTES: usize = 64 << 10;

/// Most of an engine's answer that the client gets, characters.
const TEXT_CHARS: usize = 2_000;

/// Answer of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineAnswer {
    /// Its address.
    pub base: String,
    /// Its status; none when it did not answer.
    pub status: Option<StatusCode>,
    /// Its text, or the reason why it is missing.
    pub text: String,
}

impl HttpGateway {
    /// Gives a request to every engine at once and waits for all answers. The engines' lists of
    /// models are read again afterwards.
    pub async fn fan_out(&self, request: &Outgoing<'_>) -> Vec<EngineAnswer> {
        let limit = self.limits.first_token_timeout;
        // Ranks share an engine, which would load or unload an adapter once per rank.
        let answers = self.fleet.engines().map(|(_, engine)| answer(engine, request, limit));
        let answers = futures::future::join_all(answers).await;
        // These routes change the models that engines list, and the next request may already name a
        // new one.
        self.ask_all_models().await;
        answers
    }
}

async fn answer(upstream: &Upstream, request: &Outgoing<'_>, limit: Duration) -> EngineAnswer {
    let base = upstream.base().to_owned();
    // No rank header: the request is for the engine, not for one of its ranks.
    let response = match upstream.of_rank(None).forward(request, limit).await {
        Ok(response) => response,
        Err(error) => {
            return EngineAnswer { base, status: None, text: error.cause() };
        }
    };
    let status = Some(response.status());
    let body = Limited::new(response.into_body(), ANSWER_BYTES).collect();
    let text = match tokio::time::timeout(limit, body).await {
        Ok(Ok(body)) => {
            let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            // Characters, not bytes: a cut inside a character would not be UTF-8.
            text.chars().take(TEXT_CHARS).collect()
        }
        Ok(Err(error)) => format!("the answer could not be read: {error}"),
        Err(_) => format!("the answer did not end within {} s", limit.as_secs()),
    };
    EngineAnswer { base, status, text }
}
