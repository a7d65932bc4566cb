//! The tiers against a mover that keeps sets, is slow, fails and loses things.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use headstart_core::cost::Work;
use headstart_core::transfer::{
    FoundUnit, Transfer, TransferId, TransferReport, TransferResult, Unit,
};
use headstart_core::{
    Access, BlockHash, BlockId, EngineModel, IdentityDigest, Nanos, Rng, TenantTag, Tier,
};

use super::{
    Admission, AssumedSpeed, Change, ChangeKind, Claim, EndedUnit, FetchState, LoadWhen, Shares,
    TierConfig, TierOccupancy, Tiers, TiersConfig, WriteWhen,
};
use crate::policy::{Hazard, HazardOptions, Lru};

mod ended;
mod hangs;
mod warm;

fn config() -> TiersConfig {
    TiersConfig {
        unit_blocks: 4,
        block_tokens: 16,
        unit_bytes: 1 << 20,
        most_at_hand: 8,
        engine: EngineModel::default_engine(),
        load: LoadWhen::Faster,
    }
}

fn tier(tier: Tier, capacity_units: usize, write: WriteWhen, admission: Admission) -> TierConfig {
    TierConfig {
        tier,
        capacity_units,
        policy: Box::new(Lru::new(capacity_units)),
        admission,
        write,
        shares: Shares::default(),
        assumed: AssumedSpeed { latency_s: 0.0, bytes_per_s: 1e9 },
    }
}

fn name(id: u64) -> BlockHash {
    BlockHash::from_u64(id)
}

fn id_of(name: BlockHash) -> u64 {
    u128::from_be_bytes(name.0) as u64
}

fn unit(id: u64) -> Unit {
    Unit {
        name: name(id),
        parent: parent(id),
        identity: IdentityDigest::default(),
        tenant: TenantTag::default(),
    }
}

/// Chains of ten: 1 to 10, 11 to 20, …
fn parent(id: u64) -> Option<BlockHash> {
    (id % 10 != 1).then(|| name(id - 1))
}

const BLOCKS: [BlockId; 4] = [BlockId(0), BlockId(1), BlockId(2), BlockId(3)];

/// Moves units by name only, either at once or later and in another order.
#[derive(Default)]
struct Mover {
    tiers: BTreeMap<Tier, BTreeSet<BlockHash>>,
    at_hand: BTreeSet<BlockHash>,
    /// Bytes that are being written, which survive being forgotten where they come from.
    waiting: VecDeque<Waiting>,
}

enum Waiting {
    Write(TransferId, BlockHash, Tier),
    Load(TransferId, BlockHash, Tier),
}

impl Mover {
    fn holds(&self, tier: Tier, name: BlockHash) -> bool {
        self.tiers.get(&tier).is_some_and(|tier| tier.contains(&name))
    }

    fn take(&mut self, transfer: Transfer) {
        match transfer {
            Transfer::Store { id, unit, to, .. } => {
                let writes = to.into_iter().map(|tier| Waiting::Write(id, unit.name, tier));
                self.waiting.extend(writes);
            }
            Transfer::Demote { id, name, from, to } => {
                assert!(self.holds(from, name), "what is demoted is there");
                self.waiting.push_back(Waiting::Write(id, name, to));
            }
            Transfer::Load { id, name, from } => {
                self.waiting.push_back(Waiting::Load(id, name, from));
            }
            Transfer::Keep { name, tier } => {
                assert!(self.at_hand.contains(&name), "what is kept is at hand");
                self.tiers.entry(tier).or_default().insert(name);
            }
            Transfer::Release { name } => {
                assert!(self.at_hand.remove(&name), "what is released is at hand");
            }
            Transfer::Note { .. } => {}
            other @ (Transfer::LoadPart { .. }
            | Transfer::ReleaseParts { .. }
            | Transfer::Pack { .. }) => unreachable!("nobody asks for {other:?}"),
            Transfer::Forget { tier, names } => {
                let held = self.tiers.entry(tier).or_default();
                names.iter().for_each(|name| {
                    held.remove(name);
                });
            }
        }
    }

