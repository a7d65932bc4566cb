//! Conversations with one replica, in a closed loop and in virtual time.
//!
//! ```text
//! Script ─► start ─► prompt ─► Scheduler + PrefixCache ─► answer ─gap─► next prompt ─► …
//!                               │ the same types that serve
//!                               └► CostModel: how long each step takes
//! ```
//!
//! The next prompt of a conversation comes its gap after the answer's last token: a slow replica
//! gets fewer requests. A prompt is the conversation so far and the user's new tokens. [`Script`]
//! is the traffic, drawn beforehand; [`Replica`] the engine; a [`ChatRun`] is one policy on both.
//!
//! Does not know texts, models or how a probability was predicted. The same script, replica and
//! predictions give the same [`ChatOutcome`], bit for bit, on one machine.
//!
//! Source: the experiment of Yang et al., "Learned Prefix Caching for Efficient LLM Inference",
//! NeurIPS 2025. Where it says too little: starts, see [`script`]; what is counted, see
//! [`Replica::warm_up`].

mod closed_loop;
mod outcome;
pub(crate) mod script;
#[cfg(test)]
mod tests;

use std::time::Duration;

use headstart_core::{CostModel, Probability};
use headstart_scheduler::{QueueOrder, SchedulerConfig};

pub(crate) use closed_loop::ChatRun;
pub(crate) use outcome::{ChatOutcome, ContextBin, TurnTally};
pub(crate) use script::{Pacing, Script};

use headstart_sim::cost::qwen3_32b_fp8_on_h100;

/// A conversation as it will go.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ScriptedConversation {
    /// Its turns; one without any is skipped.
    pub(crate) turns: Vec<ScriptedTurn>,
    /// Head that its first prompt shares with an earlier one.
    pub(crate) head: Option<Head>,
}

/// The common head of two first prompts: a system prompt, or the same question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Number of the earlier conversation in the script; a head of a later one counts for nothing.
    pub(crate) conversation: usize,
    /// Its length, tokens; part of the first turn's `new_tokens`.
    pub(crate) tokens: u32,
}

/// One prompt and its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScriptedTurn {
    /// Tokens that the prompt is longer than all that was said before: the user's message and
    /// what a template puts around it. At least 1.
    pub(crate) new_tokens: u32,
    /// Tokens of the answer, at least 1.
    pub(crate) answer_tokens: u32,
    /// Seconds from the answer's end to the next prompt; unused in the last turn. What is no time
    /// counts as none.
    pub(crate) gap_s: f64,
}

/// A turn of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Number of the conversation in the script, from 0.
    pub(crate) conversation: usize,
    /// Number of the turn in it, from 0.
    pub(crate) turn: usize,
}

/// Predicts the probability that the conversation continues after a turn; `None` without one.
pub(crate) type Predict<'a> = dyn Fn(Place) -> Option<Probability> + 'a;

/// The simulated engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Replica {
    /// Cost model of its steps.
    pub(crate) cost: CostModel,
    /// Its limits.
    pub(crate) scheduler: SchedulerConfig,
    /// From a request's arrival to its prediction; a request that ends before goes without one.
    pub(crate) prediction_delay: Duration,
    /// Requests that arrive before are served but not counted. The study does not say that it
    /// leaves any out, so the presets count from the first on and thereby the empty cache.
    pub(crate) warm_up: Duration,
}

/// Most tokens computed in a step of the preset. Our choice: vLLM's default of early 2025.
const MAX_BATCHED_TOKENS: usize = 2_048;

/// Most sequences at once in the preset. Our choice: vLLM's default of early 2025.
const MAX_SEQUENCES: usize = 256;

/// Context of Qwen3-32B as its card gives it, tokens.
const MAX_CONTEXT: usize = 32_768;

/// No request of a preset is refused for the queue's length.
const MAX_WAITING: usize = 1 << 20;

/// Tokens per block in the presets: what the study evicts by.
const BLOCK_TOKENS: usize = 16;

impl Replica {
    /// The study's engine, vLLM with Qwen3-32B-FP8 on one H100, with predictions that are there
    /// at once.
    #[must_use]
    pub(crate) fn lpc() -> Self {
        Self {
            cost: qwen3_32b_fp8_on_h100(),
            scheduler: SchedulerConfig {
                max_batched_tokens: MAX_BATCHED_TOKENS,
                max_sequences: MAX_SEQUENCES,
                max_waiting: MAX_WAITING,
                max_context: MAX_CONTEXT,
                block_size: BLOCK_TOKENS,
                order: QueueOrder::FirstCome,
            },
            prediction_delay: Duration::ZERO,
            warm_up: Duration::ZERO,
        }
    }
}

impl ScriptedConversation {
    /// Seconds from its first prompt to its last answer, were each token of an answer to take
    /// `answer_token_s`. Without that it is the sum of the gaps.
    #[must_use]
    pub(crate) fn open_s(&self, answer_token_s: f64) -> f64 {
        // No prompt follows the last turn, so its gap counts for nothing.
        let followed = self.turns.len().saturating_sub(1);
        let gaps_s: f64 = self.turns[..followed].iter().map(|turn| turn.gap_s).sum();
        let answers = self.turns.iter().map(|turn| f64::from(turn.answer_tokens));
        gaps_s + answer_token_s * answers.sum::<f64>()
    }
}
