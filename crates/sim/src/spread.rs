//! Cost of spreading requests over replicas without looking at their caches: one trace, one total
//! of cache, several ways to place each request.
//!
//! ```text
//! request ─┬─ random         ─▶ LRU caches of capacity / N each
//!          ├─ round robin    ─▶      "
//!          ├─ session hash   ─▶      "
//!          ├─ longest prefix ─▶      "   where most of it is, unless that replica has too much
//!          └─ pooled         ─▶ one cache of all the capacity: what sharing could reach
//! ```
//!
//! No service time: a request is served before the next one comes, so nothing is in flight, and
//! load is work placed, not queues. For latencies run a fleet ([`crate::fleet`]).
//!
//! The caches are stacks of runs ([`Stack`]), which hit exactly what `PrefixCache` with `lru`
//! does (tested), at a cost per run instead of per block. Memory: [`PIECES_MAX`] pieces of some
//! 80 bytes a placement, divided among its replicas; blocks deeper than a replica's cache are
//! forgotten, so that bound is met by traces of very short runs only, and hits are then estimated.

use headstart_core::{Rng, TraceRequest};
use headstart_trace::characterize::{Stack, prompt_tokens, servable_tokens};

use crate::placement::RecentWork;

/// Pieces that the stacks of a placement keep together, 80 MiB; each at least [`PIECES_MIN`].
pub const PIECES_MAX: usize = 1 << 20;

/// Pieces that a replica's stack keeps however many there are.
pub const PIECES_MIN: usize = 1 << 12;

/// A way to choose a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementPolicy {
    /// Any.
    Random,
    /// The next.
    RoundRobin,
    /// By a hash of the session; requests without one at random.
    SessionHash,
    /// The one that holds most of the prompt and has not too much to do, see [`RecentWork`].
    LongestPrefix,
    /// One cache with all the capacity.
    Pooled,
}

impl PlacementPolicy {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Random, Self::RoundRobin, Self::SessionHash, Self::LongestPrefix, Self::Pooled];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RoundRobin => "round-robin",
            Self::SessionHash => "session-hash",
            Self::LongestPrefix => "longest-prefix",
            Self::Pooled => "pooled",
        }
    }
}

/// Replicas and capacity that requests are spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadConfig {
    /// Replicas.
    pub replicas: usize,
    /// Blocks that all of them hold together, divided evenly, rounded down.
    pub capacity_blocks: u64,
    /// Tokens per block.
    pub block_tokens: u32,
    /// Fixes what is random.
    pub seed: u64,
}

/// Figures of one placement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlacementOutcome {
    /// The placement.
    pub placement: PlacementPolicy,
    /// Blocks that each cache holds.
    pub capacity_blocks_each: u64,
    /// Requests placed.
    pub requests: u64,
    /// Their blocks.
    pub references: u64,
    /// Blocks that their replica held.
    pub hits: u64,
    /// Hits of references.
    pub block_hit_rate: f64,
    /// Their prompt tokens.
    pub prompt_tokens: u64,
    /// Prompt tokens that hits serve: see [`servable_tokens`].
    pub hit_tokens: u64,
    /// Hit tokens of prompt tokens.
    pub token_hit_rate: f64,
    /// Blocks that the busiest replica computed, as a multiple of the mean: 1 is even.
    pub imbalance: f64,
    /// Whether hits are exact, not estimated.
    pub is_exact: bool,
}

/// Several placement policies over the same requests.
pub struct SpreadComparison {
    fleets: Vec<PlacementFleet>,
}

/// The replicas and counts of one policy.
struct PlacementFleet {
    placement: PlacementPolicy,
    block_tokens: u32,
    capacity: u64,
    replicas: Vec<StackReplica>,
    work: RecentWork,
    rng: Rng,
    salt: u64,
    requests: u64,
    references: u64,
    hits: u64,
    prompt_tokens: u64,
    hit_tokens: u64,
}

