//! Follows one publisher for ever: any engine that speaks the format, near or far, up or down.
//!
//! ```text
//!           ┌──────────── wait, at most RECONNECT_PAUSE_MAX ◀───────────┐
//!           ▼                                                           │
//!        connect ──▶ replay from the last batch ──▶ follow ──▶ connection lost
//!                                                   │    ▲
//!                                      gap, silence └────┘ replay
//! ```
//!
//! What comes is put in order, asked for again and given up by
//! [`Follower`](headstart_router::stream::Follower), which sees no socket; here are the sockets,
//! and nothing is decided. Updates go to the sink in stream order, from one task. Without a
//! replay socket everything works except that what is missed stays missed, and is doubted.
//!
//! Problems that an operator must fix, such as a wrong address, are logged once and kept for
//! [`StreamReporter::problem`].
//!
//! It does not know what the events mean. One subscriber follows one publisher, which is one
//! data-parallel rank of an engine ([`endpoint_of_rank`]): several behind one proxy address would
//! look like endless restarts.
//!
//! About zeromq 0.7: its SUB socket reconnects by itself, but waits up to 30 s between attempts and
//! does not report that messages may be missing. So the first lost connection ends the socket, and
//! the subscriber makes the next one.

mod cause;
mod inbox;
mod link;
mod notes;
mod probe;
mod rank;
mod replay;
mod reporter;

use std::time::Duration;

use headstart_router::stream::{Follower, FollowerConfig, StreamReport, StreamUpdate};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use cause::Side;
use inbox::Inbox;
use link::PublisherConnection;
use notes::Notes;
pub use rank::{RankError, endpoint_of_rank};
pub use reporter::StreamReporter;

/// First wait before connecting again: an engine that restarts takes seconds, a lost connection
/// may be back at once.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(50);

/// Longest wait before connecting again: bounds how stale the index gets once a publisher is
/// back.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Addresses and identity of the publisher to follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriberConfig {
    /// Address of its live socket, such as `tcp://10.0.0.7:5557`.
    pub endpoint: String,
    /// Address of its replay socket, if it has one.
    pub replay_endpoint: Option<String>,
    /// Start of the topics wanted; empty for all.
    pub topic_prefix: String,
    /// The data-parallel rank that it should name; batches that name another are counted.
    pub rank: Option<u32>,
    /// Name of the replica, for the log.
    pub replica: String,
    /// The address where requests for it go, for the log, if that is another process.
    pub upstream: Option<String>,
}

impl SubscriberConfig {
    fn follower(&self) -> FollowerConfig {
        FollowerConfig { can_replay: self.replay_endpoint.is_some(), rank: self.rank }
    }

    /// The address of one of its sockets; empty where it has none.
    fn address(&self, side: Side) -> &str {
        match side {
            Side::Events => &self.endpoint,
            Side::Replay => self.replay_endpoint.as_deref().unwrap_or_default(),
        }
    }
}

/// Keeps a subscription alive; dropping it ends the subscription.
#[derive(Debug)]
pub struct SubscriberHandle {
    task: JoinHandle<()>,
    reporter: StreamReporter,
}

impl SubscriberHandle {
    /// State and counters of the stream. Does not wait for the sink.
    #[must_use]
    pub fn report(&self) -> StreamReport {
        self.reporter.report()
    }

    /// The same for others to ask.
    #[must_use]
    pub fn reporter(&self) -> StreamReporter {
        self.reporter.clone()
    }
}

impl Drop for SubscriberHandle {
    fn drop(&mut self) {
        self.task.abort();
        self.reporter.lock().is_over = true;
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
    let follower = Follower::new(config.follower());
    follow(config, follower, Notes::default(), sink)
}

/// The same behind a subscription that was at `before` when it ended: counts go on from there, a
/// restart of the publisher meanwhile is counted as well, and what was said in the log is not said
/// again.
///
/// # Panics
/// Outside a tokio runtime.
pub fn subscribe_again(
    config: SubscriberConfig,
    before: &StreamReporter,
    sink: impl FnMut(StreamUpdate) + Send + 'static,
) -> SubscriberHandle {
    let follower = Follower::resumed(config.follower(), before.report());
    follow(config, follower, before.notes(), sink)
}

fn follow(
    config: SubscriberConfig,
    follower: Follower,
    notes: Notes,
    sink: impl FnMut(StreamUpdate) + Send + 'static,
) -> SubscriberHandle {
    let reporter = StreamReporter::new(config.clone(), follower.report(), notes);
    let inbox = Inbox::new(config.clone(), follower, reporter.clone(), Box::new(sink));
    SubscriberHandle { task: tokio::spawn(run(config, inbox)), reporter }
}

async fn run(config: SubscriberConfig, mut inbox: Inbox) {
    let mut pause = RECONNECT_PAUSE_MIN;
    loop {
        match PublisherConnection::connect(&config).await {
            Ok(link) => {
                let start = Instant::now();
                link.follow(&mut inbox).await;
                // A publisher that accepts and hangs up at once must not be tried every 50 ms for
                // ever.
                if start.elapsed() > RECONNECT_PAUSE_MAX {
                    pause = RECONNECT_PAUSE_MIN;
                }
            }
            Err(cause) => inbox.on_unconnected(cause),
        }
        wait(&mut inbox, Instant::now() + pause).await;
        pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
    }
}

/// Waits until `end`, and for the stream whatever it asks for meanwhile.
async fn wait(inbox: &mut Inbox, end: Instant) {
    // Timers of the stream and of the log run without a connection as well.
    while let Some(due) = inbox.due().filter(|due| *due < end) {
        sleep_until(due).await;
        // Without a connection there is no publisher to ask.
        let _ = inbox.on_time();
    }
    sleep_until(end).await;
}
