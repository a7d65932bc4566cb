//! A listener's view of lower tiers matches their contents: scheduler, cache and tiers under random
//! requests, with a mover that is slow, fails, loses units and turns out to hold some, and the
//! router's index by definition fed with nothing but their events.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use headstart_cache::policy::{Hazard, HazardOptions, Lru};
use headstart_cache::tiers::{
    Admission, AssumedSpeed, LoadWhen, Shares, TierConfig, Tiers, TiersConfig, WriteWhen,
};
use headstart_cache::{Occupancy, PrefixCache};
use headstart_core::block::Namespace;
use headstart_core::transfer::{FoundUnit, Transfer, TransferId, TransferReport, TransferResult};
use headstart_core::{
    BlockHash, BlockHasher, BlockIdentity, CacheEvent, EngineModel, Nanos, ReplicaId, Rng,
    RouteKey, SeqId, TenantTag, Tier, TokenId,
};
use headstart_dst::index::ReferenceIndex;
use headstart_router::index::{Limits, PrefixIndex, Prompt, ResidentBlock, RunIndex, Update};
use headstart_scheduler::{QueueOrder, Scheduler, SchedulerConfig, Submission, Submit};

const BLOCK_SIZE: usize = 4;
const UNIT_BLOCKS: usize = 2;
const REPLICA: ReplicaId = ReplicaId(0);
const LOWER: [Tier; 3] = [Tier::Host, Tier::Disk, Tier::Remote];

/// Keeps names; carries out what waits in any order.
struct Mover {
    rng: Rng,
    held: BTreeSet<(Tier, BlockHash)>,
    waiting: VecDeque<(Transfer, Tier)>,
}

impl Mover {
    fn submit(&mut self, transfer: Transfer) {
        match transfer {
            Transfer::Store { ref to, .. } => {
                let to = to.clone();
                let each = to.into_iter().map(|tier| (transfer.clone(), tier));
                self.waiting.extend(each);
            }
            Transfer::Demote { to, .. } => self.waiting.push_back((transfer, to)),
            Transfer::Load { from, .. } => self.waiting.push_back((transfer, from)),
            Transfer::Keep { name, tier } => {
                self.held.insert((tier, name));
            }
            Transfer::Release { .. } => {}
            Transfer::Note { .. } => {}
            other @ (Transfer::LoadPart { .. }
            | Transfer::ReleaseParts { .. }
            | Transfer::Pack { .. }) => unreachable!("nobody asks for {other:?}"),
            Transfer::Forget { tier, names } => {
                names.iter().for_each(|&name| {
                    self.held.remove(&(tier, name));
                });
            }
        }
    }

    fn poll(&mut self) -> Vec<TransferReport> {
        let mut moved = Vec::new();
        while !self.waiting.is_empty() && self.rng.below(3) > 0 {
            let at = self.rng.below(self.waiting.len());
            let (transfer, tier) = self.waiting.remove(at).expect("it is there");
            moved.push(self.carry_out(transfer, tier));
        }
        if self.rng.below(30) == 0 && !self.held.is_empty() {
            let at = self.rng.below(self.held.len());
            let lost = *self.held.iter().nth(at).expect("it is there");
            self.held.remove(&lost);
            let (tier, name) = lost;
            moved.push(TransferReport::Lost { tier, names: vec![name] });
        }
        moved
    }

    fn carry_out(&mut self, transfer: Transfer, tier: Tier) -> TransferReport {
        let result = |is_done| if is_done { TransferResult::Done } else { TransferResult::Failed };
        let works = self.rng.below(8) > 0;
        let mut write = |id: TransferId, name| {
            if works {
                self.held.insert((tier, name));
            }
            let result = result(works);
            TransferReport::Stored { id, tier, result }
        };
        match transfer {
            Transfer::Store { id, unit, .. } => write(id, unit.name),
            Transfer::Demote { id, name, .. } => write(id, name),
            Transfer::Load { id, name, .. } => {
                let is_done = works && self.held.contains(&(tier, name));
                if !is_done {
                    self.held.remove(&(tier, name));
                }
                TransferReport::Loaded {
                    id,
                    result: result(is_done),
                    ago: std::time::Duration::ZERO,
                }
            }
            other => unreachable!("{other:?} is done at once"),
        }
    }
}

