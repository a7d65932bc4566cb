//! Times that tell what an engine's steps cost: prompts on an idle engine, and answers that grow
//! together.
//!
//! ```text
//! prefill   prompt of n tokens, new           → its TTFT
//!           the same with n' more behind it   → its TTFT: n cached, n' computed
//! decode    b prompts of c tokens, cached     → time per token while all b grow
//! ```
//!
//! Each shape is timed several times, with other tokens each time, and the median is reported, so
//! that a pause of the machine is not taken for the engine's. The server should have no other load
//! meanwhile. Lengths are as the server counts them, and so is what it found in its cache.

use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

use futures::future::try_join_all;
use headstart_core::{Rng, TokenId};
use headstart_trace::materialize::TokenPrompt;

use crate::{ApiClient, Completion, LoadgenError};

/// Shapes and limits of a timing run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimingPlan {
    /// Longest prompt, tokens.
    pub max_prompt_tokens: u32,
    /// Most answers at once.
    pub max_sequences: u32,
    /// Most tokens of all prompts that are answered at once: what stays cached together.
    pub max_cached_tokens: u32,
    /// Tokens of each answer that is timed.
    pub answer_tokens: u32,
    /// Times that each shape is timed.
    pub rounds: usize,
    /// Plain tokens of the model.
    pub vocabulary: Range<TokenId>,
    /// Of the prompts.
    pub seed: u64,
}

/// A shape and its median time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TimingSample {
    /// A request's TTFT.
    Prefill {
        /// Prompt tokens found in the cache.
        cached: u32,
        /// Prompt tokens computed.
        new: u32,
        /// From the request to its first token.
        ttft: Duration,
    },
    /// Time from a token to the next.
    Decode {
        /// Answers that grew together.
        sequences: u32,
        /// Average tokens of each, with its prompt.
        context: u32,
        /// From a token of an answer to its next.
        tpot: Duration,
    },
}

/// A shape to be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PlannedShape {
    Prefill { before: u32, new: u32 },
    Decode { sequences: u32, context: u32 },
}

/// Shortest prompt that is timed, tokens.
const SHORTEST: u32 = 16;

impl TimingPlan {
    /// Shapes that will be timed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.asked().len()
    }

    /// Whether nothing can be timed: no prompt is allowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.asked().is_empty()
    }

    fn asked(&self) -> Vec<PlannedShape> {
        let doubled = |most: u32, from: u32| {
            std::iter::successors(Some(from), |size| size.checked_mul(2))
                .take_while(move |&size| size <= most)
        };
        let longest = self.max_prompt_tokens;
        let alone = doubled(longest, SHORTEST).map(|new| PlannedShape::Prefill { before: 0, new });
        let behind = [longest / 4, longest / 2].into_iter().flat_map(|before| {
            let left = (longest - before).min(longest / 2);
            doubled(left, SHORTEST * 2)
                // Every second length: each of these shapes costs two requests a round.
                .step_by(2)
                .map(move |new| PlannedShape::Prefill { before, new })
        });
        let decode = doubled(self.max_sequences, 1).flat_map(|sequences| {
            // As much as stays cached with its answers.
            let room = (self.max_cached_tokens / sequences).saturating_sub(self.answer_tokens);
            let long = room.min(longest);
            let contexts = [SHORTEST * 4, long / 2, long];
            let useful =
                // With little room, `long / 2` is too short and the fixed context too long.
                contexts.into_iter().filter(move |&context| context >= SHORTEST && context <= long);
            useful.map(move |context| PlannedShape::Decode { sequences, context })
        });
        let mut seen = HashSet::new();
        let all = alone.chain(behind).chain(decode);
        // Where `long` is 64 or 128 tokens, it or its half repeats the fixed context.
        all.filter(|shape| seen.insert(*shape)).collect()
    }
}

/// Times all shapes of `plan`, one after the other; calls `progress` after each with their number.
///
/// # Errors
/// When a request fails.
pub async fn run(
    client: &ApiClient,
    plan: &TimingPlan,
    progress: impl Fn(usize),
) -> Result<Vec<TimingSample>, LoadgenError> {
    let mut prober = Prober { client, plan, rng: Rng::new(plan.seed) };
    // The first request pays for connections and whatever else begins.
    prober.once(SHORTEST, 1).await?;
    let mut all = Vec::new();
    for shape in plan.asked() {
        all.push(prober.median(shape).await?);
        progress(all.len());
    }
    Ok(all)
}

struct Prober<'a> {
    client: &'a ApiClient,
    plan: &'a TimingPlan,
    rng: Rng,
}

