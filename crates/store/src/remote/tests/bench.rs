//! Test bench: a tier over a faulty store.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures::StreamExt;
use headstart_core::{BlockHash, IdentityDigest, TenantTag};
use object_store::path::Path;

use super::faulty::Faulty;
use crate::arena::{Arena, Slot};
use crate::backend::{
    Backend, Command, CommandOutcome, Condition, Failure, LossReason, Report, ResidentRecord,
    Ticket, no_waker,
};
use crate::conformance::record_of;
use crate::record::{Content, Draft, Exactness, Meta, Record};
use crate::remote::{Remote, RemoteOptions};

/// Longest wait for anything; far beyond what is expected.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Largest part of these records, bytes.
pub(super) const PART: usize = 300;

/// Quick enough for tests, in everything that waits.
pub(super) fn options() -> RemoteOptions {
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
pub(super) struct Bench {
    pub(super) remote: Remote,
    pub(super) residents: Vec<ResidentRecord>,
    pub(super) arena: Arc<Arena>,
    next: u64,
    pub(super) answers: BTreeMap<Ticket, CommandOutcome>,
    pub(super) others: Vec<Report>,
}

impl Bench {
    pub(super) fn over(store: &Faulty, options: &RemoteOptions) -> Self {
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

    pub(super) fn slot(&self) -> Slot {
        self.arena.take().expect("a slot is free")
    }

    pub(super) fn poll(&mut self) {
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

    pub(super) fn eventually(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
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

    pub(super) fn give(&mut self, command: impl FnOnce(Ticket) -> Command) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.remote.submit(command(ticket)).expect("there is room");
        ticket
    }

    pub(super) fn ask(&mut self, command: impl FnOnce(Ticket) -> Command) -> CommandOutcome {
        let ticket = self.give(command);
        self.eventually("answer", |bench| bench.answers.contains_key(&ticket));
        self.answers.remove(&ticket).expect("it is there")
    }

    pub(super) fn put_record(&mut self, record: Record) -> CommandOutcome {
        self.ask(|ticket| Command::Put { ticket, record })
    }

    pub(super) fn put(&mut self, name: u64) -> CommandOutcome {
        let record = record_of(name, PART, self.slot());
        self.put_record(record)
    }

    pub(super) fn get(&mut self, name: u64) -> CommandOutcome {
        let (slot, name) = (self.slot(), BlockHash::from_u64(name));
        self.ask(|ticket| Command::Get { ticket, name, slot })
    }

    pub(super) fn condition(&mut self, wanted: Condition) {
        let is_it = |report: &Report| matches!(report, Report::Condition(is) if *is == wanted);
        self.eventually("condition", |bench| bench.others.iter().any(is_it));
        self.others.retain(|report| !is_it(report));
    }

    pub(super) fn lost(&mut self, name: u64, why: LossReason) {
        let name = BlockHash::from_u64(name);
        self.eventually("loss", |bench| {
            bench.others.iter().any(|report| match report {
                Report::Lost { names, loss } => *loss == why && names.contains(&name),
                _ => false,
            })
        });
    }

    pub(super) fn found(&mut self, name: u64) {
        let name = BlockHash::from_u64(name);
        self.eventually("find", |bench| {
            bench.others.iter().any(|report| match report {
                Report::Found(found) => found.iter().any(|resident| resident.name == name),
                _ => false,
            })
        });
    }
}

pub(super) fn assert_loaded(outcome: &CommandOutcome) {
    assert!(matches!(outcome, CommandOutcome::Loaded(_)), "{outcome:?}");
}

pub(super) fn assert_failed(outcome: &CommandOutcome, why: Failure) {
    let is_it = matches!(outcome, CommandOutcome::Failed(failure) if *failure == why);
    assert!(is_it, "{outcome:?}, not {why:?}");
}

pub(super) fn meta(name: u64, expires_s: Option<u64>) -> Meta {
    Meta {
        name: BlockHash::from_u64(name),
        parent: None,
        identity: IdentityDigest([1; 16]),
        tenant: TenantTag(name % 5),
        tokens: 16,
        exactness: Exactness::Exact,
        content: Content::Unit,
        created_s: 1,
        expires_s,
    }
}

pub(super) fn record(slot: Slot, meta: Meta, bytes: usize) -> Record {
    let mut draft = Draft::new(slot, meta, &[bytes]).expect("it fits");
    for (at, byte) in draft.part_mut(0).iter_mut().enumerate() {
        *byte = (at * 7) as u8;
    }
    draft.seal()
}

pub(super) fn now_s() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_secs()
}

/// The objects of a store.
pub(super) fn objects(store: &Faulty) -> Vec<String> {
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
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
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
