//! Parts brought to hand one by one.

use std::collections::{BTreeMap, BTreeSet};

use headstart_core::Rng;
use headstart_core::transfer::TokenFormat;

use super::*;
use crate::line::Rate;
use crate::record::PAGE;

pub(super) const TOKENS: usize = 8;

/// Bytes of a token in each part: two layers, a small part and a large one of each.
pub(super) const TOKEN_BYTES: [usize; 4] = [24, 24, 640, 640];

/// Tokens lie one behind the other.
pub(super) struct Rows;

impl TokenFormat for Rows {
    fn copy_token(&self, from: &[u8], at: usize, to: &mut [u8], to_at: usize) {
        let row = from.len() / TOKENS;
        to[to_at * row..][..row].copy_from_slice(&from[at * row..][..row]);
    }
}

/// A byte of a unit: anybody can say whether what was read is right.
pub(super) fn byte(unit: u64, part: usize, at: usize) -> u8 {
    let mixed = (unit * 4 + part as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (at as u64 * 0x2545);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xff51_afd7) as u8
}

/// A part of a device whose block `n` is what unit `n` is made of.
pub(super) struct Device(pub(super) usize);

impl DevicePart for Device {
    fn block_bytes(&self) -> usize {
        TOKENS * TOKEN_BYTES[self.0]
    }

    fn read(&self, block: BlockId, bytes: &mut [u8]) {
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = self::byte(block.index() as u64, self.0, at);
        }
    }

    fn write(&mut self, _: BlockId, _: &[u8]) {}
}

pub(super) fn parts_config() -> PartsConfig {
    PartsConfig {
        slots: 3,
        small_slots: 3,
        most_loads: 64,
        most_packs: 4,
        format: Arc::new(Rows),
        host_line: None,
    }
}

pub(super) fn config(parts: PartsConfig) -> StoreConfig {
    StoreConfig {
        part_bytes: TOKEN_BYTES.map(|bytes| bytes * TOKENS).to_vec(),
        exactness: Exactness::Exact,
        unit_blocks: 1,
        unit_tokens: TOKENS as u32,
        host_units: 2,
        staging_units: 4,
        lifetimes: Lifetimes::default(),
        now_s: unix_seconds,
        notes: None,
        parts: Some(parts),
    }
}

pub(super) fn open(folder: &std::path::Path, parts: PartsConfig) -> TieredStore {
    let store = TieredStore::new(config(parts), vec![disk(folder)], no_waker());
    store.expect("a store")
}

/// Latency of a slow disk.
const LATENCY: Duration = Duration::from_millis(20);

/// The same over a disk whose reads are that late.
fn slow(folder: &std::path::Path, parts: PartsConfig, latency: Duration) -> TieredStore {
    let Below { tier, backend: inner, found } = disk(folder);
    let late = LateReads { inner, latency, asked: HashMap::new(), held: VecDeque::new() };
    let below = Below { tier, backend: Box::new(late), found };
    TieredStore::new(config(parts), vec![below], no_waker()).expect("a store")
}

/// A backend whose parts come that late.
struct LateReads {
    inner: Box<dyn Backend>,
    latency: Duration,
    asked: HashMap<Ticket, Instant>,
    held: VecDeque<(Instant, Report)>,
}

impl Backend for LateReads {
    fn submit(&mut self, command: Command) -> Result<(), Command> {
        self.asked.insert(command.ticket(), Instant::now());
        self.inner.submit(command)
    }

    fn poll(&mut self, reports: &mut Vec<Report>) {
        let mut new = Vec::new();
        self.inner.poll(&mut new);
        for report in new {
            match report {
                Report::Done { ticket, outcome: CommandOutcome::Part(part) } => {
                    let due = self.asked[&ticket] + self.latency;
                    let since = due.max(part.since());
                    let outcome = CommandOutcome::Part(part.with_since(since));
                    self.held.push_back((due, Report::Done { ticket, outcome }));
                }
                other => reports.push(other),
            }
        }
        let now = Instant::now();
        while let Some((_, report)) = self.held.pop_front_if(|(due, _)| *due <= now) {
            reports.push(report);
        }
    }
}

