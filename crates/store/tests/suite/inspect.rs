//! A context cache looked at and looked after from outside, in a folder and in object storage.

use std::path::Path;

use crate::conformance::{record_of, slot_bytes};
use headstart_core::{BlockHash, TenantTag};
use headstart_store::backend::{Command, Report, ResidentRecord, Ticket, no_waker};
use headstart_store::disk::{Disk, Holder, unix_seconds};
use headstart_store::inspect::copy::{CopyReport, Wakeups, copy, wakeups};
use headstart_store::inspect::{Cache, Item, RecordReadError};
use headstart_store::record::{Content, Layout, PAGE, Wrong};
use headstart_store::remote::{Remote, RemoteOptions};
use headstart_store::{Arena, Backend, CommandOutcome, Draft, Meta, Slot};

use crate::support::{Driver, PART_BYTES, contains, flip_bits, folder_bytes, options};

const BUDGET: u64 = 8 << 20;

/// Creates a tier with `records` records in a folder.
fn filled(folder: &Path, records: u64) -> Driver {
    let mut driver = Driver::open(options(folder, BUDGET));
    (0..records).for_each(|name| driver.must_store(name));
    driver
}

fn name(folder: &Path) -> &str {
    folder.to_str().expect("a plain name")
}

/// Reads all; what is wrong with which.
fn read(cache: &Cache, items: &[Item]) -> (usize, Vec<(Item, RecordReadError)>) {
    let arena = Arena::new(slot_bytes(PART_BYTES), 32).expect("memory");
    let mut slot = || -> Slot { arena.take().expect("one is free") };
    let (mut right, mut wrong) = (0, Vec::new());
    cache.read(items, &mut slot, &mut |item, read| match read {
        Ok(_) => right += 1,
        Err(damage) => wrong.push((*item, damage)),
    });
    (right, wrong)
}

/// Returns the damaged items, with their damage.
fn damaged(wrong: &[(Item, RecordReadError)]) -> Vec<(Item, Wrong)> {
    let damaged = wrong.iter().filter_map(|(item, damage)| match damage {
        RecordReadError::Wrong(wrong) => Some((*item, *wrong)),
        RecordReadError::Gone | RecordReadError::Unreadable(_) => None,
    });
    damaged.collect()
}

fn names(cache: &Cache) -> Vec<BlockHash> {
    let survey = cache.survey(unix_seconds()).expect("it can be read");
    let names = survey.items.iter().map(|item| item.resident.name);
    names.collect()
}

#[test]
fn a_folder_in_use_is_looked_at_and_not_changed() {
    let place = tempfile::tempdir().expect("a folder");
    let mut driver = filled(place.path(), 100);
    let cache = Cache::look(name(place.path())).expect("it is there");
    let Cache::Folder(folder) = &cache else {
        panic!("it is a folder");
    };
    assert_eq!(folder.holder(), Holder::Process(Some(std::process::id())));
    let mut survey = cache.survey(unix_seconds()).expect("it can be read");
    assert_eq!(survey.items.len(), 100);
    assert_eq!(read(&cache, &survey.items).0, 100);
    cache.describe(&mut survey.items);
    let is_described = |item: &Item| item.created_s == Some(1) && item.identity.is_some();
    assert!(survey.items.iter().all(is_described));
    let error = Cache::open(name(place.path())).expect_err("it is in use");
    assert!(error.to_string().contains("another process"), "{error}");
    // All that was looked at is written over, and nothing of it counts as damaged.
    for round in 1..60 {
        (0..100).for_each(|name| driver.must_store(round * 1_000 + name));
    }
    let (_, wrong) = read(&cache, &survey.items);
    assert!(!wrong.is_empty(), "there is no room for all");
    assert_eq!(damaged(&wrong), []);
    drop(driver);
    assert_eq!(folder.holder(), Holder::Nobody);
}

#[test]
fn what_is_no_cache_stays_as_it_is() {
    let place = tempfile::tempdir().expect("a folder");
    for place in [place.path().to_owned(), place.path().join("none")] {
        for cache in [Cache::look(name(&place)), Cache::open(name(&place))] {
            let error = cache.expect_err("there is none");
            assert!(error.to_string().contains("holds no context cache"), "{error}");
        }
    }
    let url = format!("file://{}", place.path().join("none").display());
    Cache::look(&url).expect_err("there is no such folder");
    assert_eq!(std::fs::read_dir(place.path()).expect("a folder").count(), 0);
}

