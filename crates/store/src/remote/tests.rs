//! The tier over stores in memory and in folders, with and without faults.

mod bench;
mod faulty;
mod troubles;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use headstart_core::{BlockHash, Rng, TenantTag};

use super::*;
use crate::arena::Arena;
use crate::backend::{LossReason, Ticket, no_waker};
use crate::conformance::{Trial, check, record_of, slot_bytes};
use bench::{
    Bench, Folder, PART, PATIENCE, assert_failed, assert_loaded, meta, now_s, objects, options,
    record,
};
use faulty::{Faults, Faulty};

fn trial(seed: u64, commands: usize) -> Trial {
    Trial { seed, commands, names: 60, part_bytes: PART }
}

#[test]
fn memory_conforms() {
    for seed in 0..2 {
        let mut bench = Bench::over(&Faulty::new(), &options());
        check(&mut bench.remote, trial(seed, 1_500));
    }
}

#[test]
fn a_folder_conforms_and_is_found_again() {
    let folder = Folder::new();
    let options = RemoteOptions {
        url: format!("file://{}", folder.0.display()),
        // Every part of the way, also that of large records.
        multipart_bytes: 8192,
        part_bytes: 4096,
        ..options()
    };
    let (mut remote, residents) = Remote::open(&options, no_waker()).expect("a folder");
    assert!(residents.is_empty());
    check(&mut remote, trial(7, 200));
    let arena = Arena::new(slot_bytes(PART), 1).expect("memory");
    let record = record_of(999, PART, arena.take().expect("a slot"));
    let wanted = ResidentRecord::of(record.meta(), record.bytes().len() as u64);
    let ticket = Ticket(1 << 40);
    remote.submit(Command::Put { ticket, record }).expect("room");
    let started = Instant::now();
    let mut reports = Vec::new();
    while reports.is_empty() {
        assert!(started.elapsed() < PATIENCE);
        remote.poll(&mut reports);
    }
    drop(remote);
    let (_remote, residents) = Remote::open(&options, no_waker()).expect("a folder");
    assert!(residents.contains(&wanted), "{residents:?}");
}

#[test]
fn faults_that_pass_are_not_seen() {
    for seed in 0..2 {
        let store = Faulty::new();
        let options = RemoteOptions {
            attempts: 40,
            offline_after: 1000,
            refresh: Duration::from_millis(5),
            multipart_bytes: 2048,
            part_bytes: 512,
            ..options()
        };
        let mut bench = Bench::over(&store, &options);
        store.with(|faults| {
            faults.one_of = 4;
            faults.rng = Some(Rng::new(seed));
        });
        check(&mut bench.remote, trial(seed, 400));
        assert!(bench.remote.stats().retries.load(Relaxed) > 50);
        store.with(|faults| faults.one_of = 0);
    }
}

#[test]
fn another_replica_starts_warm_and_hears_of_changes() {
    let store = Faulty::new();
    let mut first = Bench::over(&store, &options());
    assert!(matches!(first.put(1), CommandOutcome::Stored));
    let often = RemoteOptions { refresh: Duration::from_millis(10), ..options() };
    let mut second = Bench::over(&store, &often);
    assert_eq!(second.residents.len(), 1);
    assert_loaded(&second.get(1));
    assert!(matches!(first.put(2), CommandOutcome::Stored));
    second.found(2);
    assert_loaded(&second.get(2));
    let names = vec![BlockHash::from_u64(1)];
    let removed = first.ask(|ticket| Command::Remove { ticket, names });
    assert!(matches!(removed, CommandOutcome::Removed(1)), "{removed:?}");
    second.lost(1, LossReason::Evicted);
    assert!(matches!(second.get(1), CommandOutcome::Missing));
}

#[test]
fn what_another_one_deleted_is_missing_and_lost() {
    let store = Faulty::new();
    let mut first = Bench::over(&store, &options());
    first.put(1);
    let mut second = Bench::over(&store, &options());
    let tenant = TenantTag(1);
    let purged = first.ask(|ticket| Command::Purge { ticket, tenant });
    assert!(matches!(purged, CommandOutcome::Removed(1)), "{purged:?}");
    assert!(matches!(second.get(1), CommandOutcome::Missing));
    second.lost(1, LossReason::Evicted);
}

