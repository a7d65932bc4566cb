//! Prefill throughput of an engine for which requests always wait.
//!
//! The study's microbenchmark: each request has a context of fixed length and some new tokens and
//! asks for one token; a share of the requests finds its context in the cache.

use std::sync::Arc;

use headstart_cache::PrefixCache;
use headstart_cache::policy::Lru;
use headstart_core::stats::HitCount;
use headstart_core::{BlockHasher, Nanos, SessionId, TokenId};
use headstart_scheduler::{Executor, Output, Scheduler, Submission, Submit};

use crate::prediction::chat::Replica;
use crate::prediction::executor::VirtualExecutor;
use headstart_sim::tokens::{self, token};

/// The load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Saturation {
    /// Tokens that may be cached.
    pub(crate) context_tokens: usize,
    /// Tokens behind them, new in every request.
    pub(crate) new_tokens: usize,
    /// Share of the requests whose context is cached.
    pub(crate) hit_share: f64,
    /// Requests at the engine at once: each one done is followed by another.
    pub(crate) at_once: usize,
    /// Requests in all.
    pub(crate) requests: usize,
}

/// Measured throughput and hits of the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Throughput {
    /// Requests per second.
    pub(crate) requests_per_s: f64,
    /// Prompt tokens, and those that were cached.
    pub(crate) tokens: HitCount,
}

/// Session whose context the hits have.
const KNOWN: SessionId = SessionId(1);

impl Saturation {
    /// The study's, one request at a time, with a share of hits that makes a token hit rate of
    /// `hit_rate` in blocks of `block_tokens`.
    #[must_use]
    pub(crate) fn published(hit_rate: f64, block_tokens: usize) -> Self {
        let (context_tokens, new_tokens) = (1_000, 50);
        let cached = context_tokens / block_tokens * block_tokens;
        Self {
            context_tokens,
            new_tokens,
            hit_share: hit_rate * (context_tokens + new_tokens) as f64 / cached as f64,
            at_once: 1,
            requests: 2_000,
        }
    }

    /// Runs it on `replica`, whose cache is large enough for everything. `None` where its context
    /// is too short for the prompts.
    #[must_use]
    pub(crate) fn run(&self, replica: &Replica) -> Option<Throughput> {
        if replica.scheduler.max_context <= self.context_tokens + self.new_tokens {
            return None;
        }
        let mut engine = SaturatedEngine::new(*self, replica);
        // The first request makes the context known, and is not counted.
        engine.submit(false);
        engine.work();
        engine.counted = HitCount::default();
        let warm_at = engine.now;
        // Hits are spread evenly: their number grows by one whenever the share reaches a whole.
        let hits_before = |number: usize| (number as f64 * self.hit_share) as usize;
        for number in 0..self.requests {
            engine.submit(hits_before(number + 1) > hits_before(number));
            // At least one: with 0 the loop would never end.
            while engine.present() >= self.at_once.max(1) {
                engine.step();
            }
        }
        engine.work();
        Some(Throughput {
            requests_per_s: self.requests as f64 / engine.now.since(warm_at).as_secs_f64(),
            tokens: engine.counted,
        })
    }
}

/// The engine under load.
struct SaturatedEngine {
    load: Saturation,
    scheduler: Scheduler,
    executor: VirtualExecutor,
    hasher: Arc<BlockHasher>,
    /// Requests submitted.
    begun: u64,
    now: Nanos,
    counted: HitCount,
}

impl SaturatedEngine {
    fn new(load: Saturation, replica: &Replica) -> Self {
        let block_size = replica.scheduler.block_size;
        let prompt_tokens = load.context_tokens + load.new_tokens;
        // Nothing is evicted: room for every prompt, and for the token that each asks for.
        let blocks = (load.requests + 2) * (prompt_tokens + 1).div_ceil(block_size);
        let cache = PrefixCache::new(blocks, Box::new(Lru::new(blocks)));
        Self {
            load,
            scheduler: Scheduler::new(replica.scheduler, cache),
            executor: VirtualExecutor::new(replica.cost),
            hasher: Arc::new(tokens::hasher(block_size)),
            begun: 0,
            now: Nanos::default(),
            counted: HitCount::default(),
        }
    }

