//! Actions that a stream asks of its caller.

use headstart_core::CacheEvent;

use super::replays::ReplayId;
use super::report::StreamStatus;

/// An action for the caller, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEffect {
    /// Pass this on to the index.
    Update(StreamUpdate),
    /// Ask the publisher for everything from a batch on, in place of any earlier question.
    Ask {
        /// To be named with each reply.
        replay: ReplayId,
        /// The first batch wanted.
        from: u64,
    },
    /// The live socket is dead though it looks alive: make another connection.
    Reconnect,
}

/// An update about one replica, in stream order.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamUpdate {
    /// Its cache changed.
    Events {
        /// The batch that they came in.
        seq: u64,
        /// Possibly none.
        events: Vec<CacheEvent>,
    },
    /// Its engine restarted: it holds nothing of what was reported before.
    Clear,
    /// Something was lost that may have been a removal: what is known of it may be wrong.
    Doubt {
        /// Batches lost; 0 where a connection or an event was.
        batches: u64,
    },
    /// Nothing was lost after all when the last doubt was reported: what became doubtful by it and
    /// is neither removed nor cleared is as sure as before.
    Trust,
    /// Events were not understood, or a message was no batch.
    Skipped {
        /// Why, in a word.
        reason: &'static str,
        /// Number of events or messages.
        count: u64,
    },
    /// From now on the stream is this reliable.
    Status(StreamStatus),
}
