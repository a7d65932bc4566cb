//! A small fleet in virtual time whose true state is known. The attributor receives what a gateway
//! receives, late and with losses, and its verdict on every token is compared with the oracle's.
//!
//! ```text
//! Author ─► Router (real) ─► Engine (real PrefixCache) ─► changes ─► events, late, some lost
//!              │ decision            │ effects                           │
//!              ▼                     ▼                                   ▼
//!          Attributor            Oracle (truth)                 Router's index, Attributor
//! ```
//!
//! What is true by definition is taken from where it is true: what was served and which loads
//! failed from the engines, what was predicted from the router, all else from the oracle, at the
//! time of the routing decision.
//!
//! | module | holds |
//! |---|---|
//! | `requests` | a request from its placing to its end: waiting, computed, answered, given up |
//! | `streams` | what engines say of their caches, on its way to the gateway |
//! | `faults` | caches that are cleared and processes that end, with requests on them |

mod faults;
mod requests;
mod streams;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use headstart_core::{CacheEvent, Nanos, ReplicaId, Rng, TokenId};
use headstart_insight::loss::{Attributor, AttributorConfig};
use headstart_router::profile::ScorerKind;
use headstart_router::{Health, Profile, Router, RouterConfig};

use super::author::{Author, AuthorConfig, RequestDraft, Space};
use super::engine::ReplicaEngine;
use super::oracle::{Node, Oracle};
use super::verdicts::{TIERS, Verdicts};
use requests::{AcceptedRequest, PlacementOrder};

/// Configuration of the world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorldConfig {
    /// Fixes everything.
    pub seed: u64,
    /// Conversations.
    pub sessions: usize,
    /// Replicas; their lower tiers are host memory, disk and object storage, in turn.
    pub replicas: usize,
    /// Blocks on a device, and in a lower tier.
    pub blocks: usize,
    /// See above.
    pub lower_blocks: usize,
    /// Mean time between conversations' beginnings. In busy times, half of all, it is a third of
    /// that of quiet ones.
    pub pause: Duration,
    /// Mean time of events under way.
    pub event_delay: Duration,
    /// Share of event batches that are lost for good.
    pub lost_events: f64,
    /// Share of loads that fail.
    pub failed_loads: f64,
    /// Mean time between two resets of any replica: in turn a cache is cleared and a process ends,
    /// whatever runs there.
    pub resets: Duration,
    /// Mean time until it is noticed that a replica is down, or up again.
    pub noticed: Duration,
    /// Mean time until a process is back, beyond the first second.
    pub restart: Duration,
    /// Share of requests that a replica refuses, besides those that find its queue full.
    pub refused: f64,
    /// Share of requests whose clients do not wait long.
    pub impatient: f64,
    /// Composition of the traffic.
    pub author: AuthorConfig,
    /// Limits of the attributor's memory.
    pub memory: AttributorConfig,
}

impl Default for WorldConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            sessions: 1_500,
            replicas: 4,
            blocks: 900,
            lower_blocks: 600,
            pause: Duration::from_millis(120),
            event_delay: Duration::from_millis(50),
            lost_events: 0.005,
            failed_loads: 0.3,
            resets: Duration::from_secs(13),
            noticed: Duration::from_millis(1_000),
            restart: Duration::from_secs(2),
            refused: 0.01,
            impatient: 0.06,
            author: AuthorConfig::default(),
            memory: AttributorConfig::default(),
        }
    }
}

/// Block size of all engines.
const BLOCK_SIZE: usize = 32;

/// The model's name, with which block keys are made.
const MODEL: &str = "world";

/// Length of a busy phase, and of a quiet one.
const PHASE: Duration = Duration::from_secs(10);

/// A future event of the simulation.
enum WorldEvent {
    Begin,
    Ask(RequestDraft),
    /// The gateway places a request once more.
    Again(PlacementOrder),
    /// The prompt of a request is computed, unless that computation was restarted.
    FirstToken(usize, u32),
    Done(usize),
    /// A client has waited long enough.
    Leave(usize),
    Deliver {
        replica: usize,
        events: Vec<CacheEvent>,
        is_lost: bool,
    },
    /// Something happens to a replica.
    Fault,
    Restart(usize),
    /// The gateway looks whether a replica is up.
    Probe(usize),
}

/// One replica, and the way to it.
struct WorldReplica {
    engine: ReplicaEngine,
    /// When the last event of it arrives.
    delivered_at: Nanos,
    /// Its process runs.
    is_up: bool,
    /// The gateway's belief about its health.
    health: Health,
    /// Nothing of this process has reached the gateway yet, and there was one before.
    is_new: bool,
    /// Requests that wait, the one whose prompt is computed, and those that are answered.
    waiting: VecDeque<usize>,
    computing: Option<usize>,
    answering: Vec<usize>,
}

