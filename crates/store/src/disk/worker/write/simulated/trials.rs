//! The worker on a simulated disk: what was stored is there, and nothing else is found.

use super::*;

/// Seeds of each trial where nothing else is asked for (`HEADSTART_SEEDS`): some seconds.
const SEEDS: u64 = 10;

pub(super) fn seeds() -> u64 {
    let asked = std::env::var("HEADSTART_SEEDS");
    asked.map_or(SEEDS, |seeds| seeds.parse().expect("HEADSTART_SEEDS: a number"))
}

/// Parameters of a trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct PowerLossTrial {
    seed: u64,
    steps: usize,
    lives: usize,
    names: usize,
    budget_bytes: u64,
    /// Shares of operations that fail.
    failing_writes: f64,
    failing_reads: f64,
    /// Loads and looks at all records that must be there before each crash.
    looks: bool,
}

fn run(trial: PowerLossTrial) -> Result<usize, String> {
    let place = place();
    let mut rng = Rng::new(trial.seed);
    let mut expected: BTreeSet<u64> = BTreeSet::new();
    let mut moved = 0;
    for life in 0..trial.lives {
        let mut sim = Sim::open(place.path(), trial.budget_bytes);
        let gone: Vec<u64> = expected.difference(&sim.stored).copied().collect();
        if !gone.is_empty() {
            return Err(format!("{trial:?}, life {life}: not found after a crash: {gone:?}"));
        }
        // What is found is right, too.
        let missing = load_all(&mut sim, &expected);
        if !missing.is_empty() {
            return Err(format!("{trial:?}, life {life}: found and not there: {missing:?}"));
        }
        let steps = 1 + rng.below(trial.steps);
        for _ in 0..steps {
            random_step(&mut sim, trial, &mut rng);
        }
        if trial.looks && rng.below(2) == 0 {
            sim.quiet();
            sim.check_counts();
            let stored = sim.stored.clone();
            let missing = load_all(&mut sim, &stored);
            if !missing.is_empty() {
                return Err(format!("{trial:?}, life {life}: stored, not there: {missing:?}"));
            }
            // Nothing is stuck.
            for name in 0..5 {
                let name = 1_000_000 + (life as u64) * 10 + name;
                let mut outcome = None;
                for _ in 0..20 {
                    // The pause after a failure is 30 s at most.
                    sim.later();
                    let ticket = sim.put(name, 1).expect("a slot");
                    sim.quiet();
                    outcome = sim.outcomes.remove(&ticket);
                    if matches!(outcome, Some(CommandOutcome::Stored)) {
                        break;
                    }
                }
                if !matches!(outcome, Some(CommandOutcome::Stored)) {
                    return Err(format!("{trial:?}, life {life}: stuck: {outcome:?}"));
                }
            }
        }
        moved += sim.worker.edges.stats.moved_bytes.get() as usize;
        if !sim.wrong.is_empty() {
            return Err(format!("{trial:?}, life {life}: {:?}", sim.wrong));
        }
        expected = sim.crash(&mut rng);
    }
    Ok(moved)
}

fn load_all(sim: &mut Sim, names: &BTreeSet<u64>) -> Vec<u64> {
    let mut missing = Vec::new();
    for &name in names {
        let ticket = sim.get(name).expect("a slot");
        sim.quiet();
        if !matches!(sim.outcomes.remove(&ticket), Some(CommandOutcome::Loaded(_))) {
            missing.push(name);
        }
        sim.outcomes.clear();
    }
    missing
}

pub(super) fn random_step(sim: &mut Sim, trial: PowerLossTrial, rng: &mut Rng) {
    match rng.below(100) {
        0..30 => {
            let name = rng.below(trial.names) as u64;
            sim.put(name, name % 5);
        }
        30..40 => {
            let name = rng.below(trial.names) as u64;
            sim.remove(name);
        }
        40..50 => {
            let name = rng.below(trial.names) as u64;
            sim.get(name);
        }
        50 => sim.later(),
        _ => {}
    }
    sim.outcomes.clear();
    if rng.below(3) > 0 {
        sim.step();
    }
    // As fast as puts come, so that sometimes much and sometimes little is under way.
    for _ in 0..rng.below(4) {
        if sim.flying.is_empty() {
            break;
        }
        let index = rng.below(sim.flying.len());
        let is_read = matches!(sim.flying[index].op, IoOperation::Read { .. });
        let failing = if is_read { trial.failing_reads } else { trial.failing_writes };
        let errno = (rng.next_f64() < failing).then_some(libc::EIO);
        sim.end(index, errno);
        if rng.below(2) == 0 {
            sim.step();
        }
    }
}