/// Stores units and waits for that.
pub(super) fn store_units(store: &mut TieredStore, units: &[u64], to: &[Tier]) {
    for &id in units {
        store.submit(Transfer::Store {
            id: TransferId(id),
            unit: unit(id),
            blocks: vec![BlockId(id as u32)],
            to: to.to_vec(),
        });
        (0..4).for_each(|part| store.read(part, &Device(part)));
        store.end_reads();
        for moved in wait(store, to.len()) {
            let is_done = |moved: &TransferReport| match moved {
                TransferReport::Stored { result, .. } => *result == TransferResult::Done,
                _ => false,
            };
            assert!(is_done(&moved), "{moved:?}");
        }
    }
}

pub(super) fn part(unit: u64, part: u16) -> PartName {
    let record = BlockHash::from_u64(unit);
    PartName { record, part }
}

fn ask(store: &mut TieredStore, id: u64, name: PartName, from: Tier) {
    let id = TransferId(id);
    store.submit(Transfer::LoadPart { id, name, from });
}

/// Loads a part and says whether it came, and right.
pub(super) fn load_part(store: &mut TieredStore, unit: u64, number: u16, from: Tier) -> bool {
    let name = part(unit, number);
    ask(store, 7, name, from);
    let moved = wait(store, 1);
    let [TransferReport::PartLoaded { id, result, .. }] = moved[..] else {
        panic!("{moved:?}");
    };
    assert_eq!(id, TransferId(7));
    let bytes = store.loaded_part(name);
    assert_eq!(bytes.is_some(), result == TransferResult::Done);
    if let Some(bytes) = bytes {
        assert_right(bytes, unit, usize::from(number));
    }
    result == TransferResult::Done
}

fn assert_right(bytes: &[u8], unit: u64, part: usize) {
    assert_eq!(bytes.len(), TOKENS * TOKEN_BYTES[part]);
    let right = (0..bytes.len()).map(|at| byte(unit, part, at));
    assert!(bytes.iter().copied().eq(right), "unit {unit}, part {part}");
}

fn release(store: &mut TieredStore, names: Vec<PartName>) {
    store.submit(Transfer::ReleaseParts { names });
}

#[test]
fn each_part_comes_alone_from_disk_and_from_host_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path(), parts_config());
    wait(&mut store, 1);
    store_units(&mut store, &[1, 2], &[Tier::Host, Tier::Disk]);
    for (unit, from) in [(1, Tier::Disk), (2, Tier::Host)] {
        for number in 0..4 {
            assert!(load_part(&mut store, unit, number, from), "{unit} {number}");
            // Again, from any tier: it is loaded already.
            assert!(load_part(&mut store, unit, number, Tier::Remote));
            release(&mut store, vec![part(unit, number), part(9, 9)]);
            assert_eq!(store.loaded_part(part(unit, number)), None);
        }
        for number in [4, u16::MAX] {
            assert!(!load_part(&mut store, unit, number, from), "no such part");
        }
    }
    for from in [Tier::Disk, Tier::Host, Tier::Remote] {
        assert!(!load_part(&mut store, 3, 0, from), "no such unit");
    }
    let names = vec![BlockHash::from_u64(1)];
    let tier = Tier::Disk;
    store.submit(Transfer::Forget { tier, names });
    assert!(!load_part(&mut store, 1, 0, Tier::Disk), "forgotten");
    assert!(load_part(&mut store, 1, 0, Tier::Host));
}

