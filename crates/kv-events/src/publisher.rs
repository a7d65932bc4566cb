//! Publishes one replica's cache events to its subscribers.
//!
//! ```text
//! engine thread                 │ tokio task                        │ network
//! publish ─ number ─ queue ─────┼─▶ encode ─┬─▶ ring ◀── replay ◀───┼── ROUTER  "from 17 on?"
//!              └ full: dropped  │           └─▶ PUB ────────────────┼─▶ subscribers
//! ```
//!
//! The engine is never blocked. When the queue is full a batch is dropped, but its number is used
//! up: subscribers see the hole, ask for a replay, learn that the batch is gone, and know that
//! their picture of this replica is incomplete. A silent loss would be worse.
//!
//! It does not know who listens, nor what the events mean. Not for lossless transport: the ring
//! is bounded, and a subscriber that stays away longer than it reaches loses events. The PUB
//! socket (zeromq 0.7) keeps up to 100,000 messages for a subscriber that does not read, then
//! drops what is new for it.
//!
//! Source: vLLM's `ZmqEventPublisher` (frames, replay). Difference: its full queue blocks the
//! engine.

mod replay;
mod ring;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use headstart_core::CacheEvent;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use zeromq::{PubSocket, RouterSocket, Socket, SocketSend, ZmqError};

use super::encode_batch;
use super::wire::{self, SequencedPayload};
use replay::ReplayServer;
use ring::ReplayBuffer;

/// Batches between the engine and the task that sends them: some 40 s of engine steps at 100
/// per second.
pub const QUEUE_BATCHES_MAX: usize = 4096;

/// The rank that batches carry: an embedded replica has no data parallelism.
const RANK: u32 = 0;

/// Addresses, topic and replay buffer of a publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublisherConfig {
    /// Address of the live socket, such as `tcp://*:5557`; port 0 picks a free one.
    pub endpoint: String,
    /// Address of the replay socket; none: no replays.
    pub replay_endpoint: Option<String>,
    /// First frame of each message, by whose prefix subscribers choose.
    pub topic: String,
    /// Batches kept for replay, at least one.
    pub buffer_steps: usize,
}

/// vLLM's defaults.
impl Default for PublisherConfig {
    fn default() -> Self {
        Self {
            endpoint: "tcp://*:5557".into(),
            replay_endpoint: None,
            topic: String::new(),
            buffer_steps: 10_000,
        }
    }
}

/// The addresses that are actually bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Live socket.
    pub events: String,
    /// Replay socket.
    pub replay: Option<String>,
}

/// Result of publishing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    /// It will be sent.
    Queued,
    /// The queue was full or the publisher's runtime is gone: a hole in the stream.
    Dropped,
}

/// Publishing cannot start.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// An address is malformed, taken, or not ours.
    #[error("cannot bind {endpoint}")]
    Bind {
        /// The address.
        endpoint: String,
        /// Why.
        source: ZmqError,
    },
}

/// A publisher and the task behind it. Dropping it ends the task, which hands what is queued to
/// the sockets and frees the ports; bytes that a socket has not written by then are lost.
#[derive(Debug)]
pub struct EventPublisher {
    queue: Mutex<Queue>,
    dropped_batches: AtomicU64,
    endpoints: Endpoints,
    task: JoinHandle<()>,
}

/// The engine's end of the queue. Numbering and queueing are one step, so batches are queued in the
/// order of their numbers, from whichever thread.
#[derive(Debug)]
struct Queue {
    next_seq: u64,
    sender: mpsc::Sender<Unsent>,
}

struct Unsent {
    seq: u64,
    timestamp_s: f64,
    events: Vec<CacheEvent>,
}

