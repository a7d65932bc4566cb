//! A store that fails: what is seen of it, and what is not.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use headstart_core::{BlockHash, TenantTag};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::bench::{Bench, Folder, assert_failed, assert_loaded, meta, objects, options, record};
use super::faulty::Faulty;
use crate::backend::{Command, CommandOutcome, Condition, Failure, LossReason, Report};
use crate::record::{Draft, Header};
use crate::remote::RemoteOptions;
use crate::remote::trouble::{Trouble, TroubleKind};

#[test]
fn a_body_that_is_cut_off_is_read_again() {
    let store = Faulty::new();
    let mut bench = Bench::over(&store, &options());
    bench.put(1);
    store.with(|faults| faults.cut = 2);
    assert_loaded(&bench.get(1));
    store.with(|faults| faults.cut = usize::MAX);
    assert_failed(&bench.get(1), Failure::Offline);
    store.with(|faults| faults.cut = 0);
    assert_loaded(&bench.get(1));
}

#[test]
fn a_part_is_read_alone_and_again_where_it_is_cut_off() {
    let store = Faulty::new();
    let mut bench = Bench::over(&store, &options());
    let large = record(bench.slot(), meta(1, None), 300_000);
    bench.put_record(large);
    let part = |bench: &mut Bench, part| {
        let (slot, name) = (bench.slot(), BlockHash::from_u64(1));
        bench.ask(|ticket| Command::GetPart { ticket, name, part, slot })
    };
    let bytes_in = |bench: &Bench| bench.remote.stats().bytes_in.load(Relaxed);
    store.with(|faults| faults.cut = 2);
    let CommandOutcome::Part(read) = part(&mut bench, 0) else {
        panic!("it was stored");
    };
    let is_right = |(at, &byte): (usize, &u8)| byte == (at * 7) as u8;
    assert!(read.bytes().iter().enumerate().all(is_right));
    drop(read);
    assert_eq!(bytes_in(&bench), 32_768 + 300_000, "its front, then it");
    assert!(matches!(part(&mut bench, 0), CommandOutcome::Part(_)));
    assert_eq!(bytes_in(&bench), 32_768 + 600_000, "the header is known");
    assert!(matches!(part(&mut bench, 1), CommandOutcome::Missing));
    let before = bytes_in(&bench);
    store.with(|faults| faults.cut = usize::MAX);
    assert_failed(&part(&mut bench, 0), Failure::Offline);
    store.with(|faults| faults.cut = 0);
    assert!(matches!(part(&mut bench, 0), CommandOutcome::Part(_)));
    assert_eq!(bytes_in(&bench), before + 300_000, "it still is");
    store.with(|faults| faults.flip = usize::MAX);
    assert_failed(&part(&mut bench, 0), Failure::Corrupt);
    bench.lost(1, LossReason::Corrupt);
    assert!(matches!(part(&mut bench, 0), CommandOutcome::Missing));
}

