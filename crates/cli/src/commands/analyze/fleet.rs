//! What a fleet's caches would have served of the traffic, and why not the rest.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use headstart_cache::policy::Lru;
use headstart_core::TraceRequest;
use headstart_insight::documents::Documents;
use headstart_insight::loss::AttributorConfig;
use headstart_insight::{Bucket, Split};
use headstart_sim::explained::replay::{
    Content, Explained, ExplainedConfig, Placement as ExplainedPlacement,
};
use headstart_sim::spread::{Placement, Settings, Spread};

use super::patience::Patience;
use super::traffic::{Said, Traffic};
use crate::report::analyze::Routing;

/// Blocks and anchors that the attribution remembers at least and at most, as powers of two: from
/// 48 MiB to 1.5 GiB.
const MEMORY_BITS: (u32, u32) = (20, 25);

/// Buckets whose tokens a log may say were served all the same, the likeliest first.
const SERVED_AFTER_ALL: [Bucket; 6] = [
    Bucket::HeldElsewhere,
    Bucket::Evicted,
    Bucket::Namespace,
    Bucket::Diverged,
    Bucket::NeverSeen,
    Bucket::BlockFloor,
];

/// Replicas of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet {
    pub(crate) replicas: usize,
    /// Blocks of one replica.
    pub(crate) capacity_blocks: u64,
}

/// Where the tokens landed.
pub(crate) struct Played {
    /// Request by request.
    pub(crate) splits: Vec<Split>,
    pub(crate) routing: Routing,
    /// Tokens behind what an infinite prefix cache would serve that stood in an earlier prompt.
    pub(crate) order_free_tokens: u64,
    /// Requests whose log says itself what was cached.
    pub(crate) said: u64,
}

impl Fleet {
    /// Plays `traffic` through the fleet.
    pub(crate) fn play(self, traffic: &Traffic, seed: u64, patience: &mut Patience) -> Played {
        let block_tokens = traffic.info.block_tokens;
        let mut explained = self.explained(traffic, seed);
        let mut spread = Spread::new(Settings {
            replicas: self.replicas,
            capacity_blocks: self.capacity_blocks.saturating_mul(self.replicas as u64),
            block_tokens,
            seed,
        });
        let mut beyond = Beyond::new(block_tokens, seed);
        let mut played = Played {
            splits: Vec::with_capacity(traffic.requests.len()),
            routing: Routing::default(),
            order_free_tokens: 0,
            said: 0,
        };
        for (index, request) in traffic.requests.iter().enumerate() {
            patience.look(index);
            let said = traffic.said.get(index);
            let mut split = explained.serve(request, content(said)).split;
            if let Some(served) = said.and_then(|said| served(said, &split)) {
                played.said += 1;
                split = corrected(&split, served);
            }
            played.splits.push(split);
            spread.serve(request);
            played.order_free_tokens += said.map_or(0, |said| beyond.add(request, said));
        }
        played.routing = routing(self.replicas, &spread);
        played
    }

    fn explained(self, traffic: &Traffic, seed: u64) -> Explained {
        let references = traffic
            .requests
            .iter()
            .map(|it| it.blocks.len() as u64)
            .sum::<u64>();
        let tokens: usize = traffic.said.iter().map(|said| said.tokens.len()).sum();
        let room = |needed: usize| {
            let (least, most) = MEMORY_BITS;
            needed.clamp(1 << least, 1 << most)
        };
        let config = ExplainedConfig {
            replicas: self.replicas,
            // More than there are references would change nothing.
            blocks: self.capacity_blocks.min(references).max(1) as usize,
            block_tokens: traffic.info.block_tokens,
            placement: ExplainedPlacement::LongestPrefix,
            seed,
            memory: AttributorConfig {
                blocks: room(references as usize),
                anchors: room(tokens / 4),
                secret: seed,
            },
        };
        Explained::new(config, |blocks| Box::new(Lru::new(blocks)))
    }
}

fn content(said: Option<&Said>) -> Content<'_> {
    let Some(said) = said else {
        return Content::default();
    };
    let mut hasher = DefaultHasher::new();
    (&said.model, &said.cache_salt).hash(&mut hasher);
    Content {
        tokens: Some(&said.tokens),
        namespace: hasher.finish(),
    }
}

/// What the log says was cached, as a share of our tokens: the server may count other ones.
fn served(said: &Said, split: &Split) -> Option<u32> {
    let (prompt, cached) = said.cached.filter(|(prompt, _)| *prompt > 0)?;
    let share = f64::from(cached) / f64::from(prompt);
    Some((share * split.total() as f64).round() as u32)
}

/// The same request with so many tokens served. What these replicas would have held and the real
/// ones did not counts as evicted, because nobody can tell what became of it.
fn corrected(split: &Split, served: u32) -> Split {
    let device = split.get(Bucket::Device);
    let mut more = served.saturating_sub(device);
    let mut corrected = Split::default();
    for bucket in Bucket::ALL
        .into_iter()
        .filter(|bucket| !SERVED_AFTER_ALL.contains(bucket))
    {
        corrected.put(
            bucket,
            if bucket == Bucket::Device {
                served
            } else {
                split.get(bucket)
            },
        );
    }
    for bucket in SERVED_AFTER_ALL {
        let taken = more.min(split.get(bucket));
        more -= taken;
        corrected.put(bucket, split.get(bucket) - taken);
    }
    corrected.put(Bucket::Evicted, device.saturating_sub(served));
    corrected
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

/// What there is to reuse behind an infinite prefix cache.
struct Beyond {
    block_tokens: usize,
    seen: HashSet<u64>,
    documents: Documents,
}

impl Beyond {
    fn new(block_tokens: u32, seed: u64) -> Self {
        Self {
            block_tokens: block_tokens as usize,
            seen: HashSet::new(),
            documents: Documents::new(seed),
        }
    }

    fn add(&mut self, request: &TraceRequest, said: &Said) -> u64 {
        let known = request
            .blocks
            .iter()
            .take_while(|block| self.seen.contains(block));
        let prefix = known.count() * self.block_tokens;
        self.seen.extend(request.blocks.iter());
        self.documents.add(&said.tokens, prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_log_says_was_served_is_served() {
        let mut split = Split::default();
        let parts = [
            (Bucket::Device, 64),
            (Bucket::Evicted, 16),
            (Bucket::NeverSeen, 20),
        ];
        for (bucket, tokens) in parts {
            split.put(bucket, tokens);
        }
        for (served, evicted, unseen) in [
            (64, 16, 20),
            (0, 80, 20),
            (70, 10, 20),
            (90, 0, 10),
            (100, 0, 0),
        ] {
            let split = corrected(&split, served);
            assert_eq!(split.total(), 100, "{served}");
            assert_eq!(split.get(Bucket::Device), served);
            let rest = [split.get(Bucket::Evicted), split.get(Bucket::NeverSeen)];
            assert_eq!(rest, [evicted, unseen], "{served}");
        }
    }

    #[test]
    fn cached_tokens_count_as_their_share_of_the_prompt() {
        let mut split = Split::default();
        split.put(Bucket::NeverSeen, 50);
        let said = |cached| Said {
            cached,
            ..Said::default()
        };
        assert_eq!(served(&said(Some((100, 40))), &split), Some(20));
        assert_eq!(served(&said(Some((0, 0))), &split), None);
        assert_eq!(served(&said(None), &split), None);
    }
}
