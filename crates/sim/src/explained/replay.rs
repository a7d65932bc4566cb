//! A trace over replicas with real prefix caches: what became of every prompt token.
//!
//! ```text
//! begin(request) ── the replica is chosen, what it holds is found ──► in flight ──┐
//!                                                     its prompt is computed, for as long as the
//! finish() ◄── what became of each token ◄── landed ◄──── caller says, then it can be found ◄──┘
//! ```
//!
//! Requests come in order of time and go where most of them is held, see [`RecentWork`]. Where
//! computing takes no time (as in [`crate::replay`]) nothing is ever in flight. The router is never
//! wrong. So what is left is what placement, room and the prompts themselves cost. The attributor
//! is driven as a gateway drives it. Requests in flight wait for no one: there are no queues, and
//! at most [`FLIGHTS_MAX`] fly.

use std::collections::BTreeMap;
use std::time::Duration;

use headstart_cache::{Effect, Policy, PrefixCache};
use headstart_core::{Access, BlockHash, Nanos, ReplicaId, RouteKey, Tier, TokenId, TraceRequest};
use headstart_insight::BucketTokens;
use headstart_insight::loss::{
    ArrivingRequest, Attributor, AttributorConfig, Memory, Pending, ServedTokens,
};
use headstart_trace::characterize::servable_tokens;

use crate::placement::RecentWork;
use crate::replay::{access_of, fill};

/// Requests in flight: with more, the one that is computed soonest is computed at once.
pub const FLIGHTS_MAX: usize = 4096;

/// Fleet and options of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExplainedConfig {
    /// Replicas, at least one.
    pub replicas: usize,
    /// Blocks that each holds.
    pub blocks: usize,
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Limits of the attributor's memory.
    pub memory: AttributorConfig,
}

/// A prompt's contents, where a trace has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct PromptContent<'a> {
    /// Its tokens: without them the buckets for divergence and for other namespaces stay empty.
    pub tokens: Option<&'a [TokenId]>,
    /// Stands for salt, adapter and model; the blocks' ids must differ where this differs.
    pub namespace: u64,
}

/// A replay in progress.
pub struct ExplainedReplay {
    config: ExplainedConfig,
    caches: Vec<PrefixCache>,
    work: RecentWork,
    attributor: Attributor,
    begun: u64,
    flights: BTreeMap<(Nanos, u64), Flight>,
    /// Of [`ExplainedReplay::begin`], by number.
    landed: Vec<BucketTokens>,
    chain: Vec<BlockHash>,
    keys: Vec<RouteKey>,
    overlaps: Vec<(ReplicaId, u32)>,
}

/// A request whose prompt is being computed.
struct Flight {
    number: u64,
    replica: usize,
    chain: Vec<BlockHash>,
    /// Of its first block, at its arrival.
    access: Access,
    pending: Pending,
    found: u32,
}

impl ExplainedReplay {
    /// Starts with empty caches, whose victims are chosen by what `policy` makes for each.
    #[must_use]
    pub fn new(config: ExplainedConfig, policy: impl Fn(usize) -> Box<dyn Policy>) -> Self {
        let replicas = config.replicas.max(1);
        let cache = |_| PrefixCache::new(config.blocks, policy(config.blocks));
        Self {
            caches: (0..replicas).map(cache).collect(),
            work: RecentWork::new(replicas),
            attributor: Attributor::new(&config.memory),
            begun: 0,
            flights: BTreeMap::new(),
            landed: Vec::new(),
            chain: Vec::new(),
            keys: Vec::new(),
            overlaps: Vec::new(),
            config,
        }
    }

    /// Takes the next request. `takes` maps the numbers of its found and of its other tokens to the
    /// time of its computation. Until that ends, no other request finds the new blocks.
    pub fn begin(
        &mut self,
        request: &TraceRequest,
        content: PromptContent<'_>,
        takes: impl Fn(u32, u32) -> Duration,
    ) {
        let now = request.arrival;
        // First everything that was computed by now, so that the request can find it.
        while let Some(first) = self.flights.first_entry()
            && first.key().0 <= now
        {
            self.land_first();
        }
        let flight = self.start(request, content);
        let number = flight.number;
        let computed = flight.pending.prompt_tokens() - flight.found;
        let due = now + takes(flight.found, computed);
        // Taking no time means that nothing is ever in flight.
        if due <= now {
            let split = self.land(flight, now);
            return self.note(number, split);
        }
        self.flights.insert((due, number), flight);
        // A bound on memory: the earliest is taken for computed.
        if self.flights.len() > FLIGHTS_MAX {
            self.land_first();
        }
    }

