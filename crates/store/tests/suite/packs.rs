//! Packs are made while units are loaded, stored and dropped, and the power fails at any point.
//!
//! The folder is then opened again. Each pack that is found holds for each of its tokens the bytes
//! that the token has in its unit. Each pack that was reported as stored is found unless it was
//! dropped. With flipped bits, packs may be missing but never wrong. Several packs of one run of
//! units may be found, in other orders: all are right.
//!
//! ```bash
//! HEADSTART_CUTS=20000 HEADSTART_SEED=3 \
//!     cargo test --release -p headstart-store --test suite packs -- --nocapture
//! ```

mod bench;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use headstart_core::transfer::{
    BlockMover, Pack, PartName, Transfer, TransferId, TransferReport, TransferResult, Unit,
};
use headstart_core::{BlockHash, BlockId, IdentityDigest, Rng, TenantTag, Tier};

use bench::{Bench, Device, TOKENS, byte, number_of};

/// Power cuts where nothing else is asked for: some seconds.
const CUTS: u64 = 300;

/// Cuts after which the folder is emptied: the disk would be full.
const LIFE: u64 = 8;

/// Units of a run; packs are of runs.
const RUN: u64 = 4;
const RUNS: u64 = 4;

/// Reported contents of the disk.
#[derive(Default)]
struct Said {
    units: BTreeSet<u64>,
    /// Stored or dropped when the power failed: there or not.
    unsure: BTreeSet<u64>,
    packs: BTreeMap<u64, Pack>,
    unsure_packs: BTreeMap<u64, Pack>,
    last_pack: u64,
}

#[derive(Debug, Default)]
struct Tally {
    cuts: u64,
    packed: u64,
    failed: u64,
    found: u64,
    several: u64,
    unsaid: u64,
    lost: u64,
    /// Packs of which something, or all, could not be read.
    harmed: u64,
    tears: u64,
    flips: u64,
}

/// Random commands up to a power cut.
struct Run<'a> {
    bench: Bench,
    said: &'a mut Said,
    tally: &'a mut Tally,
    rng: Rng,
    last_id: u64,
    storing: BTreeMap<u64, u64>,
    packing: BTreeMap<u64, Pack>,
}