#[test]
fn parts_wait_for_slots_and_those_beyond_the_limit_fail() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut parts = parts_config();
    (parts.slots, parts.most_loads) = (1, 2);
    let mut store = open(folder.path(), parts);
    wait(&mut store, 1);
    store_units(&mut store, &[1], &[Tier::Disk]);
    assert!(load_part(&mut store, 1, 2, Tier::Disk));
    ask(&mut store, 20, part(1, 3), Tier::Disk);
    ask(&mut store, 21, part(1, 3), Tier::Disk);
    ask(&mut store, 22, part(1, 0), Tier::Disk);
    let beyond = wait(&mut store, 1);
    let is_22 = |moved: &TransferReport| match moved {
        TransferReport::PartLoaded { id, result, .. } => {
            (id.0, *result) == (22, TransferResult::Failed)
        }
        _ => false,
    };
    assert!(beyond.len() == 1 && is_22(&beyond[0]), "{beyond:?}");
    release(&mut store, vec![part(1, 2)]);
    let mut told: Vec<u64> = Vec::new();
    for moved in wait(&mut store, 2) {
        let TransferReport::PartLoaded { id, result, .. } = moved else {
            panic!("{moved:?}");
        };
        assert_eq!(result, TransferResult::Done);
        told.push(id.0);
    }
    assert_eq!(told, [20, 21], "one read, two answers");
    assert!(load_part(&mut store, 1, 0, Tier::Disk), "slots of its own");
}

#[test]
fn a_line_to_the_device_takes_its_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut parts = parts_config();
    let latency = Duration::from_millis(30);
    parts.host_line = Some(Rate { latency, ..Rate::UNLIMITED });
    let mut store = open(folder.path(), parts);
    wait(&mut store, 1);
    store_units(&mut store, &[1], &[Tier::Disk]);
    assert!(load_part(&mut store, 1, 2, Tier::Disk));
    let began = Instant::now();
    assert!(load_part(&mut store, 1, 2, Tier::Host));
    assert!(began.elapsed() >= latency);
    ask(&mut store, 8, part(1, 2), Tier::Host);
    release(&mut store, vec![part(1, 2)]);
    let moved = wait(&mut store, 1);
    let TransferReport::PartLoaded { result, .. } = moved[0] else {
        panic!("{moved:?}");
    };
    assert_eq!(result, TransferResult::Failed, "released meanwhile");
}

/// A load reports the time that the disk took, not the wait for a slot: that would make the disk
/// look slow.
#[test]
fn what_waits_for_a_slot_does_not_make_the_disk_slow() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut parts = parts_config();
    parts.slots = 1;
    let mut store = slow(folder.path(), parts, LATENCY);
    wait(&mut store, 1);
    store_units(&mut store, &[1], &[Tier::Disk]);
    let span = |moved: Vec<TransferReport>| match moved[..] {
        [TransferReport::PartLoaded { ago, took, .. }] => (ago, took),
        ref other => panic!("{other:?}"),
    };
    let began = Instant::now();
    ask(&mut store, 20, part(1, 2), Tier::Disk);
    let (ago, took) = span(wait(&mut store, 1));
    assert!(took >= LATENCY && took + ago <= began.elapsed(), "{took:?}");
    ask(&mut store, 21, part(1, 2), Tier::Disk);
    let at_hand = span(wait(&mut store, 1));
    assert_eq!(at_hand, (Duration::ZERO, Duration::ZERO));
    // It waits for the slot of the other.
    ask(&mut store, 22, part(1, 3), Tier::Disk);
    std::thread::sleep(LATENCY);
    assert!(store.loaded_part(part(1, 3)).is_none());
    let began = Instant::now();
    release(&mut store, vec![part(1, 2)]);
    let (ago, took) = span(wait(&mut store, 1));
    assert!(took >= LATENCY && took + ago <= began.elapsed(), "{took:?}");
}

