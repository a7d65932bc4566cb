//! One backend for several users: the replicas of one process.
//!
//! What one of them stores can be read by all, and each hears of what the others store, read and
//! drop, so that their ideas of what is there, and of what was used last, stay alike. What one of
//! them drops is gone for all.
//!
//! It decides nothing and starts no thread: the user that polls takes the reports and passes on
//! those that concern others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headstart_core::BlockHash;

use crate::backend::{
    Backend, Command, CommandOutcome, Condition, LossReason, Report, ResidentRecord, Ticket, Waker,
};
use crate::record::Content;

/// Callback for a change of the backend's condition, called once per change.
pub type OnCondition = Box<dyn Fn(Condition) + Send>;

/// All reasons for losses.
const LOSSES: [LossReason; 4] =
    [LossReason::Expired, LossReason::Corrupt, LossReason::Evicted, LossReason::Offline];

/// Condition of a backend, with counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The condition.
    pub condition: Condition,
    /// Records that can be read.
    pub records: usize,
    /// Records lost without a removal, by reason; those of a place that was gone may have come
    /// back.
    pub lost: [(LossReason, u64); 4],
}

/// A backend and its users.
pub struct SharedBackend {
    hub: Mutex<Hub>,
    wakers: Wakers,
}

/// One user's way to it.
pub struct Member {
    shared: Arc<SharedBackend>,
    number: u64,
}

struct Hub {
    backend: Box<dyn Backend>,
    on_condition: OnCondition,
    condition: Condition,
    /// Records lost without a removal, by reason.
    lost: HashMap<LossReason, u64>,
    /// Known records, and the number of their last use.
    known: HashMap<BlockHash, (u64, ResidentRecord)>,
    uses: u64,
    members: HashMap<u64, MemberInbox>,
    last_member: u64,
    asked: HashMap<Ticket, MemberCommand>,
    last_ticket: u64,
}

/// Reports that wait for a user.
struct MemberInbox {
    reports: Vec<Report>,
    waker: Waker,
}

/// The user and the subject of a command.
struct MemberCommand {
    member: u64,
    ticket: Ticket,
    about: CommandEffect,
}

enum CommandEffect {
    Put(ResidentRecord),
    Get(BlockHash),
    GetPart(BlockHash, u16),
    Remove(Vec<BlockHash>),
    Purge(headstart_core::TenantTag),
}

/// Wakers of all current users, for the backend, which exists before them.
#[derive(Clone, Default)]
pub struct Wakers(Arc<Mutex<HashMap<u64, Waker>>>);

