//! Follows one publisher for ever: any engine that speaks the format, near or far, up or down.
//!
//! ```text
//!           ┌──────────── wait, at most RECONNECT_PAUSE_MAX ◀───────────┐
//!           ▼                                                           │
//!        connect ──▶ replay from the last batch ──▶ follow ──▶ connection lost
//!                                                   │    ▲
//!                                        gap, doubt └────┘ replay
//! ```
//!
//! Live messages reach a subscriber only from the moment when its subscription has arrived, so a
//! connection starts with a replay, and a second one soon after closes the window in between.
//! Later, silence is a doubt: an idle engine and a dead connection look alike, and only the
//! replay socket can tell them apart.
//!
//! Updates go to the sink in stream order, from one task. Without a replay socket everything
//! works except that what is missed stays missed, and is reported as lost.
//!
//! It does not know what the events mean. One subscriber follows one publisher: several behind
//! one proxy address would look like endless restarts.
//!
//! About zeromq 0.7: its SUB socket reconnects by itself, but waits up to 30 s between attempts
//! and tells nobody that messages may be missing. So the first lost connection ends the
//! socket, and the next is made here.

mod inbox;
mod link;
mod replay;

use std::time::Duration;

use headstart_core::CacheEvent;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use inbox::Inbox;
use link::Link;

/// First wait before connecting again: an engine that restarts takes seconds, a lost connection
/// may be back at once.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(50);

/// Longest wait before connecting again: bounds how stale the index gets once a publisher is
/// back.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Which publisher to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriberConfig {
    /// Address of its live socket, such as `tcp://10.0.0.7:5557`.
    pub endpoint: String,
    /// Address of its replay socket, if it has one.
    pub replay_endpoint: Option<String>,
    /// Start of the topics wanted; empty for all.
    pub topic_prefix: String,
}

/// What became known about one replica, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamUpdate {
    /// Its cache changed.
    Events(Vec<CacheEvent>),
    /// Its engine restarted: it holds nothing of what was reported before.
    Clear,
    /// Batches never arrived or could not be read: what is known of it may be wrong.
    Lost {
        /// How many.
        batches: u64,
    },
    /// Events were not understood, or a message was none.
    Skipped {
        /// How many.
        count: usize,
    },
}

/// Keeps a subscription alive; dropping it ends the subscription.
#[derive(Debug)]
pub struct SubscriberHandle {
    task: JoinHandle<()>,
}

impl Drop for SubscriberHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Follows a publisher, which need not be there yet, and passes what it says to `sink`. The sink
/// is called from a task and must not block.
///
/// # Panics
/// Outside a tokio runtime.
pub fn subscribe(
    config: SubscriberConfig,
    sink: impl FnMut(StreamUpdate) + Send + 'static,
) -> SubscriberHandle {
    SubscriberHandle {
        task: tokio::spawn(run(config, Inbox::new(Box::new(sink)))),
    }
}

async fn run(config: SubscriberConfig, mut inbox: Inbox) {
    let endpoint = &config.endpoint;
    let mut pause = RECONNECT_PAUSE_MIN;
    loop {
        match Link::connect(&config).await {
            Ok(link) => {
                tracing::info!(endpoint, "following cache events");
                let start = Instant::now();
                let reason = link.follow(&mut inbox).await;
                if start.elapsed() > RECONNECT_PAUSE_MAX {
                    pause = RECONNECT_PAUSE_MIN;
                }
                tracing::warn!(endpoint, %reason, "cache events interrupted");
            }
            Err(error) => tracing::debug!(endpoint, %error, "no publisher of cache events"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
    }
}