/// A unit as the test knows it.
struct Known {
    parent: Option<BlockHash>,
    keys: Vec<RouteKey>,
}

struct World {
    seed: u64,
    scheduler: Scheduler,
    mover: Mover,
    index: ReferenceIndex,
    /// The index that serves.
    fast: RunIndex,
    hasher: Arc<BlockHasher>,
    /// All units of all sequences so far.
    units: BTreeMap<BlockHash, Known>,
    /// By its events.
    on_device: HashSet<BlockHash>,
    /// Units that were on the device since they were nowhere.
    shown: HashSet<BlockHash>,
    now: Nanos,
    met: Met,
}

/// Counts of what a run met, so that no run proves nothing.
#[derive(Debug, Default)]
struct Met {
    stored: BTreeMap<Tier, usize>,
    removed: BTreeMap<Tier, usize>,
    found: usize,
    unshown: usize,
    shared: usize,
}

fn tiers(rng: &mut Rng) -> Tiers {
    let config = TiersConfig {
        unit_blocks: UNIT_BLOCKS,
        block_tokens: BLOCK_SIZE,
        unit_bytes: 1_000,
        most_at_hand: 20,
        engine: EngineModel::default_engine(),
        load: LoadWhen::Always,
    };
    let mut tier = |tier, capacity_units| TierConfig {
        tier,
        capacity_units,
        policy: match rng.below(2) {
            0 => Box::new(Lru::new(capacity_units)),
            _ => Box::new(Hazard::new(capacity_units, HazardOptions::default())),
        },
        admission: match rng.below(3) {
            0 => Admission::Offered { times: 2 },
            _ => Admission::Always,
        },
        write: match rng.below(3) {
            0 => WriteWhen::Through,
            1 => WriteWhen::Back,
            _ => WriteWhen::AtEnd,
        },
        shares: Shares::default(),
        assumed: AssumedSpeed { latency_s: 0.0, bytes_per_s: 1e9 },
    };
    let host = tier(Tier::Host, 4);
    let disk = tier(Tier::Disk, 10);
    Tiers::new(config, vec![host, disk, tier(Tier::Remote, 40)])
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let config = SchedulerConfig {
            max_batched_tokens: 10,
            max_sequences: 4,
            max_waiting: 6,
            max_context: 64,
            block_size: BLOCK_SIZE,
            order: QueueOrder::FirstCome,
        };
        let capacity = 9 + rng.below(20);
        let cache = PrefixCache::new(capacity, Box::new(Lru::new(capacity)));
        let identity = BlockIdentity {
            model: "m",
            weights_revision: "1",
            kv_dtype: "f32",
            kv_layout: "l",
            adapter: None,
            salt: None,
            block_size: BLOCK_SIZE as u32,
        };
        let index = ReferenceIndex::new("m");
        let block_size = Some(BLOCK_SIZE as u32);
        // Tiers that are written at the end of a request may announce a unit whose parent has left
        // long ago: the index must not have forgotten the parent, or the unit waits for it.
        let limits = Limits { min_departed: 1 << 16, ..Limits::default() };
        let fast = RunIndex::with_limits("m", limits);
        index.update(REPLICA, Update::Track { block_size }, Nanos(0));
        fast.update(REPLICA, Update::Track { block_size }, Nanos(0));
        Self {
            seed,
            scheduler: Scheduler::new(config, cache).with_tiers(tiers(&mut rng)),
            mover: Mover { rng, held: BTreeSet::new(), waiting: VecDeque::new() },
            index,
            fast,
            hasher: Arc::new(BlockHasher::new(&identity)),
            units: BTreeMap::new(),
            on_device: HashSet::new(),
            shown: HashSet::new(),
            now: Nanos(0),
            met: Met::default(),
        }
    }

    /// Notes the units of a text and returns their names.
    fn learn(&mut self, tokens: &[TokenId]) -> Vec<BlockHash> {
        let names = self.hasher.chain(tokens);
        let namespace = Namespace::default();
        let keys = self.index.hash(Prompt { tokens, namespace, ..Prompt::default() });
        let keys = keys.of_size(BLOCK_SIZE as u32);
        let mut parent = None;
        let mut units = Vec::new();
        for (names, keys) in names.chunks_exact(UNIT_BLOCKS).zip(keys.chunks(UNIT_BLOCKS)) {
            let name = names[UNIT_BLOCKS - 1];
            let keys = keys.to_vec();
            self.units.entry(name).or_insert(Known { parent, keys });
            parent = Some(name);
            units.push(name);
        }
        units
    }

    fn submit(&mut self, id: u64, prompt: Vec<TokenId>, max_tokens: usize) {
        let answer = std::iter::repeat_n(1, max_tokens);
        let whole: Vec<TokenId> = prompt.iter().copied().chain(answer).collect();
        self.learn(&whole);
        let new = Submission::greedy(SeqId(id), prompt, max_tokens);
        let outcome = self.scheduler.submit(new, self.hasher.clone(), self.now);
        assert!(matches!(outcome, Submit::Queued | Submit::QueueFull));
    }

    /// A tier turns out to hold the units of a text.
    fn find(&mut self, tokens: &[TokenId], tier: Tier) {
        let names = self.learn(tokens);
        let units = names.iter().map(|&name| FoundUnit {
            name,
            parent: self.units[&name].parent,
            tenant: TenantTag::default(),
        });
        let units: Vec<_> = units.collect();
        self.mover.held.extend(names.iter().map(|&name| (tier, name)));
        self.met.found += names.len();
        self.scheduler.moved(TransferReport::Found { tier, units }, self.now);
        self.move_units();
        self.listen();
        self.check();
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        for moved in self.mover.poll() {
            self.scheduler.moved(moved, self.now);
        }
        let batch = self.scheduler.schedule(self.now);
        self.move_units();
        if !batch.is_empty() {
            let sampled = batch.entries.iter();
            let sampled = sampled.filter(|entry| entry.sampling.is_some()).count();
            let sampled = vec![1; sampled];
            self.scheduler.complete(&batch, &sampled, self.now);
            self.move_units();
        }
        self.scheduler.take_outputs();
        self.listen();
        self.check();
    }

    fn move_units(&mut self) {
        for transfer in self.scheduler.take_transfers() {
            self.mover.submit(transfer);
        }
    }

    fn listen(&mut self) {
        let events = self.scheduler.take_events();
        for event in &events {
            match event {
                CacheEvent::Stored(stored) if stored.tier == Tier::Device => {
                    self.on_device.extend(&stored.blocks);
                    self.shown.extend(&stored.blocks);
                }
                CacheEvent::Removed { blocks, tier, .. } if *tier == Tier::Device => {
                    blocks.iter().for_each(|block| {
                        self.on_device.remove(block);
                    });
                }
                CacheEvent::Stored(stored) => {
                    *self.met.stored.entry(stored.tier).or_default() += stored.blocks.len();
                }
                CacheEvent::Removed { blocks, tier, .. } => {
                    *self.met.removed.entry(*tier).or_default() += blocks.len();
                }
                CacheEvent::Cleared => panic!("nobody clears"),
            }
        }
        self.index.update(REPLICA, Update::Events(&events), self.now);
        self.fast.update(REPLICA, Update::Events(&events), self.now);
    }

    fn check(&mut self) {
        self.scheduler.check();
        let tiers = self.scheduler.tiers().expect("it has tiers");
        let on_device = &self.on_device;
        self.shown.retain(|name| on_device.contains(name) || tiers.knows(*name));
        let mut expected: BTreeSet<(Tier, RouteKey)> = BTreeSet::new();
        let mut held = BTreeMap::<Tier, usize>::new();
        for (&name, unit) in &self.units {
            for tier in tiers.holding(name) {
                *held.entry(tier).or_default() += 1;
                if !self.shown.contains(&name) {
                    self.met.unshown += 1;
                    continue;
                }
                for &key in &unit.keys {
                    self.met.shared += usize::from(!expected.insert((tier, key)));
                }
            }
        }
        for tier in tiers.summary() {
            let known = held.get(&tier.tier).copied().unwrap_or(0);
            assert_eq!(known, tier.units, "the test knows all units");
        }
        let mut told = BTreeSet::new();
        let mut on_device = 0;
        self.index.residents(self.now, &mut |resident| {
            assert!(!resident.is_doubtful, "nothing is removed twice");
            match resident.tier {
                Tier::Device => on_device += 1,
                tier => assert!(told.insert((tier, resident.key))),
            }
        });
        assert_eq!(told, expected, "seed {}, at {:?}", self.seed, self.now);
        let residents = |index: &dyn PrefixIndex| {
            let mut residents: Vec<ResidentBlock> = Vec::new();
            index.residents(self.now, &mut |resident| residents.push(resident));
            residents.sort_unstable();
            residents
        };
        let (slow, fast) = (residents(&self.index), residents(&self.fast));
        assert_eq!(slow, fast, "seed {}", self.seed);
        let Occupancy { cached, pinned, .. } = self.scheduler.occupancy();
        assert_eq!(on_device, cached + pinned, "seed {}", self.seed);
    }
}