#[test]
fn damaged_records_are_found_and_set_aside() {
    let place = tempfile::tempdir().expect("a folder");
    drop(filled(place.path(), 200));
    let cache = Cache::open(name(place.path())).expect("it is free");
    let before = names(&cache);
    flip_bits(place.path(), 40, 3);
    let survey = cache.survey(unix_seconds()).expect("it can be read");
    let (right, wrong) = read(&cache, &survey.items);
    let damaged = damaged(&wrong);
    assert_eq!(damaged.len(), wrong.len(), "{wrong:?}");
    assert!(!damaged.is_empty(), "some bits are in records");
    cache.set_aside(&damaged).expect("noted");
    let after = cache.survey(unix_seconds()).expect("it can be read");
    assert_eq!(after.items.len(), right);
    assert_eq!(after.quarantined.records, damaged.len() as u64);
    assert_eq!(read(&cache, &after.items), (right, Vec::new()));
    drop(cache);
    let driver = Driver::open(options(place.path(), BUDGET));
    assert_eq!(driver.found.len(), right, "the tier says the same");
    assert!(before.len() > right);
}

#[test]
fn what_is_over_is_cleared_away() {
    let place = tempfile::tempdir().expect("a folder");
    let mut driver = Driver::open(options(place.path(), BUDGET));
    for name in 0..300 {
        driver.expires_s = (name % 3 > 0 || name > 150).then(|| unix_seconds() + 3_600);
        driver.must_store(name);
    }
    drop(driver);
    let cache = Cache::open(name(place.path())).expect("it is free");
    let later = unix_seconds() + 7_200;
    let before = cache.survey(later).expect("it can be read");
    let before_bytes = folder_bytes(place.path());
    assert_eq!((before.items.len(), before.expired.records), (51, 249));
    let cleared = cache.clear(later).expect("it is cleared");
    assert_eq!(cleared.expired, before.expired);
    assert!(cleared.segments > 0, "some held nothing else");
    assert!(folder_bytes(place.path()) < before_bytes);
    let after = cache.survey(later).expect("it can be read");
    assert_eq!((after.items.len(), after.expired.records), (51, 0));
    assert_eq!(read(&cache, &after.items), (51, Vec::new()));
    let (files, earlier) = (after.files.expect("segments"), before.files.expect("segments"));
    let won = earlier.allocated_bytes - files.allocated_bytes;
    assert_eq!(cleared.won_bytes, won);
    let again = cache.clear(later).expect("it is cleared");
    assert_eq!((again.expired.records, again.won_bytes), (0, 0));
    drop(cache);
    // As far as the clock of a tier goes nothing was over; what was cleared away is gone all the
    // same, without being taken for damage.
    let mut driver = Driver::open(options(place.path(), BUDGET));
    assert_eq!(driver.found.len(), 51);
    for name in (0..=150).step_by(3) {
        driver.must_load(name);
    }
    (1_000..1_300).for_each(|name| driver.must_store(name));
    assert_eq!(driver.disk.stats().corrupt.get(), 0);
}

#[test]
fn a_tenant_is_destroyed_and_others_are_not() {
    let place = tempfile::tempdir().expect("a folder");
    let mut driver = filled(place.path(), 100);
    driver.remove(7);
    drop(driver);
    let cache = Cache::open(name(place.path())).expect("it is free");
    assert_eq!(cache.purge(TenantTag(2)).expect("it is done"), 20);
    drop(cache);
    let mut driver = Driver::open(options(place.path(), BUDGET));
    assert_eq!(driver.found.len(), 80);
    (0..100).for_each(|name| assert_eq!(driver.loads(name), name % 5 != 2, "{name}"));
    driver.must_store(2);
    drop(driver);
    let cache = Cache::open(name(place.path())).expect("it is free");
    assert!(names(&cache).contains(&BlockHash::from_u64(2)), "it is new");
    assert!(cache.purge_all().expect("it is done") > 0);
    assert_eq!(names(&cache), []);
    drop(cache);
    let mut driver = Driver::open(options(place.path(), BUDGET));
    assert_eq!(driver.found.len(), 0);
    driver.must_store(4);
    driver.must_load(4);
}