struct StackReplica {
    cache: Stack<()>,
    computed: u64,
}

impl SpreadComparison {
    /// Empty caches, a fleet for each of `placements`.
    ///
    /// # Panics
    /// Without replicas.
    #[must_use]
    pub fn new(placements: &[PlacementPolicy], settings: SpreadConfig) -> Self {
        assert!(settings.replicas > 0, "some replica must serve");
        let fleets = placements.iter();
        Self { fleets: fleets.map(|&placement| PlacementFleet::new(placement, settings)).collect() }
    }

    /// Places and serves the next request, each way.
    pub fn serve(&mut self, request: &TraceRequest) {
        self.fleets.iter_mut().for_each(|fleet| fleet.serve(request));
    }

    /// Pieces that all stacks keep now.
    #[must_use]
    pub fn num_pieces(&self) -> usize {
        let replicas = self.fleets.iter().flat_map(|fleet| &fleet.replicas);
        replicas.map(|replica| replica.cache.num_pieces()).sum()
    }

    /// Returns the figures of each placement, in the order in which they were named.
    #[must_use]
    pub fn outcomes(&self) -> Vec<PlacementOutcome> {
        self.fleets.iter().map(PlacementFleet::outcome).collect()
    }
}

impl PlacementFleet {
    fn new(placement: PlacementPolicy, settings: SpreadConfig) -> Self {
        let replicas = match placement {
            PlacementPolicy::Pooled => 1,
            _ => settings.replicas,
        };
        let capacity = settings.capacity_blocks / replicas as u64;
        let replica = || StackReplica {
            cache: Stack::with_depth((PIECES_MAX / replicas).max(PIECES_MIN), capacity),
            computed: 0,
        };
        let mut rng = Rng::new(settings.seed);
        Self {
            placement,
            block_tokens: settings.block_tokens,
            capacity,
            replicas: (0..replicas).map(|_| replica()).collect(),
            work: RecentWork::new(replicas),
            // Drawn first, so that sessions fall differently with each seed.
            salt: rng.next_u64(),
            rng,
            requests: 0,
            references: 0,
            hits: 0,
            prompt_tokens: 0,
            hit_tokens: 0,
        }
    }

    fn serve(&mut self, request: &TraceRequest) {
        let chosen = self.choose(request);
        let replica = &mut self.replicas[chosen];
        let hits = replica.serve(request, self.capacity);
        let references = request.blocks.len() as u64;
        replica.computed += references - hits;
        self.work.served(chosen, references - hits);
        let in_blocks = |blocks: u64| blocks * u64::from(self.block_tokens);
        let tokens = prompt_tokens(request, self.block_tokens);
        self.requests += 1;
        self.references += references;
        self.hits += hits;
        self.prompt_tokens += tokens;
        // The last token of a prompt is computed even where its block hits.
        self.hit_tokens += in_blocks(hits).min(servable_tokens(request, self.block_tokens));
    }

    fn choose(&mut self, request: &TraceRequest) -> usize {
        let count = self.replicas.len();
        match (self.placement, request.session) {
            (PlacementPolicy::Pooled, _) => 0,
            (PlacementPolicy::RoundRobin, _) => (self.requests % count as u64) as usize,
            (PlacementPolicy::SessionHash, Some(session)) => {
                // A generator of its own per session: the same session always gives the same
                // replica.
                Rng::new(self.salt ^ session.0).below(count)
            }
            (PlacementPolicy::Random | PlacementPolicy::SessionHash, _) => self.rng.below(count),
            (PlacementPolicy::LongestPrefix, _) => {
                self.work.longest(request.blocks.len(), |replica| {
                    let cache = &self.replicas[replica].cache;
                    cache.matched(&request.blocks, self.capacity)
                })
            }
        }
    }

