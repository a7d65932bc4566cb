//! The blocks that an engine publishes while `doctor` asks it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headstart_core::CacheEvent;
use headstart_kv_events::{SubscriberConfig, SubscriberHandle, subscribe};
use headstart_router::stream::StreamUpdate;

/// Time for a subscription to be known to the publisher: ZeroMQ drops what comes before.
const JOIN_TIME: Duration = Duration::from_millis(500);

/// Time for the last events to arrive.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Events that were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenEvents {
    /// Blocks that became matchable.
    pub(super) stored_blocks: usize,
    /// Of these, those that came with their tokens.
    pub(super) with_tokens: usize,
    /// Tokens of a block, as the last event says.
    pub(super) block_size: u32,
}

/// A subscription that counts.
pub(super) struct EventWatch {
    seen: Arc<Mutex<SeenEvents>>,
    _subscription: SubscriberHandle,
}

impl EventWatch {
    pub(super) async fn start(endpoint: &str) -> Self {
        let seen = Arc::new(Mutex::new(SeenEvents::default()));
        let config =
            SubscriberConfig { endpoint: endpoint.to_owned(), ..SubscriberConfig::default() };
        let sink = seen.clone();
        let subscription = subscribe(config, move |update| {
            if let StreamUpdate::Events { events, .. } = update {
                let mut seen = sink.lock().unwrap_or_else(PoisonError::into_inner);
                events.iter().for_each(|event| seen.count(event));
            }
        });
        tokio::time::sleep(JOIN_TIME).await;
        Self { seen, _subscription: subscription }
    }

    /// The counts, once there are some or the time is up.
    pub(super) async fn finish(self) -> SeenEvents {
        let end = Instant::now() + WAIT_MAX;
        loop {
            let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if seen.stored_blocks > 0 || Instant::now() >= end {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl SeenEvents {
    fn count(&mut self, event: &CacheEvent) {
        if let CacheEvent::Stored(stored) = event {
            self.stored_blocks += stored.blocks.len();
            self.block_size = stored.block_size;
            if !stored.tokens.is_empty() {
                self.with_tokens += stored.blocks.len();
            }
        }
    }
}
