//! Measurements of a fleet, rung by rung.

use headstart_core::Nanos;
use headstart_core::stats::{HitCount, Summary};

use super::config::Slo;
use super::recovery::Recovery;
use super::workload::Rung;

/// Times and tokens of one request. Times are from the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServedRequest {
    /// When it was sent.
    pub sent: Nanos,
    /// When a replica began with it, where that is known: no client sees it.
    pub started: Option<Nanos>,
    /// When its first token came.
    pub first_token: Nanos,
    /// When its last one did.
    pub ended: Nanos,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Cached tokens among them.
    pub cached_tokens: u32,
    /// Tokens that the router counted as cached and the replica no longer held when it began.
    pub lost_tokens: u32,
    /// Tokens of the answer.
    pub answer_tokens: u32,
}

impl ServedRequest {
    /// Client's send to first token, seconds.
    #[must_use]
    pub fn ttft_s(&self) -> f64 {
        self.first_token.since(self.sent).as_secs_f64()
    }

    /// Per token after the first, seconds; 0 for an answer of one.
    #[must_use]
    pub fn tpot_s(&self) -> f64 {
        let rest = self.ended.since(self.first_token).as_secs_f64();
        // An answer of one token has no time between tokens, and no division by zero.
        rest / f64::from(self.answer_tokens.max(2) - 1)
    }

    fn is_good(&self, slo: Slo) -> bool {
        self.ttft_s() <= slo.ttft_s && self.tpot_s() <= slo.tpot_s
    }
}

/// One rung.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RungOutcome {
    /// Requests per second that were meant.
    pub rate: f64,
    /// For so long, seconds.
    pub seconds: f64,
    /// Requests that were answered.
    pub answered: usize,
    /// Requests that no replica took.
    pub refused: usize,
    /// Requests that were begun and lost.
    pub failed: usize,
    /// Requests that were sent again, because the replica died before their first token.
    pub retried: usize,
    /// Requests per second that met the objectives.
    pub goodput: f64,
    /// Client's send to first token, seconds.
    pub ttft: Summary,
    /// Scheduled to first token, seconds; `None` if unknown.
    pub service_ttft: Option<Summary>,
    /// Time per token after the first, seconds.
    pub tpot: Summary,
    /// Client's send to last token, seconds.
    pub e2e: Summary,
    /// Tokens per second that came while requests were sent.
    pub window_tokens_s: f64,
    /// Tokens per second until the last one came.
    pub tokens_s: f64,
    /// Prompt tokens, and those of them that were cached.
    pub hits: HitCount,
    /// Share of the prompt tokens that were evicted between the choice of the replica and the
    /// request's start there; 0 where that is not known.
    pub lost_share: f64,
    /// Prompt tokens per second that were found cached.
    pub cached_tokens_s: f64,
    /// Average of the scraped requests that wait to be scheduled, per replica; `None` if no replica
    /// reported it.
    pub waiting: Option<f64>,
    /// Requests that ran, likewise.
    pub running: Option<f64>,
    /// Share of the KV memory that requests held, likewise.
    pub kv_usage: Option<f64>,
    /// Sequences that lost their place; `None` if unknown.
    pub preemptions: Option<u64>,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetOutcome {
    /// One per rung.
    pub rungs: Vec<RungOutcome>,
    /// All rungs together, without the first one, which fills the caches, if there are others.
    pub all: RungOutcome,
    /// Recovery from each fault that happened, in their order.
    pub recoveries: Vec<Recovery>,
    /// Steps of all replicas.
    pub steps: u64,
}

/// Observations of one rung, simulated or measured.
#[derive(Clone, Debug, Default)]
pub struct RungObservations {
    /// Requests that were answered.
    pub served: Vec<ServedRequest>,
    /// Requests that no replica took.
    pub refused: usize,
    /// Requests that were begun and lost.
    pub failed: usize,
    /// Requests that were sent again before their first token.
    pub retried: usize,
    /// Tokens that came while requests were sent.
    pub window_tokens: u64,
    /// Waiting requests per replica, as scraped.
    pub waiting: Mean,
    /// Running requests per replica, as scraped.
    pub running: Mean,
    /// Share of the KV memory in use per replica, as scraped.
    pub kv_usage: Mean,
    /// Sequences that lost their place, where that is known.
    pub preemptions: Option<u64>,
    /// Time during which requests were sent, seconds.
    pub seconds: f64,
    /// From the rung's start to the last token, or to its end, seconds.
    pub lasted_s: f64,
}

