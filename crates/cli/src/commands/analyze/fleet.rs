//! What a fleet's caches would have served of the traffic, and why not the rest.

use std::collections::HashSet;

use headstart_cache::policy::Lru;
use headstart_core::TraceRequest;
use headstart_insight::documents::Documents;
use headstart_insight::{Bucket, Split};
use headstart_sim::spread::{Placement, Settings, Spread};
use headstart_sim::{Replay, ReplayConfig};

use super::traffic::{Said, Traffic};
use crate::report::analyze::Routing;

/// Replicas of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet {
    pub(crate) replicas: usize,
    /// Blocks of one replica.
    pub(crate) capacity_blocks: u64,
}

/// Where a request's tokens landed, request by request.
pub(crate) struct Played {
    pub(crate) splits: Vec<Split>,
    /// Tokens that the same fleet would have served, had each request gone to the replica that
    /// holds most of it (unless it is busy), or to one drawn by lot.
    pub(crate) routing: Routing,
    /// Tokens behind what an infinite prefix cache would serve that stood in an earlier prompt.
    pub(crate) order_free_tokens: u64,
    /// Requests whose log says itself what was cached.
    pub(crate) said: u64,
}

impl Fleet {
    /// Plays `traffic` through the fleet.
    pub(crate) fn play(self, traffic: &Traffic, seed: u64) -> Played {
        let block_tokens = traffic.info.block_tokens;
        let mut pool = cache(
            self.capacity_blocks.saturating_mul(self.replicas as u64),
            traffic,
        );
        let mut spread = Spread::new(Settings {
            replicas: self.replicas,
            capacity_blocks: self.capacity_blocks.saturating_mul(self.replicas as u64),
            block_tokens,
            seed,
        });
        let mut seen = HashSet::new();
        let mut documents = Documents::new(seed);
        let mut played = Played {
            splits: Vec::with_capacity(traffic.requests.len()),
            routing: Routing::default(),
            order_free_tokens: 0,
            said: 0,
        };
        for (index, request) in traffic.requests.iter().enumerate() {
            let tokens = prompt_tokens(request, block_tokens);
            let known = request
                .blocks
                .iter()
                .take_while(|block| seen.contains(block))
                .count();
            seen.extend(request.blocks.iter());
            let hits = in_tokens(pool.serve(request), block_tokens, tokens);
            let said = traffic
                .said
                .get(index)
                .and_then(|said| served(said, tokens));
            played.said += u64::from(said.is_some());
            let known = in_tokens(known, block_tokens, tokens);
            let again = traffic.said.get(index);
            let again = again.map_or(0, |said| documents.add(&said.tokens, known as usize));
            played.order_free_tokens += again;
            let whole = in_tokens(request.blocks.len(), block_tokens, tokens);
            played.splits.push(split(Places {
                tokens,
                whole,
                known,
                served: said.unwrap_or(hits),
                again: u32::try_from(again).unwrap_or(u32::MAX),
            }));
            spread.serve(request);
        }
        played.routing = routing(self.replicas, &spread);
        played
    }
}

fn routing(replicas: usize, spread: &Spread) -> Routing {
    let outcomes = spread.outcomes();
    let found = |placement: Placement| {
        let outcome = outcomes
            .iter()
            .find(|outcome| outcome.placement == placement);
        outcome.map_or(0, |outcome| outcome.hit_tokens)
    };
    Routing {
        replicas,
        random_tokens: found(Placement::Random),
        precise_tokens: found(Placement::LongestPrefix),
    }
}

fn cache(capacity_blocks: u64, traffic: &Traffic) -> Replay {
    let references = traffic
        .requests
        .iter()
        .map(|it| it.blocks.len() as u64)
        .sum::<u64>();
    let capacity = usize::try_from(capacity_blocks.min(references).max(1)).unwrap_or(usize::MAX);
    let config = ReplayConfig {
        capacity,
        block_tokens: traffic.info.block_tokens,
        cold_requests: 0,
    };
    Replay::with_config(config, Box::new(Lru::new(capacity)))
}

/// Prompt tokens of a request; of its blocks where nobody says.
pub(crate) fn prompt_tokens(request: &TraceRequest, block_tokens: u32) -> u32 {
    let blocks = u32::try_from(request.blocks.len()).unwrap_or(u32::MAX);
    request
        .input_tokens
        .unwrap_or(blocks.saturating_mul(block_tokens))
}

/// Leading blocks in tokens; a prompt's last token is always computed.
fn in_tokens(blocks: usize, block_tokens: u32, prompt_tokens: u32) -> u32 {
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    blocks
        .saturating_mul(block_tokens)
        .min(prompt_tokens.saturating_sub(1))
}

/// What the log says was cached, as a share of our tokens: the server may count other ones.
fn served(said: &Said, tokens: u32) -> Option<u32> {
    let (prompt, cached) = said.cached.filter(|(prompt, _)| *prompt > 0)?;
    Some((f64::from(cached) / f64::from(prompt) * f64::from(tokens)).round() as u32)
}

/// A request's tokens, counted from the front but for the last.
struct Places {
    /// All.
    tokens: u32,
    /// In whole blocks that can be served.
    whole: u32,
    /// In blocks that an earlier request had.
    known: u32,
    served: u32,
    /// Behind the known ones, but in an earlier prompt.
    again: u32,
}

fn split(places: Places) -> Split {
    let whole = places.whole.max(places.served);
    let known = places.known.max(places.served);
    let again = places.again.min(whole.saturating_sub(known));
    let mut split = Split::default();
    split.put(Bucket::Device, places.served);
    split.put(Bucket::BlockFloor, places.tokens - whole);
    split.put(Bucket::Evicted, known - places.served);
    split.put(Bucket::Diverged, again);
    split.put(Bucket::NeverSeen, whole.saturating_sub(known) - again);
    split
}
