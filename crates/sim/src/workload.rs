//! Conversations drawn from what is published of the study's three data sets.
//!
//! Published are mean lengths, the share of turns that another one follows, and how well the turn
//! count alone tells those apart. From the last two the distribution of turns is derived:
//!
//! Each conversation has a propensity q to go on after any of its turns, drawn from Beta(a, b).
//! Then turn k is followed with probability `(a + k - 1) / (a + b + k - 1)`: who came back once
//! comes back again. The share over all turns is `f = a / (a + b - 1)`, and "every turn but the
//! first goes on" says yes as often as it is true, so that its MCC is the difference of its two
//! precisions. Both together give
//!
//! ```text
//! a = f · (1 - m) / m        b = 1 + (1 - f) · (1 - m) / m        m: the turn count's MCC
//! ```
//!
//! and for m = 0 one q = f for all. Our reading of "follow-up": a share of turns, not of
//! conversations. Only with it do follow-up share, turn-only MCC and the published 94 to 99 % of
//! conversations with at most 5 turns go together (here 97.8, 95.0 and 99.9 %).
//!
//! Source: Yang et al., NeurIPS 2025, table 1 and the MCC of their baseline.

use headstart_core::{Probability, Rng};

use crate::chat::{Conversation, Turn};
use crate::draw::{exponential, normal};

/// What a data set's conversations are like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// Mean tokens of a user's message.
    pub question_tokens: f64,
    /// Mean tokens of an answer.
    pub answer_tokens: f64,
    /// Share of turns that another one follows.
    pub follow_up: f64,
    /// MCC that the turn count alone reaches.
    pub turn_mcc: f64,
    /// MCC that the study's predictor reaches.
    pub predictor_mcc: f64,
}

/// The study's three data sets. Predictors' MCC: its poster (LMSys, ShareGPT) and the name of a
/// file in its authors' code (Arena; another source gives .37).
pub const WORKLOADS: [Workload; 3] = [
    Workload {
        name: "lmsys",
        question_tokens: 63.0,
        answer_tokens: 179.0,
        follow_up: 0.35,
        turn_mcc: 0.35,
        predictor_mcc: 0.39,
    },
    Workload {
        name: "sharegpt",
        question_tokens: 113.0,
        answer_tokens: 305.0,
        follow_up: 0.55,
        turn_mcc: 0.0,
        predictor_mcc: 0.28,
    },
    Workload {
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
const LENGTH_MAX: f64 = 8_192.0;

/// Longest gap that is drawn, seconds: a day, which is beyond any run.
const GAP_MAX_S: f64 = 86_400.0;

/// Most turns that are drawn.
const TURNS_MAX: usize = 1_000;

/// Time from an answer to the next prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gap {
    /// Exponential, as in the study.
    Exponential {
        /// Mean, seconds: its λ_chat.
        mean_s: f64,
    },
    /// Log-normal: a heavy tail of users who come back late.
    LogNormal {
        /// Mean of the logarithm of the seconds.
        mu: f64,
        /// Standard deviation of that logarithm.
        sigma: f64,
    },
}

/// What fixes drawn conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// Turns and lengths.
    pub corpus: u64,
    /// Gaps.
    pub gaps: u64,
}

impl Gap {
    /// One gap, seconds.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng) -> f64 {
        let seconds = match self {
            Self::Exponential { mean_s } => mean_s * exponential(rng),
            Self::LogNormal { mu, sigma } => (mu + sigma * normal(rng)).exp(),
        };
        seconds.clamp(0.0, GAP_MAX_S)
    }

    /// Its mean, seconds.
    #[must_use]
    pub fn mean_s(&self) -> f64 {
        match self {
            Self::Exponential { mean_s } => *mean_s,
            Self::LogNormal { mu, sigma } => (mu + sigma * sigma / 2.0).exp(),
        }
    }
}

impl Workload {
    /// The data set of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        WORKLOADS.into_iter().find(|it| it.name == name)
    }

    /// Probability that turn number `turn`, from 1, is followed by another.
    #[must_use]
    pub fn goes_on(&self, turn: usize) -> f64 {
        let (f, m) = (self.follow_up, self.turn_mcc);
        if m <= 0.0 {
            return f;
        }
        let a = f * (1.0 - m) / m;
        let b = 1.0 + (1.0 - f) * (1.0 - m) / m;
        let came_back = turn.saturating_sub(1) as f64;
        (a + came_back) / (a + b + came_back)
    }

    /// Endless conversations. What is said is fixed by `seeds.corpus`, when by `seeds.gaps`: the
    /// study repeats its runs on one corpus.
    pub fn conversations(self, gap: Gap, seeds: Seeds) -> impl Iterator<Item = Conversation> {
        let (mut corpus, mut gaps) = (Rng::new(seeds.corpus), Rng::new(seeds.gaps));
        std::iter::repeat_with(move || {
            let mut conversation = self.conversation(&mut corpus);
            for turn in &mut conversation.turns {
                turn.gap_s = gap.draw(&mut gaps);
            }
            conversation
        })
    }

    fn conversation(&self, rng: &mut Rng) -> Conversation {
        let mut turns = Vec::new();
        loop {
            turns.push(Turn {
                new_tokens: length(self.question_tokens, rng),
                answer_tokens: length(self.answer_tokens, rng),
                gap_s: 0.0,
            });
            if turns.len() == TURNS_MAX || rng.next_f64() >= self.goes_on(turns.len()) {
                return Conversation { turns, head: None };
            }
        }
    }
}

