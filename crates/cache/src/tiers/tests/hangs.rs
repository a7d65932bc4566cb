//! A tier that does not answer is not used, and takes nothing from the others.

use std::collections::VecDeque;

use headstart_core::cost::Work;
use headstart_core::transfer::{FoundUnit, TransferReport};
use headstart_core::{BlockHash, Nanos, TenantTag, Tier};

use super::{Admission, FetchState, LoadWhen, Waiting, World, WriteWhen, name, tier, unit};

/// A folder on a server that does not answer.
#[test]
fn a_tier_that_hangs_keeps_nothing_from_the_others() {
    let host = tier(Tier::Host, 900, WriteWhen::Through, Admission::Always);
    let disk = tier(Tier::Disk, 900, WriteWhen::Through, Admission::Always);
    let mut world = World::new(vec![host, disk]);
    for id in 1..=600 {
        world.commit(id);
        let hangs = |waiting: &Waiting| matches!(waiting, Waiting::Write(_, _, Tier::Disk));
        let waiting = std::mem::take(&mut world.mover.waiting).into_iter();
        let (hanging, done): (VecDeque<_>, _) = waiting.partition(hangs);
        world.mover.waiting = done;
        world.finish();
        world.mover.waiting = hanging;
    }
    assert_eq!(world.names_in(Tier::Host).len(), 600);
    assert_eq!(world.mover.waiting.len(), crate::tiers::MOST_WRITES);
    world.finish();
    assert_eq!(world.names_in(Tier::Disk).len(), crate::tiers::MOST_WRITES);
    let dropped = world.tiers.summary().into_iter().map(|tier| tier.counts.dropped);
    let on_disk = 600 - crate::tiers::MOST_WRITES as u64;
    assert_eq!(dropped.collect::<Vec<_>>(), [0, on_disk]);
}

#[test]
fn loads_that_never_come_leave_room_for_those_of_others() {
    let host = tier(Tier::Host, 9, WriteWhen::Back, Admission::Always);
    let disk = tier(Tier::Disk, 9, WriteWhen::Through, Admission::Always);
    let mut world = World::new(vec![host, disk]);
    world.tiers.config.load = LoadWhen::Always;
    (1..=9).for_each(|id| world.commit(id));
    world.tiers.evicted(name(9), Nanos(1));
    world.finish();
    assert!(world.names_in(Tier::Host).contains(&9));
    let mut given_up = 0;
    for id in 1..=8 {
        let claim = world.tiers.fetch(&unit(id), Nanos(2));
        given_up += usize::from(claim.is_some());
        claim.into_iter().for_each(|claim| world.tiers.release(claim));
        world.tiers.check();
    }
    assert_eq!(given_up, 4, "half of what may be at hand");
    let names: Vec<BlockHash> = (1..=9).map(name).collect();
    let plan = |world: &World, from: usize| {
        let names = &names[from..];
        world.tiers.plan(names, 0, 64 * names.len() + 1, Work::default())
    };
    assert!(plan(&world, 4).is_empty(), "of the disk no more");
    assert!(!plan(&world, 8).is_empty(), "of host memory");
    let claim = world.tiers.fetch(&unit(9), Nanos(3)).expect("host memory answers");
    world.finish();
    assert_eq!(world.tiers.fetched(claim), FetchState::Here);
    assert!(!plan(&world, 4).is_empty(), "the disk has answered");
    world.tiers.release(claim);
    world.tiers.check();
}

#[test]
fn each_tier_has_its_part_of_what_may_be_at_hand() {
    let below = [Tier::Disk, Tier::Remote];
    let tiers = below.map(|level| tier(level, 9, WriteWhen::Through, Admission::Always));
    let mut world = World::new(tiers.into());
    for (tier, ids) in below.into_iter().zip([1..=5, 11..=15]) {
        let found = |id| FoundUnit { name: name(id), parent: None, tenant: TenantTag::default() };
        let units: Vec<FoundUnit> = ids.map(found).collect();
        let held = units.iter().map(|unit| unit.name).collect();
        world.mover.tiers.insert(tier, held);
        world.tiers.moved(TransferReport::Found { tier, units }, Nanos(1));
    }
    for first in [1, 11] {
        let mut given_up = 0;
        for id in first..first + 5 {
            if let Some(claim) = world.tiers.fetch(&unit(id), Nanos(2)) {
                world.tiers.release(claim);
                given_up += 1;
            }
        }
        assert_eq!(given_up, 3, "a third of what may be at hand");
        world.tiers.check();
    }
}
