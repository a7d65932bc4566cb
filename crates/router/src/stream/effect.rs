//! Actions that a stream asks of its caller.

use headstart_core::CacheEvent;

use super::replays::ReplayId;
use super::report::StreamStatus;

/// An action for the caller, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEffect {
    /// Apply these events.
    Apply {
        /// The batch that they came in.
        seq: u64,
        /// Possibly none.
        events: Vec<CacheEvent>,
    },
    /// The publisher is another process: forget all that was applied.
    Clear,
    /// Something was lost that may have been a removal: what was applied so far may be wrong.
    Doubt {
        /// Batches lost; 0 where a connection or an event was.
        batches: u64,
    },
    /// Nothing was lost after all when the last doubt was told of something late: what became
    /// doubtful by it and is neither removed nor cleared is as sure as before.
    Trust,
    /// Events were not understood, or a message was no batch.
    Skipped {
        /// Why, in a word.
        reason: &'static str,
        /// Number of events.
        events: u64,
    },
    /// Ask the publisher for everything from a batch on, in place of any earlier question.
    Ask {
        /// To be named with each reply.
        replay: ReplayId,
        /// The first batch wanted.
        from: u64,
    },
    /// The live socket is dead though it looks alive: make another connection.
    Reconnect,
    /// From now on the stream is this reliable.
    Status(StreamStatus),
}
