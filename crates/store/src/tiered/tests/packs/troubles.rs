//! Packs over places that fail, and records that are no packs.

use super::super::parts::Device;
use super::*;
use crate::backend::{Backend, CommandOutcome};
use crate::conformance;
use crate::faulty::{FaultShares, Faulty};

/// Whatever fails below: each pack is answered once, and what can be read of one is right.
#[test]
fn whatever_fails_packs_are_right_or_not_there() {
    let mut done = 0;
    for seed in 0..20 {
        let shares = FaultShares {
            seed,
            failed_puts: 0.1,
            failed_gets: 0.02,
            late: 0.3,
            lost: 0.05,
            damaged: 0.05,
        };
        let backend: Box<dyn Backend> =
            Box::new(Faulty::new(Box::new(Map::default()), shares, no_waker()));
        let below = Below { tier: Tier::Disk, backend, found: Vec::new() };
        let config = config(parts_config());
        let mut store = TieredStore::new(config, vec![below], no_waker()).expect("a store");
        let mut rng = Rng::new(seed);
        let mut moved = Vec::new();
        for id in 0..6 {
            store.submit(Transfer::Store {
                id: TransferId(id),
                unit: unit(id),
                blocks: vec![BlockId(id as u32)],
                to: vec![Tier::Disk],
            });
            (0..4).for_each(|number| store.read(number, &Device(number)));
            store.end_reads();
            until(&mut store, &mut moved, |moved| matches!(moved, TransferReport::Stored { .. }));
            moved.clear();
        }
        for name in 100..120 {
            let units: Vec<u64> = (0..1 + rng.below(6) as u64).collect();
            let order = order(&mut rng, units.len(), 20);
            let made = pack(name, &units, rng.below(4) as u16, order);
            submit_pack(&mut store, &made);
            until(&mut store, &mut moved, |moved| matches!(moved, TransferReport::Packed { .. }));
            settle(&mut store, &mut moved);
            let answers = moved.iter().filter_map(|moved| match moved {
                TransferReport::Packed { result, .. } => Some(*result),
                _ => None,
            });
            let answers: Vec<TransferResult> = answers.collect();
            assert_eq!(answers.len(), 1, "seed {seed}: {moved:?}");
            let result = answers[0];
            moved.clear();
            if result == TransferResult::Done {
                done += 1;
                check_right(&mut store, &made);
            }
        }
    }
    assert!(done > 100, "{done}");
}

/// Loads what is there of a pack, beside other news.
fn check_right(store: &mut TieredStore, pack: &Pack) {
    let row = TOKEN_BYTES[usize::from(pack.part)];
    let mut moved = Vec::new();
    for (chunk, tokens) in pack.order.chunks(TOKENS).enumerate() {
        let (record, number) = (pack.name, 1 + chunk as u16);
        let name = PartName { record, part: number };
        let (id, from) = (TransferId(5), Tier::Disk);
        store.submit(Transfer::LoadPart { id, name, from });
        until(store, &mut moved, |moved| matches!(moved, TransferReport::PartLoaded { .. }));
        moved.clear();
        let Some(bytes) = store.loaded_part(name) else {
            continue;
        };
        for (place, &token) in tokens.iter().enumerate() {
            let unit = u128::from_be_bytes(pack.units[token as usize / TOKENS].0) as u64;
            let first = token as usize % TOKENS * row;
            let expected = (first..first + row).map(|at| byte(unit, pack.part.into(), at));
            assert!(bytes[place * row..][..row].iter().copied().eq(expected));
        }
        store.submit(Transfer::ReleaseParts { names: vec![name] });
    }
}

/// Polls until this has happened.
fn until(
    store: &mut TieredStore,
    moved: &mut Vec<TransferReport>,
    is_it: fn(&TransferReport) -> bool,
) {
    let started = Instant::now();
    while !moved.iter().any(is_it) {
        assert!(started.elapsed() < Duration::from_secs(30));
        store.poll(moved);
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Polls until nothing is under way below.
fn settle(store: &mut TieredStore, moved: &mut Vec<TransferReport>) {
    let started = Instant::now();
    let mut idle = 0;
    while idle < 12 {
        assert!(started.elapsed() < Duration::from_secs(30));
        let before = moved.len();
        store.poll(moved);
        let is_idle = moved.len() == before && store.pending.is_empty();
        idle = if is_idle { idle + 1 } else { 0 };
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Records that claim to be packs and make no sense are not told, and go.
#[test]
fn a_pack_that_makes_no_sense_goes() {
    let arena = Arena::new(1 << 16, 1).expect("memory");
    let mut map = Map::default();
    let meta = |name: u64, content| Meta {
        content,
        ..*conformance::record_of(name, 8, arena.take().expect("a slot")).meta()
    };
    let mut found = Vec::new();
    for name in 0..3u64 {
        let meta = meta(name, Content::Pack);
        let slot = arena.take().expect("a slot");
        let lens: &[usize] = [&[][..], &[40], &[5120, 5120]][name as usize];
        let mut draft = Draft::new(slot, meta, lens).expect("it fits");
        for part in 0..lens.len() {
            draft.part_mut(part).fill(name as u8);
        }
        let record = draft.seal();
        found.push(ResidentRecord::of(record.meta(), record.bytes().len() as u64));
        let ticket = Ticket(name);
        map.submit(Command::Put { ticket, record }).expect("taken");
    }
    let mut reports = Vec::new();
    map.poll(&mut reports);
    let stored = |report: &Report| match report {
        Report::Done { outcome, .. } => matches!(outcome, CommandOutcome::Stored),
        _ => false,
    };
    assert!(reports.iter().all(stored));
    let below = Below { tier: Tier::Disk, backend: Box::new(map), found };
    let mut store = TieredStore::new(config(parts_config()), vec![below], no_waker()).expect("it");
    let mut moved = Vec::new();
    settle(&mut store, &mut moved);
    let units = Vec::new();
    let tier = Tier::Disk;
    assert_eq!(moved, [TransferReport::Found { tier, units }]);
    for name in 0..3 {
        let (slot, record) = (arena.take().expect("a slot"), BlockHash::from_u64(name));
        let ticket = Ticket(1 << 40);
        let command = Command::Get { ticket, name: record, slot };
        store.below[0].1.submit(command).expect("taken");
        let mut reports = Vec::new();
        store.below[0].1.poll(&mut reports);
        let is_gone = |report: &Report| match report {
            Report::Done { outcome, .. } => matches!(outcome, CommandOutcome::Missing),
            _ => false,
        };
        assert!(reports.iter().all(is_gone), "{name}: {reports:?}");
    }
}
