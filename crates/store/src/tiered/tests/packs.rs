//! Packs, made and found.

mod troubles;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use headstart_core::Rng;
use headstart_core::transfer::Pack;

use super::parts::{
    TOKEN_BYTES, TOKENS, byte, config, load_part, open, part, parts_config, store_units,
};
use super::*;
use crate::reference::Map;
use crate::shared::{SharedBackend, Wakers};

fn pack(name: u64, units: &[u64], number: u16, order: Vec<u32>) -> Pack {
    Pack {
        name: BlockHash::from_u64(name),
        units: units.iter().copied().map(BlockHash::from_u64).collect(),
        part: number,
        order,
        generation: 0,
    }
}

/// Returns some tokens of `num_units` units, in random order.
fn order(rng: &mut Rng, num_units: usize, most: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..(num_units * TOKENS) as u32).collect();
    rng.shuffle(&mut order);
    order.truncate(1 + rng.below(most.min(order.len())));
    order
}

fn submit_pack(store: &mut TieredStore, pack: &Pack) {
    submit_pack_of(store, pack, <_>::default());
}

fn submit_pack_of(store: &mut TieredStore, pack: &Pack, origin: (IdentityDigest, TenantTag)) {
    let (id, pack, tier) = (TransferId(77), pack.clone(), Tier::Disk);
    store.submit(Transfer::Pack { id, pack, origin, tier });
}

fn packs(store: &mut TieredStore, pack: &Pack) -> TransferResult {
    submit_pack(store, pack);
    told_of_pack(store)
}

fn told_of_pack(store: &mut TieredStore) -> TransferResult {
    let moved = wait(store, 1);
    let [TransferReport::Packed { id, result }] = moved[..] else {
        panic!("{moved:?}");
    };
    assert_eq!(id, TransferId(77));
    result
}

/// Loads a pack, chunk by chunk; how many tokens came, each of them right.
fn tokens_of(store: &mut TieredStore, pack: &Pack) -> usize {
    let row = TOKEN_BYTES[usize::from(pack.part)];
    let mut right = 0;
    for (chunk, tokens) in pack.order.chunks(TOKENS).enumerate() {
        let name = PartName { record: pack.name, part: 1 + chunk as u16 };
        store.submit(Transfer::LoadPart { id: TransferId(5), name, from: Tier::Disk });
        let moved = wait(store, 1);
        let [TransferReport::PartLoaded { result, .. }] = moved[..] else {
            panic!("{moved:?}");
        };
        if result == TransferResult::Failed {
            continue;
        }
        let bytes = store.loaded_part(name).expect("at hand");
        assert_eq!(bytes.len(), row * TOKENS);
        for (place, &token) in tokens.iter().enumerate() {
            let unit = pack.units[token as usize / TOKENS];
            let unit = u128::from_be_bytes(unit.0) as u64;
            let first = token as usize % TOKENS * row;
            let expected = (first..first + row).map(|at| byte(unit, pack.part.into(), at));
            let there = bytes[place * row..][..row].iter().copied();
            assert!(there.eq(expected), "token {token} of {pack:?}");
            right += 1;
        }
        let beyond = &bytes[tokens.len() * row..];
        assert!(beyond.iter().all(|&byte| byte == 0), "nothing of others");
        store.submit(Transfer::ReleaseParts { names: vec![name] });
    }
    right
}

/// Opens a store and hears what was found in it, units first.
fn reopened(folder: &std::path::Path, count: usize) -> (TieredStore, usize, Vec<Pack>) {
    let mut store = open(folder, parts_config());
    let moved = wait(&mut store, 1 + count);
    let mut found = Vec::new();
    let mut num_units = 0;
    for moved in moved {
        match moved {
            TransferReport::Found { units, .. } => num_units += units.len(),
            TransferReport::FoundPacks { packs, .. } => found.extend(packs),
            other => panic!("{other:?}"),
        }
    }
    (store, num_units, found)
}

