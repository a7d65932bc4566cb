//! The router's random worlds, heard by one gateway and asked of two.

use headstart_dst::index::conformance;

use crate::gateway::Common;
use crate::gateways::{Change, Gateways, Reference};
use crate::service::{Memory, Service};

/// Replicas of the largest fleet of the worlds.
const REPLICAS: u32 = 4;

fn check(change: Change) {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let common = || Common::new(service.url(), REPLICAS);
    conformance::same_overlaps(
        || Gateways::new(common(), change),
        |gateways| {
            gateways.check();
            assert_eq!(gateways.faults(), 0, "nothing was lost");
        },
        || Box::new(Reference::new(&common(), change)),
    );
}

#[test]
fn who_listens_and_who_reads_answer_as_the_reference_does() {
    check(Change::Nothing);
}

#[test]
fn who_comes_late_misses_nothing() {
    check(Change::Joins { every: 40 });
}

#[test]
fn a_handover_is_a_doubt_and_nothing_else() {
    check(Change::Handovers { every: 60 });
}

#[test]
fn two_gateways_obey_the_contract() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    conformance::index(|| {
        let common = Common::new(service.url(), REPLICAS);
        Box::new(Gateways::new(common, Change::Nothing))
    });
}
