//! KV cache events over ZeroMQ: how residency travels between engines and routers.
//!
//! ```text
//! engine ─ CacheEvent ─▶ EventPublisher ══ ZeroMQ, vLLM's format ══▶ subscribe ─▶ router index
//!                            ▲   │              any engine that            │
//!                            │   └ ring         speaks it        Events, Clear, Doubt, Status
//!                            └───────────── replay of what was missed ─────┘
//! ```
//!
//! There is no private protocol: our replicas publish what vLLM publishes, and the subscriber reads
//! every dialect of it. It handles what is seen in the field: subscribers that come late, dropped
//! messages, buffers that no longer reach back, engines that restart under the same address, events
//! of unknown types.
//!
//! | module | does |
//! |---|---|
//! | `codec` | events to MessagePack and back |
//! | `wire` | the frames around a payload |
//! | `publisher` | numbers, sends and keeps batches; never blocks the engine |
//! | `subscriber` | follows one publisher, which is one rank of an engine, for ever |
//!
//! Which batch is next, missing, late, repeated or of another process, when a replay is asked for
//! and when it is given up, is decided in [`headstart_router::stream`], which the simulator runs
//! as well. Here are sockets, bytes and the clock.
//!
//! Invariant: in the updates of one subscriber, each batch of a publisher's life appears at most
//! once between two clears, in order; one that does not appear is counted as lost, and what was
//! known before it is put in doubt.
//!
//! It does not know what a replica is, who the replicas are, or what the index makes of an
//! event. Frames are read at whatever size the peer announces: connect to trusted engines only.

mod codec;
mod publisher;
mod subscriber;
mod wire;

pub use codec::{
    DecodeError, MEMORY_FACTOR_MAX, PAYLOAD_BYTES_MAX, SkipReason, SkippedEvent, TYPE_CHARS_MAX,
    decode_and_tell, decode_batch, encode_batch,
};
pub use publisher::{
    Endpoints, EventPublisher, PublishError, PublishOutcome, PublisherConfig, QUEUE_BATCHES_MAX,
};
pub use subscriber::{
    RankError, StreamReporter, SubscriberConfig, SubscriberHandle, endpoint_of_rank, subscribe,
    subscribe_again,
};