#[test]
fn a_pack_holds_its_tokens_in_its_order_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut store, ..) = reopened(folder.path(), 0);
    store_units(&mut store, &[1, 2, 3], &[Tier::Disk]);
    let mut rng = Rng::new(3);
    let first = pack(100, &[1, 2, 3], 2, order(&mut rng, 3, 24));
    let second = pack(101, &[1, 2, 3], 2, (0..24).rev().collect());
    let small = pack(102, &[2], 1, vec![7, 0, 3]);
    let all = [first, second, small];
    for pack in &all {
        assert_eq!(packs(&mut store, pack), TransferResult::Done);
        assert_eq!(tokens_of(&mut store, pack), pack.order.len());
        let front = PartName { record: pack.name, part: 0 };
        let (id, from) = (TransferId(1), Tier::Disk);
        let name = front;
        store.submit(Transfer::LoadPart { id, name, from });
        let moved = wait(&mut store, 1);
        let failed =
            matches!(moved[0], TransferReport::PartLoaded { result: TransferResult::Failed, .. });
        assert!(failed, "what a pack says of itself is no part: {moved:?}");
    }
    drop(store);
    let (mut store, num_units, found) = reopened(folder.path(), 3);
    assert_eq!(num_units, 3, "packs are no units");
    for pack in &all {
        assert!(found.contains(pack));
        assert_eq!(tokens_of(&mut store, pack), pack.order.len());
    }
    let (tier, names) = (Tier::Disk, vec![all[0].name]);
    store.submit(Transfer::Forget { tier, names });
    assert_eq!(tokens_of(&mut store, &all[0]), 0, "forgotten");
    assert!(load_part(&mut store, 1, 2, Tier::Disk), "the units stay");
    assert_eq!(tokens_of(&mut store, &all[1]), 24);
}

#[test]
fn what_cannot_be_packed_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut store, ..) = reopened(folder.path(), 0);
    store_units(&mut store, &[1, 2], &[Tier::Disk]);
    store_units(&mut store, &[3], &[Tier::Host]);
    let right = || pack(100, &[1, 2], 2, vec![3, 9]);
    let with = |change: fn(&mut Pack)| {
        let mut pack = right();
        change(&mut pack);
        pack
    };
    let wrong = [
        with(|pack| pack.order = vec![16]),
        with(|pack| pack.order = vec![3, 3]),
        with(|pack| pack.order = vec![]),
        with(|pack| pack.units = vec![]),
        with(|pack| pack.part = 4),
        with(|pack| pack.units[1] = BlockHash::from_u64(3)),
        with(|pack| pack.units[0] = BlockHash::from_u64(4)),
    ];
    for pack in &wrong {
        assert_eq!(packs(&mut store, pack), TransferResult::Failed, "{pack:?}");
    }
    let (identity, tenant) = (IdentityDigest([9; 16]), TenantTag(9));
    for origin in [(identity, TenantTag::default()), (IdentityDigest::default(), tenant)] {
        submit_pack_of(&mut store, &right(), origin);
        assert_eq!(told_of_pack(&mut store), TransferResult::Failed, "{origin:?}");
    }
    // A unit of which no token is wanted need not be there.
    let mut other = right();
    other.units.push(BlockHash::from_u64(4));
    other.name = BlockHash::from_u64(101);
    assert_eq!(packs(&mut store, &other), TransferResult::Done);
    let (pack, origin, tier) = (right(), <_>::default(), Tier::Host);
    store.submit(Transfer::Pack { id: TransferId(1), pack, origin, tier });
    let (id, result) = (TransferId(1), TransferResult::Failed);
    assert_eq!(wait(&mut store, 1), [TransferReport::Packed { id, result }]);
    drop(store);
    let (_, num_units, found) = reopened(folder.path(), 1);
    assert_eq!((num_units, found), (2, vec![other]));
}