/// A process died: its segment is unsealed and damaged, and a copy of it lies beside it.
#[test]
fn what_is_damaged_or_copied_is_destroyed_as_well() {
    let place = tempfile::tempdir().expect("a folder");
    drop(filled(place.path(), 30));
    let segment = place.path().join("segment-00000");
    let mut bytes = std::fs::read(&segment).expect("a segment");
    let trailer = bytes.len() - PAGE;
    bytes[trailer..].fill(0);
    let secret = secret(2);
    let at = bytes.windows(secret.len()).position(|window| window == secret);
    bytes[at.expect("it is stored") - 1] ^= 1;
    std::fs::write(&segment, &bytes).expect("written");
    std::fs::write(place.path().join("segment-00900"), &bytes).expect("written");
    let cache = Cache::open(name(place.path())).expect("it is free");
    let survey = cache.survey(unix_seconds()).expect("it can be read");
    assert_eq!((survey.items.len(), survey.strangers), (29, 1));
    assert_eq!(cache.purge(TenantTag(2)).expect("it is done"), 5);
    assert!(!contains(place.path(), &secret), "it is damaged, and there");
    assert_eq!(names(&cache).len(), 24);
    drop(cache);
    let driver = Driver::open(options(place.path(), BUDGET));
    assert_eq!(driver.found.len(), 24);
}

/// Bytes that only the record of this name has.
fn secret(name: u64) -> Vec<u8> {
    let arena = Arena::new(slot_bytes(PART_BYTES), 1).expect("memory");
    let record = record_of(name, PART_BYTES, arena.take().expect("one is free"));
    let parts = (0..record.num_parts()).map(|part| record.part(part));
    let longest = parts.max_by_key(|part| part.len()).expect("it has parts");
    longest[longest.len() / 2..][..32].to_vec()
}

fn copied(from: &Cache, to: (&mut dyn Backend, &Wakeups)) -> CopyReport {
    let survey = from.survey(unix_seconds()).expect("it can be read");
    let mut bytes = 0;
    let copied = copy(from, &survey.items, to, |more| bytes += more).expect("memory");
    let all = survey.items.iter().map(|item| item.resident.bytes);
    assert_eq!(bytes, all.sum::<u64>());
    copied
}

#[test]
fn records_are_copied_there_and_back_and_damaged_ones_are_not() {
    let place = tempfile::tempdir().expect("a folder");
    let (folder, objects) = (place.path().join("kv"), place.path().join("objects"));
    drop(filled(&folder, 150));
    flip_bits(&folder, 20, 5);
    let from = Cache::look(name(&folder)).expect("it is there");
    let survey = from.survey(unix_seconds()).expect("it can be read");
    let (right, wrong) = read(&from, &survey.items);
    assert!(!wrong.is_empty(), "some are damaged");

    let url = format!("file://{}", objects.display());
    let (waker, woken) = wakeups();
    let (mut remote, _) = Remote::open(&RemoteOptions::new(&url), waker).expect("it opens");
    let told = copied(&from, (&mut remote, &woken));
    assert_eq!(told.stored.records, right as u64);
    assert_eq!(told.damaged, wrong.len() as u64);
    drop(remote);

    let store = Cache::look(&url).expect("it is there");
    let survey = store.survey(unix_seconds()).expect("it can be listed");
    assert_eq!(read(&store, &survey.items), (right, Vec::new()));
    let other = place.path().join("other");
    let (waker, woken) = wakeups();
    let (mut disk, _) = Disk::open(options(&other, BUDGET), waker).expect("it opens");
    let told = copied(&store, (&mut disk, &woken));
    assert_eq!((told.stored.records, told.damaged), (right as u64, 0));
    drop(disk);
    let mut driver = Driver::open(options(&other, BUDGET));
    assert_eq!(driver.found.len(), right);
    let wrong: Vec<BlockHash> = wrong.iter().map(|(item, _)| item.resident.name).collect();
    for name in 0..150 {
        assert_eq!(driver.loads(name), !wrong.contains(&BlockHash::from_u64(name)));
    }
}

