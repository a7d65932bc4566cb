//! The same as [`super::replay`] for traces of block ids, at a cost per run of blocks instead of
//! per block: what became of every prompt token under LRU, without texts.
//!
//! ```text
//! seen      every block ever used, and until when it is being computed     is it new, in flight?
//! replicas  a stack of runs each, cut at what the replica holds            who holds how much?
//! ```
//!
//! No cache is imitated here: by the inclusion property of LRU a stack ([`Stack`]) says what a
//! cache of any size holds, and the buckets follow from how far the prompt is held, and known. The
//! replay with real caches and the attributor is the slow reference: on seeded random traces both
//! say the same of every request (tested), while no more than [`FLIGHTS_MAX`] are in flight.
//! Without texts nothing is ever `diverged` or in another
//! `namespace`.
//!
//! Memory: [`PIECES_MAX`] runs of all replicas together and as many of all that was seen, some 100
//! bytes each, and [`FLIGHTS_MAX`] requests in flight. Beyond, ids are sampled and the buckets are
//! estimates ([`ExplainedRuns::is_exact`]).

use std::collections::BTreeMap;
use std::time::Duration;

use headstart_core::{BlockRuns, Nanos, TraceRequest};
use headstart_insight::{Bucket, BucketTokens};
use headstart_trace::characterize::{Stack, prompt_tokens, servable_tokens};

use super::replay::FLIGHTS_MAX;
use crate::placement::RecentWork;
use crate::spread::{PIECES_MAX, PIECES_MIN};

/// A replay in progress. Requests go where most of them is held, see [`RecentWork`].
pub struct ExplainedRuns {
    block_tokens: u32,
    /// Blocks that each replica holds.
    blocks: u64,
    replicas: Vec<Stack<()>>,
    work: RecentWork,
    /// With each block until when it is computed.
    seen: Stack<Nanos>,
    begun: u64,
    flights: BTreeMap<(Nanos, u64), (usize, BlockRuns)>,
    overlaps: Vec<u64>,
    /// Leading blocks that were seen: how many, and until when they are computed.
    known: Vec<(u32, Nanos)>,
}

impl ExplainedRuns {
    /// Empty caches of `blocks` blocks of `block_tokens` tokens on `replicas` replicas, at least
    /// one.
    #[must_use]
    pub fn new(replicas: usize, blocks: u64, block_tokens: u32) -> Self {
        let replicas = replicas.max(1);
        // The bound is for all replicas together, but each needs some pieces to say anything.
        let pieces = (PIECES_MAX / replicas).max(PIECES_MIN);
        let cache = |_| Stack::with_depth(pieces, blocks);
        Self {
            block_tokens: block_tokens.max(1),
            blocks,
            replicas: (0..replicas).map(cache).collect(),
            work: RecentWork::new(replicas),
            seen: Stack::new(PIECES_MAX),
            begun: 0,
            flights: BTreeMap::new(),
            overlaps: Vec::new(),
            known: Vec::new(),
        }
    }

    /// Takes the next request, and returns what became of its tokens. `takes` maps the numbers of
    /// its found and of its other tokens to the time of its computation. Until that ends, no other
    /// request finds the new blocks.
    pub fn serve(
        &mut self,
        request: &TraceRequest,
        takes: impl Fn(u32, u32) -> Duration,
    ) -> BucketTokens {
        let now = request.arrival;
        while let Some(first) = self.flights.first_entry()
            && first.key().0 <= now
        {
            self.land_first();
        }
        let references = request.blocks.len();
        self.overlaps.clear();
        // Asked before anything is used: the request must not find its own blocks.
        for cache in &self.replicas {
            let held = cache.matched(&request.blocks, self.blocks);
            self.overlaps.push(held);
        }
        let replica = self.work.longest(references, |replica| self.overlaps[replica]);
        let hits = self.overlaps[replica];
        self.work.served(replica, references as u64 - hits);
        let size = u64::from(self.block_tokens);
        let prompt = prompt_tokens(request, self.block_tokens);
        let floor = servable_tokens(request, self.block_tokens);
        let found = (hits * size).min(floor);
        let due = now + takes(found as u32, (prompt - found) as u32);
        // `due` is known only now, because it depends on what was found.
        self.look(request, hits, due);
        let split = self.split(replica, [found, floor, prompt], now);
        self.begin(replica, request, due);
        split
    }