/// A block as an event tells it.
struct BlockText {
    parent: Option<Node>,
    tokens: Vec<TokenId>,
    space: Space,
}

/// The fleet and all around it.
pub struct World {
    config: WorldConfig,
    rng: Rng,
    now: Nanos,
    order: u64,
    // Ordered by time and then by number: events of one moment happen as they were made.
    queue: BinaryHeap<Reverse<(Nanos, u64)>>,
    events: HashMap<u64, WorldEvent>,
    begun: usize,
    author: Author,
    oracle: Oracle,
    texts: HashMap<Node, BlockText>,
    replicas: Vec<WorldReplica>,
    requests: Vec<AcceptedRequest>,
    router: Router,
    attributor: Attributor,
    verdicts: Verdicts,
}

impl World {
    /// A world before its first request.
    #[must_use]
    pub fn new(config: WorldConfig) -> Self {
        // Conversations that stay where they are lose less: without a home, every kind of loss
        // happens often enough to be judged.
        let mut profile = Profile::precise();
        profile.scorers.retain(|(scorer, _)| *scorer != ScorerKind::Home);
        let mut router =
            Router::new(RouterConfig { model: MODEL.to_owned(), profile, seed: config.seed });
        let replica = |id: usize| {
            let block_size = Some(BLOCK_SIZE as u32);
            router.add_replica(ReplicaId(id as u32), block_size, Nanos(0));
            WorldReplica {
                engine: {
                    let tiers = &TIERS[1..];
                    // Lower tiers in turn, so that a fleet of three or more has them all.
                    let tier = tiers[id % tiers.len()];
                    ReplicaEngine::new(id, config.blocks, tier, config.lower_blocks)
                },
                delivered_at: Nanos(0),
                is_up: true,
                health: Health::Healthy,
                is_new: false,
                waiting: VecDeque::new(),
                computing: None,
                answering: Vec::new(),
            }
        };
        let replicas = (0..config.replicas).map(replica).collect();
        Self {
            config,
            // Another seed than the author's, or traffic and faults would use the same draws.
            rng: Rng::new(config.seed ^ 0x5eed),
            now: Nanos(1_000_000_000),
            order: 0,
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            begun: 0,
            author: Author::new(config.author, config.seed),
            oracle: Oracle::default(),
            texts: HashMap::new(),
            replicas,
            requests: Vec::new(),
            router,
            attributor: Attributor::new(&config.memory),
            verdicts: Verdicts::none(),
        }
    }

    /// Lets everything happen.
    ///
    /// # Panics
    /// When the attributor's buckets do not sum to a prompt.
    #[must_use]
    pub fn run(mut self) -> Verdicts {
        self.after(Duration::ZERO, WorldEvent::Begin);
        let fault = self.around(self.config.resets);
        self.after(fault, WorldEvent::Fault);
        // The queue runs dry: no new conversation and no new fault begins after the last session.
        while let Some(Reverse((at, order))) = self.queue.pop() {
            self.now = at;
            match self.events.remove(&order).expect("it was put there") {
                WorldEvent::Begin => self.begin(),
                WorldEvent::Ask(draft) => self.ask(&draft),
                WorldEvent::Again(order) => self.place(order),
                WorldEvent::FirstToken(request, attempt) => self.first_token(request, attempt),
                WorldEvent::Done(request) => self.done(request),
                WorldEvent::Leave(request) => self.leave(request),
                WorldEvent::Deliver { replica, events, is_lost } => {
                    self.deliver(replica, &events, is_lost);
                }
                WorldEvent::Fault => self.fault(),
                WorldEvent::Restart(replica) => self.restart(replica),
                WorldEvent::Probe(replica) => self.probe(replica),
            }
        }
        self.verdicts.memory = self.attributor.memory();
        self.verdicts
    }

    fn begin(&mut self) {
        self.begun += 1;
        let draft = self.author.begin();
        if self.begun < self.config.sessions {
            let is_busy = self.now.0 / PHASE.as_nanos() as u64 % 2 == 1;
            // Half and one and a half: the mean over both phases is the configured one.
            let share = if is_busy { 0.5 } else { 1.5 };
            let pause = self.around(self.config.pause.mul_f64(share));
            self.after(pause, WorldEvent::Begin);
        }
        self.ask(&draft);
    }

    /// A time around `mean`, exponential.
    fn around(&mut self, mean: Duration) -> Duration {
        // The argument of the logarithm is above 0, because a draw is below 1.
        mean.mul_f64(-(1.0 - self.rng.next_f64()).ln())
    }

    fn after(&mut self, delay: Duration, event: WorldEvent) {
        self.order += 1;
        self.queue.push(Reverse((self.now + delay, self.order)));
        self.events.insert(self.order, event);
    }
}