/// Another replica may remove a record and store it again with slightly different values. A
/// remembered header then belongs to the old record, and the new one is not damaged.
#[test]
fn a_record_that_came_in_place_of_another_is_read_by_its_own_header() {
    const LEN: usize = 60_000;
    let store = Faulty::new();
    let mut first = Bench::over(&store, &options());
    let of_parts = |bench: &Bench, lens: [usize; 2], seed: u8| {
        let mut draft = Draft::new(bench.slot(), meta(1, None), &lens).expect("it fits");
        (0..2).for_each(|part| draft.part_mut(part).fill(seed + part as u8));
        draft.seal()
    };
    let part = |bench: &mut Bench, part: u16| {
        let (slot, name) = (bench.slot(), BlockHash::from_u64(1));
        bench.ask(|ticket| Command::GetPart { ticket, name, part, slot })
    };
    let record = of_parts(&first, [LEN, LEN], 0);
    assert!(matches!(first.put_record(record), CommandOutcome::Stored));
    let mut second = Bench::over(&store, &options());
    // As long, longer, shorter, so short that the second part would begin behind its end.
    let others = [[LEN, LEN], [LEN, 2 * LEN], [LEN, LEN], [80, 70]];
    for (round, lens) in others.into_iter().enumerate() {
        let before = part(&mut second, 1);
        assert!(matches!(before, CommandOutcome::Part(_)), "{round}: {before:?}");
        let names = vec![BlockHash::from_u64(1)];
        let removed = first.ask(|ticket| Command::Remove { ticket, names });
        assert!(matches!(removed, CommandOutcome::Removed(1)), "{removed:?}");
        let seed = 10 * (1 + round as u8);
        let record = of_parts(&first, lens, seed);
        assert!(matches!(first.put_record(record), CommandOutcome::Stored));
        for number in [1, 0] {
            let CommandOutcome::Part(read) = part(&mut second, number) else {
                panic!("{round}: part {number} is there");
            };
            let right = vec![seed + number as u8; lens[usize::from(number)]];
            assert!(read.bytes() == right, "{round}: part {number}");
        }
    }
    let aside = objects(&store);
    assert_eq!(aside.len(), 1, "nothing was set aside: {aside:?}");
}

/// In the words of the stores themselves: memory, a folder.
#[tokio::test]
async fn a_range_behind_an_objects_end_is_refused() {
    let folder = Folder::new();
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let path = Path::from("object");
    let stores: [Box<dyn ObjectStore>; 2] = [
        Box::new(InMemory::new()),
        Box::new(LocalFileSystem::new_with_prefix(&folder.0).expect("it is there")),
    ];
    for store in stores {
        store.put(&path, "0123".into()).await.expect("room");
        let error = store.get_range(&path, 4..9).await.expect_err("it ends");
        assert_eq!(Trouble::from(error).kind, TroubleKind::Refused, "{store}");
    }
}

#[test]
fn a_damaged_record_is_set_aside_and_a_purge_takes_it_too() {
    let store = Faulty::new();
    let mut bench = Bench::over(&store, &options());
    bench.put(1);
    store.with(|faults| faults.flip = 1);
    assert_failed(&bench.get(1), Failure::Corrupt);
    bench.lost(1, LossReason::Corrupt);
    assert!(matches!(bench.get(1), CommandOutcome::Missing));
    assert!(matches!(bench.put(1), CommandOutcome::Stored), "it can be written again");
    assert_loaded(&bench.get(1));
    let is_aside = |name: &&String| name.starts_with("kv/quarantine/0000000000000001/");
    assert_eq!(objects(&store).iter().filter(is_aside).count(), 1);
    assert_eq!(objects(&store).len(), 2);
    let tenant = TenantTag(1);
    let purged = bench.ask(|ticket| Command::Purge { ticket, tenant });
    assert!(matches!(purged, CommandOutcome::Removed(2)), "{purged:?}");
    assert!(objects(&store).is_empty());
}

#[test]
fn what_is_not_the_record_of_its_name_is_damaged() {
    let store = Faulty::new();
    let mut bench = Bench::over(&store, &options());
    bench.put(1);
    let name = objects(&store).remove(0);
    // Another parent than the record's own.
    let other = Path::from(name.replace("_00000000000000000000000000000000_", "_-_"));
    assert_ne!(other.as_ref(), name);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let moved = runtime.expect("a runtime").block_on(store.inner.rename(&Path::from(name), &other));
    moved.expect("memory renames");
    let mut bench = Bench::over(&store, &options());
    assert_failed(&bench.get(1), Failure::Corrupt);
}

