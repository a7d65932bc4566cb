//! Hits of a fleet by the way in which requests are spread over its replicas.
//!
//! ```text
//! request ─┬─ random         ─▶ an LRU cache per replica
//!          └─ longest prefix ─▶      "   where most of it is, unless that replica has too much
//! ```
//!
//! No service time: a request is served before the next one comes, so nothing is in flight, and
//! load is work placed, not queues. For latencies run a fleet ([`crate::fleet`]).
//!
//! The caches are stacks of runs ([`Stack`]), which hit exactly what `PrefixCache` with `lru`
//! does (tested), at a cost per run instead of per block. Memory: [`PIECES_MAX`] pieces of some
//! 80 bytes, divided among the replicas; blocks deeper than a replica's cache are forgotten, so
//! that bound is met by traces of very short runs only, and hits are then estimated.

use headstart_core::{Rng, TraceRequest};
use headstart_trace::characterize::{Stack, prompt_tokens, servable_tokens};

use crate::placement::RecentWork;

/// Pieces that the stacks of a fleet keep together, 80 MiB; each at least [`PIECES_MIN`].
pub const PIECES_MAX: usize = 1 << 20;

/// Pieces that a replica's stack keeps however many there are.
pub const PIECES_MIN: usize = 1 << 12;

/// A way to choose a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementPolicy {
    /// Any; the seed fixes which.
    Random {
        /// Seed of the choices.
        seed: u64,
    },
    /// The one that holds most of the prompt and has not too much to do, see [`RecentWork`].
    LongestPrefix,
}

/// Replicas that requests are spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadConfig {
    /// Replicas.
    pub replicas: usize,
    /// Blocks that each of them holds.
    pub capacity_blocks: u64,
    /// Tokens per block.
    pub block_tokens: u32,
}

/// A fleet that serves requests, spread by one policy.
pub struct SpreadFleet {
    config: SpreadConfig,
    /// Of random placement.
    rng: Option<Rng>,
    caches: Vec<Stack<()>>,
    work: RecentWork,
    prompt_tokens: u64,
    hit_tokens: u64,
}

impl SpreadFleet {
    /// Empty caches.
    ///
    /// # Panics
    /// Without replicas.
    #[must_use]
    pub fn new(placement: PlacementPolicy, config: SpreadConfig) -> Self {
        assert!(config.replicas > 0, "some replica must serve");
        let pieces = (PIECES_MAX / config.replicas).max(PIECES_MIN);
        let cache = |_| Stack::with_depth(pieces, config.capacity_blocks);
        Self {
            config,
            rng: match placement {
                PlacementPolicy::Random { seed } => Some(rng(seed)),
                PlacementPolicy::LongestPrefix => None,
            },
            caches: (0..config.replicas).map(cache).collect(),
            work: RecentWork::new(config.replicas),
            prompt_tokens: 0,
            hit_tokens: 0,
        }
    }

    /// Places and serves the next request.
    pub fn serve(&mut self, request: &TraceRequest) {
        let SpreadConfig { capacity_blocks, block_tokens, .. } = self.config;
        let references = request.blocks.len();
        let chosen = match &mut self.rng {
            Some(rng) => rng.below(self.caches.len()),
            None => self.work.longest(references, |replica| {
                self.caches[replica].matched(&request.blocks, capacity_blocks)
            }),
        };
        let hits = use_blocks(&mut self.caches[chosen], request, capacity_blocks);
        self.work.served(chosen, references as u64 - hits);
        self.prompt_tokens += prompt_tokens(request, block_tokens);
        // The last token of a prompt is computed even where its block hits.
        let servable = servable_tokens(request, block_tokens);
        self.hit_tokens += (hits * u64::from(block_tokens)).min(servable);
    }

    /// Prompt tokens that hits serve: see [`servable_tokens`].
    #[must_use]
    pub fn hit_tokens(&self) -> u64 {
        self.hit_tokens
    }

    /// Prompt tokens that are computed.
    #[must_use]
    pub fn computed_tokens(&self) -> u64 {
        // A replay serves no more than the prompt, so the difference is not negative.
        self.prompt_tokens - self.hit_tokens
    }

    /// Pieces that all stacks keep now.
    #[must_use]
    pub fn num_pieces(&self) -> usize {
        self.caches.iter().map(Stack::num_pieces).sum()
    }

    /// Whether hits are exact, not estimated.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.caches.iter().all(|cache| cache.weight() == 1)
    }
}

/// The generator of random placement.
fn rng(seed: u64) -> Rng {
    let mut rng = Rng::new(seed);
    // The first number is unused: without it all reports would change.
    rng.next_u64();
    rng
}