    /// Lets all that is in flight land; what became of the tokens of each request that was begun,
    /// in order.
    pub fn finish(&mut self) -> Vec<BucketTokens> {
        while !self.flights.is_empty() {
            self.land_first();
        }
        std::mem::take(&mut self.landed)
    }

    /// Returns the fill level of the attributor's memory.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.attributor.memory()
    }

    /// Chooses a replica for the next request, finds what it holds and begins to compute the rest.
    fn start(&mut self, request: &TraceRequest, content: PromptContent<'_>) -> Flight {
        self.chain.clear();
        self.chain.extend(request.blocks.iter().map(BlockHash::from_u64));
        let size = self.config.block_tokens.max(1);
        let prompt = request.input_tokens.unwrap_or(self.chain.len() as u32 * size);
        // A partial last block is cached here as blocks are, but is not one of the prompt's full
        // ones.
        let full = (prompt / size) as usize;
        self.keys.clear();
        self.keys.extend(request.blocks.iter().take(full).map(RouteKey));
        self.look();
        let held = |replica: usize| u64::from(self.overlaps[replica].1);
        let replica = self.work.longest(self.chain.len(), held);
        let hits = self.overlaps[replica].1;
        // Blocks that were not found are work. It counts before overlaps become tokens.
        self.work.served(replica, (self.chain.len() - hits as usize) as u64);
        // The attributor counts in tokens, as a gateway tells it.
        for (_, blocks) in &mut self.overlaps {
            *blocks *= size;
        }
        let arrival = ArrivingRequest {
            replica: ReplicaId(replica as u32),
            prompt_tokens: prompt,
            block_size: size,
            keys: &self.keys,
            tokens: content.tokens,
            namespace: content.namespace,
            overlaps: &self.overlaps,
        };
        let pending = self.attributor.arrive(&arrival, request.arrival);
        let access = access_of(request, self.begun as u32);
        let number = self.begun;
        self.begun += 1;
        Flight {
            number,
            replica,
            chain: std::mem::take(&mut self.chain),
            access,
            pending,
            // The last token is always computed, so its block is never served.
            found: (hits * size).min(servable_tokens(request, size) as u32),
        }
    }

    fn land_first(&mut self) {
        if let Some(((due, number), flight)) = self.flights.pop_first() {
            let split = self.land(flight, due);
            self.note(number, split);
        }
    }

    fn note(&mut self, number: u64, split: BucketTokens) {
        let number = number as usize;
        // Requests land in order of their ends, and are listed in order of their starts.
        if self.landed.len() <= number {
            self.landed.resize(number + 1, BucketTokens::default());
        }
        self.landed[number] = split;
    }

    /// Its prompt is computed: all of it can be found from now on. Returns what became of its
    /// tokens.
    fn land(&mut self, flight: Flight, now: Nanos) -> BucketTokens {
        let Flight { replica, chain, access, pending, found, .. } = flight;
        // The policy sees the blocks when they are computed, not when the request came.
        let access = Access { now, ..access };
        self.fill(replica, &chain, &access);
        let served = ServedTokens::by_device(found);
        let outcome = self.attributor.finish(pending, &served, now);
        // The list goes back, because its memory serves every request.
        self.chain = chain;
        outcome.split
    }

    /// Counts the blocks of the chain that each replica holds.
    fn look(&mut self) {
        let held = self.caches.iter().enumerate().map(|(replica, cache)| {
            let blocks = cache.overlap(&self.chain) as u32;
            (ReplicaId(replica as u32), blocks)
        });
        self.overlaps.clear();
        self.overlaps.extend(held);
    }

    /// Serves the chain from one replica's cache, and tells the attributor what changed there.
    fn fill(&mut self, replica: usize, chain: &[BlockHash], access: &Access) {
        let cache = &mut self.caches[replica];
        fill(cache, chain, access);
        let replica = ReplicaId(replica as u32);
        for effect in cache.drain_effects() {
            let attributor = &mut self.attributor;
            match effect {
                Effect::Stored { hash, .. } => {
                    attributor.stored(replica, key_of(hash), Tier::Device, access.now);
                }
                Effect::Evicted { hash, .. } => {
                    attributor.removed(replica, key_of(hash), Tier::Device);
                }
            }
        }
    }
}

