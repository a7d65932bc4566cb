//! The end of an answer.

/// The end of an answer: the best sign of when its conversation continues.
///
/// After a tool call the next request follows as soon as the tool has run; after an answer it waits
/// for a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FinishKind {
    /// The source does not tell.
    #[default]
    Unknown,
    /// With calls of tools.
    ToolCalls,
    /// By itself, at an end or stop token or a stop text.
    Stop,
    /// At a limit of tokens.
    Length,
    /// The client left, or the engine gave up.
    Cancelled,
}

impl FinishKind {
    /// Every kind, in the order of the enum.
    pub const ALL: [Self; 5] =
        [Self::Unknown, Self::ToolCalls, Self::Stop, Self::Length, Self::Cancelled];

    /// Its name in traces.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::ToolCalls => "tool_calls",
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
        }
    }

    /// The kind that `reason` names: a `finish_reason` of OpenAI, vLLM or SGLang, a `stop_reason`
    /// of Anthropic, or a name of ours. Other texts are unknown.
    #[must_use]
    pub fn from_reason(reason: &str) -> Self {
        match reason {
            "tool_calls" | "function_call" | "tool_use" => Self::ToolCalls,
            "stop" | "end_turn" | "stop_sequence" | "content_filter" | "refusal" | "pause_turn"
            | "completed" => Self::Stop,
            "length" | "max_tokens" | "model_context_window_exceeded" => Self::Length,
            "cancelled" | "abort" | "error" => Self::Cancelled,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_reasons_lead_to_the_kind() {
        for kind in FinishKind::ALL {
            assert_eq!(FinishKind::from_reason(kind.name()), kind);
        }
        let reasons = ["tool_use", "end_turn", "max_tokens", "abort", "", "weather"];
        let kinds = reasons.map(FinishKind::from_reason).map(FinishKind::name);
        assert_eq!(kinds, ["tool_calls", "stop", "length", "cancelled", "unknown", "unknown"]);
    }
}
