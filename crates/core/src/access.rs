//! What a cache policy is told about one use of a block.

use crate::{Nanos, SessionId};

/// One use of a block by a request. Every policy receives it; most read only a part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Access {
    /// When the use happened.
    pub now: Nanos,
    /// The kind of request (chat, completion, API, agent …), as the caller numbers them.
    pub class: u16,
    /// The how-maniest user message of its conversation, from 1; 0 when unknown.
    pub turn: u16,
    /// Position of the block in its request, in blocks from the start.
    pub offset: u32,
    /// The conversation, when known.
    pub session: Option<SessionId>,
}

impl Access {
    /// A use at `now` of which nothing else is known.
    #[must_use]
    pub fn at(now: Nanos) -> Self {
        Self {
            now,
            ..Self::default()
        }
    }
}