impl EventPublisher {
    /// Binds the sockets and starts the task on the current tokio runtime.
    ///
    /// # Errors
    /// When an address cannot be bound.
    pub async fn bind(config: PublisherConfig) -> Result<Self, PublishError> {
        let ring = Arc::new(Mutex::new(ReplayBuffer::new(config.buffer_steps)));
        let topic = Bytes::from(config.topic);
        let mut live = PubSocket::new();
        let events = bind(&mut live, &config.endpoint).await?;
        let (replay, server) = match &config.replay_endpoint {
            None => (None, None),
            Some(endpoint) => {
                let (bound, server) = serve_replays(endpoint, &topic, &ring).await?;
                (Some(bound), Some(server))
            }
        };
        let (sender, receiver) = mpsc::channel(QUEUE_BATCHES_MAX);
        tracing::info!(endpoint = events, ?replay, "publishing cache events");
        Ok(Self {
            queue: Mutex::new(Queue { next_seq: 0, sender }),
            dropped_batches: AtomicU64::new(0),
            endpoints: Endpoints { events, replay },
            task: tokio::spawn(send_all(receiver, live, topic, ring, server)),
        })
    }

    /// The addresses that are actually bound.
    #[must_use]
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Queues one batch, stamped with seconds since 1970. Callable from any thread; never waits
    /// for the network.
    pub fn publish(&self, events: Vec<CacheEvent>, timestamp_s: f64) -> PublishOutcome {
        let mut queue = self.queue.lock().expect("no panic while numbering");
        let unsent = Unsent { seq: queue.next_seq, timestamp_s, events };
        // Before the attempt: a dropped batch uses its number up, so that subscribers see a hole.
        queue.next_seq += 1;
        match queue.sender.try_send(unsent) {
            Ok(()) => PublishOutcome::Queued,
            // A full queue and an ended task are the same for the engine, which must not wait for
            // either.
            Err(_) => {
                // A statistic: no other memory depends on its order.
                self.dropped_batches.fetch_add(1, Ordering::Relaxed);
                PublishOutcome::Dropped
            }
        }
    }

    /// Number of batches dropped since the start.
    #[must_use]
    pub fn dropped_batches(&self) -> u64 {
        self.dropped_batches.load(Ordering::Relaxed)
    }

    /// Like dropping it, but returns when the ports are free.
    pub async fn close(self) {
        let Self { queue, task, .. } = self;
        // The queue's only sender. Without it the task sends the rest and ends.
        drop(queue);
        if let Err(error) = task.await {
            tracing::warn!(%error, "the publisher's task failed");
        }
    }
}

impl Unsent {
    fn encode(&self) -> SequencedPayload {
        let payload = encode_batch(self.timestamp_s, &self.events, Some(RANK));
        SequencedPayload { seq: self.seq, payload: payload.into() }
    }
}

async fn bind(socket: &mut impl Socket, endpoint: &str) -> Result<String, PublishError> {
    // ZeroMQ's `*` means all interfaces. The library would take it for a host name.
    let any_interface = endpoint.replacen("tcp://*:", "tcp://0.0.0.0:", 1);
    match socket.bind(&any_interface).await {
        Ok(bound) => Ok(bound.to_string()),
        Err(source) => Err(PublishError::Bind { endpoint: endpoint.to_owned(), source }),
    }
}

async fn serve_replays(
    endpoint: &str,
    topic: &Bytes,
    ring: &Arc<Mutex<ReplayBuffer>>,
) -> Result<(String, ReplayServer), PublishError> {
    let mut socket = RouterSocket::new();
    let bound = bind(&mut socket, endpoint).await?;
    let server = ReplayServer::start(socket, topic.clone(), Arc::clone(ring));
    Ok((bound, server))
}

/// The task: runs until the engine's end of the queue is gone.
async fn send_all(
    mut queue: mpsc::Receiver<Unsent>,
    mut live: PubSocket,
    topic: Bytes,
    ring: Arc<Mutex<ReplayBuffer>>,
    server: Option<ReplayServer>,
) {
    while let Some(unsent) = queue.recv().await {
        let batch = unsent.encode();
        // The ring first: a subscriber that misses the live message must find it there.
        ring.lock().expect("no panic in the ring").push(batch.clone());
        if let Err(error) = live.send(wire::live(topic.clone(), batch)).await {
            tracing::debug!(%error, seq = unsent.seq, "a batch was not sent");
        }
    }
    live.unbind_all().await;
    if let Some(server) = server {
        server.stop().await;
    }
}
