//! Warm starts.

use super::*;

#[test]
fn what_was_used_last_is_in_host_memory_after_a_restart() {
    let disk = || tier(Tier::Disk, 30, WriteWhen::Through, Admission::Always);
    let mut world = World::new(vec![disk()]);
    for id in 1..=30 {
        world.commit(id);
    }
    world.finish();
    // Prompts of three, two and one units: the second one last.
    for tail in [3, 21, 12] {
        let names: Vec<BlockHash> = (tail / 10 * 10 + 1..=tail).map(name).collect();
        world.tiers.used(&names, &Access::at(Nanos(tail)));
    }
    let tails = vec![name(3), name(21), name(12), name(999)];
    assert_eq!(world.tiers.warm.tails(), tails[..3]);
    let found = |id| FoundUnit { name: name(id), parent: parent(id), tenant: TenantTag::default() };
    let host = tier(Tier::Host, 4, WriteWhen::Through, Admission::Always);
    let mut restarted = World::new(vec![host, disk()]);
    restarted.mover.tiers = world.mover.tiers.clone();
    let units = (1..=30).map(found).collect();
    let tier = Tier::Disk;
    restarted.tiers.moved(TransferReport::Found { tier, units }, Nanos(1));
    restarted.tiers.moved(TransferReport::Noted { tails }, Nanos(2));
    restarted.finish();
    assert_eq!(restarted.names_in(Tier::Host), [1, 11, 12, 21]);
    assert!(restarted.mover.at_hand.is_empty());
    assert_eq!(restarted.tiers.warm.tails(), [name(3), name(21), name(12)]);
    // What was used first goes first.
    restarted.commit(41);
    restarted.finish();
    assert_eq!(restarted.names_in(Tier::Host), [11, 12, 21, 41]);
}

/// Parents come from outside, so they may be wrong.
#[test]
fn a_ring_of_parents_is_no_prompt() {
    let disk = tier(Tier::Disk, 9, WriteWhen::Through, Admission::Always);
    let mut world = World::new(vec![disk]);
    let found = |(id, parent)| FoundUnit {
        name: name(id),
        parent: Some(name(parent)),
        tenant: TenantTag::default(),
    };
    let units = [(1, 1), (2, 4), (3, 2), (4, 3)].map(found).to_vec();
    let tier = Tier::Disk;
    world.tiers.moved(TransferReport::Found { tier, units }, Nanos(1));
    let tails = vec![name(1), name(3)];
    world.tiers.moved(TransferReport::Noted { tails }, Nanos(2));
    assert_eq!(world.tiers.warm.tails(), []);
    world.tiers.check();
}

#[test]
fn what_was_used_is_noted_when_nobody_asks_any_more() {
    let disk = tier(Tier::Disk, 30, WriteWhen::Through, Admission::Always);
    let mut world = World::new(vec![disk]);
    (1..=3).for_each(|id| world.commit(id));
    world.finish();
    world.tiers.used(&[name(1), name(2), name(3)], &Access::at(Nanos(9)));
    assert_eq!(world.tiers.take_transfers(), [], "others may follow");
    world.tiers.rest();
    let tails = vec![name(3)];
    assert_eq!(world.tiers.take_transfers(), [Transfer::Note { tails }]);
    world.tiers.rest();
    assert_eq!(world.tiers.take_transfers(), [], "once");
}