impl Run<'_> {
    fn step(&mut self) {
        let unit = self.rng.below((RUN * RUNS) as usize) as u64;
        match self.rng.below(20) {
            0..6 => self.store_unit(unit),
            6..11 => self.pack(),
            11..14 => {
                let name =
                    PartName { record: BlockHash::from_u64(unit), part: self.rng.below(4) as u16 };
                if let Some(bytes) = self.bench.part(name) {
                    let expected = (0..bytes.len()).map(|at| byte(unit, name.part.into(), at));
                    assert!(bytes.iter().copied().eq(expected), "unit {unit}");
                }
            }
            14 => {
                if self.said.units.remove(&unit) {
                    self.said.unsure.insert(unit);
                }
                self.forget(unit);
            }
            15 => {
                if let Some(pack) = self.any_pack() {
                    let name = number_of(pack.name);
                    self.said.packs.remove(&name);
                    self.said.unsure_packs.insert(name, pack);
                    self.forget(name);
                }
            }
            16 => {
                if let Some(pack) = self.any_pack() {
                    // Asserts that what is there is right.
                    let right = self.bench.check(&pack, "before a cut");
                    self.tally.harmed += u64::from(right < pack.order.len());
                }
            }
            _ => std::thread::sleep(Duration::from_micros(self.rng.below(400) as u64)),
        }
        let moved = self.bench.poll();
        self.hear(moved);
    }

    fn any_pack(&mut self) -> Option<Pack> {
        let at = self.rng.below(self.said.packs.len().max(1));
        self.said.packs.values().nth(at).cloned()
    }

    fn forget(&mut self, name: u64) {
        let (tier, names) = (Tier::Disk, vec![BlockHash::from_u64(name)]);
        self.bench.store.submit(Transfer::Forget { tier, names });
    }

    fn store_unit(&mut self, unit: u64) {
        self.last_id += 1;
        let id = TransferId(self.last_id);
        self.storing.insert(self.last_id, unit);
        if !self.said.units.contains(&unit) {
            self.said.unsure.insert(unit);
        }
        let parent = (!unit.is_multiple_of(RUN)).then(|| BlockHash::from_u64(unit - 1));
        self.bench.store.submit(Transfer::Store {
            id,
            unit: Unit {
                name: BlockHash::from_u64(unit),
                parent,
                identity: IdentityDigest::default(),
                tenant: TenantTag::default(),
            },
            blocks: vec![BlockId(unit as u32)],
            to: vec![Tier::Disk],
        });
        (0..4).for_each(|part| self.bench.store.read(part, &Device(part)));
        self.bench.store.end_reads();
    }

    /// Packs a run again, in another order.
    fn pack(&mut self) {
        let run = self.rng.below(RUNS as usize) as u64;
        let units = (run * RUN..(run + 1) * RUN).map(BlockHash::from_u64);
        let mut order: Vec<u32> = (0..(RUN as usize * TOKENS) as u32).collect();
        self.rng.shuffle(&mut order);
        order.truncate(1 + self.rng.below(order.len()));
        self.said.last_pack += 1;
        let name = 1_000_000 + self.said.last_pack;
        let pack = Pack {
            name: BlockHash::from_u64(name),
            units: units.collect(),
            part: self.rng.below(4) as u16,
            order,
            generation: self.rng.below(9) as u32,
        };
        self.last_id += 1;
        let id = TransferId(self.last_id);
        self.said.unsure_packs.insert(name, pack.clone());
        self.packing.insert(self.last_id, pack.clone());
        let (origin, tier) = (<_>::default(), Tier::Disk);
        self.bench.store.submit(Transfer::Pack { id, pack, origin, tier });
    }

    fn hear(&mut self, moved: Vec<TransferReport>) {
        for moved in moved {
            match moved {
                TransferReport::Stored { id, result, .. } => {
                    let unit = self.storing.remove(&id.0).expect("answered once");
                    if result == TransferResult::Done && !self.is_forgotten(unit) {
                        self.said.units.insert(unit);
                        self.said.unsure.remove(&unit);
                    }
                }
                TransferReport::Packed { id, result } => {
                    let pack = self.packing.remove(&id.0).expect("answered once");
                    let name = number_of(pack.name);
                    match result {
                        TransferResult::Done => {
                            self.tally.packed += 1;
                            self.said.unsure_packs.remove(&name);
                            self.said.packs.insert(name, pack);
                        }
                        TransferResult::Failed => self.tally.failed += 1,
                    }
                }
                TransferReport::Lost { names, .. } => {
                    for name in names.into_iter().map(number_of) {
                        self.tally.lost += 1;
                        self.said.units.remove(&name);
                        if let Some(pack) = self.said.packs.remove(&name) {
                            self.said.unsure_packs.insert(name, pack);
                        }
                    }
                }
                TransferReport::PartLoaded { .. }
                | TransferReport::Found { .. }
                | TransferReport::FoundPacks { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Whether a unit may have been dropped after it was stored last: then it may be gone.
    fn is_forgotten(&self, unit: u64) -> bool {
        self.storing.values().any(|&storing| storing == unit)
    }

    /// The power fails: nothing more reaches the files, and they are copied.
    fn cut(mut self, folder: &Path, copy: &Path) {
        self.bench.cut_power();
        // What was durable before was told, or not.
        let moved = self.bench.poll();
        self.hear(moved);
        std::thread::sleep(Duration::from_millis(1));
        let _ = fs::remove_dir_all(copy);
        fs::create_dir(copy).expect("a folder");
        for file in fs::read_dir(folder).expect("a folder") {
            let file = file.expect("a file");
            fs::copy(file.path(), copy.join(file.file_name())).expect("it is copied");
        }
        self.bench.restore_power();
        self.tally.tears += self.bench.tears.load(Relaxed);
        self.tally.flips += self.bench.flips.load(Relaxed);
        self.tally.cuts += 1;
    }
}

/// Hears what is found, and checks all of it.
fn look(bench: &mut Bench, said: &mut Said, tally: &mut Tally, flipped: f64, context: &str) {
    let mut units = BTreeSet::new();
    let mut packs: BTreeMap<u64, Pack> = BTreeMap::new();
    let started = Instant::now();
    let mut idle = 0;
    // Packs are reported as they are read: wait while any expected one is missing.
    while idle < 5 || (flipped == 0.0 && !said.packs.keys().all(|name| packs.contains_key(name))) {
        let late = started.elapsed() > Duration::from_secs(30);
        let is_gone = |name: &&u64| !packs.contains_key(name);
        let gone: Vec<&u64> = said.packs.keys().filter(is_gone).collect();
        assert!(!late, "{context}: {gone:?} are gone");
        let moved = bench.poll();
        idle = if moved.is_empty() { idle + 1 } else { 0 };
        for moved in moved {
            match moved {
                TransferReport::Found { units: found, .. } => {
                    units.extend(found.into_iter().map(|unit| number_of(unit.name)));
                }
                TransferReport::FoundPacks { packs: found, .. } => {
                    let found = found.into_iter();
                    packs.extend(found.map(|pack| (number_of(pack.name), pack)));
                }
                TransferReport::Lost { .. } if flipped > 0.0 => {}
                other => panic!("{context}: {other:?}"),
            }
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    let is_unit = |unit: &u64| *unit < RUN * RUNS;
    assert!(units.iter().all(is_unit), "{context}: packs are no units");
    if flipped == 0.0 {
        let missing: Vec<&u64> = said.units.difference(&units).collect();
        assert!(missing.is_empty(), "{context}: {missing:?} are gone");
    }
    let is_gone = |name: &&u64| !packs.contains_key(name);
    tally.harmed += said.packs.keys().filter(is_gone).count() as u64;
    let mut runs = BTreeMap::new();
    for (name, pack) in &packs {
        let known = said.packs.get(name).or(said.unsure_packs.get(name));
        assert_eq!(Some(pack), known, "{context}: nobody made it so");
        tally.unsaid += u64::from(!said.packs.contains_key(name));
        *runs.entry(pack.units[0]).or_insert(0) += 1;
        let right = bench.check(pack, context);
        tally.harmed += u64::from(right < pack.order.len());
        assert!(flipped > 0.0 || right == pack.order.len(), "{context}");
        tally.found += 1;
    }
    tally.several += u64::from(runs.values().any(|&count| count > 1));
    said.units = units;
    // What was dropped, or is damaged, may be found again.
    let gone = std::mem::replace(&mut said.packs, packs);
    said.unsure_packs.extend(gone);
}

/// Returns the number in an environment variable, if it is set.
fn asked(name: &str) -> Option<u64> {
    let asked = std::env::var(name).ok()?;
    Some(asked.parse().unwrap_or_else(|_| panic!("{name}: a number")))
}

fn check(seed: u64, flipped: f64) -> Tally {
    let cuts = asked("HEADSTART_CUTS").unwrap_or(CUTS);
    let seed = asked("HEADSTART_SEED").unwrap_or(seed);
    let place = tempfile::tempdir().expect("a folder");
    let mut said = Said::default();
    let mut tally = Tally::default();
    let mut rng = Rng::new(seed);
    let folder_of = |number: u64| place.path().join(format!("{}", number % 2));
    for cut in 0..cuts {
        let (folder, copy) = (folder_of(cut), folder_of(cut + 1));
        if cut % LIFE == 0 {
            let _ = fs::remove_dir_all(&folder);
            let last_pack = said.last_pack;
            said = Said { last_pack, ..Said::default() };
        }
        let context = format!("seed {seed}, before cut {cut}");
        let mut bench = Bench::open(&folder, rng.next_u64(), flipped);
        look(&mut bench, &mut said, &mut tally, flipped, &context);
        let steps = 1 + rng.below(60);
        let mut run = Run {
            bench,
            said: &mut said,
            tally: &mut tally,
            rng: Rng::new(rng.next_u64()),
            last_id: 0,
            storing: BTreeMap::new(),
            packing: BTreeMap::new(),
        };
        if cut % LIFE == 0 {
            (0..RUN * RUNS).for_each(|unit| run.store_unit(unit));
        }
        (0..steps).for_each(|_| run.step());
        run.cut(&folder, &copy);
    }
    eprintln!("seed {seed}, flipped {flipped}: {tally:?}");
    tally
}

#[test]
fn packs_survive_power_cuts_whole_and_right_or_not_at_all() {
    let tally = check(1, 0.0);
    assert!(tally.packed > tally.cuts / 4 && tally.found > tally.cuts / 4);
    assert!(tally.several > 0, "generations side by side");
    assert!(tally.unsaid > 0 && tally.failed > 0 && tally.tears > 0);
    assert_eq!(tally.harmed, 0);
}

#[test]
fn with_flipping_bits_nothing_wrong_is_served() {
    let tally = check(2, 0.2);
    assert!(tally.packed > tally.cuts / 8 && tally.found > 0);
    assert!(tally.flips > tally.cuts / 4 && tally.harmed > 0);
}
