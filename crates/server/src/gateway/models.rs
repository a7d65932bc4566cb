//! Upstreams that serve a model. A model that appears at run time is found when a request names it:
//! the gateway then asks all engines for their lists again, a few times a second at most. It
//! refuses a request only by lists that are newer than the request.

use std::sync::Arc;
use std::time::Duration;

use headstart_core::ReplicaId;
use http::StatusCode;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::HttpGateway;
use crate::openai::ApiError;
use crate::upstream::Upstream;

/// Shortest time between two questions to all engines that requests cause. A request waits that
/// long at most before it asks.
const PAUSE: Duration = Duration::from_millis(250);

/// When all engines were last asked; one request at a time holds it and asks, and others wait for
/// the answer.
#[derive(Debug, Default)]
pub(super) struct ModelLists(Mutex<ListTimes>);

/// Times of the last questions to all engines.
#[derive(Debug, Default)]
struct ListTimes {
    /// Start of the last question, which may have been cancelled with its client's connection.
    asked: Option<Instant>,
    /// Start of the last question that all engines have answered or left unanswered.
    read: Option<Instant>,
}

impl ModelLists {
    /// Asks by `ask`, unless another request begins and ends a question after this call.
    async fn refresh(&self, ask: impl Future<Output = ()>) {
        // Before the lock: an answer that another request got while this one waited is newer than
        // this request.
        let begin = Instant::now();
        let mut last = self.0.lock().await;
        if last.read.is_some_and(|at| at >= begin) {
            return;
        }
        // The wait is inside the lock, so that all requests that come meanwhile share one question.
        if let Some(at) = last.asked {
            tokio::time::sleep_until(at + PAUSE).await;
        }
        // Taken before the question, because a change after this moment may be missing in the
        // answers.
        let asked = Instant::now();
        last.asked = Some(asked);
        ask.await;
        // After it, because a question that is cancelled reads no list.
        last.read = Some(asked);
    }
}

impl HttpGateway {
    /// Returns the upstreams that do not serve `model`; none where no model is named.
    ///
    /// # Errors
    /// 404 when no upstream serves it.
    pub(super) async fn lacking(
        self: &Arc<Self>,
        upstreams: &[Upstream],
        model: Option<&str>,
    ) -> Result<Vec<ReplicaId>, ApiError> {
        let Some(model) = model else {
            return Ok(Vec::new());
        };
        let mut lacking = not_serving(upstreams, model);
        // One engine that may serve it is enough. An engine that never answered with a list counts
        // as one.
        if lacking.len() == upstreams.len() {
            // An engine may have loaded the model since its list was read.
            self.ask_models().await;
            lacking = not_serving(upstreams, model);
        }
        if lacking.len() < upstreams.len() {
            Ok(lacking)
        } else {
            Err(unknown_model(model, &self.models()))
        }
    }

    /// Asks all engines for their models, unless another request does so after this call.
    pub async fn ask_models(&self) {
        self.model_lists.refresh(self.ask_all_models()).await;
    }

    /// Asks all engines for their models.
    pub(super) async fn ask_all_models(&self) {
        // An engine that is down would hold up all waiting requests until its time limit.
        let up = self.fleet.engines().filter(|(id, _)| !self.is_down(*id));
        futures::future::join_all(up.map(|(_, engine)| engine.ask_models())).await;
    }
}

/// Upstreams that said what they serve, and `model` is not among it.
fn not_serving(upstreams: &[Upstream], model: &str) -> Vec<ReplicaId> {
    let replicas = (0..).map(ReplicaId).zip(upstreams);
    let lacking = replicas.filter(|(_, upstream)| upstream.lacks(model));
    lacking.map(|(replica, _)| replica).collect()
}

/// The error for a model that no upstream serves.
#[must_use]
pub fn unknown_model(model: &str, known: &[String]) -> ApiError {
    let message = format!("the model `{model}` is not served here; served: {}", known.join(", "));
    let error = ApiError::invalid("model", message);
    ApiError { status: StatusCode::NOT_FOUND, code: "model_not_found", ..error }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_cancelled_question_spares_no_other_request_its_own() {
        let lists = ModelLists::default();
        let held = lists.0.lock().await;
        let mut cancelled = Box::pin(lists.refresh(pending()));
        let is_asked = Cell::new(false);
        let mut waiting = Box::pin(lists.refresh(async { is_asked.set(true) }));
        // Both have come before either asks.
        assert!(futures::poll!(&mut cancelled).is_pending());
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(held);
        assert!(futures::poll!(&mut cancelled).is_pending());
        // As when its client disconnects.
        drop(cancelled);
        waiting.await;
        assert!(is_asked.get());
    }

    #[tokio::test]
    async fn requests_that_come_before_a_question_share_it() {
        let lists = ModelLists::default();
        let held = lists.0.lock().await;
        let mut first = Box::pin(lists.refresh(ready(())));
        let mut second = Box::pin(lists.refresh(async { panic!("asked again") }));
        assert!(futures::poll!(&mut first).is_pending());
        assert!(futures::poll!(&mut second).is_pending());
        drop(held);
        first.await;
        second.await;
    }
}