    /// Whether nothing was sampled.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        let replicas = self.replicas.iter();
        self.seen.weight() == 1 && replicas.map(Stack::weight).all(|weight| weight == 1)
    }

    /// Runs of blocks that are kept.
    #[must_use]
    pub fn num_pieces(&self) -> usize {
        let replicas = self.replicas.iter();
        self.seen.num_pieces() + replicas.map(Stack::num_pieces).sum::<usize>()
    }

    /// Finds which leading blocks were seen, and notes that those behind `hits` are computed.
    fn look(&mut self, request: &TraceRequest, hits: u64, due: Nanos) {
        if due > request.arrival && hits > 0 {
            // Cuts what was seen where the found part ends.
            let found = request.blocks.prefix(hits as usize);
            self.seen.touch(&found, |touch| touch.before.map_or(Nanos(0), |before| before.record));
        }
        self.known.clear();
        let known = &mut self.known;
        let mut end = 0;
        self.seen.touch(&request.blocks, |touch| {
            let before = touch.before.map(|before| before.record);
            // Only an unbroken beginning is known: the first new block ends it.
            if let Some(until) = before.filter(|_| touch.offset == end) {
                known.push((touch.count, until));
                end += u64::from(touch.count);
            }
            let until = before.unwrap_or_default();
            // Blocks found on the replica are not computed. The others may be in flight twice,
            // until the later end.
            if touch.offset >= hits { until.max(due) } else { until }
        });
    }

    /// The tokens of a prompt by bucket: `found` are served, those from `floor` on are always
    /// computed. The order is that of [`Bucket::ALL`].
    fn split(&self, replica: usize, [found, floor, prompt]: [u64; 3], now: Nanos) -> BucketTokens {
        let size = u64::from(self.block_tokens);
        let others = self.overlaps.iter().enumerate();
        let others = others.filter(|&(other, _)| other != replica);
        let elsewhere = others.map(|(_, &held)| held).max().unwrap_or(0) * size;
        let mut split = BucketTokens::default();
        let mut at = 0;
        let mut fill = |bucket: Bucket, end: u64| {
            // Clamped, so that a bucket which ends before the last one is empty.
            let end = end.clamp(at, prompt);
            split.put(bucket, (end - at) as u32);
            at = end;
        };
        fill(Bucket::Device, found);
        let mut end = 0;
        for &(count, until) in &self.known {
            end += u64::from(count) * size;
            if until > now {
                fill(Bucket::InFlight, end.min(floor));
            } else {
                // Other replicas first, as in the order of the buckets.
                fill(Bucket::HeldElsewhere, elsewhere.min(end).min(floor));
                fill(Bucket::Evicted, end.min(floor));
            }
        }
        fill(Bucket::NeverSeen, floor);
        fill(Bucket::BlockFloor, prompt);
        split
    }

    fn begin(&mut self, replica: usize, request: &TraceRequest, due: Nanos) {
        let number = self.begun;
        self.begun += 1;
        if due <= request.arrival {
            self.replicas[replica].touch(&request.blocks, |_| ());
            return;
        }
        let flight = (replica, request.blocks.clone());
        self.flights.insert((due, number), flight);
        // The same bound as in the slow replay, so that both say the same up to it.
        if self.flights.len() > FLIGHTS_MAX {
            self.land_first();
        }
    }

    fn land_first(&mut self) {
        if let Some((_, (replica, blocks))) = self.flights.pop_first() {
            self.replicas[replica].touch(&blocks, |_| ());
        }
    }
}

#[cfg(test)]
mod tests {
    use headstart_cache::policy::Lru;
    use headstart_core::Rng;
    use headstart_insight::loss::AttributorConfig;

    use super::*;
    use crate::explained::replay::{ExplainedConfig, ExplainedReplay, PromptContent};

    /// Conversations that grow, branch and repeat; ids name prefixes.
    fn trace(rng: &mut Rng, requests: usize) -> Vec<TraceRequest> {
        let mut chains: Vec<Vec<u64>> = vec![(0..5).collect()];
        let mut next_id = 100;
        let mut now = 0;
        let mut request = |_| {
            now += [0, 0, 3, 40, 300][rng.below(5)];
            let mut chain = chains[rng.below(chains.len())].clone();
            if rng.below(3) == 0 {
                chain.truncate(rng.below(chain.len() + 1));
            }
            for _ in 0..rng.below(9) {
                chain.push(next_id);
                next_id += if rng.below(6) == 0 { 2 } else { 1 };
            }
            next_id += 3;
            chains.push(chain.clone());
            let tokens = chain.len() as u32 * 16 + rng.below(16) as u32;
            if !tokens.is_multiple_of(16) && rng.below(2) == 0 {
                // Some traces number a last block that is not full.
                chain.push(next_id);
                next_id += 1;
            }
            TraceRequest {
                arrival: Nanos(now),
                blocks: chain.into_iter().collect(),
                input_tokens: (!tokens.is_multiple_of(16) || rng.below(2) == 0).then_some(tokens),
                ..TraceRequest::default()
            }
        };
        (0..requests).map(&mut request).collect()
    }

    /// Numbers have more than 32 bits: none returns, and equal ends come in order of starts.
    #[test]
    fn requests_behind_four_billion_others_have_numbers_of_their_own() {
        let mut runs = ExplainedRuns::new(1, 100, 16);
        runs.begun = u64::from(u32::MAX);
        for block in [0, 1] {
            let blocks = std::iter::once(block).collect();
            let request = TraceRequest { blocks, ..TraceRequest::default() };
            runs.serve(&request, |_, _| Duration::from_nanos(9));
        }
        let flights: Vec<u64> = runs.flights.keys().map(|(_, number)| *number).collect();
        assert_eq!(flights, [u64::from(u32::MAX), 1 << 32]);
    }

    /// Against real caches and the attributor, request by request.
    #[test]
    fn runs_say_what_blocks_say() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let trace = trace(&mut rng, 300);
            let replicas = 1 + rng.below(4);
            let blocks = [1, 7, 30, 100, 1_000][rng.below(5)];
            let speed = [0, 0, 1, 5][rng.below(4)];
            let takes = |_: u32, computed: u32| Duration::from_nanos(u64::from(computed * speed));
            let mut slow = ExplainedReplay::new(
                ExplainedConfig {
                    replicas,
                    blocks,
                    block_tokens: 16,
                    memory: AttributorConfig::default(),
                },
                |blocks| Box::new(Lru::new(blocks)),
            );
            let mut runs = ExplainedRuns::new(replicas, blocks as u64, 16);
            let mut got = Vec::new();
            for request in &trace {
                slow.begin(request, PromptContent::default(), takes);
                got.push(runs.serve(request, takes));
            }
            let expected = slow.finish();
            for (number, (got, expected)) in got.iter().zip(&expected).enumerate() {
                let setting = (seed, number, replicas, blocks, speed);
                assert_eq!(got, expected, "{setting:?}: {:?}", trace[number]);
            }
            assert!(runs.is_exact());
        }
    }
}
