//! Facts about one use of a block, for cache policies.

use crate::{FinishKind, Nanos, Probability, SessionId, ToolClass};

/// One use of a block by a request. Every policy receives it; most read only a part.
///
/// (`request_type`, `turn`) is the request's *class*.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Access {
    /// When the use happened.
    pub now: Nanos,
    /// When the request first looked for its prefix; `None` where that is `now`. A release tells
    /// it, because a long answer lies in between.
    pub started: Option<Nanos>,
    /// The kind of request (chat, completion, API, agent …), as the caller numbers them.
    pub request_type: u16,
    /// 1-based index of the user message in its conversation; 0 when unknown.
    pub turn: u16,
    /// Position of the block in its request, in blocks from the start.
    pub offset: u32,
    /// The end of the answer, at a release.
    pub finish: FinishKind,
    /// The tools that the answer calls, at a release.
    pub tool: ToolClass,
    /// Length of the answer in tokens, at a release; `None` when unknown.
    pub output_tokens: Option<u32>,
    /// The conversation, when known.
    pub session: Option<SessionId>,
    /// Number of the request in its trace, from 0, by which an offline policy looks into the
    /// future; 0 outside of a trace.
    pub request: u32,
    /// Predicted probability that another request of the conversation follows this one; `None`
    /// without a prediction.
    pub p_continue: Option<Probability>,
    /// Share of the block's tokens that mattered to the request, 0 to 1; `None` unless the prompt
    /// was loaded by importance.
    pub importance: Option<f32>,
}

impl Access {
    /// A use at `now` of which nothing else is known.
    #[must_use]
    pub fn at(now: Nanos) -> Self {
        Self { now, ..Self::default() }
    }
}
