//! A request's place with the router.

use std::sync::{Arc, Mutex};

use headstart_core::ReplicaId;
use headstart_insight::text::Sketch;
use headstart_router::ReservationId;

use super::HttpGateway;
use crate::insight::{AnswerFacts, Observation};
use crate::lock::lock;
use crate::metrics::PromptSources;

/// A request's place with the router; given back when dropped.
pub struct Reservation {
    pub(super) gateway: Arc<HttpGateway>,
    pub(super) id: ReservationId,
    pub(super) replica: ReplicaId,
    pub(super) replica_name: String,
    /// Cached tokens by the index; none where the prompt was not tokenized.
    pub(super) predicted_tokens: Option<usize>,
    /// Explains the request at its end; `None` if it is not explained or its prompt is unknown.
    pub(super) observation: Mutex<Option<Observation>>,
}

impl Reservation {
    /// The prefill is done.
    pub fn first_token(&self) {
        let now = self.gateway.clock.now();
        // The router's guard ends with the statement; insight has locks of its own.
        self.gateway.router().first_token(self.id, now);
        if let Some(observation) = &*lock(&self.observation) {
            observation.computed(now);
        }
    }

    /// The engine says where it found which prompt tokens.
    pub fn note_sources(&self, sources: &PromptSources) {
        if let Some(observation) = &mut *lock(&self.observation) {
            observation.serve(sources);
        }
        self.note_cached(sources.found());
    }

    /// The engine says how many prompt tokens it found cached.
    pub fn note_cached(&self, cached_tokens: usize) {
        // Keeps the tiers that `note_sources` may have told already.
        if let Some(observation) = &mut *lock(&self.observation) {
            observation.serve_somewhere(cached_tokens);
        }
        if let Some(predicted) = self.predicted_tokens {
            let index = &self.gateway.metrics.index;
            index.note_cached(&self.replica_name, predicted, cached_tokens);
        }
    }

    /// Explains the request from the data collected so far.
    pub fn explain(&self, answered: &AnswerFacts<'_>, sketch: Option<Sketch>) {
        let observation = lock(&self.observation).take();
        if let Some(observation) = observation {
            observation.finish(answered, sketch, self.gateway.clock.now());
        }
    }

    /// The replica.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// The replica, as metrics and headers name it.
    #[must_use]
    pub fn replica_name(&self) -> &str {
        &self.replica_name
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let now = self.gateway.clock.now();
        // Runs on every path: answered, failed, or cancelled with the client's connection.
        self.gateway.router().finish(self.id, now);
    }
}
