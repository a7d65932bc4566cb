//! The tier over stores in memory and in folders, with and without faults.

mod faulty;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use futures::StreamExt;
use headstart_core::{BlockHash, IdentityDigest, Rng, TenantTag};

use super::*;
use crate::arena::{Arena, Slot};
use crate::backend::{Condition, Loss, Ticket, no_waker};
use crate::conformance::{Trial, check, record_of, slot_bytes};
use crate::record::{Draft, Exactness, Meta, Record};
use faulty::{Faults, Faulty};

/// Longest wait for anything; far beyond what is expected.
const PATIENCE: Duration = Duration::from_secs(20);

/// Largest part of these records, bytes.
const PART: usize = 300;

/// Quick enough for tests, in everything that waits.
fn options() -> RemoteOptions {
    RemoteOptions {
        request_timeout: Duration::from_millis(500),
        deadline: Duration::from_secs(10),
        backoff: Duration::from_millis(2),
        max_backoff: Duration::from_millis(10),
        refresh: Duration::from_secs(3600),
        offline_after: 3,
        probe: Duration::from_millis(10),
        max_probe: Duration::from_millis(50),
        ..RemoteOptions::new("memory")
    }
}

/// A tier, and what it said beside answers.
struct Bench {
    remote: Remote,
    residents: Vec<Resident>,
    arena: Arc<Arena>,
    next: u64,
    answers: BTreeMap<Ticket, Outcome>,
    others: Vec<Report>,
}

impl Bench {
    fn over(store: &Faulty, options: &RemoteOptions) -> Self {
        let objects = Arc::new(store.clone());
        let opened = Remote::over(objects, Path::from("kv"), options, no_waker());
        let (remote, residents) = opened.expect("it opens");
        Self {
            remote,
            residents,
            arena: Arena::new(1 << 20, 16).expect("memory"),
            next: 0,
            answers: BTreeMap::new(),
            others: Vec::new(),
        }
    }

    fn slot(&self) -> Slot {
        self.arena.take().expect("a slot is free")
    }

    fn poll(&mut self) {
        let mut reports = Vec::new();
        self.remote.poll(&mut reports);
        for report in reports {
            match report {
                Report::Done { ticket, outcome } => {
                    let before = self.answers.insert(ticket, outcome);
                    assert!(before.is_none(), "{ticket:?} is answered twice");
                }
                other => self.others.push(other),
            }
        }
    }

    fn eventually(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let started = Instant::now();
        loop {
            self.poll();
            if is_so(self) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "no {what}: {:?}", self.others);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn give(&mut self, command: impl FnOnce(Ticket) -> Command) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.remote.submit(command(ticket)).expect("there is room");
        ticket
    }

    fn ask(&mut self, command: impl FnOnce(Ticket) -> Command) -> Outcome {
        let ticket = self.give(command);
        self.eventually("answer", |bench| bench.answers.contains_key(&ticket));
        self.answers.remove(&ticket).expect("it is there")
    }

    fn put_record(&mut self, record: Record) -> Outcome {
        self.ask(|ticket| Command::Put { ticket, record })
    }

    fn put(&mut self, name: u64) -> Outcome {
        let record = record_of(name, PART, self.slot());
        self.put_record(record)
    }

    fn get(&mut self, name: u64) -> Outcome {
        let (slot, name) = (self.slot(), BlockHash::from_u64(name));
        self.ask(|ticket| Command::Get { ticket, name, slot })
    }

    fn condition(&mut self, wanted: Condition) {
        let is_it = |report: &Report| matches!(report, Report::Condition(is) if *is == wanted);
        self.eventually("condition", |bench| bench.others.iter().any(is_it));
        self.others.retain(|report| !is_it(report));
    }

    fn lost(&mut self, name: u64, why: Loss) {
        let name = BlockHash::from_u64(name);
        self.eventually("loss", |bench| {
            bench.others.iter().any(|report| match report {
                Report::Lost { names, loss } => *loss == why && names.contains(&name),
                _ => false,
            })
        });
    }

    fn found(&mut self, name: u64) {
        let name = BlockHash::from_u64(name);
        self.eventually("find", |bench| {
            bench.others.iter().any(|report| match report {
                Report::Found(found) => found.iter().any(|resident| resident.name == name),
                _ => false,
            })
        });
    }
}