impl Wakers {
    /// Wakes all.
    #[must_use]
    pub fn waker(&self) -> Waker {
        let wakers = self.clone();
        Arc::new(move || wakers.lock().values().for_each(|waker| waker()))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedBackend {
    /// A backend that holds what was `found` in it and calls the waker of `wakers`.
    #[must_use]
    pub fn new(
        backend: Box<dyn Backend>,
        found: Vec<ResidentRecord>,
        wakers: Wakers,
        on_condition: OnCondition,
    ) -> Arc<Self> {
        let uses = found.len() as u64;
        // They come oldest first, so positions serve as numbers of use.
        let known = (0..).zip(found).map(|(use_, record)| (record.name, (use_, record)));
        Arc::new(Self {
            hub: Mutex::new(Hub {
                backend,
                on_condition,
                condition: Condition::Well,
                lost: HashMap::new(),
                known: known.collect(),
                uses,
                members: HashMap::new(),
                last_member: 0,
                asked: HashMap::new(),
                last_ticket: 0,
            }),
            wakers,
        })
    }

    /// Another user, and what is there, what was used last at the end.
    #[must_use]
    pub fn join(self: &Arc<Self>, waker: Waker) -> (Member, Vec<ResidentRecord>) {
        let mut hub = self.lock();
        hub.last_member += 1;
        let number = hub.last_member;
        let place = MemberInbox { reports: Vec::new(), waker: waker.clone() };
        // The hub stays locked until the list below is taken, so that
        // the member misses no report.
        hub.members.insert(number, place);
        self.wakers.lock().insert(number, waker);
        let mut known: Vec<(u64, ResidentRecord)> = hub.known.values().copied().collect();
        known.sort_unstable_by_key(|(use_, _)| *use_);
        let found = known.into_iter().map(|(_, resident)| resident).collect();
        let shared = self.clone();
        (Member { shared, number }, found)
    }

    /// Returns the status as of the last poll.
    #[must_use]
    pub fn status(&self) -> Status {
        let hub = self.lock();
        Status {
            condition: hub.condition,
            records: hub.known.len(),
            lost: LOSSES.map(|loss| (loss, hub.lost.get(&loss).copied().unwrap_or(0))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hub {
    fn submit(&mut self, member: u64, command: Command) -> Result<(), Command> {
        let theirs = command.ticket();
        let ours = Ticket(self.last_ticket + 1);
        let (about, command) = renamed(command, ours);
        match self.backend.submit(command) {
            Ok(()) => {
                self.last_ticket += 1;
                let asked = MemberCommand { member, ticket: theirs, about };
                self.asked.insert(ours, asked);
                Ok(())
            }
            // The caller gets the command back with its own ticket.
            Err(command) => Err(renamed(command, theirs).1),
        }
    }

    fn take_reports(&mut self) {
        let mut reports = Vec::new();
        self.backend.poll(&mut reports);
        for report in reports {
            match report {
                Report::Done { ticket, outcome } => self.done(ticket, outcome),
                Report::Lost { names, loss } => {
                    *self.lost.entry(loss).or_default() += names.len() as u64;
                    self.forget(&names);
                    self.tell_all(None, || Report::Lost { names: names.clone(), loss });
                }
                Report::Found(found) => {
                    found.iter().for_each(|resident| self.note_use(*resident));
                    self.tell_all(None, || Report::Found(found.clone()));
                }
                Report::Condition(condition) => {
                    self.condition = condition;
                    (self.on_condition)(condition);
                    self.tell_all(None, || Report::Condition(condition));
                }
            }
        }
    }

    fn done(&mut self, ticket: Ticket, outcome: CommandOutcome) {
        let Some(asked) = self.asked.remove(&ticket) else {
            return;
        };
        let MemberCommand { member, ticket, about } = asked;
        match (about, &outcome) {
            (CommandEffect::Put(resident), CommandOutcome::Stored) => {
                self.note_use(resident);
                self.tell_all(Some(member), || Report::Found(vec![resident]));
            }
            (CommandEffect::Get(name), CommandOutcome::Loaded(_)) => {
                if let Some(&(_, resident)) = self.known.get(&name) {
                    self.note_use(resident);
                    // Told again: it was used.
                    self.tell_all(Some(member), || Report::Found(vec![resident]));
                }
            }
            (CommandEffect::GetPart(name, part), CommandOutcome::Part(_)) => {
                if let Some(&(_, resident)) = self.known.get(&name) {
                    self.note_use(resident);
                    // Once for each that reads it: many parts are read of a unit, the first always.
                    if part == 0 && resident.content == Content::Unit {
                        self.tell_all(Some(member), || Report::Found(vec![resident]));
                    }
                }
            }
            // After a failure as well: a record that is forgotten by
            // mistake is a miss and nothing worse.
            (CommandEffect::Remove(names), _) => self.gone(member, names),
            (CommandEffect::Purge(tenant), _) => {
                let all = self.known.values().map(|(_, resident)| resident);
                let theirs = all.filter(|resident| resident.tenant == tenant);
                let names = theirs.map(|resident| resident.name).collect();
                self.gone(member, names);
            }
            // A failed get changes nothing: if the record is lost, `Report::Lost` says so.
            (CommandEffect::Put(_) | CommandEffect::Get(_) | CommandEffect::GetPart(..), _) => {}
        }
        // A member that has left gets no answer; a slot in the outcome is free again.
        if let Some(place) = self.members.get_mut(&member) {
            place.reports.push(Report::Done { ticket, outcome });
            (place.waker)();
        }
    }

    fn note_use(&mut self, resident: ResidentRecord) {
        self.uses += 1;
        self.known.insert(resident.name, (self.uses, resident));
    }

    /// One user dropped these.
    fn gone(&mut self, member: u64, names: Vec<BlockHash>) {
        self.forget(&names);
        let loss = LossReason::Evicted;
        self.tell_all(Some(member), || Report::Lost { names: names.clone(), loss });
    }

    fn forget(&mut self, names: &[BlockHash]) {
        names.iter().for_each(|name| {
            self.known.remove(name);
        });
    }

    fn tell_all(&mut self, except: Option<u64>, report: impl Fn() -> Report) {
        let others = self.members.iter_mut();
        for (_, place) in others.filter(|(number, _)| Some(**number) != except) {
            place.reports.push(report());
            (place.waker)();
        }
    }
}

/// The same command with another ticket, and what it is about.
fn renamed(command: Command, ticket: Ticket) -> (CommandEffect, Command) {
    match command {
        Command::Put { record, .. } => {
            let resident = ResidentRecord::of_record(&record);
            (CommandEffect::Put(resident), Command::Put { ticket, record })
        }
        Command::Get { name, slot, .. } => {
            (CommandEffect::Get(name), Command::Get { ticket, name, slot })
        }
        Command::GetPart { name, part, slot, .. } => {
            let command = Command::GetPart { ticket, name, part, slot };
            (CommandEffect::GetPart(name, part), command)
        }
        Command::Remove { names, .. } => {
            let about = CommandEffect::Remove(names.clone());
            (about, Command::Remove { ticket, names })
        }
        Command::Purge { tenant, .. } => {
            (CommandEffect::Purge(tenant), Command::Purge { ticket, tenant })
        }
    }
}

impl Backend for Member {
    fn submit(&mut self, command: Command) -> Result<(), Command> {
        self.shared.lock().submit(self.number, command)
    }

    fn poll(&mut self, reports: &mut Vec<Report>) {
        let mut hub = self.shared.lock();
        hub.take_reports();
        if let Some(place) = hub.members.get_mut(&self.number) {
            reports.append(&mut place.reports);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shared.lock().members.remove(&self.number);
        self.shared.wakers.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::backend::no_waker;
    use crate::conformance::{Trial, check, record_of, slot_bytes};
    use crate::reference::Map;

    fn shared() -> Arc<SharedBackend> {
        let backend = Box::new(Map::default());
        SharedBackend::new(backend, Vec::new(), Wakers::default(), Box::new(|_| {}))
    }

    fn polled(member: &mut Member) -> Vec<Report> {
        let mut reports = Vec::new();
        member.poll(&mut reports);
        reports
    }

    #[test]
    fn each_member_conforms() {
        let shared = shared();
        let (mut one, _) = shared.join(no_waker());
        let trial = Trial { seed: 1, commands: 1_000, names: 40, part_bytes: 300 };
        check(&mut one, trial);
    }

    /// A backend with given reports, which accepts no commands.
    struct Saying(Vec<Report>);

    impl Backend for Saying {
        fn submit(&mut self, command: Command) -> Result<(), Command> {
            Err(command)
        }

        fn poll(&mut self, reports: &mut Vec<Report>) {
            reports.append(&mut self.0);
        }
    }

    #[test]
    fn its_status_is_what_it_said_last() {
        let resident = |number: u64| ResidentRecord {
            name: BlockHash::from_u64(number),
            parent: None,
            tenant: headstart_core::TenantTag(0),
            bytes: 1,
            tokens: 1,
            expires_s: None,
            content: crate::record::Content::Unit,
        };
        let lost =
            |number: u64, loss| Report::Lost { names: vec![BlockHash::from_u64(number)], loss };
        let gone = Condition::Gone(crate::backend::Failure::Offline);
        let reports = vec![
            Report::Found((3..7).map(resident).collect()),
            lost(1, LossReason::Corrupt),
            lost(2, LossReason::Corrupt),
            lost(3, LossReason::Expired),
            Report::Condition(gone),
        ];
        let found = (0..3).map(resident).collect();
        let backend = Box::new(Saying(reports));
        let shared = SharedBackend::new(backend, found, Wakers::default(), Box::new(|_| {}));
        let before = shared.status();
        assert_eq!((before.condition, before.records), (Condition::Well, 3));
        let (mut member, _) = shared.join(no_waker());
        polled(&mut member);
        let after = shared.status();
        assert_eq!((after.condition, after.records), (gone, 4));
        let right = [
            (LossReason::Expired, 1),
            (LossReason::Corrupt, 2),
            (LossReason::Evicted, 0),
            (LossReason::Offline, 0),
        ];
        assert_eq!(after.lost, right);
    }

    #[test]
    fn what_one_stores_the_others_hear_of_and_read() {
        let shared = shared();
        let (mut one, _) = shared.join(no_waker());
        let (mut other, found) = shared.join(no_waker());
        assert!(found.is_empty());
        let arena = Arena::new(slot_bytes(300), 4).expect("memory");
        let slot = || arena.take().expect("a slot");
        let record = record_of(7, 300, slot());
        let name = record.meta().name;
        // Both use the same numbers for their commands.
        let ticket = Ticket(5);
        one.submit(Command::Put { ticket, record }).expect("taken");
        let stored = polled(&mut one);
        assert!(matches!(
            stored[..],
            [Report::Done { ticket: Ticket(5), outcome: CommandOutcome::Stored }]
        ));
        let heard = polled(&mut other);
        assert!(matches!(&heard[..], [Report::Found(found)] if found[0].name == name));
        let slot = slot();
        other.submit(Command::Get { ticket, name, slot }).expect("taken");
        let loaded = polled(&mut other);
        assert!(matches!(
            &loaded[..],
            [Report::Done { ticket: Ticket(5), outcome: CommandOutcome::Loaded(_) }]
        ));
        assert!(matches!(&polled(&mut one)[..], [Report::Found(_)]), "it was used");
        let get = |part, slot| Command::GetPart { ticket, name, part, slot };
        other.submit(get(0, arena.take().expect("a slot"))).expect("taken");
        let part = polled(&mut other);
        let is_part = |report: &Report| {
            matches!(report, Report::Done { outcome: CommandOutcome::Part(_), .. })
        };
        assert!(part.iter().all(is_part) && part.len() == 1, "{part:?}");
        assert!(
            matches!(&polled(&mut one)[..], [Report::Found(_)]),
            "who reads its first part uses it"
        );
        let (third, found) = shared.join(no_waker());
        assert_eq!(found.len(), 1, "whoever comes later knows as well");
        drop(third);
        let names = vec![name];
        one.submit(Command::Remove { ticket, names }).expect("taken");
        polled(&mut one);
        let gone = polled(&mut other);
        assert!(matches!(&gone[..], [Report::Lost { names, .. }] if names[..] == [name]));
    }
}
