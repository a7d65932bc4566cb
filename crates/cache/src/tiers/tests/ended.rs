//! Tiers that are written when a request ends.

use super::*;
use crate::tiers::MOST_WRITES;

fn end(world: &mut World, ids: std::ops::RangeInclusive<u64>) {
    let access = world.access();
    let names: Vec<_> = ids.clone().map(name).collect();
    world.tiers.used(&names, &access);
    let units = ids.map(|id| EndedUnit { unit: unit(id), blocks: &BLOCKS });
    world.tiers.ended(units, &access);
    world.settle();
}

#[test]
fn a_long_prompt_is_written_as_earlier_writes_end() {
    let mut world = World::new(vec![tier(Tier::Disk, 2_000, WriteWhen::AtEnd, Admission::Always)]);
    world.commit(1);
    assert_eq!(world.mover.waiting.len(), 0, "computed, but its request has not ended");
    end(&mut world, 1..=1_000);
    assert_eq!(world.mover.waiting.len(), MOST_WRITES);
    // The device loses the last ten before their turn.
    (991..=1_000).for_each(|id| world.tiers.evicted(name(id), Nanos(1)));
    world.finish();
    assert_eq!(world.names_in(Tier::Disk), (1..=990).collect::<Vec<_>>());
}

#[test]
fn a_tier_that_hangs_keeps_no_unit_from_the_others() {
    let host = tier(Tier::Host, 2_000, WriteWhen::AtEnd, Admission::Always);
    let disk = tier(Tier::Disk, 2_000, WriteWhen::AtEnd, Admission::Always);
    let mut world = World::new(vec![host, disk]);
    end(&mut world, 1..=1_000);
    let of =
        |tier| move |waiting: &Waiting| matches!(waiting, Waiting::Write(.., to) if *to == tier);
    while let Some(at) = world.mover.waiting.iter().position(of(Tier::Host)) {
        let Some(Waiting::Write(id, name, tier)) = world.mover.waiting.remove(at) else { break };
        world.mover.tiers.entry(tier).or_default().insert(name);
        let result = TransferResult::Done;
        world.tiers.moved(TransferReport::Stored { id, tier, result }, Nanos(1));
        world.settle();
    }
    assert_eq!(world.names_in(Tier::Host).len(), 1_000);
    assert_eq!(world.mover.waiting.len(), MOST_WRITES);
    world.finish();
    assert_eq!(world.names_in(Tier::Disk).len(), 1_000);
}

#[test]
fn a_unit_follows_those_before_it_or_is_not_written() {
    let mut world = World::new(vec![tier(Tier::Disk, 9, WriteWhen::AtEnd, Admission::Always)]);
    end(&mut world, 5..=6);
    end(&mut world, 11..=12);
    world.finish();
    assert_eq!(world.names_in(Tier::Disk), [11, 12]);
}

#[test]
fn a_unit_that_the_nearest_tier_declines_is_offered_to_the_next() {
    let never = Admission::Offered { times: 9 };
    let host = tier(Tier::Host, 9, WriteWhen::AtEnd, never);
    let disk = tier(Tier::Disk, 9, WriteWhen::Back, Admission::Always);
    let mut world = World::new(vec![host, disk]);
    end(&mut world, 1..=1);
    world.finish();
    assert_eq!((world.names_in(Tier::Host), world.names_in(Tier::Disk)), (vec![], vec![1]));
}
