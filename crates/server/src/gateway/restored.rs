//! What was restored from before the start, until the streams say better.
//!
//! It is doubtful, and so ends by itself. A stream that is followed as one that goes on forgets it
//! where the engine says from its first batch on what it holds, or that it holds nothing.

use std::sync::PoisonError;

use headstart_core::ReplicaId;

use super::Gateway;

impl Gateway {
    /// Something was restored of these replicas, whose streams are not followed yet.
    pub fn note_restored(&self, replicas: &[ReplicaId]) {
        let mut restored = self.restored.lock().unwrap_or_else(PoisonError::into_inner);
        restored.extend(replicas);
    }

    /// Whether something was restored of the replica. Not so any more at the next question.
    pub fn take_restored(&self, replica: ReplicaId) -> bool {
        let mut restored = self.restored.lock().unwrap_or_else(PoisonError::into_inner);
        restored.remove(&replica)
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