fn check(trial: PowerLossTrial, seeds: std::ops::Range<u64>) {
    let mut failures = Vec::new();
    let mut moved = 0;
    let count = seeds.end - seeds.start;
    for seed in seeds {
        match run(PowerLossTrial { seed, ..trial }) {
            Ok(bytes) => moved += bytes,
            Err(error) => failures.push(error),
        }
    }
    println!("{moved} bytes moved, {} of {count} failed", failures.len());
    assert!(failures.is_empty(), "{} failed, the first: {}", failures.len(), failures[0]);
}

/// Little, so that segments are cleaned.
pub(super) const BUDGET: u64 = 3 << 20;

pub(super) const CROWDED: PowerLossTrial = PowerLossTrial {
    seed: 0,
    steps: 3_000,
    lives: 4,
    names: 400,
    budget_bytes: BUDGET,
    failing_writes: 0.0,
    failing_reads: 0.0,
    looks: true,
};

#[test]
fn any_order_and_lost_power_while_segments_are_cleaned() {
    check(CROWDED, 0..seeds());
}

#[test]
fn the_same_with_failing_writes() {
    let trial = PowerLossTrial { failing_writes: 0.02, ..CROWDED };
    check(trial, 0..seeds());
}

#[test]
fn the_same_with_failing_writes_and_reads() {
    let trial = PowerLossTrial { failing_writes: 0.005, failing_reads: 0.01, ..CROWDED };
    check(trial, 0..seeds());
}

/// A write of records that are moved fails, in a segment that takes no more groups. The records
/// are where they were; the segment's footer must not say otherwise.
#[test]
fn a_move_that_failed_is_not_in_the_footer() {
    let mut tried = 0;
    let mut failures = Vec::new();
    for seed in 0..seeds() {
        let place = place();
        let mut rng = Rng::new(seed);
        let mut sim = Sim::open(place.path(), CROWDED.budget_bytes);
        let mut failed = None;
        for _ in 0..6_000 {
            random_step(&mut sim, CROWDED, &mut rng);
            let worker = &mut sim.worker;
            let groups = worker.writes.groups.iter().enumerate();
            let moves = groups.filter(|(_, group)| {
                group
                    .entries
                    .iter()
                    .all(|(_, from)| matches!(from, super::super::AdditionOrigin::Moved(_)))
                    && group.writes_left > 0
            });
            let moves: Vec<(u64, SegmentId)> = moves
                .map(|(index, group)| (worker.writes.first_group + index as u64, group.segment))
                .collect();
            let active = worker.segments.active.as_ref().map(|active| active.segment);
            let ended = moves.into_iter().find(|&(_, segment)| active != Some(segment));
            let Some((group, segment)) = ended else {
                continue;
            };
            let write =
                sim.find(|purpose| matches!(purpose, Purpose::Write { group: of } if *of == group));
            sim.end(write.expect("it is under way"), Some(libc::EIO));
            failed = Some(segment);
            break;
        }
        let Some(segment) = failed else { continue };
        tried += 1;
        // Power is lost once its footer is on the disk.
        let mut name = 2_000_000;
        for _ in 0..2_000 {
            let is_open = sim.worker.segments.open_mut(segment).is_some();
            let is_footer = |purpose: &Purpose| matches!(purpose, Purpose::Footer { .. });
            if !is_open && sim.find(is_footer).is_none() {
                break;
            }
            if sim.flying.is_empty() {
                sim.later();
                sim.put(name, 1);
                name += 1;
            } else {
                sim.end(0, None);
            }
            sim.step();
        }
        let expected = sim.crash_keeping(1.0, &mut rng);
        let mut sim = Sim::open(place.path(), CROWDED.budget_bytes);
        let missing = load_all(&mut sim, &expected);
        if !missing.is_empty() {
            failures.push((seed, missing));
        }
    }
    assert!(tried > 0, "nothing was tried");
    assert!(failures.is_empty(), "{tried} tried; (seed, missing): {failures:?}");
}

