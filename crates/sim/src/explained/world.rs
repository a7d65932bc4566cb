//! A small fleet in virtual time whose true state is known: the attributor is told what a gateway
//! is told, late and with losses, and its verdict on every token is held against the oracle's.
//!
//! ```text
//! Author ─► Router (real) ─► Engine (real PrefixCache) ─► changes ─► events, late, some lost
//!              │ decision            │ effects                           │
//!              ▼                     ▼                                   ▼
//!          Attributor            Oracle (truth)                 Router's index, Attributor
//! ```
//!
//! What is true by definition is taken from where it is true: what was served and which loads
//! failed from the engines, what was predicted from the router, all else from the oracle.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use headstart_core::block::{Namespace, RouteHasher, RouteIdentity};
use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{CacheEvent, Nanos, ReplicaId, Rng, RouteKey, TokenId};
use headstart_insight::Bucket;
use headstart_insight::loss::{Arrival, Attributor, AttributorConfig, Pending, Served};
use headstart_router::index::Update;
use headstart_router::{Profile, Prompt, ReservationId, RouteRequest, Router, RouterConfig};

use super::author::{Author, AuthorConfig, Draft, Written};
use super::engine::{Change, Engine, Running, hash_of};
use super::oracle::{Named, Node, Oracle, Question};
use super::verdicts::{TIERS, Verdicts, said, truth};

/// What the world is like.
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
    /// Mean time between conversations' beginnings.
    pub pause: Duration,
    /// Mean time of events under way.
    pub event_delay: Duration,
    /// Share of event batches that are lost for good.
    pub lost_events: f64,
    /// Share of loads that fail.
    pub failed_loads: f64,
    /// Mean time between two resets of any replica, and until one is noticed.
    pub resets: Duration,
    /// See above.
    pub noticed: Duration,
    /// What the traffic is like.
    pub author: AuthorConfig,
    /// How much the attributor remembers.
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
            noticed: Duration::from_millis(2_000),
            author: AuthorConfig::default(),
            memory: AttributorConfig::default(),
        }
    }
}

/// Block size of all engines.
const BLOCK_SIZE: usize = 32;

/// The model's name, with which block keys are made.
const MODEL: &str = "world";

/// What happens next.
enum Event {
    Begin,
    Ask(Draft),
    FirstToken(usize),
    Done(usize),
    Deliver {
        replica: usize,
        events: Vec<CacheEvent>,
        is_lost: bool,
    },
    Reset,
}

/// A request on its way.
struct Request {
    replica: usize,
    session: usize,
    salt: Option<&'static str>,
    prompt: Vec<Written>,
    named: Named,
    why: Vec<Bucket>,
    running: Option<Running>,
    pending: Option<Pending>,
    reservation: ReservationId,
    /// One of several alike: only the first one's answer counts.
    is_copy: bool,
}

/// A block as an event tells it.
struct Text {
    parent: Option<Node>,
    tokens: Vec<TokenId>,
    salt: Option<&'static str>,
}

/// The fleet and all around it.
pub struct World {
    config: WorldConfig,
    rng: Rng,
    now: Nanos,
    order: u64,
    queue: BinaryHeap<Reverse<(Nanos, u64)>>,
    events: HashMap<u64, Event>,
    begun: usize,
    author: Author,
    oracle: Oracle,
    texts: HashMap<Node, Text>,
    engines: Vec<Engine>,
    /// When the last event of a replica arrives, its requests, and whether it waits for a reset.
    streams: Vec<(Nanos, usize, bool)>,
    requests: Vec<Request>,
    router: Router,
    hasher: RouteHasher,
    attributor: Attributor,
    verdicts: Verdicts,
}