/// Each part is in a slot of about its own length, however much shorter or longer the others are;
/// the memory taken is that of the parts, and a page or two for each.
#[test]
fn slots_take_about_what_their_parts_have() {
    for lens in [[24, 640], [2_000, 2_100], [640, 2_000], [640, 640]] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = StoreConfig {
            part_bytes: [lens[0], lens[0], lens[1], lens[1]].map(|bytes| bytes * TOKENS).to_vec(),
            ..config(parts_config())
        };
        let said = PartSlots::of(&lens.map(|bytes| bytes * TOKENS));
        let store = TieredStore::new(config, vec![disk(folder.path())], no_waker());
        let store = store.expect("a store");
        let taken = store.single.as_ref().expect("parts").slots_bytes();
        let parts = parts_config();
        let right = parts.slots * said.large_bytes + parts.small_slots * said.small_bytes;
        assert_eq!(taken, right, "{lens:?}");
        let all = (parts.slots * lens[1] + parts.small_slots * lens[0]) * TOKENS;
        let pages = 3 * PAGE * (parts.slots + parts.small_slots);
        assert!(taken <= all + pages, "{lens:?}: {taken} for {all}");
    }
}

/// Random loads, releases, stores and forgettings, more than there are slots: each load is answered
/// once, and loaded parts are right.
#[test]
fn whatever_is_asked_each_load_is_answered_once_and_right() {
    for seed in 0..6 {
        let folder = tempfile::tempdir().expect("a folder");
        let mut store = open(folder.path(), parts_config());
        wait(&mut store, 1);
        store_units(&mut store, &[0, 1, 2, 3], &[Tier::Disk]);
        store_units(&mut store, &[3, 4], &[Tier::Host]);
        let mut rng = Rng::new(seed);
        let mut asked: BTreeMap<u64, PartName> = BTreeMap::new();
        let mut at_hand: BTreeSet<(u64, u16)> = BTreeSet::new();
        let mut moved = Vec::new();
        let mut answered = 0;
        let started = Instant::now();
        for number in 0..3_000u64 {
            assert!(started.elapsed() < Duration::from_secs(60), "{asked:?}");
            let (unit, index) = (rng.below(6) as u64, rng.below(5) as u16);
            match rng.below(20) {
                0..10 => {
                    let from = [Tier::Disk, Tier::Host][rng.below(2)];
                    ask(&mut store, number, part(unit, index), from);
                    asked.insert(number, part(unit, index));
                }
                10..15 => {
                    release(&mut store, vec![part(unit, index)]);
                    at_hand.remove(&(unit, index));
                }
                15 => {
                    let (tier, names) = (Tier::Disk, vec![BlockHash::from_u64(0)]);
                    store.submit(Transfer::Forget { tier, names });
                }
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
            store.poll(&mut moved);
            for moved in moved.drain(..) {
                let TransferReport::PartLoaded { id, result, .. } = moved else {
                    panic!("{moved:?}");
                };
                let name = asked.remove(&id.0).expect("answered once");
                answered += u64::from(result == TransferResult::Done);
                let unit = (0..6).find(|&unit| BlockHash::from_u64(unit) == name.record);
                let unit = unit.expect("one of ours");
                if let Some(bytes) = store.loaded_part(name) {
                    at_hand.insert((unit, name.part));
                    assert_right(bytes, unit, usize::from(name.part));
                }
            }
            for &(unit, index) in &at_hand {
                let bytes = store.loaded_part(part(unit, index)).expect("not released");
                assert_right(bytes, unit, usize::from(index));
            }
        }
        // All slots are let go, until nothing waits any more.
        while !asked.is_empty() {
            assert!(started.elapsed() < Duration::from_secs(60), "{asked:?}");
            let all = (0..6).flat_map(|unit| (0..5).map(move |index| part(unit, index)));
            release(&mut store, all.collect());
            store.poll(&mut moved);
            for moved in moved.drain(..) {
                let TransferReport::PartLoaded { id, result, .. } = moved else {
                    panic!("{moved:?}");
                };
                asked.remove(&id.0).expect("answered once");
                // On a busy machine most loads end only here.
                answered += u64::from(result == TransferResult::Done);
            }
        }
        assert!(answered > 100, "{answered} came");
    }
}