/// Records that are moved when their tenant is purged stay purged.
#[test]
fn what_is_moved_while_it_is_purged_does_not_come_back() {
    let mut tried = 0;
    let mut failures = Vec::new();
    for seed in 0..seeds() {
        let place = place();
        let mut rng = Rng::new(seed);
        let mut sim = Sim::open(place.path(), CROWDED.budget_bytes);
        let mut moving = Vec::new();
        for _ in 0..6_000 {
            random_step(&mut sim, CROWDED, &mut rng);
            let moves = sim.worker.writes.moves.iter();
            let moves = moves.filter(|addition| addition.entry.resident.tenant == TenantTag(2));
            moving = moves.map(|addition| number_of(addition.entry.resident.name)).collect();
            let is_put = |name: &u64| sim.worker.writes.waiting.contains_key(&hash(*name));
            moving.retain(|name| !is_put(name));
            if !moving.is_empty() {
                break;
            }
        }
        if moving.is_empty() {
            continue;
        }
        tried += 1;
        let purge = sim.purge(2);
        sim.quiet();
        let outcome = sim.outcomes.remove(&purge);
        assert!(matches!(outcome, Some(CommandOutcome::Removed(_))), "{outcome:?}");
        sim.crash_keeping(1.0, &mut rng);
        let mut sim = Sim::open(place.path(), CROWDED.budget_bytes);
        let moving: BTreeSet<u64> = moving.into_iter().collect();
        let missing = load_all(&mut sim, &moving);
        if missing.len() < moving.len() {
            failures.push((seed, moving.len() - missing.len()));
        }
    }
    assert!(tried > 0, "nothing was tried");
    assert!(failures.is_empty(), "{tried} tried; (seed, purged and readable): {failures:?}");
}

/// Reads that follow each other, so that some are under way at any time, do not keep puts waiting,
/// and cost no more than the room that the puts need.
#[test]
fn reads_do_not_keep_puts_waiting() {
    let mut failures = Vec::new();
    for (seed, budget_bytes) in (0..8).map(|seed| (seed, [3 << 20, 9 << 20][seed as usize % 2])) {
        let place = place();
        let mut rng = Rng::new(seed);
        let mut sim = Sim::open(place.path(), budget_bytes);
        // Full of wanted records: now and then the oldest segment is given up.
        let mut name = 0;
        while sim.lost.len() < 30 {
            sim.put(name, 1);
            name += 1;
            sim.quiet();
        }
        let full = sim.stored.len();
        let mut fewest = full;
        let mut longest = 0;
        let mut waits = 0;
        let mut reads = 0;
        while reads < 3_000 {
            let is_read =
                |op: &IoOperation| matches!(op, IoOperation::Read { buffer: Buffer::Slot(_), .. });
            let under_way = sim.flying.iter().filter(|flying| is_read(&flying.op)).count();
            if under_way < 24 {
                let all: Vec<u64> = sim.stored.iter().copied().collect();
                if all.is_empty() {
                    break;
                }
                sim.get(all[rng.below(all.len())]);
            }
            let put_waits =
                sim.waiting.values().any(|asked| matches!(asked, SimulatedCommand::Put(_)));
            if !put_waits {
                sim.put(name, 1);
                name += 1;
                waits = 0;
            }
            sim.step();
            waits += 1;
            longest = longest.max(waits);
            // Writes and moves are quick, reads end one at a time, the oldest first.
            while let Some(index) = sim.flying.iter().position(|flying| !is_read(&flying.op)) {
                sim.end(index, None);
                sim.step();
            }
            if under_way >= 24 {
                let ids = sim.flying.iter().enumerate().map(|(index, flying)| (flying.id, index));
                let (_, oldest) = ids.min().expect("there are some");
                sim.end(oldest, None);
                reads += 1;
            }
            sim.outcomes.clear();
            fewest = fewest.min(sim.stored.len());
        }
        if longest > 400 || fewest < full / 2 {
            failures.push((seed, full, fewest, longest));
        }
        sim.quiet();
        sim.check_counts();
    }
    assert!(failures.is_empty(), "(seed, there, there at times, longest wait): {failures:?}");
}