    /// Carries out one thing that waits.
    fn step(&mut self, rng: &mut Rng, fails: bool) -> Option<TransferReport> {
        let at = (!self.waiting.is_empty()).then(|| rng.below(self.waiting.len()))?;
        let result = if fails { TransferResult::Failed } else { TransferResult::Done };
        Some(match self.waiting.remove(at)? {
            Waiting::Write(id, name, tier) => {
                if !fails {
                    self.tiers.entry(tier).or_default().insert(name);
                }
                TransferReport::Stored { id, tier, result }
            }
            Waiting::Load(id, name, from) => {
                if fails {
                    self.tiers.entry(from).or_default().remove(&name);
                } else {
                    assert!(self.holds(from, name), "what is loaded is there");
                    self.at_hand.insert(name);
                }
                TransferReport::Loaded { id, result, ago: Duration::ZERO }
            }
        })
    }
}

struct World {
    tiers: Tiers,
    mover: Mover,
    /// By what was announced.
    announced: BTreeSet<(Tier, BlockHash)>,
    now: u64,
}

impl World {
    fn new(tiers: Vec<TierConfig>) -> Self {
        Self {
            tiers: Tiers::new(config(), tiers),
            mover: Mover::default(),
            announced: BTreeSet::new(),
            now: 0,
        }
    }

    fn access(&self) -> Access {
        Access::at(Nanos(self.now))
    }

    fn settle(&mut self) {
        for transfer in self.tiers.take_transfers() {
            self.mover.take(transfer);
        }
        for change in self.tiers.take_changes() {
            let Change { tier, name, kind } = change;
            match kind {
                ChangeKind::Stored => assert!(self.announced.insert((tier, name))),
                ChangeKind::Removed => assert!(self.announced.remove(&(tier, name))),
                ChangeKind::NotStored => assert!(!self.announced.contains(&(tier, name))),
            }
        }
        self.tiers.check();
    }

    fn finish(&mut self) {
        let mut rng = Rng::new(0);
        self.settle();
        while let Some(moved) = self.mover.step(&mut rng, false) {
            self.now += 1;
            self.tiers.moved(moved, Nanos(self.now));
            self.settle();
        }
    }

    fn commit(&mut self, id: u64) {
        let access = self.access();
        self.tiers.committed(unit(id), &BLOCKS, &access);
        self.settle();
    }

    fn names_in(&self, tier: Tier) -> Vec<u64> {
        let names = self.announced.iter().filter(|(held, _)| *held == tier);
        names.map(|&(_, name)| id_of(name)).collect()
    }
}

#[test]
fn write_through_stores_at_once_and_evictions_write_nothing() {
    use WriteWhen::Through;
    let host = tier(Tier::Host, 3, Through, Admission::Always);
    let disk = tier(Tier::Disk, 9, Through, Admission::Always);
    let mut world = World::new(vec![host, disk]);
    (1..=5).for_each(|id| {
        world.commit(id);
        world.finish();
        world.now += 1;
    });
    assert_eq!(world.names_in(Tier::Disk), [1, 2, 3, 4, 5]);
    assert_eq!(world.names_in(Tier::Host).len(), 3);
    let counts = world.tiers.counts();
    assert_eq!(counts[1].2.stored, 5);
    world.tiers.evicted(name(5), Nanos(9));
    assert!(world.tiers.take_transfers().is_empty());
}

#[test]
fn write_back_goes_down_step_by_step() {
    use WriteWhen::Back;
    let host = tier(Tier::Host, 2, Back, Admission::Always);
    let disk = tier(Tier::Disk, 9, Back, Admission::Always);
    let mut world = World::new(vec![host, disk]);
    for id in [1, 11, 21] {
        world.commit(id);
    }
    assert!(world.announced.is_empty(), "nothing is written before it must be");
    for id in [1, 11, 21] {
        world.now += 1;
        world.tiers.evicted(name(id), Nanos(world.now));
        world.finish();
    }
    assert_eq!(world.names_in(Tier::Host), [11, 21]);
    assert_eq!(world.names_in(Tier::Disk), [1]);
}