#[test]
fn a_put_waits_for_all_purges_of_its_tenant() {
    let store = Faulty::new();
    let mut bench = Bench::over(&store, &options());
    let tenant = TenantTag(1);
    // One of them waits for its listing until that is given up and made again.
    store.with(|faults| faults.hang = 1);
    let purges = [(); 2].map(|()| bench.give(|ticket| Command::Purge { ticket, tenant }));
    bench.eventually("end of one", |bench| !bench.answers.is_empty());
    assert!(matches!(bench.put(1), CommandOutcome::Stored));
    let is_done = |purge| bench.answers.contains_key(purge);
    assert!(purges.iter().all(is_done), "the put did not wait");
    assert_eq!(objects(&store).len(), 1, "it was stored behind both");
    assert_loaded(&bench.get(1));
}

#[test]
fn a_put_that_is_there_or_under_way_moves_nothing() {
    let store = Faulty::new();
    let mut first = Bench::over(&store, &options());
    let mut second = Bench::over(&store, &options());
    store.with(|faults| faults.hang = 1);
    let tickets: Vec<Ticket> = (0..3)
        .map(|_| {
            let record = record_of(1, PART, first.slot());
            first.give(|ticket| Command::Put { ticket, record })
        })
        .collect();
    first.eventually("answers", |bench| bench.answers.len() == tickets.len());
    assert_eq!(store.with(|faults| faults.puts), 2, "one hung, one worked");
    first.put(1);
    assert_eq!(store.with(|faults| faults.puts), 2, "it is known");
    assert!(matches!(second.put(1), CommandOutcome::Stored), "the other did not know");
    let stats = [first.remote.stats(), second.remote.stats()];
    assert_eq!(stats.each_ref().map(|s| s.puts.load(Relaxed)), [1, 0]);
    assert_eq!(stats.each_ref().map(|s| s.puts_saved.load(Relaxed)), [3, 1]);
    assert_eq!(objects(&store).len(), 1);
}

#[test]
fn large_records_go_in_parts_and_an_upload_that_fails_is_ended() {
    let store = Faulty::new();
    let options = RemoteOptions { multipart_bytes: 100_000, part_bytes: 64_000, ..options() };
    let mut bench = Bench::over(&store, &options);
    store.with(|faults| faults.drop_parts = 1);
    let large = record(bench.slot(), meta(1, None), 300_000);
    assert!(matches!(bench.put_record(large), CommandOutcome::Stored));
    let counts = store.with(|faults| (faults.puts, faults.uploads, faults.aborts));
    assert_eq!(counts, (0, 2, 1));
    let CommandOutcome::Loaded(record) = bench.get(1) else {
        panic!("it was stored");
    };
    assert!(record.part(0).iter().enumerate().all(|(at, &byte)| byte == (at * 7) as u8));
}

#[test]
fn what_expired_is_missing_and_deleted() {
    let store = Faulty::new();
    let mut bench = Bench::over(&store, &options());
    let soon = record(bench.slot(), meta(1, Some(now_s() + 2)), 100);
    assert!(matches!(bench.put_record(soon), CommandOutcome::Stored));
    let late = record(bench.slot(), meta(2, Some(now_s())), 100);
    assert_failed(&bench.put_record(late), Failure::Aborted);
    bench.eventually("end", |bench| matches!(bench.get(1), CommandOutcome::Missing));
    bench.lost(1, LossReason::Expired);
    bench.eventually("deletion", |_| objects(&store).is_empty());
}

#[test]
fn what_is_too_old_is_missing_and_written_anew() {
    let store = Faulty::new();
    let options = RemoteOptions {
        ttl: Some(Duration::from_secs(2)),
        multipart_bytes: 20_000,
        part_bytes: 10_000,
        ..options()
    };
    let mut bench = Bench::over(&store, &options);
    for (name, bytes) in [(1, 100), (2, 50_000)] {
        let next = record(bench.slot(), meta(name, None), bytes);
        assert!(matches!(bench.put_record(next), CommandOutcome::Stored));
    }
    bench.eventually("end", |bench| matches!(bench.get(1), CommandOutcome::Missing));
    bench.lost(1, LossReason::Expired);
    bench.eventually("deletion", |_| objects(&store).len() < 2);
    // The other one was not requested since: it is still there.
    for (name, bytes) in [(1, 100), (2, 50_000)] {
        let next = record(bench.slot(), meta(name, None), bytes);
        assert!(matches!(bench.put_record(next), CommandOutcome::Stored));
        assert_loaded(&bench.get(name));
    }
    let stats = bench.remote.stats();
    let counts = (stats.puts.load(Relaxed), stats.puts_saved.load(Relaxed));
    assert_eq!(counts, (4, 0));
    assert_eq!(objects(&store).len(), 2);
}

