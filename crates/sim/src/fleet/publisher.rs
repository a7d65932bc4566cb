//! Cache events as an engine publishes them: numbered batches, and a bounded buffer of old ones.
//!
//! As vLLM's publisher has it: a batch per step that has events, numbered from 0 for as long as the
//! process lives; a replay brings what the buffer still holds, without a word of what it does not.

use std::collections::VecDeque;
use std::sync::Arc;

use headstart_core::{CacheEvent, Nanos};
use headstart_router::stream::StreamBatch;

/// When virtual time begins on a publisher's clock, seconds since 1970: 0 would be no time stamp.
const EPOCH_S: f64 = 1e9;

/// Batches kept for replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchRetention {
    /// This number of batches.
    Batches(usize),
    /// The last one without its events. Enough where every batch comes: then a replay is only
    /// asked for to know the publisher by its last batch.
    LastHead,
}

/// One process's stream.
#[derive(Debug)]
pub struct Publisher {
    process: u64,
    next: u64,
    keeps: BatchRetention,
    kept: VecDeque<Arc<StreamBatch>>,
}

impl Publisher {
    /// The stream of the `process`th process of a replica.
    #[must_use]
    pub fn new(process: u64, keeps: BatchRetention) -> Self {
        Self { process, next: 0, keeps, kept: VecDeque::new() }
    }

    /// The next batch.
    pub fn publish(&mut self, events: Vec<CacheEvent>, now: Nanos) -> Arc<StreamBatch> {
        let batch = Arc::new(StreamBatch {
            seq: self.next,
            ts: Some(EPOCH_S + now.0 as f64 * 1e-9),
            // Process and number together make each batch unlike all others.
            fingerprint: u128::from(self.process) << 64 | u128::from(self.next),
            events,
            ..StreamBatch::default()
        });
        self.next += 1;
        let (most, kept) = match self.keeps {
            BatchRetention::Batches(most) => (most, batch.clone()),
            // A replay only has to show which process answers, so events would be memory for
            // nothing.
            BatchRetention::LastHead => (1, Arc::new(head(&batch))),
        };
        // A publisher without a buffer keeps nothing, and the queue must not grow.
        if most > 0 {
            if self.kept.len() == most {
                self.kept.pop_front();
            }
            self.kept.push_back(kept);
        }
        batch
    }

    /// Returns the kept batches from `from` on.
    pub fn replay(&self, from: u64) -> impl Iterator<Item = Arc<StreamBatch>> {
        let wanted = self.kept.iter().filter(move |batch| batch.seq >= from);
        wanted.cloned()
    }
}

/// A batch without its events.
fn head(batch: &StreamBatch) -> StreamBatch {
    StreamBatch {
        seq: batch.seq,
        ts: batch.ts,
        fingerprint: batch.fingerprint,
        ..StreamBatch::default()
    }
}