#[test]
fn object_storage_is_looked_after_as_a_folder_is() {
    let place = tempfile::tempdir().expect("a folder");
    let (folder, objects) = (place.path().join("kv"), place.path().join("objects"));
    let mut driver = filled(&folder, 50);
    driver.expires_s = Some(unix_seconds() + 3_600);
    (50..60).for_each(|name| driver.must_store(name));
    drop(driver);
    let from = Cache::look(name(&folder)).expect("it is there");
    let url = format!("file://{}", objects.display());
    let (mut remote, _) = Remote::open(&RemoteOptions::new(&url), no_waker()).expect("it opens");
    let (_, woken) = wakeups();
    assert_eq!(copied(&from, (&mut remote, &woken)).stored.records, 60);
    drop(remote);

    let store = Cache::open(&url).expect("it is there");
    let later = unix_seconds() + 7_200;
    let survey = store.survey(later).expect("it can be listed");
    assert_eq!((survey.items.len(), survey.expired.records), (50, 10));
    assert!(survey.items.iter().all(|item| item.created_s.is_some()));
    let cleared = store.clear(later).expect("it is cleared");
    assert_eq!(cleared.expired, survey.expired);
    assert_eq!(cleared.won_bytes, survey.expired.bytes);

    let damaged_name = survey.items[0].resident.name;
    harm(&objects, damaged_name);
    let (right, wrong) = read(&store, &survey.items);
    assert_eq!((right, wrong.len()), (49, 1));
    store.set_aside(&damaged(&wrong)).expect("it is set aside");
    let after = store.survey(later).expect("it can be listed");
    assert_eq!((after.items.len(), after.quarantined.records), (49, 1));
    let theirs = |item: &&Item| item.resident.tenant == TenantTag(3);
    let theirs = after.items.iter().filter(theirs).count();
    assert_eq!(store.purge(TenantTag(3)).expect("it is done"), theirs as u64);
    assert_eq!(names(&store).len(), 49 - theirs);
    assert!(store.purge_all().expect("it is done") > 0);
    let none = store.survey(later).expect("it can be listed");
    assert_eq!((none.items.len(), none.quarantined.records), (0, 0));
}

#[test]
fn an_object_that_is_far_too_long_costs_no_memory() {
    let place = tempfile::tempdir().expect("a folder");
    let (folder, objects) = (place.path().join("kv"), place.path().join("objects"));
    drop(filled(&folder, 20));
    let from = Cache::look(name(&folder)).expect("it is there");
    let url = format!("file://{}", objects.display());
    let (waker, woken) = wakeups();
    let (mut remote, _) = Remote::open(&RemoteOptions::new(&url), waker).expect("it opens");
    assert_eq!(copied(&from, (&mut remote, &woken)).stored.records, 20);
    drop(remote);
    let lengthen = |file: &Path| {
        let file = std::fs::File::options().write(true).open(file);
        file.expect("a file").set_len(1 << 41).expect("a hole");
    };
    at_object(&objects, BlockHash::from_u64(3), &lengthen);
    let store = Cache::look(&url).expect("it is there");
    let other = place.path().join("other");
    let (waker, woken) = wakeups();
    let (mut disk, _) = Disk::open(options(&other, BUDGET), waker).expect("it opens");
    let told = copied(&store, (&mut disk, &woken));
    assert_eq!((told.stored.records, told.damaged), (19, 1));
}

/// Flips a bit in the object of that name.
fn harm(folder: &Path, name: BlockHash) {
    at_object(folder, name, &|path| {
        let mut bytes = std::fs::read(path).expect("a file");
        bytes[100] ^= 1;
        std::fs::write(path, bytes).expect("written");
    });
}

/// Does something to the object of that name.
fn at_object(folder: &Path, name: BlockHash, act: &dyn Fn(&Path)) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            at_object(&path, name, act);
        } else if path.to_string_lossy().contains(&format!("/{name:?}_")) {
            act(&path);
        }
    }
}

#[test]
fn a_disk_tier_is_not_taken_for_object_storage() {
    let place = tempfile::tempdir().expect("a folder");
    drop(filled(place.path(), 3));
    let url = format!("file://{}", name(place.path()));
    for opened in [Cache::look(&url), Cache::open(&url)] {
        let error = opened.expect_err("it is a folder").to_string();
        assert!(error.contains("without `file://`"), "{error}");
    }
}