    /// A request whose context is known, or like no other.
    fn submit(&mut self, is_known: bool) {
        let Saturation { context_tokens, new_tokens, .. } = self.load;
        self.begun += 1;
        let session = SessionId(self.begun);
        let origin = if is_known { KNOWN } else { session };
        let prefix = SessionPrefix { session: origin, tokens: context_tokens };
        let prompt = forked(prefix, session, context_tokens + new_tokens);
        let new = Submission::greedy(tokens::sequence(session, 0), prompt, 1);
        let submitted = self.scheduler.submit(new, self.hasher.clone(), self.now);
        assert_eq!(submitted, Submit::Queued, "context and queue are long enough");
    }

    /// Requests waiting or running.
    fn present(&self) -> usize {
        let load = self.scheduler.load();
        load.running + load.waiting
    }

    fn work(&mut self) {
        while !self.scheduler.is_idle() {
            self.step();
        }
    }

    fn step(&mut self) {
        let batch = self.scheduler.schedule(self.now);
        let sampled = self.executor.execute(&batch, None);
        self.now = self.now + self.executor.last_step();
        self.scheduler.complete(&batch, &sampled, self.now);
        for output in self.scheduler.take_outputs() {
            if let Output::Started { cached_tokens, .. } = output {
                let prompt_tokens = self.load.context_tokens + self.load.new_tokens;
                self.counted.record(prompt_tokens, cached_tokens);
            }
        }
        self.scheduler.take_events().clear();
    }
}

/// Leading tokens of a session's prompts.
#[derive(Clone, Copy)]
struct SessionPrefix {
    session: SessionId,
    /// Its length in tokens.
    tokens: usize,
}

/// A prompt of `length` tokens: `prefix`, then those of `session`.
fn forked(prefix: SessionPrefix, session: SessionId, length: usize) -> Vec<TokenId> {
    let owner = |position| if position < prefix.tokens { prefix.session } else { session };
    (0..length).map(|position| token(owner(position), position)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hit_rate: f64, published: f64) {
        let replica = Replica::lpc();
        let load = Saturation::published(hit_rate, replica.scheduler.block_size);
        let got = load.run(&replica).expect("it fits");
        assert!((got.tokens.rate() - hit_rate).abs() < 0.001, "{got:?}");
        assert!((got.requests_per_s / published - 1.0).abs() < 0.005, "{got:?}");
    }

    #[test]
    fn conversations_share_what_they_fork_and_nothing_else() {
        let prefix = SessionPrefix { session: SessionId(9), tokens: 8 };
        let prompt = |number| forked(prefix, SessionId(number), 1_000);
        let (one, other) = (prompt(1), prompt(2));
        assert_eq!(one[..8], other[..8]);
        let equal = one.iter().zip(&other).filter(|(a, b)| a == b);
        assert_eq!(equal.count(), 8);
    }

    #[test]
    fn the_published_throughputs_come_out() {
        check(0.35, 10.01);
        check(0.42, 11.11);
    }

    #[test]
    fn more_hits_and_more_at_once_give_more() {
        let replica = Replica::lpc();
        let one = Saturation { requests: 100, ..Saturation::published(0.35, 16) };
        let rate = |load: Saturation| load.run(&replica).expect("it fits").requests_per_s;
        let all = Saturation { hit_share: 1.0, ..one };
        assert!(rate(all) > 3.0 * rate(one));
        let many = Saturation { at_once: 8, ..one };
        assert!(rate(many) > rate(one));
    }

    #[test]
    fn prompts_that_do_not_fit_are_not_run() {
        let mut replica = Replica::lpc();
        replica.scheduler.max_context = 1_050;
        assert_eq!(Saturation::published(0.35, 16).run(&replica), None);
    }
}