#[test]
fn a_record_that_lasts_longer_takes_the_place_of_the_other() {
    let store = Faulty::new();
    let mut bench = Bench::over(&store, &options());
    for seconds in [500, 1000, 700] {
        let next = record(bench.slot(), meta(1, Some(now_s() + seconds)), 100);
        assert!(matches!(bench.put_record(next), CommandOutcome::Stored));
    }
    bench.eventually("deletion", |_| objects(&store).len() == 1);
    let CommandOutcome::Loaded(record) = bench.get(1) else {
        panic!("it was stored");
    };
    assert!(record.meta().expires_s > Some(now_s() + 900));
}

#[test]
fn the_oldest_objects_beyond_the_budget_are_deleted() {
    let store = Faulty::new();
    let options = RemoteOptions {
        budget_bytes: Some(3 * 4096),
        refresh: Duration::from_millis(20),
        ..options()
    };
    let mut bench = Bench::over(&store, &options);
    for name in 0..5 {
        let next = record(bench.slot(), meta(name, None), 100);
        assert!(matches!(bench.put_record(next), CommandOutcome::Stored));
    }
    bench.eventually("deletions", |_| objects(&store).len() == 3);
    let is_there = |outcome: &CommandOutcome| matches!(outcome, CommandOutcome::Loaded(_));
    let left: Vec<bool> = (0..5).map(|name| is_there(&bench.get(name))).collect();
    assert_eq!(left.iter().filter(|&&is_there| is_there).count(), 3);
}

#[test]
fn a_full_queue_gives_back_and_closing_answers_all() {
    let store = Faulty::new();
    let options = RemoteOptions { queue: 3, max_concurrent: 1, ..options() };
    let mut bench = Bench::over(&store, &options);
    bench.put(9);
    store.with(|faults| faults.hang = usize::MAX);
    let slots = [(); 4].map(|()| bench.slot());
    let name = BlockHash::from_u64(9);
    let mut refused = 0;
    for (number, slot) in slots.into_iter().enumerate() {
        let ticket = Ticket(100 + number as u64);
        let command = Command::Get { ticket, name, slot };
        refused += usize::from(bench.remote.submit(command).is_err());
    }
    assert_eq!(refused, 1);
    let started = Instant::now();
    let reports = bench.remote.close();
    assert!(started.elapsed() < PATIENCE);
    let is_abort = |report: &&Report| {
        matches!(report, Report::Done { outcome: CommandOutcome::Failed(Failure::Aborted), .. })
    };
    assert_eq!(reports.iter().filter(is_abort).count(), 3, "{reports:?}");
    assert_eq!(bench.arena.free(), bench.arena.num_slots());
}

#[test]
fn the_waker_is_called_after_a_report_was_queued() {
    let (woken, wakes) = channel();
    let waker: Waker = Arc::new(move || woken.send(()).unwrap_or(()));
    let store = Arc::new(Faulty::new());
    let opened = Remote::over(store, Path::default(), &options(), waker);
    let (mut remote, _) = opened.expect("it opens");
    let arena = Arena::new(slot_bytes(PART), 1).expect("memory");
    let record = record_of(1, PART, arena.take().expect("a slot"));
    let ticket = Ticket(1);
    remote.submit(Command::Put { ticket, record }).expect("room");
    wakes.recv_timeout(PATIENCE).expect("it wakes");
    let mut reports = Vec::new();
    remote.poll(&mut reports);
    assert_eq!(reports.len(), 1);
}

#[test]
fn what_cannot_be_used_is_refused_with_advice() {
    let store = Faulty::new();
    let open = |change: fn(&mut RemoteOptions)| {
        let mut options = RemoteOptions::new("s3://bucket/prefix");
        change(&mut options);
        let error = Remote::open(&options, no_waker()).map(drop);
        error.expect_err("it is wrong").to_string()
    };
    let error = open(|options| options.part_bytes = 1 << 20);
    assert!(error.contains("`part_bytes`") && error.contains("5242880"), "{error}");
    let error = open(|options| options.attempts = 0);
    assert!(error.contains("`attempts`"), "{error}");
    let error = open(|options| options.url = "ftp://x".to_owned());
    assert!(error.contains("file:///FOLDER"), "{error}");
    let _: Faults = store.with(std::mem::take);
}