#[test]
fn what_is_loaded_is_shared_and_stays_in_host_memory() {
    let host = tier(Tier::Host, 2, WriteWhen::Back, Admission::Always);
    let disk = tier(Tier::Disk, 9, WriteWhen::Through, Admission::Always);
    let mut world = World::new(vec![host, disk]);
    world.commit(1);
    world.finish();
    let names = [name(1), name(2)];
    let plan = world.tiers.plan(&names, 0, 1_000, Work::default());
    assert_eq!((plan.from, plan.to), (0, 1));
    let mut fetch = |id| world.tiers.fetch(&unit(id), Nanos(1));
    let (one, two) = (fetch(1).expect("there"), fetch(1).expect("there"));
    assert_eq!(fetch(2), None, "it is nowhere");
    assert_eq!(world.tiers.fetched(one), FetchState::Loading);
    world.finish();
    assert_eq!(world.tiers.counts()[1].2.loaded, 1, "one load for both");
    assert_eq!(world.tiers.fetched(one), FetchState::Here);
    assert_eq!(world.names_in(Tier::Host), [1]);
    world.tiers.release(one);
    assert_eq!(world.tiers.fetched(two), FetchState::Here);
    world.tiers.release(two);
    world.finish();
    assert_eq!(world.tiers.fetched(two), FetchState::Gone);
    assert!(world.mover.at_hand.is_empty());
}

#[test]
fn a_failed_load_is_a_miss() {
    let disk = tier(Tier::Disk, 9, WriteWhen::Through, Admission::Always);
    let mut world = World::new(vec![disk]);
    world.commit(1);
    world.finish();
    let claim = world.tiers.fetch(&unit(1), Nanos(1)).expect("there");
    world.settle();
    let moved = world.mover.step(&mut Rng::new(1), true).expect("a load");
    world.tiers.moved(moved, Nanos(2));
    world.settle();
    assert_eq!(world.tiers.fetched(claim), FetchState::Gone);
    assert_eq!(world.tiers.fetch(&unit(1), Nanos(3)), None);
    world.commit(1);
    world.finish();
    let other = world.tiers.fetch(&unit(1), Nanos(4)).expect("there again");
    world.tiers.release(claim);
    world.finish();
    assert_eq!(world.tiers.fetched(other), FetchState::Here, "this claim is another");
    assert_eq!(world.names_in(Tier::Disk), [1], "it can be stored again");
}

#[test]
fn selective_writing_waits_for_the_second_use() {
    let twice = Admission::Offered { times: 2 };
    let disk = tier(Tier::Disk, 9, WriteWhen::Through, twice);
    let mut world = World::new(vec![disk]);
    world.commit(1);
    world.finish();
    assert!(world.announced.is_empty());
    let access = world.access();
    world.tiers.offered(unit(1), &BLOCKS, &access);
    world.finish();
    assert_eq!(world.names_in(Tier::Disk), [1]);
}

#[test]
fn what_is_found_has_a_place_or_is_forgotten() {
    let disk = tier(Tier::Disk, 3, WriteWhen::Through, Admission::Always);
    let mut world = World::new(vec![disk]);
    let found = |id| FoundUnit { name: name(id), parent: parent(id), tenant: TenantTag::default() };
    let units: Vec<FoundUnit> = (1..=5).map(found).collect();
    let held: BTreeSet<BlockHash> = units.iter().map(|unit| unit.name).collect();
    world.mover.tiers.insert(Tier::Disk, held);
    let found = TransferReport::Found { tier: Tier::Disk, units };
    world.tiers.moved(found, Nanos(1));
    world.finish();
    assert_eq!(world.names_in(Tier::Disk).len(), 3);
    assert_eq!(world.mover.tiers[&Tier::Disk].len(), 3);
}