/// How often each turn was followed by another: what the turn count alone predicts.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnPrior {
    shares: Vec<f64>,
}

/// Turns from here on are one: later ones are too rare to be learnt apart.
const TURN_LAST: usize = 10;

impl TurnPrior {
    /// Learns from `conversations`, of which one more turn that went on and one that did not are
    /// assumed at each turn.
    #[must_use]
    pub fn learn(conversations: impl Iterator<Item = Conversation>) -> Self {
        let mut counts = [(1.0, 2.0); TURN_LAST];
        for conversation in conversations {
            let length = conversation.turns.len();
            for turn in 0..length {
                let (went_on, all) = &mut counts[turn.min(TURN_LAST - 1)];
                *went_on += f64::from(u8::from(turn + 1 < length));
                *all += 1.0;
            }
        }
        Self {
            shares: counts.iter().map(|(went_on, all)| went_on / all).collect(),
        }
    }

    /// How likely turn number `turn`, from 0, is followed by another.
    #[must_use]
    pub fn predict(&self, turn: usize) -> Probability {
        let share = self.shares[turn.min(TURN_LAST - 1)];
        Probability::new(share).unwrap_or(Probability::EVEN)
    }
}

fn length(mean: f64, rng: &mut Rng) -> u32 {
    let deviation = LENGTH_SIGMA * normal(rng) - LENGTH_SIGMA * LENGTH_SIGMA / 2.0;
    (mean * deviation.exp()).round().clamp(1.0, LENGTH_MAX) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::best_quality;

    const GAP: Gap = Gap::Exponential { mean_s: 100.0 };

    /// Every published number, on 50,000 conversations.
    fn check(name: &str, at_most_5: std::ops::Range<f64>) {
        let workload = Workload::named(name).expect("a data set");
        let drawn: Vec<_> = workload
            .conversations(GAP, Seeds { corpus: 1, gaps: 1 })
            .take(50_000)
            .collect();
        let turns = || drawn.iter().flat_map(|it| &it.turns);
        let count = turns().count() as f64;
        let mean = |sum: f64| sum / count;
        let question = mean(turns().map(|it| f64::from(it.new_tokens)).sum());
        let answer = mean(turns().map(|it| f64::from(it.answer_tokens)).sum());
        let gap = mean(turns().map(|it| it.gap_s).sum());
        assert!(
            (question / workload.question_tokens - 1.0).abs() < 0.03,
            "{question}"
        );
        assert!(
            (answer / workload.answer_tokens - 1.0).abs() < 0.03,
            "{answer}"
        );
        assert!((gap / 100.0 - 1.0).abs() < 0.02, "{gap}");
        let follow_up = 1.0 - drawn.len() as f64 / count;
        assert!((follow_up - workload.follow_up).abs() < 0.01, "{follow_up}");
        let short = drawn.iter().filter(|it| it.turns.len() <= 5).count();
        let short = short as f64 / drawn.len() as f64;
        assert!(at_most_5.contains(&short), "{short}");
        let prior = TurnPrior::learn(
            workload
                .conversations(GAP, Seeds { corpus: 2, gaps: 2 })
                .take(50_000),
        );
        let judged = drawn.iter().flat_map(|it| {
            let length = it.turns.len();
            (0..length).map(move |turn| (turn, turn + 1 < length))
        });
        let judged = judged.map(|(turn, truth)| (prior.predict(turn).value(), truth));
        let quality = best_quality(judged);
        assert!(
            (quality.mcc - workload.turn_mcc).abs() < 0.02,
            "{quality:?}"
        );
    }

    #[test]
    fn drawn_conversations_have_the_published_statistics() {
        check("lmsys", 0.97..0.985);
        check("sharegpt", 0.94..0.96);
        check("arena", 0.99..1.0);
    }

    #[test]
    fn the_gaps_of_a_heavy_tail_have_their_mean() {
        let gap = Gap::LogNormal {
            mu: 4.82,
            sigma: 1.25,
        };
        let mut rng = Rng::new(9);
        let mean = (0..200_000).map(|_| gap.draw(&mut rng)).sum::<f64>() / 2e5;
        assert!((mean / gap.mean_s() - 1.0).abs() < 0.03, "{mean}");
    }
}