/// Prompts that share prefixes, some of them up to the middle of a unit.
fn random_prompt(rng: &mut Rng) -> Vec<TokenId> {
    let branch = rng.below(3) as TokenId;
    let token =
        |at: usize, rng: &mut Rng| if at % 5 == 4 { rng.below(2) as TokenId } else { branch };
    (0..1 + rng.below(30)).map(|at| token(at, rng)).collect()
}

fn run(seed: u64) -> Met {
    let mut rng = Rng::new(seed ^ 0x77);
    let mut world = World::new(seed);
    for id in 0..80 {
        let prompt = random_prompt(&mut rng);
        world.submit(id, prompt, 1 + rng.below(6));
        if rng.below(6) == 0 {
            let seq = SeqId(rng.below(id as usize + 1) as u64);
            world.scheduler.cancel(seq, world.now);
        }
        if rng.below(10) == 0 {
            let (text, tier) = (random_prompt(&mut rng), LOWER[1 + rng.below(2)]);
            world.find(&text, tier);
        }
        if rng.below(30) == 0 {
            world.scheduler.clear_device(world.now);
        }
        for _ in 0..rng.below(5) {
            world.step();
        }
    }
    for _ in 0..300 {
        world.step();
    }
    assert!(world.scheduler.is_idle(), "seed {seed}: somebody starves");
    world.met
}

#[test]
fn what_is_announced_of_lower_tiers_is_what_they_hold() {
    let mut all = Met::default();
    for seed in 0..60 {
        let met = run(seed);
        for (tier, blocks) in met.stored {
            *all.stored.entry(tier).or_default() += blocks;
        }
        for (tier, blocks) in met.removed {
            *all.removed.entry(tier).or_default() += blocks;
        }
        all.found += met.found;
        all.unshown += met.unshown;
        all.shared += met.shared;
    }
    for tier in LOWER {
        assert!(all.stored[&tier] > 200 && all.removed[&tier] > 100, "{all:?}");
    }
    assert!(all.found > 100 && all.unshown > 100 && all.shared > 100, "{all:?}");
}
