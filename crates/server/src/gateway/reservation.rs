//! A request's place with the router.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headstart_core::ReplicaId;
use headstart_insight::text::Sketch;
use headstart_router::ReservationId;

use super::HttpGateway;
use crate::insight::{AnswerFacts, InsightTicket};
use crate::metrics::PromptSources;

/// A request's place with the router; given back when dropped.
pub struct Reservation {
    pub(super) gateway: Arc<HttpGateway>,
    pub(super) id: ReservationId,
    pub(super) replica: ReplicaId,
    pub(super) replica_name: String,
    /// Cached tokens by the index; none where the prompt was not tokenized.
    pub(super) predicted_tokens: Option<usize>,
    /// Data to explain the request at its end; `None` if it is not explained or its prompt is
    /// unknown.
    pub(super) ticket: Mutex<Option<InsightTicket>>,
}

impl Reservation {
    /// The prefill is done.
    pub fn first_token(&self) {
        let now = self.gateway.clock.now();
        // The router's guard ends with the statement; insight has locks of its own.
        self.gateway.router().first_token(self.id, now);
        if let (Some(insight), Some(ticket)) = (&self.gateway.observers.insight, &*self.ticket()) {
            insight.computed(ticket, now);
        }
    }

    /// The engine says where it found which prompt tokens.
    pub fn note_sources(&self, sources: &PromptSources) {
        if let Some(ticket) = &mut *self.ticket() {
            ticket.serve(sources);
        }
        self.note_cached(sources.found());
    }

    /// The engine says how many prompt tokens it found cached.
    pub fn note_cached(&self, cached_tokens: usize) {
        // Keeps the tiers that `note_sources` may have told already.
        if let Some(ticket) = &mut *self.ticket() {
            ticket.serve_somewhere(cached_tokens);
        }
        if let Some(predicted) = self.predicted_tokens {
            let index = &self.gateway.metrics.index;
            index.note_cached(&self.replica_name, predicted, cached_tokens);
        }
    }

    /// Explains the request from the data collected so far.
    pub fn explain(&self, answered: &AnswerFacts<'_>, sketch: Option<Sketch>) {
        // Taken, so that the drop at the end of the request does not abandon it as well.
        let ticket = self.ticket().take();
        if let (Some(insight), Some(ticket)) = (&self.gateway.observers.insight, ticket) {
            insight.finish(ticket, answered, sketch, self.gateway.clock.now());
        }
    }

    fn ticket(&self) -> MutexGuard<'_, Option<InsightTicket>> {
        self.ticket.lock().unwrap_or_else(PoisonError::into_inner)
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
        if let (Some(insight), Some(ticket)) =
            (&self.gateway.observers.insight, self.ticket().take())
        {
            insight.abandon(&ticket);
        }
    }
}