impl World {
    /// A world before its first request.
    #[must_use]
    pub fn new(config: WorldConfig) -> Self {
        let mut router = Router::new(RouterConfig {
            model: MODEL.to_owned(),
            profile: Profile::precise(),
            seed: config.seed,
        });
        let tiers = &TIERS[1..];
        let engine = |replica: usize| {
            let tier = tiers[replica % tiers.len()];
            Engine::new(replica, config.blocks, tier, config.lower_blocks)
        };
        for replica in 0..config.replicas {
            let block_size = Some(BLOCK_SIZE as u32);
            router.add_replica(ReplicaId(replica as u32), block_size, Nanos(0));
        }
        Self {
            config,
            rng: Rng::new(config.seed ^ 0x5eed),
            now: Nanos(1_000_000_000),
            order: 0,
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            begun: 0,
            author: Author::new(config.author, config.seed),
            oracle: Oracle::default(),
            texts: HashMap::new(),
            engines: (0..config.replicas).map(engine).collect(),
            streams: vec![(Nanos(0), 0, false); config.replicas],
            requests: Vec::new(),
            router,
            hasher: RouteHasher::new(&RouteIdentity {
                model: MODEL,
                block_size: BLOCK_SIZE as u32,
            }),
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
        self.after(Duration::ZERO, Event::Begin);
        let reset = self.around(self.config.resets);
        self.after(reset, Event::Reset);
        while let Some(Reverse((at, order))) = self.queue.pop() {
            self.now = at;
            match self.events.remove(&order).expect("it was put there") {
                Event::Begin => self.begin(),
                Event::Ask(draft) => self.ask(&draft),
                Event::FirstToken(request) => self.first_token(request),
                Event::Done(request) => self.done(request),
                Event::Deliver {
                    replica,
                    events,
                    is_lost,
                } => self.deliver(replica, &events, is_lost),
                Event::Reset => self.reset(),
            }
        }
        self.verdicts.memory = self.attributor.memory();
        self.verdicts
    }

    fn begin(&mut self) {
        self.begun += 1;
        let draft = self.author.begin();
        if self.begun < self.config.sessions {
            let pause = self.around(self.config.pause);
            self.after(pause, Event::Begin);
        }
        self.ask(&draft);
    }

    /// Sends a request, perhaps several times.
    fn ask(&mut self, draft: &Draft) {
        for copy in 0..draft.copies {
            self.place(draft, copy > 0);
        }
    }

    fn place(&mut self, draft: &Draft, is_copy: bool) {
        let prompt = &draft.prompt;
        let named = self.name(draft.salt, prompt);
        let tokens: Vec<TokenId> = prompt.iter().map(|written| written.token).collect();
        let namespace = namespace(draft.salt);
        let index = self.router.index();
        let keys = index.hash(Prompt {
            tokens: &tokens,
            namespace,
        });
        let waiting = self.streams.iter().enumerate();
        let waiting = waiting.filter(|(_, stream)| stream.2);
        let excluded: Vec<_> = waiting.map(|(id, _)| ReplicaId(id as u32)).collect();
        let decision = self.router.route(&RouteRequest {
            tokens: Some(&tokens),
            keys: Some(&keys),
            namespace,
            excluded: &excluded,
            now: self.now,
            ..RouteRequest::default()
        });
        let decision = decision.expect("not all replicas wait for a reset");
        let overlaps = decision.candidates.iter();
        let overlaps: Vec<_> = overlaps
            .map(|one| (one.replica, one.overlap_tokens as u32))
            .collect();
        let arrival = Arrival {
            replica: decision.replica,
            prompt_tokens: prompt.len() as u32,
            block_size: BLOCK_SIZE as u32,
            keys: keys.of_size(BLOCK_SIZE as u32),
            tokens: Some(&tokens),
            namespace: number(draft.salt),
            overlaps: &overlaps,
        };
        let pending = self.attributor.arrive(&arrival, self.now);
        let replica = decision.replica.0 as usize;
        let question = Question {
            prompt,
            named: &named,
            chosen: replica,
            predicted: decision.overlap_tokens,
            block_size: BLOCK_SIZE,
        };
        let why = self.oracle.why(&question);
        self.oracle.read(&question);
        let usable = prompt.len().saturating_sub(1) / BLOCK_SIZE;
        let loads = self.rng.next_f64() >= self.config.failed_loads;
        let (oracle, now) = (&mut self.oracle, self.now);
        let running = self.engines[replica].take(&named.nodes, usable, loads, oracle, now);
        let computed = prompt.len() - BLOCK_SIZE * (running.device + running.loaded);
        self.announce(replica);
        self.streams[replica].1 += 1;
        self.requests.push(Request {
            replica,
            session: draft.session,
            salt: draft.salt,
            prompt: prompt.clone(),
            named,
            why,
            running: Some(running),
            pending: Some(pending),
            reservation: decision.reservation,
            is_copy,
        });
        let prefill = Duration::from_micros(8_000 + 60 * computed as u64);
        self.after(prefill, Event::FirstToken(self.requests.len() - 1));
    }

    fn first_token(&mut self, id: usize) {
        let request = &mut self.requests[id];
        let mut running = request.running.take().expect("it runs");
        let engine = &mut self.engines[request.replica];
        let nodes = &request.named.nodes;
        engine.computed(&mut running, nodes, &mut self.oracle, self.now);
        let mut served = Served::by_device((running.device * BLOCK_SIZE) as u32);
        let lower = TIERS.iter().position(|&tier| tier == engine.tier());
        served.tiers[lower.expect("a tier")] = (running.loaded * BLOCK_SIZE) as u32;
        served.load_failed = (running.failed * BLOCK_SIZE) as u32;
        let pending = request.pending.take().expect("it was not explained yet");
        let laid_out: Vec<_> = pending.runs().collect();
        let outcome = self.attributor.finish(pending, &served, self.now);
        let said = said(&laid_out, &served, request.prompt.len());
        for bucket in Bucket::ALL {
            let count = said.iter().filter(|&&said| said == bucket).count();
            let counted = outcome.split.get(bucket) as usize;
            assert_eq!(count, counted, "the split is what was laid out");
        }
        let truth = truth(&request.why, &served);
        for (truth, said) in truth.into_iter().zip(said) {
            self.verdicts.tokens[truth as usize][said as usize] += 1;
        }
        self.verdicts.requests += 1;
        request.running = Some(running);
        let (replica, reservation) = (request.replica, request.reservation);
        self.router.first_token(reservation, self.now);
        self.announce(replica);
        let decoding = self.around(Duration::from_millis(400));
        self.after(decoding, Event::Done(id));
    }

    fn done(&mut self, id: usize) {
        let (session, is_copy) = (self.requests[id].session, self.requests[id].is_copy);
        let answer = self.author.answer(session, !is_copy);
        let request = &mut self.requests[id];
        let mut tokens = std::mem::take(&mut request.prompt);
        tokens.extend(answer);
        let (salt, replica) = (request.salt, request.replica);
        let (reservation, running) = (request.reservation, request.running.take());
        // The last token of an answer is never computed.
        let named = self.name(salt, &tokens[..tokens.len() - 1]);
        let running = running.expect("it runs");
        let engine = &mut self.engines[replica];
        engine.done(running, &named.nodes, &mut self.oracle, self.now);
        self.router.finish(reservation, self.now);
        self.announce(replica);
        self.streams[replica].1 -= 1;
        self.reset_where_idle(replica);
        if !is_copy && let Some(draft) = self.author.go_on(session) {
            let thinking = self.around(Duration::from_secs(4));
            self.after(thinking, Event::Ask(draft));
        }
    }

    /// A replica is to lose everything as soon as nothing runs there.
    fn reset(&mut self) {
        let replica = self.rng.below(self.config.replicas);
        if self.streams.iter().all(|stream| !stream.2) {
            self.streams[replica].2 = true;
            self.reset_where_idle(replica);
        }
        if self.begun < self.config.sessions {
            let next = self.around(self.config.resets);
            self.after(next, Event::Reset);
        }
    }

    fn reset_where_idle(&mut self, replica: usize) {
        let (_, running, is_due) = self.streams[replica];
        if is_due && running == 0 {
            self.streams[replica].2 = false;
            self.engines[replica].clear(&mut self.oracle, self.now);
            self.announce(replica);
        }
    }

    /// Sends what changed on its way, in order.
    fn announce(&mut self, replica: usize) {
        let changes = self.engines[replica].drain_changes();
        if changes.is_empty() {
            return;
        }
        let events = changes.iter().map(|&change| self.event(change)).collect();
        let is_reset = changes.contains(&Change::Cleared);
        let delay = self.around(match is_reset {
            true => self.config.noticed,
            false => self.config.event_delay,
        });
        let arrives = (self.now + delay).max(self.streams[replica].0);
        self.streams[replica].0 = arrives;
        // That all is gone is said again when a stream is followed anew, so it is never lost.
        let is_lost = !is_reset && self.rng.next_f64() < self.config.lost_events;
        let event = Event::Deliver {
            replica,
            events,
            is_lost,
        };
        self.after(arrives.since(self.now), event);
    }

    fn event(&self, change: Change) -> CacheEvent {
        match change {
            Change::Cleared => CacheEvent::Cleared,
            Change::Removed(node, tier) => CacheEvent::Removed {
                blocks: vec![hash_of(node)],
                tier,
                group: 0,
            },
            Change::Stored(node, tier) => {
                let text = &self.texts[&node];
                CacheEvent::Stored(StoredBlocks {
                    blocks: vec![hash_of(node)],
                    parent: text.parent.map(hash_of),
                    tokens: text.tokens.clone(),
                    block_size: BLOCK_SIZE as u32,
                    extras: Vec::new(),
                    tier,
                    group: CacheGroup::default(),
                    salt: text.salt.map(Into::into),
                    adapter: None,
                })
            }
        }
    }

    /// A batch of events reaches the gateway, or its absence is noticed.
    fn deliver(&mut self, replica: usize, events: &[CacheEvent], is_lost: bool) {
        let id = ReplicaId(replica as u32);
        if is_lost {
            self.router.index().update(id, Update::Doubt, self.now);
            return;
        }
        self.router.apply(id, events, self.now);
        let hasher = &self.hasher;
        let name = |parent: Option<RouteKey>,
                    tokens: &[TokenId],
                    extra: Option<&[u8]>,
                    namespace: Namespace<'_>| {
            let parent = parent.unwrap_or_else(|| hasher.root(namespace));
            Some(hasher.next_with(parent, tokens, extra))
        };
        for event in events {
            self.attributor.observe(id, event, &name, self.now);
        }
    }

    fn name(&mut self, salt: Option<&'static str>, tokens: &[Written]) -> Named {
        let named = self.oracle.name(number(salt), tokens, BLOCK_SIZE);
        let mut parent = None;
        for (&node, block) in named.nodes.iter().zip(tokens.chunks_exact(BLOCK_SIZE)) {
            self.texts.entry(node).or_insert_with(|| Text {
                parent,
                tokens: block.iter().map(|written| written.token).collect(),
                salt,
            });
            parent = Some(node);
        }
        named
    }

    /// A time around `mean`, exponential.
    fn around(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.rng.next_f64()).ln())
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.order += 1;
        self.queue.push(Reverse((self.now + delay, self.order)));
        self.events.insert(self.order, event);
    }
}

fn namespace(salt: Option<&str>) -> Namespace<'_> {
    Namespace {
        adapter: None,
        salt,
    }
}

fn number(salt: Option<&str>) -> u64 {
    salt.and_then(|salt| salt.bytes().next())
        .map_or(0, u64::from)
}
