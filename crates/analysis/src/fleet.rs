//! Simulated hits of a fleet's caches, and the reasons for the misses.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use headstart_cache::policy::Lru;
use headstart_core::{Progress, TraceRequest};
use headstart_insight::Bucket;
use headstart_insight::BucketTokens;
use headstart_insight::documents::Documents;
use headstart_insight::loss::AttributorConfig;
use headstart_sim::explained::replay::{ExplainedConfig, ExplainedReplay, PromptContent};
use headstart_sim::explained::runs::ExplainedRuns;
use headstart_sim::spread::{PlacementPolicy, SpreadConfig, SpreadFleet};
use headstart_trace::characterize::Stack;

use crate::cost::PromptCostModel;
use crate::logged::{corrected, served};
use crate::memory::{self, Bounds};
use crate::results::{MemoryEstimate, Own};
use crate::traffic::{LoggedPrompt, LoggedTraffic};

/// Fewest blocks and tokens that the attribution has room for.
const ROOM_MIN: usize = 1 << 12;

/// Requests drawn at random in all, and the fewest and most draws of the traffic. The more requests
/// there are, the less one draw differs from another.
const LOTS: usize = 4_096;
const DRAWS: (usize, usize) = (2, 32);

/// Replicas of one size.
#[derive(Clone, Copy, Debug)]
pub struct UniformFleet {
    /// Number of replicas.
    pub replicas: usize,
    /// Blocks of one replica.
    pub capacity_blocks: u64,
}

/// Inputs of a replay.
#[derive(Clone, Copy)]
pub(crate) struct FleetReplay<'a> {
    pub(crate) traffic: &'a LoggedTraffic,
    /// Predicts the times of prompts that are computed at once.
    pub(crate) cost: &'a PromptCostModel,
    pub(crate) bounds: &'a Bounds,
    pub(crate) seed: u64,
}

/// Results of a replay.
pub(crate) struct FleetReplayOutcome {
    /// Request by request.
    pub(crate) splits: Vec<BucketTokens>,
    /// Tokens found by the replay, those that were being computed among them.
    pub(crate) found_tokens: u64,
    /// Hits that the logs report, beside the replay's.
    pub(crate) own: Own,
    pub(crate) kept: Vec<MemoryEstimate>,
}

/// Hits with random routing.
pub(crate) struct RandomRoutingHits {
    /// The mean over the draws.
    pub(crate) tokens: u64,
    pub(crate) draws: usize,
    pub(crate) kept: MemoryEstimate,
}

impl UniformFleet {
    /// As a fleet that requests are spread over.
    pub(crate) fn spread(self, block_tokens: u32) -> SpreadConfig {
        let Self { replicas, capacity_blocks } = self;
        SpreadConfig { replicas, capacity_blocks, block_tokens }
    }

    /// Plays the traffic through the fleet: each request goes where most of it is held.
    pub(crate) fn play(
        self,
        replay: FleetReplay<'_>,
        progress: &dyn Progress,
    ) -> FleetReplayOutcome {
        if replay.traffic.said.is_empty() {
            self.play_ids(replay, progress)
        } else {
            self.play_texts(replay, progress)
        }
    }

    /// Traces of ids know no texts, so runs of blocks say all that there is to say.
    fn play_ids(self, replay: FleetReplay<'_>, progress: &dyn Progress) -> FleetReplayOutcome {
        let FleetReplay { traffic, cost, .. } = replay;
        let block_tokens = traffic.info.block_tokens;
        // A stack takes memory by the run and not by the block, so long traces fit.
        let mut runs = ExplainedRuns::new(self.replicas, self.capacity_blocks, block_tokens);
        // Without usable times all requests come one after the other, and nothing is in flight.
        let is_timed = traffic.tells_what_is_at_once();
        let progress = progress.beside("replaying", traffic.requests.len());
        let serve = |request: &TraceRequest| {
            progress.inc(1);
            // Zero time means that the prompt can be found by the next request already.
            runs.serve(request, |found, computed| {
                if is_timed { cost.computing(found, computed) } else { Duration::ZERO }
            })
        };
        let splits = traffic.requests.iter().map(serve).collect();
        let kept = vec![memory::runs(runs.num_pieces(), runs.is_exact())];
        told(splits, traffic, kept)
    }

