//! What a fleet's caches would have served of the traffic, and why not the rest.

use headstart_cache::policy::Lru;
use headstart_core::{Rng, TraceRequest};
use headstart_insight::{Bucket, Split};
use headstart_sim::{Replay, ReplayConfig};

use super::traffic::{Said, Traffic};
use std::collections::HashSet;

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
    /// Tokens that the same fleet would have served, had each request gone to a replica drawn by
    /// lot.
    pub(crate) random_tokens: u64,
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
        let each = || cache(self.capacity_blocks, traffic);
        let mut by_lot: Vec<Replay> = (0..self.replicas).map(|_| each()).collect();
        let mut rng = Rng::new(seed);
        let mut seen = HashSet::new();
        let mut played = Played {
            splits: Vec::with_capacity(traffic.requests.len()),
            random_tokens: 0,
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
            played.splits.push(split(
                tokens,
                said.unwrap_or(hits),
                known,
                request,
                block_tokens,
            ));
            let lot = by_lot[rng.below(self.replicas)].serve(request);
            played.random_tokens += u64::from(in_tokens(lot, block_tokens, tokens));
        }
        played
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

fn split(tokens: u32, served: u32, known: u32, request: &TraceRequest, block_tokens: u32) -> Split {
    let blocks = u32::try_from(request.blocks.len()).unwrap_or(u32::MAX);
    let whole = blocks
        .saturating_mul(block_tokens)
        .min(tokens.saturating_sub(1))
        .max(served);
    let known = known.max(served);
    let mut split = Split::default();
    split.put(Bucket::Device, served);
    split.put(Bucket::BlockFloor, tokens - whole);
    split.put(Bucket::Evicted, known - served);
    split.put(Bucket::NeverSeen, whole - known);
    split
}