impl Prober<'_> {
    async fn median(&mut self, shape: PlannedShape) -> Result<TimingSample, LoadgenError> {
        let mut timed = Vec::new();
        for _ in 0..self.plan.rounds.max(1) {
            timed.push(self.time(shape).await?);
        }
        // Whole samples are sorted, so the counts reported belong to the median time.
        timed.sort_by_key(TimingSample::time);
        Ok(timed[timed.len() / 2])
    }

    async fn time(&mut self, shape: PlannedShape) -> Result<TimingSample, LoadgenError> {
        match shape {
            PlannedShape::Prefill { before, new } => self.prefill(before, new).await,
            PlannedShape::Decode { sequences, context } => self.decode(sequences, context).await,
        }
    }

    async fn prefill(&mut self, before: u32, new: u32) -> Result<TimingSample, LoadgenError> {
        let tokens = self.tokens(before + new);
        // One token of answer is enough to leave the head in the cache.
        if before > 0 {
            let head = self.prompt(tokens[..before as usize].to_vec(), 1);
            self.client.complete(&head).await?;
        }
        let completion = self.client.complete(&self.prompt(tokens, 1)).await?;
        Ok(TimingSample::Prefill {
            cached: completion.cached_tokens,
            // `StreamedAnswer::finish` refuses an answer with more cached than prompt tokens.
            new: completion.prompt_tokens - completion.cached_tokens,
            ttft: completion.ttft,
        })
    }

    async fn decode(&mut self, sequences: u32, context: u32) -> Result<TimingSample, LoadgenError> {
        let mut prompts = Vec::new();
        for _ in 0..sequences {
            let tokens = self.tokens(context);
            // The prompt is cached first, so that the timed answers do not wait for each other's
            // prefill.
            self.client.complete(&self.prompt(tokens.clone(), 1)).await?;
            prompts.push(self.prompt(tokens, self.plan.answer_tokens));
        }
        let answers =
            try_join_all(prompts.iter().map(|prompt| self.client.complete(prompt))).await?;
        let mut times: Vec<Duration> = answers.iter().map(tpot).collect();
        times.sort();
        let answered = answers.iter().map(|answer| answer.output_tokens).max();
        Ok(TimingSample::Decode {
            sequences,
            context: mean_context(answers[0].prompt_tokens, answered.unwrap_or(0)),
            tpot: times[times.len() / 2],
        })
    }

    async fn once(
        &mut self,
        prompt_tokens: u32,
        answer_tokens: u32,
    ) -> Result<Completion, LoadgenError> {
        let tokens = self.tokens(prompt_tokens);
        self.client.complete(&self.prompt(tokens, answer_tokens)).await
    }

    /// Draws random tokens for a prompt that is in no cache.
    fn tokens(&mut self, length: u32) -> Vec<TokenId> {
        let Range { start, end } = self.plan.vocabulary;
        let drawn = (0..length).map(|_| start + self.rng.below((end - start) as usize) as u32);
        drawn.collect()
    }

    /// The prompt; its number says nothing here.
    fn prompt(&self, tokens: Vec<TokenId>, output_tokens: u32) -> TokenPrompt {
        TokenPrompt { tokens, output_tokens, ..TokenPrompt::default() }
    }
}

impl TimingSample {
    /// Returns the median time.
    #[must_use]
    pub fn time(&self) -> Duration {
        match *self {
            Self::Prefill { ttft: time, .. } | Self::Decode { tpot: time, .. } => time,
        }
    }
}

/// Average tokens of a sequence while its answer grows. Both counts are the server's.
fn mean_context(prompt_tokens: u32, answer_tokens: u32) -> u32 {
    // Each answer adds a token per step, so on average half of it is in the context.
    prompt_tokens.saturating_add(answer_tokens / 2)
}

fn tpot(completion: &Completion) -> Duration {
    // TTFT covers the first token, so the rest of the time has one token less.
    let rest = completion.output_tokens.saturating_sub(1).max(1);
    completion.e2e.saturating_sub(completion.ttft) / rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(max_prompt_tokens: u32, max_cached_tokens: u32) -> TimingPlan {
        TimingPlan {
            max_prompt_tokens,
            max_sequences: 8,
            max_cached_tokens,
            answer_tokens: 16,
            rounds: 3,
            vocabulary: 0..100,
            seed: 1,
        }
    }

    #[test]
    fn shapes_stay_within_the_server_s_limits() {
        for (longest, cached) in [(64, 200), (1_000, 4_000), (8_192, 100_000)] {
            let plan = plan(longest, cached);
            assert!(!plan.is_empty());
            for shape in plan.asked() {
                match shape {
                    PlannedShape::Prefill { before, new } => {
                        assert!(before + new <= longest && new > 0);
                    }
                    PlannedShape::Decode { sequences, context } => {
                        assert!(sequences <= 8 && context <= longest);
                        assert!(sequences * (context + 16) <= cached, "{shape:?}");
                    }
                }
            }
        }
        assert!(plan(8, 0).is_empty());
    }

    #[test]
    fn each_shape_is_timed_once() {
        for longest in [32, 64, 100, 128, 256, 1_000, 8_192] {
            let all = plan(longest, 100_000).asked();
            let different: HashSet<_> = all.iter().collect();
            assert_eq!(different.len(), all.len(), "{longest}: {all:?}");
        }
        let decodes = |longest| {
            let all = plan(longest, 100_000).asked().into_iter();
            all.filter(|shape| matches!(shape, PlannedShape::Decode { sequences: 1, .. })).count()
        };
        assert_eq!([64, 128, 256].map(decodes), [2, 2, 3]);
    }

    #[test]
    fn counts_that_cannot_be_do_not_overflow() {
        assert_eq!(mean_context(100, 32), 116);
        assert_eq!(mean_context(u32::MAX, u32::MAX), u32::MAX);
    }

    #[test]
    fn lengths_and_batches_vary() {
        let all = plan(2_048, 50_000).asked();
        let prefills =
            all.iter().filter(|shape| matches!(shape, PlannedShape::Prefill { before: 0, .. }));
        assert_eq!(prefills.count(), 8);
        let most = PlannedShape::Decode { sequences: 8, context: 2_048 };
        assert!(all.contains(&most), "{all:?}");
    }
}
