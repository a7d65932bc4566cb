//! The router's index with a stopwatch: the centre has no clock.

use std::sync::Arc;
use std::time::Instant;

use headstart_core::event::BlockChange;
use headstart_core::{CacheEvent, Nanos, ReplicaId};
use headstart_router::index::{Overlaps, ResidentBlock, TierTokens, Update};
use headstart_router::{IndexStats, PrefixIndex, Prompt, PromptKeys};

use crate::metrics::IndexMetrics;

/// Asks another index and notes how long it took.
pub struct TimedIndex {
    inner: Arc<dyn PrefixIndex>,
    metrics: Arc<IndexMetrics>,
}

impl TimedIndex {
    /// Times `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn PrefixIndex>, metrics: Arc<IndexMetrics>) -> Self {
        Self { inner, metrics }
    }
}

impl PrefixIndex for TimedIndex {
    fn update(&self, replica: ReplicaId, update: Update<'_>, now: Nanos) {
        self.inner.update(replica, update, now);
    }

    fn update_and_tell(
        &self,
        replica: ReplicaId,
        events: &[CacheEvent],
        now: Nanos,
        changes: &mut Vec<BlockChange>,
    ) {
        self.inner.update_and_tell(replica, events, now, changes);
    }

    fn hash(&self, prompt: Prompt<'_>) -> PromptKeys {
        let start = Instant::now();
        let keys = self.inner.hash(prompt);
        self.metrics.hash.observe(start.elapsed().as_secs_f64());
        keys
    }

    fn overlaps(&self, prompt: &PromptKeys, now: Nanos, answer: &mut Overlaps) {
        let start = Instant::now();
        self.inner.overlaps(prompt, now, answer);
        self.metrics.lookup.observe(start.elapsed().as_secs_f64());
    }

    fn tier_tokens(&self, prompt: &PromptKeys, replica: ReplicaId, now: Nanos) -> TierTokens {
        self.inner.tier_tokens(prompt, replica, now)
    }

    fn residents(&self, now: Nanos, visit: &mut dyn FnMut(ResidentBlock)) {
        self.inner.residents(now, visit);
    }

    fn stats(&self) -> IndexStats {
        self.inner.stats()
    }
}