fn assert_loaded(outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::Loaded(_)), "{outcome:?}");
}

fn assert_failed(outcome: &Outcome, why: Failure) {
    let is_it = matches!(outcome, Outcome::Failed(failure) if *failure == why);
    assert!(is_it, "{outcome:?}, not {why:?}");
}

fn meta(name: u64, expires_s: Option<u64>) -> Meta {
    Meta {
        name: BlockHash::from_u64(name),
        parent: None,
        identity: IdentityDigest([1; 16]),
        tenant: TenantTag(name % 5),
        tokens: 16,
        exactness: Exactness::Exact,
        created_s: 1,
        expires_s,
    }
}

fn record(slot: Slot, meta: Meta, bytes: usize) -> Record {
    let mut draft = Draft::new(slot, meta, &[bytes]).expect("it fits");
    for (at, byte) in draft.part_mut(0).iter_mut().enumerate() {
        *byte = (at * 7) as u8;
    }
    draft.seal()
}

fn now_s() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_secs()
}

/// The objects of a store.
fn objects(store: &Faulty) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let found = runtime.expect("a runtime").block_on(async {
        let found: Vec<_> = store.inner.list(None).collect().await;
        found
    });
    let name = |object: object_store::Result<object_store::ObjectMeta>| {
        object.expect("memory lists").location.to_string()
    };
    found.into_iter().map(name).collect()
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("headstart-remote-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn trial(seed: u64, commands: usize) -> Trial {
    Trial {
        seed,
        commands,
        names: 60,
        part_bytes: PART,
    }
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
    let wanted = Resident::of(record.meta(), record.bytes().len() as u64);
    let ticket = Ticket(1 << 40);
    remote
        .submit(Command::Put { ticket, record })
        .expect("room");
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
    assert!(matches!(first.put(1), Outcome::Stored));
    let often = RemoteOptions {
        refresh: Duration::from_millis(10),
        ..options()
    };
    let mut second = Bench::over(&store, &often);
    assert_eq!(second.residents.len(), 1);
    assert_loaded(&second.get(1));
    assert!(matches!(first.put(2), Outcome::Stored));
    second.found(2);
    assert_loaded(&second.get(2));
    let names = vec![BlockHash::from_u64(1)];
    let removed = first.ask(|ticket| Command::Remove { ticket, names });
    assert!(matches!(removed, Outcome::Removed(1)), "{removed:?}");
    second.lost(1, Loss::Evicted);
    assert!(matches!(second.get(1), Outcome::Missing));
}

#[test]
fn what_another_one_deleted_is_missing_and_lost() {
    let store = Faulty::new();
    let mut first = Bench::over(&store, &options());
    first.put(1);
    let mut second = Bench::over(&store, &options());
    let tenant = TenantTag(1);
    let purged = first.ask(|ticket| Command::Purge { ticket, tenant });
    assert!(matches!(purged, Outcome::Removed(1)), "{purged:?}");
    assert!(matches!(second.get(1), Outcome::Missing));
    second.lost(1, Loss::Evicted);
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
    assert!(
        matches!(second.put(1), Outcome::Stored),
        "the other did not know"
    );
    let stats = [first.remote.stats(), second.remote.stats()];
    assert_eq!(stats.each_ref().map(|s| s.puts.load(Relaxed)), [1, 0]);
    assert_eq!(stats.each_ref().map(|s| s.puts_saved.load(Relaxed)), [3, 1]);
    assert_eq!(objects(&store).len(), 1);
}

