//! One request of a trace, whatever format it came from.

use crate::{BlockRuns, FinishKind, Nanos, Probability, SessionId, ToolClass};

/// A recorded request: no text, only names of blocks and lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceRequest {
    /// Arrival, from the start of the trace.
    pub arrival: Nanos,
    /// The prompt's blocks in order; a partial last one counts.
    pub blocks: BlockRuns,
    /// Prompt length, tokens; `None` where the trace does not say.
    pub input_tokens: Option<u32>,
    /// Answer length, tokens; `None` where the trace does not say.
    pub output_tokens: Option<u32>,
    /// The end of its answer.
    pub finish: FinishKind,
    /// The tools that its answer calls.
    pub tool: ToolClass,
    /// The conversation, when the trace names it or it was inferred.
    pub session: Option<SessionId>,
    /// 1-based index of the user message in its conversation; 0 when unknown.
    pub turn: u16,
    /// Kind of request, an index into the reader's list of type names; 0 when unknown.
    pub request_type: u16,
    /// Predicted probability that another request of the conversation follows; `None` without a
    /// prediction.
    pub p_continue: Option<Probability>,
}