#[test]
fn packs_wait_until_nobody_loads_and_no_more_than_may() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = parts_config();
    (config.slots, config.most_packs) = (1, 2);
    let mut store = open(folder.path(), config);
    wait(&mut store, 1);
    store_units(&mut store, &[1], &[Tier::Disk]);
    assert!(load_part(&mut store, 1, 2, Tier::Disk));
    // This one waits for a slot.
    let (id, name, from) = (TransferId(1), part(1, 3), Tier::Disk);
    store.submit(Transfer::LoadPart { id, name, from });
    for name in 100..103 {
        submit_pack(&mut store, &pack(name, &[1], 2, vec![0]));
    }
    let failed = [TransferReport::Packed { id: TransferId(77), result: TransferResult::Failed }];
    assert_eq!(wait(&mut store, 1), failed, "one too many");
    let (tier, names) = (Tier::Disk, vec![BlockHash::from_u64(101)]);
    store.submit(Transfer::Forget { tier, names });
    assert_eq!(wait(&mut store, 1), failed, "wanted no more");
    for _ in 0..50 {
        let mut moved = Vec::new();
        store.poll(&mut moved);
        assert!(moved.is_empty(), "{moved:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
    let names = vec![part(1, 2)];
    store.submit(Transfer::ReleaseParts { names });
    let moved = wait(&mut store, 2);
    let is_right = matches!(
        moved[..],
        [
            TransferReport::PartLoaded { result: TransferResult::Done, .. },
            TransferReport::Packed { result: TransferResult::Done, .. },
        ]
    );
    assert!(is_right, "{moved:?}");
}

static NOW_S: AtomicU64 = AtomicU64::new(1_000);

fn now_s() -> u64 {
    NOW_S.load(Relaxed)
}

#[test]
fn a_pack_does_not_outlive_its_units() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || {
        let mut options = DiskOptions::new(folder.path(), 8 << 20);
        options.now_s = now_s;
        let (disk, found) = Disk::open(options, no_waker()).expect("it opens");
        let below = Below { tier: Tier::Disk, backend: Box::new(disk), found };
        let mut config = config(parts_config());
        config.now_s = now_s;
        config.lifetimes.each_s = Some(100);
        TieredStore::new(config, vec![below], no_waker()).expect("a store")
    };
    let mut store = open();
    wait(&mut store, 1);
    store_units(&mut store, &[1], &[Tier::Disk]);
    NOW_S.store(1_050, Relaxed);
    store_units(&mut store, &[2], &[Tier::Disk]);
    let both = pack(100, &[1, 2], 2, vec![0, 8]);
    let younger = pack(101, &[1, 2], 2, vec![8]);
    for pack in [&both, &younger] {
        assert_eq!(packs(&mut store, pack), TransferResult::Done);
    }
    NOW_S.store(1_100, Relaxed);
    drop(store);
    let mut store = open();
    let moved = wait(&mut store, 2);
    let is_it = |moved: &TransferReport| match moved {
        TransferReport::FoundPacks { packs, .. } => packs[..] == [younger.clone()],
        _ => false,
    };
    assert!(is_it(&moved[1]), "{moved:?}");
}

#[test]
fn packs_that_nobody_can_use_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut store, ..) = reopened(folder.path(), 0);
    store_units(&mut store, &[1], &[Tier::Disk]);
    let made = pack(100, &[1], 2, vec![0, 1]);
    assert_eq!(packs(&mut store, &made), TransferResult::Done);
    drop(store);
    let mut plain = config(parts_config());
    plain.parts = None;
    let mut store = TieredStore::new(plain, vec![disk(folder.path())], no_waker()).expect("it");
    let TransferReport::Found { units, .. } = &wait(&mut store, 1)[0] else {
        panic!("units are found");
    };
    assert!(units.len() <= 1, "a pack is no unit: {units:?}");
    // Removed, though not for good: so it is not counted while this store is open.
    drop(store);
    let (disk, found) =
        Disk::open(DiskOptions::new(folder.path(), 8 << 20), no_waker()).expect("it opens");
    assert_eq!(found.len(), 2);
    drop(disk);
    // Of units of another length.
    let mut other = config(parts_config());
    other.unit_tokens = 2 * TOKENS as u32;
    let below = vec![super::disk(folder.path())];
    let mut store = TieredStore::new(other, below, no_waker()).expect("a store");
    wait(&mut store, 1);
    let mut moved = Vec::new();
    for _ in 0..50 {
        store.poll(&mut moved);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(moved, [], "not told");
}

#[test]
fn users_of_one_place_hear_of_each_others_packs() {
    let shared = SharedBackend::new(
        Box::new(Map::default()),
        Vec::new(),
        Wakers::default(),
        Box::new(|_| {}),
    );
    let join = || {
        let (member, found) = shared.join(no_waker());
        let below = Below { tier: Tier::Disk, backend: Box::new(member), found };
        TieredStore::new(config(parts_config()), vec![below], no_waker()).expect("a store")
    };
    let (mut one, mut other) = (join(), join());
    wait(&mut one, 1);
    wait(&mut other, 1);
    store_units(&mut one, &[1, 2], &[Tier::Disk]);
    let made = pack(100, &[1, 2], 3, vec![3, 12, 0]);
    assert_eq!(packs(&mut one, &made), TransferResult::Done);
    let mut heard = Vec::new();
    while heard.is_empty() {
        for moved in wait(&mut other, 1) {
            if let TransferReport::FoundPacks { packs, .. } = moved {
                heard.extend(packs);
            }
        }
    }
    assert_eq!(heard, std::slice::from_ref(&made));
    assert_eq!(tokens_of(&mut other, &heard[0]), 3);
    let (tier, names) = (Tier::Disk, vec![made.name]);
    one.submit(Transfer::Forget { tier, names });
    let mut lost = Vec::new();
    one.poll(&mut lost);
    while !lost.iter().any(|moved| matches!(moved, TransferReport::Lost { .. })) {
        lost.clear();
        other.poll(&mut lost);
    }
    assert_eq!(tokens_of(&mut other, &heard[0]), 0, "gone for all");
}