/// Uses the request's blocks; how many leading ones an LRU cache of `capacity` blocks held, as
/// [`Stack::matched`] says it, in the same walk.
fn use_blocks(cache: &mut Stack<()>, request: &TraceRequest, capacity: u64) -> u64 {
    let mut first_miss = None;
    cache.touch(&request.blocks, |touch| {
        if first_miss.is_none() {
            // A block that was never used is infinitely far down the stack.
            let distance = touch.before.map_or(u64::MAX, |before| before.distance);
            // The distance says how many blocks were used since, so the rest of the room was
            // left.
            let held = capacity.saturating_sub(distance);
            if held < u64::from(touch.count) {
                first_miss = Some(touch.offset + held);
            }
        }
    });
    first_miss.unwrap_or(request.blocks.len() as u64)
}

#[cfg(test)]
mod tests {
    use headstart_cache::policy::Lru;
    use headstart_core::{Nanos, SessionId};

    use super::*;
    use crate::Replay;

    /// Conversations that go on after others spoke; ids name prefixes.
    fn trace(seed: u64, requests: usize) -> Vec<TraceRequest> {
        let mut rng = Rng::new(seed);
        let mut chains: Vec<Vec<u64>> = Vec::new();
        let mut next_id = 10;
        let mut trace = Vec::new();
        for number in 0..requests {
            if chains.is_empty() || rng.below(6) == 0 {
                chains.push((0..4).collect());
            }
            let newest = chains.len().saturating_sub(24);
            let session = newest + rng.below(chains.len() - newest);
            let count = 1 + rng.below(12) as u64;
            chains[session].extend(next_id..next_id + count);
            next_id += count + 1;
            trace.push(TraceRequest {
                arrival: Nanos(number as u64),
                blocks: chains[session].iter().copied().collect(),
                session: Some(SessionId(session as u64)),
                ..TraceRequest::default()
            });
        }
        trace
    }

    const RANDOM: PlacementPolicy = PlacementPolicy::Random { seed: 7 };

    fn fleet(
        trace: &[TraceRequest],
        placement: PlacementPolicy,
        replicas: usize,
        capacity_blocks: u64,
    ) -> SpreadFleet {
        let config = SpreadConfig { replicas, capacity_blocks, block_tokens: 16 };
        let mut fleet = SpreadFleet::new(placement, config);
        trace.iter().for_each(|request| fleet.serve(request));
        fleet
    }

    /// Tokens that real caches serve of requests that go to replicas at random.
    fn replayed(trace: &[TraceRequest], replicas: usize, capacity: usize) -> u64 {
        let replay = |_| Replay::new(capacity, Box::new(Lru::new(capacity)));
        let mut caches: Vec<Replay> = (0..replicas).map(replay).collect();
        // The first number is discarded, as reports have done from the start.
        let mut rng = Rng::new(7);
        rng.next_u64();
        let served = trace.iter().map(|request| {
            let hits = caches[rng.below(replicas)].serve(request) as u64;
            (hits * 16).min(servable_tokens(request, 16))
        });
        served.sum()
    }

    #[test]
    fn caches_hit_what_replays_hit() {
        for seed in 0..4 {
            let trace = trace(seed, 1500);
            for (replicas, capacity) in [1, 4].into_iter().flat_map(|replicas| {
                [0, 10, 100, 403, 1000, 4000].map(|capacity| (replicas, capacity))
            }) {
                let got = fleet(&trace, RANDOM, replicas, capacity as u64);
                let expected = replayed(&trace, replicas, capacity);
                assert_eq!(got.hit_tokens(), expected, "seed {seed}, {replicas} × {capacity}");
                assert!(got.is_exact());
            }
        }
    }

    #[test]
    fn looking_beats_chance() {
        let trace = trace(9, 4000);
        let random = fleet(&trace, RANDOM, 4, 1000);
        let longest = fleet(&trace, PlacementPolicy::LongestPrefix, 4, 1000);
        let pooled = fleet(&trace, PlacementPolicy::LongestPrefix, 1, 4000);
        let all = (pooled.hit_tokens() + pooled.computed_tokens()) as f64;
        let rate = |fleet: &SpreadFleet| fleet.hit_tokens() as f64 / all;
        assert!(rate(&random) + 0.1 < rate(&longest));
        assert!(random.is_exact() && longest.is_exact());
        // Replicas with less work behind them take what none of them holds.
        let mean = longest.num_pieces() / 4;
        assert!(longest.caches.iter().all(|cache| cache.num_pieces() > mean / 2));
        assert!(rate(&longest) <= rate(&pooled) + 0.02);
        let alone = fleet(&trace, RANDOM, 1, 4000);
        assert_eq!(alone.hit_tokens(), pooled.hit_tokens());
    }
}