#[test]
fn large_records_go_in_parts_and_an_upload_that_fails_is_ended() {
    let store = Faulty::new();
    let options = RemoteOptions {
        multipart_bytes: 100_000,
        part_bytes: 64_000,
        ..options()
    };
    let mut bench = Bench::over(&store, &options);
    store.with(|faults| faults.drop_parts = 1);
    let large = record(bench.slot(), meta(1, None), 300_000);
    assert!(matches!(bench.put_record(large), Outcome::Stored));
    let counts = store.with(|faults| (faults.puts, faults.uploads, faults.aborts));
    assert_eq!(counts, (0, 2, 1));
    let Outcome::Loaded(record) = bench.get(1) else {
        panic!("it was stored");
    };
    assert!(
        record
            .part(0)
            .iter()
            .enumerate()
            .all(|(at, &byte)| byte == (at * 7) as u8)
    );
}

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
fn a_damaged_record_is_set_aside_and_a_purge_takes_it_too() {
    let store = Faulty::new();
    let mut bench = Bench::over(&store, &options());
    bench.put(1);
    store.with(|faults| faults.flip = 1);
    assert_failed(&bench.get(1), Failure::Corrupt);
    bench.lost(1, Loss::Corrupt);
    assert!(matches!(bench.get(1), Outcome::Missing));
    let is_aside = |name: &String| name.starts_with("kv/quarantine/0000000000000001/");
    bench.eventually("quarantine", |_| objects(&store).iter().all(is_aside));
    assert!(
        matches!(bench.put(1), Outcome::Stored),
        "it can be written again"
    );
    assert_loaded(&bench.get(1));
    assert_eq!(objects(&store).len(), 2);
    let tenant = TenantTag(1);
    let purged = bench.ask(|ticket| Command::Purge { ticket, tenant });
    assert!(matches!(purged, Outcome::Removed(2)), "{purged:?}");
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
    let moved = runtime.expect("a runtime").block_on(async {
        use object_store::ObjectStoreExt;
        store.inner.rename(&Path::from(name), &other).await
    });
    moved.expect("memory renames");
    let mut bench = Bench::over(&store, &options());
    assert_failed(&bench.get(1), Failure::Corrupt);
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
    // Meanwhile somebody else writes.
    let other = Faulty {
        inner: store.inner.clone(),
        faults: Arc::default(),
    };
    Bench::over(&other, &options()).put(3);
    store.with(|faults| faults.is_down = false);
    bench.condition(Condition::Well);
    bench.found(3);
    assert_eq!(store.with(|faults| faults.lists), lists + 1);
    assert_loaded(&bench.get(1));
    assert!(matches!(bench.put(2), Outcome::Stored));
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
    assert_eq!(
        bench.remote.stats().retries.load(Relaxed),
        0,
        "no is an answer"
    );
}

#[test]
fn what_expired_is_missing_and_deleted() {
    let store = Faulty::new();
    let mut bench = Bench::over(&store, &options());
    let soon = record(bench.slot(), meta(1, Some(now_s() + 2)), 100);
    assert!(matches!(bench.put_record(soon), Outcome::Stored));
    let late = record(bench.slot(), meta(2, Some(now_s())), 100);
    assert_failed(&bench.put_record(late), Failure::Aborted);
    bench.eventually("end", |bench| matches!(bench.get(1), Outcome::Missing));
    bench.lost(1, Loss::Expired);
    bench.eventually("deletion", |_| objects(&store).is_empty());
}

#[test]
fn a_record_that_lasts_longer_takes_the_place_of_the_other() {
    let store = Faulty::new();
    let mut bench = Bench::over(&store, &options());
    for seconds in [500, 1000, 700] {
        let next = record(bench.slot(), meta(1, Some(now_s() + seconds)), 100);
        assert!(matches!(bench.put_record(next), Outcome::Stored));
    }
    bench.eventually("deletion", |_| objects(&store).len() == 1);
    let Outcome::Loaded(record) = bench.get(1) else {
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
        assert!(matches!(bench.put_record(next), Outcome::Stored));
    }
    bench.eventually("deletions", |_| objects(&store).len() == 3);
    let is_there = |outcome: &Outcome| matches!(outcome, Outcome::Loaded(_));
    let left: Vec<bool> = (0..5).map(|name| is_there(&bench.get(name))).collect();
    assert_eq!(left.iter().filter(|&&is_there| is_there).count(), 3);
}

#[test]
fn a_full_queue_gives_back_and_closing_answers_all() {
    let store = Faulty::new();
    let options = RemoteOptions {
        queue: 3,
        max_concurrent: 1,
        ..options()
    };
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
        matches!(
            report,
            Report::Done {
                outcome: Outcome::Failed(Failure::Aborted),
                ..
            }
        )
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
    remote
        .submit(Command::Put { ticket, record })
        .expect("room");
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
    assert!(
        error.contains("`part_bytes`") && error.contains("5242880"),
        "{error}"
    );
    let error = open(|options| options.attempts = 0);
    assert!(error.contains("`attempts`"), "{error}");
    let error = open(|options| options.url = "ftp://x".to_owned());
    assert!(error.contains("file:///FOLDER"), "{error}");
    let _: Faults = store.with(std::mem::take);
}
