//! All of it at once.

use super::*;

/// Names of a stress; the tenant of a name is its rest by five.
const NAMES: usize = 1_500;

fn random_command(raw: &mut Raw, rng: &mut Rng) {
    let name = rng.below(NAMES) as u64;
    match rng.below(1_000) {
        0..450 => {
            let bytes = 500 + (name * 7_919 % 20_000) as usize;
            raw.put_as(name, name % 5, None, bytes);
        }
        450..850 => {
            raw.get(name);
        }
        850..997 => {
            raw.remove(name);
        }
        _ => {
            let tenant = name % 5;
            let ticket = raw.purge(tenant);
            for name in (0..NAMES as u64).filter(|name| name % 5 == tenant) {
                raw.stored.remove(&name);
                raw.removed.insert(name, ticket);
            }
        }
    }
}

/// All commands in any order while writes and reads fail for a while, and the folder goes away and
/// comes back.
fn stress(seed: u64, has_faults: bool, seconds: u64) {
    let place = tempfile::tempdir().expect("a folder");
    let (folder, away) = (place.path().join("cache"), place.path().join("away"));
    let faults = Faults { seed, ..Faults::default() };
    let (writes, reads) = (faults.writes_fail.clone(), faults.reads_fail.clone());
    let of = options(&folder, 8 << 20);
    let mut raw = if has_faults { Raw::open_faulty(of, &faults) } else { Raw::open(of) };
    let mut rng = Rng::new(seed);
    let started = Instant::now();
    let mut change = Instant::now();
    let mut trouble = 0;
    let mut commands = 0u64;
    while started.elapsed() < Duration::from_secs(seconds) {
        if change.elapsed() > Duration::from_millis(50 + rng.below(1_500) as u64) {
            change = Instant::now();
            // One trouble ends before the next begins.
            match trouble {
                1 => writes.store(0, Relaxed),
                2 => reads.store(0, Relaxed),
                3 => {
                    // What was made in its place meanwhile goes.
                    let _ = fs::remove_dir_all(&folder);
                    let _ = fs::remove_dir_all(&folder);
                    let _ = fs::rename(&away, &folder);
                }
                _ => {}
            }
            trouble = match (trouble, has_faults) {
                (0, true) => 1 + rng.below(3),
                (0, false) => 3,
                _ => 0,
            };
            match trouble {
                1 => {
                    let errno = [libc::ENOSPC, libc::EROFS, libc::EIO][rng.below(3)];
                    writes.store(errno as u64, Relaxed);
                }
                2 => reads.store(libc::EIO as u64, Relaxed),
                3 => {
                    let _ = fs::remove_dir_all(&away);
                    let _ = fs::rename(&folder, &away);
                }
                _ => {}
            }
        }
        if raw.waiting.len() < 300 {
            random_command(&mut raw, &mut rng);
            commands += 1;
        }
        raw.poll();
        let oldest = raw.waiting.keys().next().copied();
        if let Some(oldest) = oldest {
            // Each is answered, and soon.
            assert!(oldest.0 + 200_000 > raw.next, "{:?} is not answered", raw.waiting[&oldest]);
        }
        raw.answers.clear();
    }
    writes.store(0, Relaxed);
    reads.store(0, Relaxed);
    if !folder.exists() {
        let _ = fs::rename(&away, &folder);
    }
    raw.quiet();
    eprintln!("seed {seed}: {:?}", raw.conditions);
    // It works again by itself.
    let waits = Instant::now();
    let mut name = 1_000_000;
    loop {
        name += 1;
        if matches!(raw.store(name, 1), CommandOutcome::Stored) && raw.loads(name) {
            // Not a moment before it notices that the folder is another one.
            std::thread::sleep(Duration::from_millis(1_500));
            raw.poll();
            if raw.stored.contains(&name) {
                break;
            }
        }
        assert!(
            waits.elapsed() < Duration::from_secs(70),
            "seed {seed}: nothing can be stored any more: {:?}",
            raw.conditions.last()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    raw.quiet();
    let there: Vec<u64> = raw.stored.iter().copied().collect();
    let count = there.len();
    // Unless the read reported it as lost.
    let is_gone = |&name: &u64| !raw.loads(name) && raw.stored.contains(&name);
    let gone: Vec<u64> = there.into_iter().filter(is_gone).collect();
    let spread = raw.conditions.len();
    eprintln!("seed {seed}: {commands} commands, {spread} conditions, {count} there at the end");
    assert_eq!(raw.arena.free(), raw.arena.num_slots(), "every slot came back");
    let closing = Instant::now();
    let stored: BTreeSet<u64> =
        raw.stored.difference(&gone.iter().copied().collect()).copied().collect();
    drop(raw);
    let closed = closing.elapsed();
    assert!(support::folder_bytes(&folder) <= 8 << 20, "the budget holds");
    let mut raw = Raw::open(options(&folder, 8 << 20));
    let later: Vec<u64> = stored.into_iter().filter(|&name| !raw.loads(name)).collect();
    assert!(
        gone.is_empty() && later.is_empty() && closed < Duration::from_secs(3),
        "seed {seed}: stored and not there: {gone:?}; not after a restart: {later:?}; \
         closing took {closed:?}"
    );
}

#[test]
fn stress_01_with_faults() {
    stress(1, true, 4);
}

#[test]
fn stress_02_the_folder_goes_and_comes() {
    stress(2, false, 4);
}
