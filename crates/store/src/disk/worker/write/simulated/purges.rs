//! Purges while something is written: once one is answered, no byte of its tenant is on the disk.

use super::trials::{BUDGET, CROWDED, random_step, seeds};
use super::*;

const TENANT: u64 = 7;

/// The moment of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PurgeTime {
    /// A write with records of the tenant is under way.
    Writing,
    /// It has ended, and its commit is under way.
    Committing,
}

fn open(place: &tempfile::TempDir) -> Sim {
    let mut sim = Sim::open(place.path(), BUDGET);
    sim.writes_through = true;
    sim
}

/// Steps until a write of records is under way.
fn begin_write(sim: &mut Sim) {
    sim.step();
    while sim.find(is_write).is_none() {
        assert!(!sim.flying.is_empty(), "nothing is written");
        sim.end(0, None);
        sim.step();
    }
}

fn is_write(purpose: &Purpose) -> bool {
    matches!(purpose, Purpose::Write { .. })
}

fn end_writes(sim: &mut Sim, errno: Option<i32>) {
    while let Some(write) = sim.find(is_write) {
        sim.end(write, errno);
    }
}

/// Purges at that time, and checks that the answer waits for the writes under way.
fn purge_and_check(sim: &mut Sim, tenant: u64, time: PurgeTime, errno: Option<i32>) {
    if time == PurgeTime::Committing {
        end_writes(sim, errno);
    }
    let purges = [sim.purge(tenant), sim.purge(tenant)];
    sim.step();
    let is_answered = purges.map(|purge| sim.outcomes.contains_key(&purge));
    assert_eq!(is_answered, [time == PurgeTime::Committing; 2], "{time:?}, {errno:?}");
    // Without a step: a segment that is used again has another list.
    end_writes(sim, errno);
    for purge in purges {
        let outcome = sim.outcomes.remove(&purge);
        assert!(matches!(outcome, Some(CommandOutcome::Removed(_))), "{time:?}: {outcome:?}");
    }
    let left = left_over(sim, tenant);
    assert!(left.is_empty(), "{time:?}, {errno:?}: the disk still has {left:?}");
}

/// Runs of a tenant's pages that are not destroyed.
fn left_over(sim: &Sim, tenant: u64) -> Vec<(SegmentId, u32, u32)> {
    let mut left = Vec::new();
    let folder = sim.worker.folder.as_ref().expect("it is there");
    for segment in (0..sim.worker.space.count() as u32).map(SegmentId) {
        for (page, pages) in sim.worker.index.of_tenant(segment, TenantTag(tenant)) {
            let file = std::fs::read(folder.segment_path(segment)).expect("a segment");
            let run = &file[page as usize * PAGE..][..pages as usize * PAGE];
            if run.iter().any(|&byte| byte != 0) {
                left.push((segment, page, pages));
            }
        }
    }
    left
}

/// Whether a file of the folder has a sector of a record's bytes.
fn is_on_disk(folder: &Path, name: u64) -> bool {
    let byte = name as u8 ^ 0x5a;
    std::fs::read_dir(folder).expect("a folder").any(|entry| {
        let file = std::fs::read(entry.expect("an entry").path()).expect("a file");
        file.chunks(512).any(|sector| sector.iter().all(|&found| found == byte))
    })
}

#[test]
fn what_is_written_while_it_is_purged_is_destroyed() {
    for time in [PurgeTime::Writing, PurgeTime::Committing] {
        for errno in [None, Some(libc::EIO)] {
            let place = place();
            let mut sim = open(&place);
            let put = sim.put(1, TENANT).expect("a slot");
            sim.put(2, 1);
            begin_write(&mut sim);
            purge_and_check(&mut sim, TENANT, time, errno);
            let again = sim.put(3, TENANT).expect("a slot");
            sim.quiet();
            sim.check_counts();
            let outcome = sim.outcomes.remove(&put);
            assert!(matches!(outcome, Some(CommandOutcome::Failed(_))), "{outcome:?}");
            assert!(!is_on_disk(place.path(), 1), "{time:?}, {errno:?}");
            if errno.is_none() {
                let outcome = sim.outcomes.remove(&again);
                assert!(matches!(outcome, Some(CommandOutcome::Stored)), "{outcome:?}");
                assert!(is_on_disk(place.path(), 2) && is_on_disk(place.path(), 3));
            }
        }
    }
}

/// A put that follows a purge at once is not reached by what the purge still has to destroy.
#[test]
fn what_is_put_while_a_purge_waits_stays() {
    let place = place();
    let mut sim = open(&place);
    sim.put(1, TENANT);
    begin_write(&mut sim);
    let purge = sim.purge(TENANT);
    sim.put(1, TENANT);
    sim.step();
    assert!(!sim.outcomes.contains_key(&purge));
    // All but the old write.
    let old = sim.flying[sim.find(is_write).expect("it is under way")].id;
    while let Some(other) = sim.flying.iter().position(|flying| flying.id != old) {
        sim.end(other, None);
        sim.step();
    }
    sim.quiet();
    sim.check_counts();
    let get = sim.get(1).expect("a slot");
    sim.quiet();
    let outcome = sim.outcomes.remove(&get);
    assert!(matches!(outcome, Some(CommandOutcome::Loaded(_))), "{outcome:?}");
    assert!(matches!(sim.outcomes.remove(&purge), Some(CommandOutcome::Removed(1))));
}

#[test]
fn what_is_moved_while_it_is_purged_is_destroyed() {
    const TENANT: u64 = 2;
    for time in [PurgeTime::Writing, PurgeTime::Committing] {
        let mut tried = 0;
        for seed in 0..seeds() {
            let place = place();
            let mut rng = Rng::new(seed);
            let mut sim = open(&place);
            let is_moving = |sim: &Sim| {
                let groups = sim.worker.writes.groups.iter();
                let written = groups.filter(|group| group.writes_left > 0);
                written.flat_map(|group| &group.entries).any(|(entry, origin)| {
                    let is_moved = matches!(origin, super::super::AdditionOrigin::Moved(_));
                    is_moved && entry.resident.tenant == TenantTag(TENANT)
                })
            };
            let mut steps = 0..6_000;
            while !is_moving(&sim) && steps.next().is_some() {
                random_step(&mut sim, CROWDED, &mut rng);
            }
            if !is_moving(&sim) {
                continue;
            }
            tried += 1;
            purge_and_check(&mut sim, TENANT, time, None);
            sim.quiet();
            sim.check_counts();
            sim.crash_keeping(1.0, &mut rng);
            let sim = open(&place);
            let back = sim.stored.iter().filter(|&name| name % 5 == TENANT);
            assert_eq!(back.count(), 0, "{time:?}, seed {seed}: purged, and found again");
        }
        assert!(tried > 0, "nothing was tried");
    }
}

#[test]
fn a_purge_that_a_crash_cut_off_is_done_by_the_next_one() {
    let place = place();
    let mut sim = open(&place);
    sim.put(1, TENANT);
    begin_write(&mut sim);
    let purge = sim.purge(TENANT);
    sim.step();
    assert!(!sim.outcomes.contains_key(&purge), "it is still written");
    // The write reaches the disk, and its end is not seen.
    sim.crash_keeping(1.0, &mut Rng::new(1));
    let mut sim = open(&place);
    assert!(sim.stored.is_empty(), "purged, and found again");
    let purge = sim.purge(TENANT);
    sim.step();
    let outcome = sim.outcomes.remove(&purge);
    assert!(matches!(outcome, Some(CommandOutcome::Removed(0))), "{outcome:?}");
    assert!(!is_on_disk(place.path(), 1));
}
