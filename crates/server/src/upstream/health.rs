//! Whether an engine is alive, and if not, why.
//!
//! ```text
//! GET /health ── 2xx ──────────────► alive
//!             ── other status ─────► dead, at once
//!             ── refused, broken ──► dead, at once
//!             ── nothing in 2 s ───► slow, and dead at the third time in a row
//! ```
//!
//! A frozen process still accepts connections: only the silence tells it from a busy one. This
//! module does not know the router: its caller decides what follows, and [`Upstream::set_down`]
//! notifies the requests that wait for this engine.

use std::error::Error;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bytes::Bytes;
use http::Method;

use super::{
    HEALTH_TIMEOUT, MISSED_CHECKS, MODELS_AGE, MODELS_BYTES, ServedModel, Upstream, UpstreamError,
};
use crate::lock::lock;

impl Upstream {
    /// Whether it is alive; [`Self::trouble`] says why not. Asks for its models the first time
    /// that it is, and again when the list is some seconds old.
    pub async fn is_alive(&self) -> bool {
        let request = self.request(Method::GET, "/health", Bytes::new());
        let trouble = match self.send(request, HEALTH_TIMEOUT).await {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("GET /health answered {}", response.status())),
            // Too busy to answer once is not dead.
            Err(UpstreamError::TimedOut { seconds, .. }) => {
                let missed = self.engine.missed_checks.fetch_add(1, Relaxed) + 1;
                let cause = format!("GET /health had no answer within {seconds} s, {missed} times");
                self.note_trouble(cause);
                return missed < MISSED_CHECKS;
            }
            Err(error) => Some(error.cause()),
        };
        // Any answer, good or bad, ends the row of missed checks.
        self.engine.missed_checks.store(0, Relaxed);
        match trouble {
            Some(cause) => {
                self.note_trouble(cause);
                // The next engine at this address may serve another model.
                self.lock_models().clear();
                *self.models_read() = None;
                self.forget_engine();
                false
            }
            None => {
                let age = self.models_read().map(|at| at.elapsed());
                let is_old = age.is_none_or(|age| age >= MODELS_AGE);
                if is_old || self.lock_models().is_empty() {
                    self.ask_models().await;
                }
                if self.dialect().is_none() {
                    self.ask_dialect().await;
                }
                true
            }
        }
    }

    /// Why it last was no good; empty when it always was.
    #[must_use]
    pub fn trouble(&self) -> String {
        lock(&self.engine.trouble).clone()
    }

    /// Takes note of why it is no good.
    pub fn note_trouble(&self, cause: String) {
        *lock(&self.engine.trouble) = cause;
    }

    /// Says whether it is taken for dead, to those who wait in [`Self::died`].
    pub fn set_down(&self, is_down: bool) {
        self.engine.is_down.send_replace(is_down);
    }

    /// Waits until it is taken for dead; returns at once if it is.
    pub async fn died(&self) {
        let mut is_down = self.engine.is_down.subscribe();
        // `wait_for` looks at the present value first, so a death before this call is not missed.
        if is_down.wait_for(|&is_down| is_down).await.is_err() {
            unreachable!("the sender lives in the engine, which `self` holds");
        }
    }

    /// Asks its watcher to look at once.
    pub fn look_again(&self) {
        // The notice is stored while the watcher is busy with a check.
        self.engine.look.notify_one();
    }

    /// Waits until [`Self::look_again`] is called.
    pub async fn is_doubted(&self) {
        self.engine.look.notified().await;
    }

    /// Asks for its list of models; without an answer the last list stays.
    pub async fn ask_models(&self) {
        // Taken before the question, so that a list is never older than this says.
        let begin = Instant::now();
        let listed = self.listed_models().await;
        // Set after it: a request that asks may be cancelled with its client's connection, and then
        // the list is as old as before. Another question may have ended meanwhile.
        let mut read = self.models_read();
        *read = (*read).max(Some(begin));
        drop(read);
        let Some(listed) = listed else {
            return;
        };
        let mut models = self.lock_models();
        let is_change = !models.is_empty() && *models != listed;
        models.clone_from(&listed);
        // `models` below takes the same lock.
        drop(models);
        if is_change {
            let models = self.models();
            tracing::info!(upstream = self.base(), ?models, "the engine's models changed");
        }
    }

    /// Its list of models, if it answers with one.
    async fn listed_models(&self) -> Option<Vec<ServedModel>> {
        let body = self.get("/v1/models", HEALTH_TIMEOUT, MODELS_BYTES).await?;
        let json: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let listed = json["data"].as_array()?;
        Some(listed.iter().filter_map(ServedModel::of).collect())
    }

    fn models_read(&self) -> MutexGuard<'_, Option<Instant>> {
        lock(&self.engine.models_read)
    }
}

impl ServedModel {
    fn of(model: &serde_json::Value) -> Option<Self> {
        Some(Self {
            name: model["id"].as_str()?.to_owned(),
            is_adapter: model["parent"].is_string(),
            context: model["max_model_len"]
                .as_u64()
                .and_then(|tokens| usize::try_from(tokens).ok()),
            owner: model["owned_by"].as_str().map(str::to_owned),
        })
    }
}

impl UpstreamError {
    /// Returns the cause of the error, without the address.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::Unreachable { source, .. } => root_cause(source),
            Self::TimedOut { seconds, .. } => format!("no answer within {seconds} s"),
            Self::Address { reason, .. } => reason.clone(),
        }
    }
}

/// Returns the innermost error's message: "connection refused" instead of "client error".
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UpstreamConfig;

    #[tokio::test]
    async fn a_cancelled_question_leaves_the_list_as_old_as_it_was() {
        // Accepts connections and never answers.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let upstream = Upstream::new(
            &UpstreamConfig {
                url: format!("http://{}", listener.local_addr().expect("bound")),
                kv_events: None,
                kv_replay: None,
                data_parallel_size: 1,
                tokenizer: None,
            },
            None,
        );
        let upstream = upstream.expect("an address");
        let mut question = Box::pin(upstream.ask_models());
        assert!(futures::poll!(&mut question).is_pending());
        // As when the client disconnects.
        drop(question);
        assert!(upstream.models_read().is_none());
        // One that ends counts, whatever came of it.
        drop(listener);
        upstream.ask_models().await;
        assert!(upstream.models_read().is_some());
    }
}
