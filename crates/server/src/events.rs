//! KV cache events over ZeroMQ: how residency travels between engines and routers.
//!
//! ```text
//! engine ─ CacheEvent ─▶ EventPublisher ══ ZeroMQ, vLLM's format ══▶ subscribe ─▶ router index
//!                            ▲   │              any engine that            │
//!                            │   └ ring         speaks it        Events, Clear, Lost, Skipped
//!                            └───────────── replay of what was missed ─────┘
//! ```
//!
//! There is no private protocol: our replicas publish what vLLM publishes, and the subscriber
//! reads every dialect of it. Which means that everything here has been seen in the field:
//! subscribers that come late, messages that are dropped, buffers that no longer reach back,
//! engines that restart under the same address, events that nobody has heard of.
//!
//! | module | does |
//! |---|---|
//! | `codec` | events to MessagePack and back |
//! | `wire` | the frames around a payload |
//! | `publisher` | numbers, sends and keeps batches; never blocks the engine |
//! | `subscriber` | follows one publisher for ever |
//!
//! Which batch is next, missing or repeated is decided in [`headstart_router::stream`], where
//! the simulator can use it too.
//!
//! Invariant: in the updates of one subscriber, each batch of a publisher's life appears once, in
//! order, or is counted as lost.
//!
//! It does not know what a replica is, who the replicas are, or what the index makes of an
//! event. Frames are read at whatever size the peer announces: connect to trusted engines only.

mod codec;
mod publisher;
mod subscriber;
mod wire;

pub use codec::{
    Batch, DEPTH_MAX, DecodeError, PAYLOAD_BYTES_MAX, SkipReason, Skipped, decode_batch,
    encode_batch,
};
pub use publisher::{
    Endpoints, EventPublisher, PublishError, Published, PublisherConfig, QUEUE_BATCHES_MAX,
};
pub use subscriber::{StreamUpdate, SubscriberConfig, SubscriberHandle, subscribe};
