//! Conversations drawn from what is published of the study's three data sets.
//!
//! Published are mean lengths, the share of turns that another one follows, and how well the turn
//! count alone tells those apart. From the last two the distribution of turns is derived:
//!
//! The turn count tells the first turn from the later ones, and those continue more often. The rule
//! "every turn but the first continues" says yes as often as it is true, so its MCC m is the
//! difference of the two shares. With f, the share of all turns that continue, both are given:
//!
//! ```text
//! first turn  f · (1 - m)        later turns  f + m · (1 - f)
//! ```
//!
//! Nothing more is published, so nothing more is assumed: a later turn continues with the same
//! probability however many came before it. A propensity of each conversation's own would give the
//! same two numbers and a tail so heavy that the hit rate falls with the length of the run.
//!
//! Our reading of "follow-up": a share of turns, not of conversations. Only with it do follow-up
//! share, turn-only MCC and the published 94 to 99 % of conversations with at most 5 turns go
//! together (here 97.5 and 95.0 %; of Arena's 8 % that go on hardly any have more).
//!
//! Source: Yang et al., NeurIPS 2025, table 1 and the MCC of their baseline.

use headstart_core::Rng;
use headstart_trace::synth::{Gap, Length};

use crate::prediction::chat::{ScriptedConversation, ScriptedTurn};

/// Statistics of a data set's conversations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChatWorkload {
    /// Its name.
    pub(crate) name: &'static str,
    /// Mean tokens of a user's message.
    pub(crate) question_tokens: f64,
    /// Mean tokens of an answer.
    pub(crate) answer_tokens: f64,
    /// Share of turns that another one follows.
    pub(crate) follow_up: f64,
    /// MCC that the turn count alone reaches.
    pub(crate) turn_mcc: f64,
    /// MCC that the study's predictor reaches.
    pub(crate) predictor_mcc: f64,
}

/// The study's three data sets. Predictors' MCC: its poster (LMSys, ShareGPT) and the name of a
/// file in its authors' code (Arena; another source gives .37).
pub(crate) const WORKLOADS: [ChatWorkload; 3] = [
    ChatWorkload {
        name: "lmsys",
        question_tokens: 63.0,
        answer_tokens: 179.0,
        follow_up: 0.35,
        turn_mcc: 0.35,
        predictor_mcc: 0.39,
    },
    ChatWorkload {
        name: "sharegpt",
        question_tokens: 113.0,
        answer_tokens: 305.0,
        follow_up: 0.55,
        turn_mcc: 0.0,
        predictor_mcc: 0.28,
    },
    ChatWorkload {
        name: "arena",
        question_tokens: 36.0,
        answer_tokens: 155.0,
        follow_up: 0.08,
        turn_mcc: 0.08,
        predictor_mcc: 0.29,
    },
];

/// Standard deviation of a length's logarithm. Our choice: only means are published, and lengths
/// of messages are known to be heavy-tailed; the mean is then 1.6 times the median.
const LENGTH_SIGMA: f64 = 1.0;

/// Longest message or answer that is drawn, tokens.
const LENGTH_MAX: u32 = 8_192;

/// Most turns that are drawn.
const TURNS_MAX: usize = 1_000;

/// Seeds of drawn conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seeds {
    /// Turns and lengths.
    pub(crate) corpus: u64,
    /// Gaps.
    pub(crate) gaps: u64,
}

impl ChatWorkload {
    /// The data set of that name.
    #[must_use]
    pub(crate) fn named(name: &str) -> Option<Self> {
        WORKLOADS.into_iter().find(|workload| workload.name == name)
    }

    /// Probability that turn number `turn`, from 1, is followed by another.
    #[must_use]
    pub(crate) fn goes_on(&self, turn: usize) -> f64 {
        let (f, m) = (self.follow_up, self.turn_mcc);
        match turn {
            0 | 1 => f * (1.0 - m),
            _ => f + m * (1.0 - f),
        }
    }

    /// Endless conversations. What is said is fixed by `seeds.corpus`, when by `seeds.gaps`: the
    /// study repeats its runs on one corpus.
    pub(crate) fn conversations(
        self,
        gap: &Gap,
        seeds: Seeds,
    ) -> impl Iterator<Item = ScriptedConversation> + use<> {
        let gap = gap.clone();
        // Two generators: other gaps must not change what is said.
        let (mut corpus, mut gaps) = (Rng::new(seeds.corpus), Rng::new(seeds.gaps));
        std::iter::repeat_with(move || {
            let mut conversation = self.conversation(&mut corpus);
            for turn in &mut conversation.turns {
                turn.gap_s = gap.draw(&mut gaps);
            }
            conversation
        })
    }

    fn conversation(&self, rng: &mut Rng) -> ScriptedConversation {
        let mut turns = Vec::new();
        loop {
            turns.push(ScriptedTurn {
                new_tokens: length(self.question_tokens).draw(rng, LENGTH_MAX),
                answer_tokens: length(self.answer_tokens).draw(rng, LENGTH_MAX),
                gap_s: 0.0,
            });
            // A limit, because a data set with many follow-ups could draw for very long.
            if turns.len() == TURNS_MAX || rng.next_f64() >= self.goes_on(turns.len()) {
                return ScriptedConversation { turns, head: None };
            }
        }
    }
}

fn length(mean: f64) -> Length {
    let sigma = LENGTH_SIGMA;
    Length { mean, sigma }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prediction::quality::best_quality;

    const GAP: Gap = Gap::Exponential { mean_s: 100.0 };

    /// Every published number, on 50,000 conversations.
    fn check(name: &str, at_most_5: std::ops::Range<f64>) {
        let workload = ChatWorkload::named(name).expect("a data set");
        let drawn: Vec<_> =
            workload.conversations(&GAP, Seeds { corpus: 1, gaps: 1 }).take(50_000).collect();
        let turns = || drawn.iter().flat_map(|conversation| &conversation.turns);
        let count = turns().count() as f64;
        let mean = |sum: f64| sum / count;
        let question = mean(turns().map(|turn| f64::from(turn.new_tokens)).sum());
        let answer = mean(turns().map(|turn| f64::from(turn.answer_tokens)).sum());
        let gap = mean(turns().map(|turn| turn.gap_s).sum());
        assert!((question / workload.question_tokens - 1.0).abs() < 0.03, "{question}");
        assert!((answer / workload.answer_tokens - 1.0).abs() < 0.03, "{answer}");
        assert!((gap / 100.0 - 1.0).abs() < 0.02, "{gap}");
        let follow_up = 1.0 - drawn.len() as f64 / count;
        assert!((follow_up - workload.follow_up).abs() < 0.01, "{follow_up}");
        let short = drawn.iter().filter(|conversation| conversation.turns.len() <= 5).count();
        let short = short as f64 / drawn.len() as f64;
        assert!(at_most_5.contains(&short), "{short}");
        let judged = drawn.iter().flat_map(|conversation| {
            let length = conversation.turns.len();
            (1..=length).map(move |turn| (workload.goes_on(turn), turn < length))
        });
        let quality = best_quality(judged);
        assert!((quality.mcc - workload.turn_mcc).abs() < 0.02, "{quality:?}");
    }

    #[test]
    fn drawn_conversations_have_the_published_statistics() {
        check("lmsys", 0.97..0.98);
        check("sharegpt", 0.94..0.96);
        check("arena", 0.999..1.01);
    }
}