    fn outcome(&self) -> PlacementOutcome {
        let share = |part: u64, of: u64| {
            if of == 0 { 0.0 } else { part as f64 / of as f64 }
        };
        let computed = self.replicas.iter().map(|replica| replica.computed);
        let busiest = computed.clone().max().unwrap_or(0);
        let all: u64 = computed.sum();
        PlacementOutcome {
            placement: self.placement,
            capacity_blocks_each: self.capacity,
            requests: self.requests,
            references: self.references,
            hits: self.hits,
            block_hit_rate: share(self.hits, self.references),
            prompt_tokens: self.prompt_tokens,
            hit_tokens: self.hit_tokens,
            token_hit_rate: share(self.hit_tokens, self.prompt_tokens),
            // The busiest over the mean: 1 where work is even.
            imbalance: share(busiest * self.replicas.len() as u64, all),
            is_exact: self.replicas.iter().all(|replica| replica.cache.weight() == 1),
        }
    }
}

impl StackReplica {
    /// Uses the request's blocks; how many leading ones an LRU cache of `capacity` blocks held,
    /// as [`Stack::matched`] says it, in the same walk.
    fn serve(&mut self, request: &TraceRequest, capacity: u64) -> u64 {
        let mut first_miss = None;
        self.cache.touch(&request.blocks, |touch| {
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

    const SETTINGS: SpreadConfig =
        SpreadConfig { replicas: 4, capacity_blocks: 4000, block_tokens: 16, seed: 7 };

    fn outcomes(trace: &[TraceRequest], settings: SpreadConfig) -> Vec<PlacementOutcome> {
        let mut spread = SpreadComparison::new(&PlacementPolicy::ALL, settings);
        trace.iter().for_each(|request| spread.serve(request));
        spread.outcomes()
    }

    #[test]
    fn caches_hit_what_replays_hit() {
        for seed in 0..4 {
            let trace = trace(seed, 1500);
            for capacity_blocks in [0, 40, 403, 4000] {
                let settings = SpreadConfig { capacity_blocks, ..SETTINGS };
                let got = outcomes(&trace, settings);
                let replay = |capacity: u64| {
                    Replay::new(capacity as usize, Box::new(Lru::new(capacity as usize)))
                };
                let mut pooled = replay(capacity_blocks);
                let mut turns: Vec<Replay> = (0..4).map(|_| replay(capacity_blocks / 4)).collect();
                for (number, request) in trace.iter().enumerate() {
                    pooled.serve(request);
                    turns[number % 4].serve(request);
                }
                let of = |replay: &Replay| replay.outcome().all().blocks.hits;
                assert_eq!(got[4].hits, of(&pooled), "seed {seed}");
                assert_eq!(got[1].hits, turns.iter().map(of).sum::<u64>(), "seed {seed}");
                assert!(got.iter().all(|outcome| outcome.is_exact));
            }
        }
    }

    #[test]
    fn looking_beats_hashing_beats_chance() {
        let trace = trace(9, 4000);
        let got = outcomes(&trace, SETTINGS);
        let [random, turns, session, longest, pooled] = got[..] else {
            panic!("five placements");
        };
        assert!(random.block_hit_rate + 0.1 < session.block_hit_rate, "{got:?}");
        assert!(turns.block_hit_rate + 0.1 < session.block_hit_rate);
        assert!(session.hits <= longest.hits + longest.references / 50);
        assert!(longest.hits <= pooled.hits + pooled.references / 50);
        assert!(longest.imbalance < 1.3 && random.imbalance < 1.3, "{got:?}");
        for outcome in &got {
            // The trace has no prompt lengths: of a prompt that hits whole, a block is computed.
            let (tokens, hits) = (outcome.hit_tokens, outcome.hits);
            assert!(tokens <= hits * 16 && tokens + 16 * outcome.requests > hits * 16);
        }
        let one = SpreadConfig { replicas: 1, ..SETTINGS };
        let alone = outcomes(&trace, one);
        assert!(alone.iter().all(|outcome| outcome.hits == alone[0].hits));
    }
}