/// A pack of a tenant, among the records of a folder.
fn add_pack(folder: &Path, number: u64, tenant: TenantTag) {
    let (mut disk, _) = Disk::open(options(folder, BUDGET), no_waker()).expect("it opens");
    let arena = Arena::new(8 * PAGE, 1).expect("memory");
    let meta = Meta {
        name: BlockHash::from_u64(number),
        parent: Some(BlockHash::from_u64(1)),
        tenant,
        content: Content::Pack,
        ..*record_of(1, 8, arena.take().expect("a slot")).meta()
    };
    let slot = arena.take().expect("a slot");
    let mut draft = Draft::laid_out(slot, meta, &[100, PAGE], Layout::Paged).expect("it fits");
    (0..2).for_each(|part| draft.part_mut(part).fill(0xab));
    let (ticket, record) = (Ticket(1), draft.seal());
    disk.submit(Command::Put { ticket, record }).expect("there is room");
    let mut reports = Vec::new();
    let is_stored = |report: &Report| match report {
        Report::Done { outcome, .. } => matches!(outcome, CommandOutcome::Stored),
        _ => false,
    };
    while reports.is_empty() {
        std::thread::sleep(std::time::Duration::from_micros(100));
        disk.poll(&mut reports);
    }
    assert!(reports.iter().all(is_stored), "{reports:?}");
}

fn packs(items: &[Item]) -> Vec<BlockHash> {
    let packs = items.iter();
    let packs = packs.filter(|item| item.resident.content == Content::Pack);
    packs.map(|item| item.resident.name).collect()
}

#[test]
fn packs_are_looked_at_copied_and_purged_as_other_records_are() {
    let place = tempfile::tempdir().expect("a folder");
    let (folder, objects) = (place.path().join("kv"), place.path().join("objects"));
    drop(filled(&folder, 20));
    for (number, tenant) in [(100, 1), (101, 2)] {
        add_pack(&folder, number, TenantTag(tenant));
    }
    let both = [100, 101].map(BlockHash::from_u64);
    let cache = Cache::look(name(&folder)).expect("it is there");
    let items = cache.survey(unix_seconds()).expect("it is read").items;
    assert_eq!(packs(&items), both);
    assert_eq!(read(&cache, &items), (22, Vec::new()));

    let url = format!("file://{}", objects.display());
    let (waker, woken) = wakeups();
    let (mut remote, _) = Remote::open(&RemoteOptions::new(&url), waker).expect("it opens");
    assert_eq!(copied(&cache, (&mut remote, &woken)).stored.records, 22);
    drop(remote);
    let store = Cache::open(&url).expect("it is there");
    let mut items = store.survey(unix_seconds()).expect("it is listed").items;
    items.sort_unstable_by_key(|item| item.resident.name);
    assert_eq!(packs(&items), both);
    assert_eq!(read(&store, &items), (22, Vec::new()));
    let other = place.path().join("other");
    let (waker, woken) = wakeups();
    let (mut disk, _) = Disk::open(options(&other, BUDGET), waker).expect("it opens");
    assert_eq!(copied(&store, (&mut disk, &woken)).stored.records, 22);
    drop(disk);

    for url in [url.as_str(), name(&folder), name(&other)] {
        let cache = Cache::open(url).expect("it is free");
        let before = names(&cache).len();
        let purged = cache.purge(TenantTag(2)).expect("it is purged");
        assert_eq!((before, purged), (22, 5), "four units and a pack");
        let items = cache.survey(unix_seconds()).expect("it is read").items;
        assert_eq!(packs(&items), both[..1], "{url}");
        cache.clear(unix_seconds()).expect("it is cleared");
        assert_eq!(names(&cache).len(), 17, "{url}");
    }
    let (disk, found) = Disk::open(options(&folder, BUDGET), no_waker()).expect("it opens");
    let is_pack = |resident: &&ResidentRecord| resident.content == Content::Pack;
    assert_eq!((found.len(), found.iter().filter(is_pack).count()), (17, 1));
    drop(disk);
}