/// A trace's number of a block as its key.
fn key_of(hash: BlockHash) -> RouteKey {
    RouteKey(u128::from_be_bytes(hash.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_cache::policy::Lru;
    use headstart_core::Rng;
    use headstart_insight::{Bucket, Waterfall};

    fn replay(replicas: usize, blocks: usize) -> ExplainedReplay {
        let config = ExplainedConfig {
            replicas,
            blocks,
            block_tokens: 16,
            memory: AttributorConfig::default(),
        };
        ExplainedReplay::new(config, |blocks| Box::new(Lru::new(blocks)))
    }

    /// Serves a request at once; what became of its tokens.
    fn serve(replay: &mut ExplainedReplay, request: &TraceRequest) -> BucketTokens {
        let flight = replay.start(request, PromptContent::default());
        replay.land(flight, request.arrival)
    }

    fn total(splits: &[BucketTokens]) -> Waterfall {
        let mut total = Waterfall::default();
        splits.iter().for_each(|split| total.add(split));
        total
    }

    fn request(at: u64, blocks: std::ops::Range<u64>, input_tokens: u32) -> TraceRequest {
        TraceRequest {
            arrival: Nanos(at),
            blocks: blocks.collect(),
            input_tokens: Some(input_tokens),
            ..TraceRequest::default()
        }
    }

    #[test]
    fn what_is_evicted_or_elsewhere_is_said() {
        let mut one = replay(1, 5);
        for (at, from, expected) in [
            (0, 10, Bucket::NeverSeen),
            (1, 10, Bucket::Device),
            (2, 20, Bucket::NeverSeen),
            (3, 10, Bucket::Evicted),
        ] {
            let split = serve(&mut one, &request(at, from..from + 5, 70));
            let parts: Vec<_> = split.iter().collect();
            assert!(parts.contains(&(expected, 64)), "{at}: {parts:?}");
            assert!(parts.contains(&(Bucket::BlockFloor, 6)), "{at}: {parts:?}");
        }
        let mut two = replay(2, 100);
        serve(&mut two, &request(0, 200..205, 70));
        assert_eq!(serve(&mut two, &request(1, 200..205, 70)).get(Bucket::Device), 64);
        // So much work keeps the next requests from that replica, whatever it holds.
        serve(&mut two, &request(2, 0..90, 90 * 16));
        assert_eq!(serve(&mut two, &request(3, 0..5, 70)).get(Bucket::HeldElsewhere), 64);
    }

    /// Of three at once the second finds nothing, and neither does the third; the fourth comes
    /// when the first is computed.
    #[test]
    fn what_is_being_computed_is_in_flight() {
        let mut replay = replay(1, 100);
        let takes = |found: u32, computed: u32| {
            assert_eq!(found + computed, 70);
            Duration::from_nanos(u64::from(computed))
        };
        for at in [0, 0, 69, 70, 200] {
            replay.begin(&request(at, 0..5, 70), PromptContent::default(), takes);
        }
        let mut other = request(300, 50..55, 70);
        replay.begin(&other, PromptContent::default(), takes);
        other.arrival = Nanos(301);
        replay.begin(&other, PromptContent::default(), |_, _| Duration::ZERO);
        let splits = replay.finish();
        let expected = [
            Bucket::NeverSeen,
            Bucket::InFlight,
            Bucket::InFlight,
            Bucket::Device,
            Bucket::Device,
            Bucket::NeverSeen,
            Bucket::InFlight,
        ];
        assert_eq!(splits.len(), expected.len());
        for (split, expected) in splits.iter().zip(expected) {
            let parts: Vec<_> = split.iter().collect();
            assert_eq!((split.total(), split.get(expected)), (70, 64), "{parts:?}");
        }
        assert!(replay.finish().is_empty());
    }

    /// Numbers have more than 32 bits: none returns, and equal ends come in order of starts.
    #[test]
    fn requests_behind_four_billion_others_have_numbers_of_their_own() {
        let mut replay = replay(1, 100);
        replay.begun = u64::from(u32::MAX);
        for block in [0, 1] {
            let request = request(0, block..block + 1, 16);
            let takes = |_, _| Duration::from_nanos(9);
            replay.begin(&request, PromptContent::default(), takes);
        }
        let flights: Vec<u64> = replay.flights.keys().map(|(_, number)| *number).collect();
        assert_eq!(flights, [u64::from(u32::MAX), 1 << 32]);
    }

    /// Without time both ways are one; with it, what is found can only be less.
    #[test]
    fn computing_in_no_time_is_serving() {
        let mut rng = Rng::new(11);
        let requests = (0..1_500).map(|at| {
            let family = 100 * rng.below(9) as u64;
            let len = 1 + rng.below(20) as u64;
            request(at, family..family + len, len as u32 * 16 - rng.below(16) as u32)
        });
        let requests: Vec<_> = requests.collect();
        let mut at_once = replay(3, 40);
        let mut begun = replay(3, 40);
        let mut slow = replay(3, 40);
        let mut at_once_splits = Vec::new();
        for request in &requests {
            at_once_splits.push(serve(&mut at_once, request));
            begun.begin(request, PromptContent::default(), |_, _| Duration::ZERO);
            slow.begin(request, PromptContent::default(), |_, computed| {
                Duration::from_nanos(u64::from(computed / 16))
            });
        }
        let (begun, slow) = (begun.finish(), slow.finish());
        assert_eq!(begun, at_once_splits);
        for (split, request) in slow.iter().zip(&requests) {
            assert_eq!(split.total(), u64::from(request.input_tokens.unwrap_or(0)));
        }
        assert_eq!(total(&slow).total(), total(&begun).total());
        assert!(total(&slow).get(Bucket::InFlight) > 0);
        assert_eq!(total(&begun).get(Bucket::InFlight), 0);
    }

    /// The size curve of a trace says what one replica of that size serves of its tokens.
    #[test]
    fn the_curve_is_what_replays_serve() {
        use headstart_trace::characterize::{Characterizer, Settings};
        let mut rng = Rng::new(3);
        let mut chains = vec![Vec::new(); 12];
        let requests = (0..600).map(|at| {
            let family = rng.below(chains.len());
            let chain: &mut Vec<u64> = &mut chains[family];
            let more = rng.below(6) as u64;
            let next = 1_000 * family as u64 + chain.len() as u64;
            chain.extend(next..next + more);
            let mut one = request(at, 0..0, chain.len() as u32 * 16 + rng.below(16) as u32);
            one.blocks = chain.iter().copied().collect();
            one
        });
        let requests: Vec<_> = requests.collect();
        let mut characterizer =
            Characterizer::new(Settings { block_tokens: 16, ..Settings::default() });
        requests.iter().for_each(|request| characterizer.add(request));
        let numbers = characterizer.finish();
        let prompts = numbers.ideal.prompt_tokens as f64;
        for point in numbers.curve.iter().step_by(7) {
            let mut one = replay(1, point.capacity_blocks as usize);
            let splits = requests.iter().map(|request| serve(&mut one, request));
            let served = total(&splits.collect::<Vec<_>>()).get(Bucket::Device);
            let told = point.token_hit_rate * prompts;
            assert!((served as f64 - told).abs() < 0.5, "{served} {told} at {point:?}");
        }
    }

    /// Against the plain replay: one replica serves what it hits there.
    #[test]
    fn one_replica_serves_what_the_plain_replay_hits() {
        let mut rng = Rng::new(5);
        let mut explained = replay(1, 50);
        let mut splits = Vec::new();
        let mut plain = crate::Replay::new(50, Box::new(Lru::new(50)));
        let mut hits = 0;
        for at in 0..2_000 {
            let family = 100 * rng.below(8) as u64;
            let len = 1 + rng.below(20) as u64;
            let one = request(at, family..family + len, len as u32 * 16 + 1);
            hits += plain.serve(&one) as u64;
            splits.push(serve(&mut explained, &one));
        }
        let total = total(&splits);
        assert_eq!(total.get(Bucket::Device), 16 * hits);
        assert_eq!(total.get(Bucket::HeldElsewhere), 0);
        assert!(total.get(Bucket::Evicted) > 0);
    }
}
