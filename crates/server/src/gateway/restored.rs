//! Index contents restored from before the start, until event streams replace them.
//!
//! Restored contents are in doubt and expire on their own. A stream that continues drops them if
//! the engine reports its contents from its first batch on, or reports an empty cache.

use headstart_core::ReplicaId;
use headstart_index_sync::clock::Clock;
use headstart_index_sync::saved::KnownReplicas;

use super::HttpGateway;
use crate::lock::lock;

impl HttpGateway {
    /// Whether something was restored of the replica. Not so any more at the next question.
    pub fn take_restored(&self, replica: ReplicaId) -> bool {
        lock(&self.restored).remove(&replica)
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
        // Engines list models in any order; an equal set must compare as equal.
        models.sort();
        models
    }
}

impl KnownReplicas for HttpGateway {
    fn clock(&self) -> Clock {
        self.clock
    }

    fn is_down(&self, replica: ReplicaId) -> bool {
        Self::is_down(self, replica)
    }

    fn base_models(&self, replica: ReplicaId) -> Vec<String> {
        Self::base_models(self, replica)
    }

    fn note_restored(&self, replicas: &[ReplicaId]) {
        lock(&self.restored).extend(replicas);
    }
}