/// A mean in the making.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    /// Takes one value.
    pub fn note(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn add(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
    }

    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

impl FleetOutcome {
    /// Computes the outcome from the observations of each of `rungs`.
    #[must_use]
    pub fn of(collected: &[RungObservations], rungs: &[Rung], slo: Slo) -> Self {
        // The first one fills the caches, if there are others.
        let first = usize::from(collected.len() > 1);
        let mut all = RungObservations::default();
        collected[first..].iter().for_each(|rung| all.add(rung));
        let counted = rungs[first..].iter();
        let requests: usize = counted.map(|rung| rung.requests.len()).sum();
        let rungs = collected.iter().zip(rungs);
        Self {
            // The mean rate over rungs of different rates and lengths.
            all: all.outcome(requests as f64 / all.seconds, slo),
            rungs: rungs.map(|(observations, rung)| observations.outcome(rung.rate, slo)).collect(),
            ..Self::default()
        }
    }
}

impl RungObservations {
    fn add(&mut self, other: &Self) {
        self.served.extend(&other.served);
        self.refused += other.refused;
        self.failed += other.failed;
        self.retried += other.retried;
        self.window_tokens += other.window_tokens;
        self.waiting.add(other.waiting);
        self.running.add(other.running);
        self.kv_usage.add(other.kv_usage);
        // Unknown stays unknown: only rungs that reported are added up.
        if let Some(preemptions) = other.preemptions {
            *self.preemptions.get_or_insert(0) += preemptions;
        }
        self.seconds += other.seconds;
        self.lasted_s += other.lasted_s;
    }

    fn outcome(&self, rate: f64, slo: Slo) -> RungOutcome {
        let summary = |of: &dyn Fn(&ServedRequest) -> f64| {
            let mut values: Vec<f64> = self.served.iter().map(of).collect();
            Summary::of(&mut values)
        };
        let mut hits = HitCount::default();
        for served in &self.served {
            hits.record(served.prompt_tokens as usize, served.cached_tokens as usize);
        }
        let lost: u64 = self.served.iter().map(|served| u64::from(served.lost_tokens)).sum();
        let good = self.served.iter().filter(|served| served.is_good(slo)).count();
        let tokens: u64 = self.served.iter().map(|served| u64::from(served.answer_tokens)).sum();
        RungOutcome {
            rate,
            seconds: self.seconds,
            answered: self.served.len(),
            refused: self.refused,
            failed: self.failed,
            retried: self.retried,
            // Until the last token: a fleet that falls back must not look good for a short window.
            goodput: good as f64 / self.lasted_s,
            ttft: summary(&ServedRequest::ttft_s),
            service_ttft: self.service_ttft(),
            tpot: summary(&ServedRequest::tpot_s),
            e2e: summary(&|served| served.ended.since(served.sent).as_secs_f64()),
            window_tokens_s: self.window_tokens as f64 / self.seconds,
            tokens_s: tokens as f64 / self.lasted_s,
            cached_tokens_s: hits.hits as f64 / self.lasted_s,
            hits,
            // A rung may have served nothing.
            lost_share: lost as f64 / hits.lookups.max(1) as f64,
            waiting: self.waiting.value(),
            running: self.running.value(),
            kv_usage: self.kv_usage.value(),
            preemptions: self.preemptions,
        }
    }

    fn service_ttft(&self) -> Option<Summary> {
        let of =
            |served: &ServedRequest| Some(served.first_token.since(served.started?).as_secs_f64());
        let mut values: Vec<f64> = self.served.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| Summary::of(&mut values))
    }
}
