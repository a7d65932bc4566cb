//! Shared prefixes under a ladder of rates: groups that share a system prompt, a few questions in
//! each, asked again and again.
//!
//! Source: inference-perf's shared-prefix generator with Poisson arrivals, as llm-d's capacity
//! runs use it: requests go through all prompts in turn, in an order shuffled once, and a stage
//! ends when all of its requests are answered.

use std::sync::Arc;
use std::time::Duration;

use headstart_core::{Access, Rng};
use headstart_trace::synth::Gap;

use super::workload::{ANSWERS, FleetWorkload, FollowUpRequest, Request, Rung, Segment};

/// Texts of questions are numbered behind those of groups.
const QUESTIONS: u64 = 1 << 32;

/// Spacing of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPacing {
    /// Independently: gaps are exponential.
    Poisson,
    /// Evenly.
    Even,
}

/// Order of the prompts.
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

/// Users who ask, read the answer, think, and ask again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crowd {
    /// Number of users, at least one.
    pub users: u32,
    /// Mean time from an answer's end to the next question, above 0: exponential.
    pub think_s: f64,
    /// Length of the run if answers took no time, seconds.
    pub seconds: f64,
}

/// Prompts of a workload, and the rates at which they are sent.
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
    /// Order of the prompts.
    pub order: Order,
    /// Spacing of requests.
    pub pacing: RequestPacing,
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
    pub fn draw(&self, rng: &mut Rng) -> FleetWorkload {
        let mut maker = self.maker(rng);
        let rungs = self.rungs.iter().map(|&(rate, seconds)| maker.open(rate, seconds, rng));
        FleetWorkload { rungs: rungs.collect() }
    }

    /// The first rung, and behind it one of each crowd, in a closed loop.
    #[must_use]
    pub fn draw_closed(&self, crowds: &[Crowd], rng: &mut Rng) -> FleetWorkload {
        let mut maker = self.maker(rng);
        let mut rungs: Vec<Rung> = Vec::new();
        let first = self.rungs.first();
        rungs.extend(first.map(|&(rate, seconds)| maker.open(rate, seconds, rng)));
        rungs.extend(crowds.iter().map(|crowd| maker.closed(crowd, rng)));
        FleetWorkload { rungs }
    }

    fn maker(&self, rng: &mut Rng) -> Maker<'_> {
        Maker { ladder: self, prompts: self.prompts(rng), next_answer: ANSWERS }
    }

    fn prompts(&self, rng: &mut Rng) -> PromptSource {
        let mut all: Vec<Arc<[Segment]>> = Vec::new();
        for group in 0..self.groups as u64 {
            for prompt in 0..self.prompts as u64 {
                let system = Segment { text: group, tokens: self.system_tokens };
                let question = Segment {
                    // Every pair of group and prompt has a number, so no two questions share
                    // tokens.
                    text: QUESTIONS + group * self.prompts as u64 + prompt,
                    tokens: self.question_tokens,
                };
                all.push(Arc::new([system, question]));
            }
        }
        let weights = match self.order {
            Order::InTurn => {
                // Shuffled once: each prompt comes again after exactly one round.
                rng.shuffle(&mut all);
                Vec::new()
            }
            Order::Zipf { exponent } => {
                let weight = |group: usize| ((group + 1) as f64).powf(-exponent);
                // Sums, so that a draw is a search by halves.
                let sums = (0..self.groups).scan(0.0, |sum, group| {
                    *sum += weight(group);
                    Some(*sum)
                });
                sums.collect()
            }
        };
        PromptSource { all, per_group: self.prompts, next: 0, weights }
    }
}

/// Makes requests, no two of one name.
struct Maker<'a> {
    ladder: &'a Ladder,
    prompts: PromptSource,
    next_answer: u64,
}

impl Maker<'_> {
    fn open(&mut self, rate: f64, seconds: f64, rng: &mut Rng) -> Rung {
        let count = (rate * seconds).round() as usize;
        let mut after_s = 0.0;
        let requests = (0..count).map(|_| {
            after_s += match self.ladder.pacing {
                RequestPacing::Poisson => Gap::Exponential { mean_s: 1.0 / rate }.draw(rng),
                RequestPacing::Even => 1.0 / rate,
            };
            let at = Some(Duration::from_secs_f64(after_s));
            Request { at, ..self.request(rng) }
        });
        Rung { rate, seconds, requests: requests.collect() }
    }

    /// Everybody begins within the first pause, evenly, and asks as often as there would be time
    /// for if answers took none.
    fn closed(&mut self, crowd: &Crowd, rng: &mut Rng) -> Rung {
        let rounds = (crowd.seconds / crowd.think_s).round().max(1.0) as u32;
        let think = Gap::Exponential { mean_s: crowd.think_s };
        let mut requests = Vec::new();
        for round in 0..rounds {
            for user in 0..crowd.users {
                // Spread over a pause, so that the users do not begin with one burst.
                let first = crowd.think_s * f64::from(user) / f64::from(crowd.users);
                let next = (round + 1 < rounds).then(|| FollowUpRequest {
                    request: (round + 1) * crowd.users + user,
                    think: Duration::from_secs_f64(think.draw(rng)),
                });
                requests.push(Request {
                    // Only the first round has a time. Later ones wait for the answer before.
                    at: (round == 0).then(|| Duration::from_secs_f64(first)),
                    next,
                    ..self.request(rng)
                });
            }
        }
        Rung { rate: f64::from(crowd.users) / crowd.think_s, seconds: crowd.seconds, requests }
    }

    fn request(&mut self, rng: &mut Rng) -> Request {
        // A name of its own for each, because the answer's tokens come from it.
        let seq = Request::name(self.next_answer, 0);
        self.next_answer += 1;
        Request {
            seq,
            at: None,
            prompt: self.prompts.next(rng),
            answer_tokens: self.ladder.answer_tokens,
            access: Access::default(),
            next: None,
        }
    }
}

/// Source of prompts.
struct PromptSource {
    all: Vec<Arc<[Segment]>>,
    per_group: usize,
    next: usize,
    /// Sums of the groups' weights up to each; none where prompts come in turn.
    weights: Vec<f64>,
}

impl PromptSource {
    fn next(&mut self, rng: &mut Rng) -> Arc<[Segment]> {
        let at = match self.weights.last() {
            None => {
                let at = self.next;
                self.next = (at + 1) % self.all.len();
                at
            }
            Some(sum) => {
                let drawn = rng.next_f64() * sum;
                // The first sum above the draw: a group's share is its weight.
                let group = self.weights.partition_point(|&sum| sum <= drawn);
                group * self.per_group + rng.below(self.per_group)
            }
        };
        self.all[at].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::preset::FleetPreset;
    use super::*;

    #[test]
    fn a_crowd_waits_for_its_answers() {
        let crowd = Crowd { users: 7, think_s: 10.0, seconds: 30.0 };
        let workload = FleetPreset::Laptop.ladder().draw_closed(&[crowd], &mut Rng::new(1));
        workload.check();
        let rung = &workload.rungs[1];
        assert_eq!((rung.requests.len(), rung.rate), (21, 0.7));
        let begin = rung.requests.iter().filter_map(|request| request.at);
        assert_eq!(begin.clone().count(), 7);
        assert!(begin.max() < Some(Duration::from_secs(10)));
        let mut names: Vec<_> = workload
            .rungs
            .iter()
            .flat_map(|rung| &rung.requests)
            .map(|request| request.seq)
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), workload.num_requests());
    }
}
