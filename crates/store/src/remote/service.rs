//! The thread of the remote tier: takes commands, starts what they ask for, and reports.
//!
//! One loop owns all state; requests run beside it and come back to it. Order is kept where it
//! matters: a put waits for deletions of its name, and a deletion for puts of its names, and then
//! whatever comes behind waits as well.
//!
//! ```text
//!   submit ──▶ commands ──▶ loop ──▶ requests (as many as may be)
//!   poll  ◀──  reports  ◀── loop ◀── what became of them
//! ```

mod finish;
mod ours;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headstart_core::{BlockHash, Nanos, TenantTag};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{self, JoinSet};
use tokio::time::Instant;

use super::health::RemoteHealth;
use super::index::{Changes, ListedObject, Listing, ObjectIndex};
use super::key::ObjectKey;
use super::store::Store;
use super::transfer::Presence;
use super::trouble::Trouble;
use crate::backend::{
    Command, CommandOutcome, Condition, Failure, LossReason, Report, Ticket, Waker,
};
use crate::record::Record;
use ours::ObjectSweep;

/// Longest wait, at the end, for what is under way.
const CLOSE: Duration = Duration::from_secs(5);

/// Dependencies of the loop.
pub(super) struct Setup {
    pub(super) store: Arc<Store>,
    pub(super) index: ObjectIndex,
    pub(super) health: RemoteHealth,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) closing: oneshot::Receiver<()>,
    pub(super) reports: std::sync::mpsc::Sender<Report>,
    pub(super) waker: Waker,
}

/// Purpose of a request.
#[derive(Debug)]
enum RequestPurpose {
    Put(BlockHash),
    Get {
        ticket: Ticket,
        object: ListedObject,
    },
    Remove {
        ticket: Ticket,
        names: Vec<BlockHash>,
    },
    Purge {
        ticket: Ticket,
        tenant: TenantTag,
    },
    /// Ours: damaged, old, second or superfluous objects go.
    Sweep(Vec<BlockHash>),
    List,
    Probe,
}

/// Result of a request.
enum RequestResult {
    Put(Result<(), Trouble>),
    Got(Result<CommandOutcome, Trouble>),
    Removed(Result<usize, Trouble>),
    Swept,
    Listed(Result<Listing, Trouble>),
    Probed(bool),
}

/// A put that is under way, and who waits for it.
struct Put {
    key: ObjectKey,
    bytes: u64,
    tickets: Vec<Ticket>,
}

/// The loop.
pub(super) struct Service {
    setup: Setup,
    requests: JoinSet<RequestResult>,
    asked: HashMap<task::Id, RequestPurpose>,
    /// Requests that commands asked for, of `requests`.
    num_commands: usize,
    /// Cannot be started yet.
    held: Option<Command>,
    puts: HashMap<BlockHash, Put>,
    /// Names whose objects are being deleted, and how often.
    deleting: HashMap<BlockHash, usize>,
    /// Tenants whose objects are being destroyed, and how often.
    purging: HashMap<TenantTag, usize>,
    sweeps: VecDeque<ObjectSweep>,
    is_sweeping: bool,
    /// Changed since the listing under way was asked for, if there is one.
    newer: Option<Newer>,
    is_probing: bool,
    started: Instant,
    next_listing: Instant,
}

/// Records and tenants changed since a listing began.
#[derive(Default)]
struct Newer {
    names: HashSet<BlockHash>,
    tenants: HashSet<TenantTag>,
}

impl Newer {
    fn has(&self, key: &ObjectKey) -> bool {
        self.names.contains(&key.name) || self.tenants.contains(&key.tenant)
    }
}

impl Service {
    pub(super) fn new(setup: Setup) -> Self {
        let now = Instant::now();
        Self {
            setup,
            requests: JoinSet::new(),
            asked: HashMap::new(),
            num_commands: 0,
            held: None,
            puts: HashMap::new(),
            deleting: HashMap::new(),
            purging: HashMap::new(),
            sweeps: VecDeque::new(),
            is_sweeping: false,
            newer: None,
            is_probing: false,
            started: now,
            next_listing: now,
        }
    }

