//! Shared prefixes under a ladder of rates: groups that share a system prompt, a few questions in
//! each, asked again and again.
//!
//! Source: inference-perf's shared-prefix generator with Poisson arrivals, as llm-d's capacity
//! runs use it: requests go through all prompts in turn, in an order shuffled once, and a stage
//! ends when all of its requests are answered.

use std::sync::Arc;
use std::time::Duration;

use headstart_core::Rng;
use headstart_trace::synth::Gap;

use super::workload::{ANSWERS, Request, Rung, Segment, Workload};

/// Texts of questions are numbered behind those of groups.
const QUESTIONS: u64 = 1 << 32;

/// How requests follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// Independently: gaps are exponential.
    Poisson,
    /// Evenly.
    Even,
}

/// Which prompt comes when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// All of them in turn, in an order shuffled once.
    InTurn,
    /// Any question of a system prompt that is drawn: the `n`th with weight `n^-exponent`.
    Zipf {
        /// 0 is all alike.
        exponent: f64,
    },
}

/// What is asked, and how fast.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    /// System prompts.
    pub groups: usize,
    /// Questions behind each.
    pub prompts: usize,
    /// Tokens of a system prompt.
    pub system_tokens: u32,
    /// Tokens of a question.
    pub question_tokens: u32,
    /// Tokens of an answer.
    pub answer_tokens: u32,
    /// Which prompt comes when.
    pub order: Order,
    /// How requests follow each other.
    pub pacing: Pacing,
    /// Requests per second, and for how many seconds.
    pub rungs: Vec<(f64, f64)>,
}

impl Ladder {
    /// Tokens of the longest request with its answer.
    #[must_use]
    pub fn longest(&self) -> usize {
        (self.system_tokens + self.question_tokens + self.answer_tokens) as usize
    }

    /// Draws its requests.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng) -> Workload {
        let mut prompts = self.prompts(rng);
        let mut names = (ANSWERS..).map(|text| Request::name(text, 0));
        let rungs = self.rungs.iter().map(|&(rate, seconds)| {
            let count = (rate * seconds).round() as usize;
            let mut after_s = 0.0;
            let requests = (0..count).map(|_| {
                after_s += match self.pacing {
                    Pacing::Poisson => Gap::Exponential { mean_s: 1.0 / rate }.draw(rng),
                    Pacing::Even => 1.0 / rate,
                };
                Request {
                    seq: names.next().expect("names without end"),
                    at: Some(Duration::from_secs_f64(after_s)),
                    prompt: prompts.next(rng),
                    answer_tokens: self.answer_tokens,
                    session: None,
                    next: None,
                }
            });
            Rung {
                rate,
                seconds,
                requests: requests.collect(),
            }
        });
        Workload {
            rungs: rungs.collect(),
        }
    }

    fn prompts(&self, rng: &mut Rng) -> Prompts {
        let mut all: Vec<Arc<[Segment]>> = Vec::new();
        for group in 0..self.groups as u64 {
            for prompt in 0..self.prompts as u64 {
                let system = Segment {
                    text: group,
                    tokens: self.system_tokens,
                };
                let question = Segment {
                    text: QUESTIONS + group * self.prompts as u64 + prompt,
                    tokens: self.question_tokens,
                };
                all.push(Arc::new([system, question]));
            }
        }
        let weights = match self.order {
            Order::InTurn => {
                rng.shuffle(&mut all);
                Vec::new()
            }
            Order::Zipf { exponent } => {
                let weight = |group: usize| ((group + 1) as f64).powf(-exponent);
                let sums = (0..self.groups).scan(0.0, |sum, group| {
                    *sum += weight(group);
                    Some(*sum)
                });
                sums.collect()
            }
        };
        Prompts {
            all,
            per_group: self.prompts,
            next: 0,
            weights,
        }
    }
}

/// Where prompts come from.
struct Prompts {
    all: Vec<Arc<[Segment]>>,
    per_group: usize,
    next: usize,
    /// Sums of the groups' weights up to each; none where prompts come in turn.
    weights: Vec<f64>,
}

impl Prompts {
    fn next(&mut self, rng: &mut Rng) -> Arc<[Segment]> {
        let at = match self.weights.last() {
            None => {
                let at = self.next;
                self.next = (at + 1) % self.all.len();
                at
            }
            Some(sum) => {
                let drawn = rng.next_f64() * sum;
                let group = self.weights.partition_point(|&sum| sum <= drawn);
                group * self.per_group + rng.below(self.per_group)
            }
        };
        self.all[at].clone()
    }
}