/// Stores refuse to read a range of nothing, in words that look like an outage.
#[test]
fn an_object_too_short_for_a_header_is_damaged() {
    let store = Faulty::new();
    let mut bench = Bench::over(&store, &options());
    bench.put(1);
    let name = objects(&store).remove(0);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime");
    for len in [0, 1, Header::LEAST_BYTES as usize - 1] {
        let object = Path::from(name.as_str());
        let cut = store.inner.put(&object, vec![0; len].into());
        runtime.block_on(cut).expect("memory");
        let mut bench = Bench::over(&store, &options());
        let (slot, name) = (bench.slot(), BlockHash::from_u64(1));
        let part = bench.ask(|ticket| Command::GetPart { ticket, name, part: 0, slot });
        assert_failed(&part, Failure::Corrupt);
        bench.lost(1, LossReason::Corrupt);
        bench.eventually("set aside", |_| {
            objects(&store).iter().all(|left| left.contains("quarantine"))
        });
        assert_eq!(bench.remote.stats().retries.load(Relaxed), 0, "{len}");
    }
}

#[test]
fn an_outage_is_told_once_answered_at_once_and_ends() {
    let store = Faulty::new();
    let mut bench = Bench::over(&store, &options());
    bench.put(1);
    store.with(|faults| faults.is_down = true);
    for _ in 0..3 {
        assert_failed(&bench.get(1), Failure::Offline);
    }
    bench.condition(Condition::Gone(Failure::Offline));
    let lists = store.with(|faults| faults.lists);
    let before = store.with(|faults| faults.puts);
    assert_failed(&bench.put(2), Failure::Offline);
    assert_eq!(store.with(|faults| faults.puts), before, "it was not asked");
    // Meanwhile another replica writes.
    let other = Faulty { inner: store.inner.clone(), faults: Arc::default() };
    Bench::over(&other, &options()).put(3);
    store.with(|faults| faults.is_down = false);
    bench.condition(Condition::Well);
    bench.found(3);
    assert_eq!(store.with(|faults| faults.lists), lists + 1);
    assert_loaded(&bench.get(1));
    assert!(matches!(bench.put(2), CommandOutcome::Stored));
    let is_condition = |report: &Report| matches!(report, Report::Condition(_));
    assert!(!bench.others.iter().any(is_condition), "{:?}", bench.others);
}

#[test]
fn a_store_that_is_silent_at_start_is_watched() {
    let store = Faulty::new();
    Bench::over(&store, &options()).put(1);
    store.with(|faults| faults.is_down = true);
    let mut bench = Bench::over(&store, &options());
    assert!(bench.residents.is_empty());
    bench.condition(Condition::Gone(Failure::Offline));
    store.with(|faults| faults.is_down = false);
    bench.condition(Condition::Well);
    bench.found(1);
    assert_loaded(&bench.get(1));
}

#[test]
fn nothing_hangs() {
    let store = Faulty::new();
    let options = RemoteOptions {
        request_timeout: Duration::from_millis(20),
        deadline: Duration::from_millis(200),
        ..options()
    };
    let mut bench = Bench::over(&store, &options);
    bench.put(1);
    store.with(|faults| faults.hang = 1);
    assert_loaded(&bench.get(1));
    store.with(|faults| faults.hang = usize::MAX);
    assert_failed(&bench.get(1), Failure::Aborted);
    let names = vec![BlockHash::from_u64(1)];
    let removed = bench.ask(|ticket| Command::Remove { ticket, names });
    assert_failed(&removed, Failure::Aborted);
    assert_eq!(bench.remote.stats().failures(Failure::Aborted), 2);
}

#[test]
fn refused_writes_are_told_and_reading_goes_on() {
    let store = Faulty::new();
    let mut bench = Bench::over(&store, &options());
    bench.put(1);
    store.with(|faults| faults.is_read_only = true);
    assert_failed(&bench.put(2), Failure::ReadOnly);
    bench.condition(Condition::WritesFail(Failure::ReadOnly));
    let puts = store.with(|faults| faults.puts);
    assert_failed(&bench.put(3), Failure::ReadOnly);
    assert_eq!(store.with(|faults| faults.puts), puts, "it was not asked");
    assert_loaded(&bench.get(1));
    assert_eq!(bench.remote.stats().retries.load(Relaxed), 0, "no is an answer");
}