    /// The first listing.
    ///
    /// # Errors
    /// When the store says no. One that is silent is gone, and may come back.
    pub(super) async fn begin(&mut self) -> Result<Changes, Trouble> {
        let store = self.setup.store.clone();
        match store.list().await {
            Ok(listing) => {
                store.count_quarantined().await;
                self.plan_listing();
                Ok(self.take_listing(listing))
            }
            Err(trouble) if trouble.kind.is_passing() => {
                let condition = self.setup.health.give_up(self.now(), store.jitter());
                self.condition(condition);
                Ok(Changes::default())
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Runs until it is closed.
    pub(super) async fn run(mut self) {
        loop {
            self.start_ours();
            let has_room =
                self.held.is_none() && self.num_commands < self.setup.store.options.max_concurrent;
            let wake_at = self.wake_at();
            tokio::select! {
                // In this order: closing comes first, and results free room for commands.
                biased;
                _ = &mut self.setup.closing => break,
                Some(done) = self.requests.join_next_with_id() => {
                    self.finish(done);
                    // The request that ended may be the one that this command
                    // waits for; if not, it is held again.
                    if let Some(command) = self.held.take() {
                        self.start(command);
                    }
                }
                command = self.setup.commands.recv(), if has_room => match command {
                    Some(command) => self.start(command),
                    None => break,
                },
                () = tokio::time::sleep_until(wake_at) => {}
            }
        }
        self.close().await;
    }

    /// When something must be started though nothing happens.
    fn wake_at(&self) -> Instant {
        match self.setup.health.probe_at() {
            Some(Nanos(at)) if !self.is_probing => self.started + Duration::from_nanos(at),
            None if self.newer.is_none() => self.next_listing,
            // What is under way wakes the loop, within its own limit.
            _ => Instant::now() + self.setup.store.options.refresh,
        }
    }

    fn now(&self) -> Nanos {
        Nanos(0) + self.started.elapsed()
    }

    /// Carries a command out, or holds it back.
    fn start(&mut self, command: Command) {
        if self.setup.health.is_gone() {
            return self.answer(command.ticket(), CommandOutcome::Failed(Failure::Offline));
        }
        if !self.may_start(&command) {
            self.held = Some(command);
            return;
        }
        match command {
            Command::Put { ticket, record } => self.start_put(ticket, record),
            Command::Get { ticket, name, slot } => {
                let Some(object) = self.readable(name) else {
                    return self.answer(ticket, CommandOutcome::Missing);
                };
                // The listing has the length, so a slot that is too small costs no request.
                if object.bytes > slot.len() as u64 {
                    return self.answer(ticket, CommandOutcome::Failed(Failure::TooLarge));
                }
                let store = self.setup.store.clone();
                let damaged = CommandOutcome::Failed(Failure::Corrupt);
                self.ask(RequestPurpose::Get { ticket, object }, async move {
                    let read = store.get(object.key, object.bytes, slot).await;
                    let outcome = read.map(|read| read.map_or(damaged, CommandOutcome::Loaded));
                    RequestResult::Got(outcome)
                });
            }
            Command::GetPart { ticket, name, part, slot } => {
                let Some(object) = self.readable(name) else {
                    return self.answer(ticket, CommandOutcome::Missing);
                };
                let store = self.setup.store.clone();
                self.ask(RequestPurpose::Get { ticket, object }, async move {
                    RequestResult::Got(store.get_part(object, part, slot).await)
                });
            }
            Command::Remove { ticket, names } => self.start_remove(ticket, names),
            Command::Purge { ticket, tenant } => {
                // Removed before the request starts, so that no get finds them during the purge.
                self.setup.index.remove_tenant(tenant);
                *self.purging.entry(tenant).or_insert(0) += 1;
                // A listing under way may still name the tenant's objects.
                if let Some(newer) = &mut self.newer {
                    newer.tenants.insert(tenant);
                }
                let store = self.setup.store.clone();
                let purge = async move { RequestResult::Removed(store.purge(tenant).await) };
                self.ask(RequestPurpose::Purge { ticket, tenant }, purge);
            }
        }
    }

    /// Whether nothing under way must end first.
    fn may_start(&self, command: &Command) -> bool {
        match command {
            Command::Get { .. } | Command::GetPart { .. } => true,
            Command::Put { record, .. } => {
                let meta = record.meta();
                let is_deleted = self.deleting.contains_key(&meta.name);
                !is_deleted && !self.purging.contains_key(&meta.tenant)
            }
            Command::Remove { names, .. } => !names.iter().any(|name| self.puts.contains_key(name)),
            Command::Purge { tenant, .. } => {
                let is_theirs = |put: &Put| put.key.tenant == *tenant;
                !self.puts.values().any(is_theirs)
            }
        }
    }

    fn start_put(&mut self, ticket: Ticket, record: Record) {
        let (now, now_s) = (self.now(), now_s());
        let key = ObjectKey::of(record.meta());
        let bytes = record.bytes().len() as u64;
        // The record has expired already: an upload would be in vain.
        if key.expires_s().is_some_and(|expires| expires <= now_s) {
            return self.answer(ticket, CommandOutcome::Failed(Failure::Aborted));
        }
        // The same record by definition, so one upload answers both commands.
        if let Some(put) = self.puts.get_mut(&key.name) {
            super::stats::add(&self.setup.store.stats.puts_saved, 1);
            return put.tickets.push(ticket);
        }
        // Asked last, because it may let this write through as the one
        // that shows whether writes work.
        if let Err(why) = self.setup.health.may_write(now) {
            return self.answer(ticket, CommandOutcome::Failed(why));
        }
        // Read first, because `readable` removes an expired object.
        let before = self.setup.index.get(key.name);
        let known = self.readable(key.name);
        // The one that is there may be another that lasts longer.
        let (presence, key) = match known.filter(|known| known.key >= key) {
            Some(known) => (Presence::There, known.key),
            None if known.is_none() && before.is_some_and(|old| old.key == key) => {
                (Presence::Old, key)
            }
            None => (Presence::Unknown, key),
        };
        let tickets = vec![ticket];
        let put = Put { key, bytes, tickets };
        self.puts.insert(key.name, put);
        let store = self.setup.store.clone();
        let put = async move { RequestResult::Put(store.put(&key, record, presence).await) };
        self.ask(RequestPurpose::Put(key.name), put);
    }

    fn start_remove(&mut self, ticket: Ticket, names: Vec<BlockHash>) {
        let known: Vec<ObjectKey> = names
            .iter()
            .filter_map(|&name| self.setup.index.remove(name))
            .map(|object| object.key)
            .collect();
        if known.is_empty() {
            return self.answer(ticket, CommandOutcome::Removed(0));
        }
        let names: Vec<BlockHash> = known.iter().map(|key| key.name).collect();
        // Puts of these names wait, or the deletion could hit the new object.
        self.block(&names);
        let store = self.setup.store.clone();
        let remove = async move { RequestResult::Removed(store.delete(&known).await) };
        self.ask(RequestPurpose::Remove { ticket, names }, remove);
    }

    /// The object of that name, unless its time is over.
    fn readable(&mut self, name: BlockHash) -> Option<ListedObject> {
        let object = self.setup.index.get(name)?;
        if !self.setup.index.is_expired(&object, now_s()) {
            return Some(object);
        }
        self.setup.index.remove(name);
        self.lost(vec![name], LossReason::Expired);
        self.sweep(ObjectSweep::Delete(object.key));
        None
    }

    fn ask(
        &mut self,
        asked: RequestPurpose,
        request: impl Future<Output = RequestResult> + Send + 'static,
    ) {
        self.num_commands += usize::from(asked.is_command());
        let id = self.requests.spawn(request).id();
        self.asked.insert(id, asked);
    }

    fn answer(&self, ticket: Ticket, outcome: CommandOutcome) {
        if let CommandOutcome::Failed(failure) = outcome {
            self.setup.store.stats.failed(failure);
        }
        self.report(Report::Done { ticket, outcome });
    }

    fn lost(&self, names: Vec<BlockHash>, loss: LossReason) {
        if !names.is_empty() {
            self.report(Report::Lost { names, loss });
        }
    }

    fn condition(&self, condition: Option<Condition>) {
        if let Some(condition) = condition {
            self.report(Report::Condition(condition));
        }
    }

    fn report(&self, report: Report) {
        // The receiver is gone when the tier is being closed.
        if self.setup.reports.send(report).is_ok() {
            (self.setup.waker)();
        }
    }

    /// Answers all that waits, and lets what is under way end.
    async fn close(mut self) {
        // No command comes in after this, so the loop below ends.
        self.setup.commands.close();
        let held = self.held.take();
        for command in
            held.into_iter().chain(std::iter::from_fn(|| self.setup.commands.try_recv().ok()))
        {
            let ticket = command.ticket();
            let outcome = CommandOutcome::Failed(Failure::Aborted);
            let _ = self.setup.reports.send(Report::Done { ticket, outcome });
        }
        let until = Instant::now() + CLOSE;
        while let Ok(Some(done)) =
            tokio::time::timeout_at(until, self.requests.join_next_with_id()).await
        {
            self.finish(done);
        }
        self.requests.shutdown().await;
        let asked: Vec<RequestPurpose> = self.asked.drain().map(|(_, asked)| asked).collect();
        // A request that was cut off still answers its command.
        for asked in asked {
            self.end(asked, None);
        }
    }
}

impl RequestPurpose {
    fn is_command(&self) -> bool {
        !matches!(self, Self::Sweep(_) | Self::List | Self::Probe)
    }
}

/// Seconds since 1970.
fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}