#[test]
fn what_the_device_evicts_comes_with_its_last_use() {
    let host = tier(Tier::Host, 9, WriteWhen::Back, Admission::Always);
    let mut world = World::new(vec![host]);
    world.commit(1);
    let access = Access { turn: 7, offset: 99, ..Access::at(Nanos(5)) };
    let before = world.tiers.on_device[&name(1)].access;
    world.tiers.used(&[name(1), name(2)], &access);
    let offset = before.offset;
    let after = world.tiers.on_device[&name(1)].access;
    assert_ne!(before.turn, access.turn);
    assert_eq!(after, Access { offset, ..access });
}

#[test]
fn random_traffic_keeps_the_invariants() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let when = |rng: &mut Rng| match rng.below(3) {
            0 => WriteWhen::Through,
            1 => WriteWhen::Back,
            _ => WriteWhen::AtEnd,
        };
        let mut tiers = vec![
            tier(Tier::Host, 5, when(&mut rng), Admission::Always),
            tier(Tier::Disk, 12, when(&mut rng), Admission::Always),
            tier(Tier::Remote, 20, when(&mut rng), Admission::Offered { times: 2 }),
        ];
        if seed % 3 == 0 {
            tiers.remove(seed as usize % 2);
        }
        if seed % 2 == 0 {
            for tier in &mut tiers {
                let units = tier.capacity_units;
                tier.policy = Box::new(Hazard::new(units, HazardOptions::default()));
            }
        }
        let mut world = World::new(tiers);
        let mut fetched: Vec<Claim> = Vec::new();
        for step in 0..3_000 {
            world.now = step;
            let id = 1 + rng.below(60) as u64;
            match rng.below(10) {
                0..3 => world.commit(id),
                3 => world.tiers.evicted(name(id), Nanos(step)),
                4 => {
                    let access = world.access();
                    world.tiers.used(&[name(id)], &access);
                    let ended = EndedUnit { unit: unit(id), blocks: &BLOCKS };
                    world.tiers.ended([ended], &access);
                }
                5 => {
                    let claim = world.tiers.fetch(&unit(id), Nanos(step));
                    fetched.extend(claim);
                }
                6 if !fetched.is_empty() => {
                    let claim = fetched.swap_remove(rng.below(fetched.len()));
                    world.tiers.release(claim);
                }
                7 if rng.below(10) == 0 => {
                    let tier = [Tier::Host, Tier::Disk, Tier::Remote][rng.below(3)];
                    let loses = world.mover.tiers.get(&tier).cloned().unwrap_or_default();
                    let reads = |waiting: &Waiting| match waiting {
                        Waiting::Load(_, name, _) => Some(*name),
                        Waiting::Write(..) => None,
                    };
                    let read: BTreeSet<_> = world.mover.waiting.iter().filter_map(reads).collect();
                    let lost = loses.iter().find(|name| !read.contains(name)).copied();
                    if let Some(lost) = lost {
                        world.mover.tiers.entry(tier).or_default().remove(&lost);
                        let names = vec![lost];
                        world.tiers.moved(TransferReport::Lost { tier, names }, Nanos(step));
                    }
                }
                _ => {
                    let fails = rng.below(8) == 0;
                    if let Some(moved) = world.mover.step(&mut rng, fails) {
                        world.tiers.moved(moved, Nanos(step));
                    }
                }
            }
            world.settle();
        }
        world.finish();
        fetched.iter().for_each(|claim| world.tiers.release(*claim));
        world.finish();
        assert!(world.mover.at_hand.is_empty(), "seed {seed}");
        let held = world.mover.tiers.iter();
        let held = held.flat_map(|(tier, names)| names.iter().map(|name| (*tier, *name)));
        let held: BTreeSet<_> = held.collect();
        assert_eq!(held, world.announced, "seed {seed}: what is announced is there");
        for (tier, counts, _) in world.tiers.counts() {
            let TierOccupancy { cached, pinned, in_flight, .. } = counts;
            assert_eq!((pinned, in_flight), (0, 0), "seed {seed}: {tier:?} is quiet");
            let readable = world.names_in(tier).len();
            assert_eq!(cached, readable, "seed {seed}: {tier:?}");
        }
    }
}
