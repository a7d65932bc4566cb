//! What was restored from before the start, until the streams say better.
//!
//! It is doubtful, and so ends by itself. A stream that goes back to its engine's first batch says
//! all that the engine holds: then what was restored would only add what is gone.

use std::sync::PoisonError;

use headstart_core::{CacheEvent, ReplicaId};
use headstart_router::index::Update;

use super::Gateway;

impl Gateway {
    /// Something was restored of these replicas.
    pub fn note_restored(&self, replicas: &[ReplicaId]) {
        let mut restored = self.restored.lock().unwrap_or_else(PoisonError::into_inner);
        restored.extend(replicas);
    }

    /// To be called before events of a replica are applied. Forgets what was restored of it if
    /// they are its stream's first ones and the engine's as well.
    pub(super) fn settle_restored(&self, replica: ReplicaId) {
        let mut restored = self.restored.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = restored.remove(&replica);
        drop(restored);
        let is_whole = || {
            let report = self.stream_report(replica);
            report.is_some_and(|report| report.lost_batches == 0 && report.epoch == 0)
        };
        if is_first && is_whole() {
            tracing::debug!(%replica, "the stream is whole: what was restored is forgotten");
            self.tell_index(replica, Update::Events(&[CacheEvent::Cleared]), 0);
        }
    }

    /// The models that an upstream said it serves, sorted, its adapters left out: they come and
    /// go, and their blocks have names of their own.
    #[must_use]
    pub fn base_models(&self, replica: ReplicaId) -> Vec<String> {
        let Some(upstream) = self.upstream(replica) else {
            return Vec::new();
        };
        let mut models = upstream.models();
        models.retain(|model| !upstream.is_adapter(model));
        models.sort();
        models
    }
}
