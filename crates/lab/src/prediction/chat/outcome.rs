//! Counts of a run.

use std::collections::BTreeMap;

use headstart_core::stats::{HitCount, Summary};

use crate::prediction::quality::{Quality, best_quality};

/// Counts of one run, without the requests that arrived during the warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ChatOutcome {
    /// Seconds counted.
    pub(crate) seconds: f64,
    /// Prompt tokens of the requests that began, and those of them that were cached.
    pub(crate) tokens: HitCount,
    /// The same by turn, from 1.
    pub(crate) turns: BTreeMap<u16, TurnTally>,
    /// One per request whose first token came within the run.
    pub(crate) first_tokens: Vec<FirstToken>,
    /// One per request that began with a prediction of its own.
    pub(crate) judged: Vec<JudgedPrediction>,
    /// Prompt tokens that were not cached; what preempted sequences compute again is not in it.
    pub(crate) computed_tokens: u64,
    /// Times that a sequence was sent back to the queue.
    pub(crate) preemptions: u64,
    /// Requests that the replica did not take: longer than its context, or too many waiting.
    pub(crate) refused: u64,
    /// Steps of the engine, warm-up included.
    pub(crate) steps: u64,
}

/// Requests of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TurnTally {
    /// Number of requests that began.
    pub(crate) requests: u64,
    /// Their prompt tokens.
    pub(crate) tokens: HitCount,
}

/// TTFT of one request, with its context and its cached tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FirstToken {
    /// TTFT, seconds, queueing included.
    pub(crate) seconds: f64,
    /// Prompt tokens that an earlier request of the conversation had, or all share.
    pub(crate) context_tokens: u32,
    /// Prompt tokens that were cached.
    pub(crate) cached_tokens: u32,
}

/// A prediction and its outcome.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct JudgedPrediction {
    /// The predicted probability that the conversation continues.
    pub(crate) p: f64,
    /// Whether it does.
    pub(crate) truth: bool,
}

/// TTFT of requests with a context of some length, those that found all of it apart from those
/// that found nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ContextBin {
    /// The shortest context, tokens.
    pub(crate) from_tokens: u32,
    /// TTFT, seconds, where at least the context's full blocks were cached.
    pub(crate) hit: Summary,
    /// TTFT, seconds, where nothing was.
    pub(crate) miss: Summary,
}

/// Shortest contexts of the bins, tokens; the last one is open.
pub(crate) const CONTEXT_BINS: [u32; 7] = [16, 128, 256, 512, 1_024, 2_048, 4_096];

impl ChatOutcome {
    /// Requests that began.
    #[must_use]
    pub(crate) fn requests(&self) -> u64 {
        self.turns.values().map(|turn| turn.requests).sum()
    }

    /// Scores the predictions at the threshold that is best for them.
    #[must_use]
    pub(crate) fn quality(&self) -> Quality {
        best_quality(self.judged.iter().map(|prediction| (prediction.p, prediction.truth)))
    }

    /// TTFT by the length of the context. `block_tokens` is the size of a block: as much of a
    /// context may be missing from a hit.
    #[must_use]
    pub(crate) fn contexts(&self, block_tokens: u32) -> Vec<ContextBin> {
        let bin = |(index, &from_tokens): (usize, &u32)| {
            // The last bin has no upper end.
            let below = CONTEXT_BINS.get(index + 1).copied().unwrap_or(u32::MAX);
            let range = from_tokens..below;
            let inside = |token: &&FirstToken| range.contains(&token.context_tokens);
            let summary = |is_in: &dyn Fn(&FirstToken) -> bool| {
                let those = self.first_tokens.iter().filter(inside);
                let those = those.filter(|token| is_in(token)).map(|token| token.seconds);
                Summary::of(&mut those.collect::<Vec<_>>())
            };
            ContextBin {
                from_tokens,
                // Caches hold whole blocks, so a part of one may be missing from a full hit.
                hit: summary(&|token| token.cached_tokens + block_tokens > token.context_tokens),
                miss: summary(&|token| token.cached_tokens == 0),
            }
        };
        CONTEXT_BINS.iter().enumerate().map(bin).collect()
    }
}
