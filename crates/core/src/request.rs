//! One request of a trace, whatever format it came from.

use crate::{Nanos, SessionId};

/// A recorded request: no text, only names of blocks and lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// Arrival, from the start of the trace.
    pub arrival: Nanos,
    /// The prompt's blocks in order, by the trace's own ids: equal id, equal block and prefix.
    pub blocks: Vec<u64>,
    /// Prompt length, tokens; `None` where the trace does not say.
    pub input_tokens: Option<u32>,
    /// Answer length, tokens; `None` where the trace does not say.
    pub output_tokens: Option<u32>,
    /// The conversation, when the trace names it.
    pub session: Option<SessionId>,
}