    /// Real caches and the attributor of the gateway, which look at tokens too.
    fn play_texts(self, replay: FleetReplay<'_>, progress: &dyn Progress) -> FleetReplayOutcome {
        let FleetReplay { traffic, cost, bounds, seed } = replay;
        let references = traffic.requests.iter().map(|request| request.blocks.len() as u64);
        let references: u64 = references.sum();
        // More than there are references would change nothing.
        let asked = self.capacity_blocks.min(references).max(1);
        // The bound is divided among the replicas; each has at least one block.
        let blocks = asked.min(bounds.fleet_blocks / self.replicas as u64).max(1);
        let tokens: usize = traffic.said.iter().map(|said| said.tokens.len()).sum();
        let memory = AttributorConfig {
            // Room for more, because a table is never quite even.
            blocks: (4 * references as usize).clamp(ROOM_MIN, bounds.blocks),
            tokens: tokens.clamp(ROOM_MIN, bounds.tokens),
            secret: seed,
        };
        let config = ExplainedConfig {
            replicas: self.replicas,
            blocks: blocks as usize,
            block_tokens: traffic.info.block_tokens,
            memory,
        };
        let mut explained = ExplainedReplay::new(config, |blocks| Box::new(Lru::new(blocks)));
        let is_timed = traffic.tells_what_is_at_once();
        // The cost model counts tokens as the log's server does.
        let scaled = |tokens: u32| (f64::from(tokens) / traffic.counts.factor()).round() as u32;
        let progress = progress.beside("replaying", traffic.requests.len());
        for (request, said) in traffic.requests.iter().zip(&traffic.said) {
            progress.inc(1);
            explained.begin(request, content(said), |found, computed| {
                match (is_timed, said.ttft) {
                    (false, _) => Duration::ZERO,
                    // The log's own time to the first token is better than a model's.
                    (true, Some(ttft)) => ttft,
                    (true, None) => cost.computing(scaled(found), scaled(computed)),
                }
            });
        }
        let splits = explained.finish();
        let kept = vec![
            memory::attribution(&explained.memory(), memory.tokens, bounds),
            memory::caches(self.replicas, blocks, asked, bounds),
        ];
        told(splits, traffic, kept)
    }

    /// Replays the traffic with random routing and averages the hits over several draws.
    pub(crate) fn random(
        self,
        traffic: &LoggedTraffic,
        seed: u64,
        progress: &dyn Progress,
    ) -> RandomRoutingHits {
        let (least, most) = DRAWS;
        // Many draws of few requests, few draws of many: the work stays about the same.
        let draws = (LOTS / traffic.requests.len().max(1)).clamp(least, most);
        let (mut tokens, mut pieces, mut is_exact) = (0, 0, true);
        progress.phase("routing at random", Some(draws));
        for draw in 0..draws {
            // Each draw has a seed of its own, so the average is over different routings.
            let placement = PlacementPolicy::Random { seed: seed + draw as u64 };
            let mut spread = SpreadFleet::new(placement, self.spread(traffic.info.block_tokens));
            for request in &traffic.requests {
                spread.serve(request);
            }
            progress.inc(1);
            tokens += spread.hit_tokens();
            is_exact &= spread.is_exact();
            // The draws come one after the other, so the memory is that of the largest.
            pieces = pieces.max(spread.num_pieces());
        }
        RandomRoutingHits {
            // `draws` is at least two.
            tokens: tokens / draws as u64,
            draws,
            kept: memory::random(pieces, is_exact),
        }
    }
}

/// The replay's splits, corrected where a log says itself what was served.
fn told(
    mut splits: Vec<BucketTokens>,
    traffic: &LoggedTraffic,
    kept: Vec<MemoryEstimate>,
) -> FleetReplayOutcome {
    let mut own = Own::default();
    let mut found_tokens = 0;
    for (index, split) in splits.iter_mut().enumerate() {
        // Random routing, which this is compared with, has no service times and finds these as
        // well.
        let found = split.get(Bucket::Device) + split.get(Bucket::InFlight);
        found_tokens += u64::from(found);
        let said = traffic.said.get(index);
        // Only requests whose log has both counts are corrected; the others keep the replay's
        // answer.
        if let Some(tokens) = said.and_then(|said| served(said, split)) {
            own.requests += 1;
            own.prompt_tokens += split.total();
            own.served_tokens += u64::from(tokens);
            own.replayed_tokens += u64::from(found);
            // The counts above use the replay's split, so the correction comes last.
            *split = corrected(split, tokens);
        }
    }
    FleetReplayOutcome { splits, found_tokens, own, kept }
}

fn content(said: &LoggedPrompt) -> PromptContent<'_> {
    PromptContent { tokens: Some(&said.tokens), namespace: namespace(said) }
}

/// Requests share a cache if they ask the same model under the same salt.
pub(crate) fn namespace(said: &LoggedPrompt) -> u64 {
    // A tuple with its options hashes `None` apart from an empty name.
    hashed(&(&said.model, &said.cache_salt))
}

/// A hash for comparisons within this process. Its key is fixed: it hides nothing.
pub(crate) fn hashed(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Tokens behind what an infinite prefix cache would serve that stood in an earlier prompt of the
/// same model and salt, and what was kept to tell.
pub(crate) fn order_free(
    traffic: &LoggedTraffic,
    bounds: &Bounds,
    seed: u64,
) -> (u64, MemoryEstimate) {
    let mut seen: Stack<()> = Stack::new(bounds.limits.pieces);
    let mut documents = Documents::with_chunks_max(seed, bounds.chunks);
    let mut tokens = 0;
    for (request, said) in traffic.requests.iter().zip(&traffic.said) {
        // Tokens of a prefix that any cache would serve are not counted a second time.
        let prefix = prefix_seen(&mut seen, request) * traffic.info.block_tokens as usize;
        tokens += documents.add(namespace(said), &said.tokens, prefix);
    }
    (tokens, memory::documents(&documents, bounds))
}

/// Leading blocks of a request that were in an earlier one.
fn prefix_seen(seen: &mut Stack<()>, request: &TraceRequest) -> usize {
    // The lookup comes before the touch: afterwards every block of the request is known.
    let known = seen.matched(&request.blocks, u64::MAX);
    seen.touch(&request.blocks, |_| ());
    known as usize
}
