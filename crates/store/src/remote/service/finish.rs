//! Reactions of the loop to completed requests.

use headstart_core::BlockHash;
use tokio::task::{self, JoinError};
use tokio::time::Instant;

use super::ours::ObjectSweep;
use super::{RequestPurpose, RequestResult, Service, now_s};
use crate::backend::{CommandOutcome, Failure, LossReason, Report, Ticket};
use crate::remote::index::{Changes, ListedObject, Listing};
use crate::remote::trouble::{Trouble, TroubleKind};

impl Service {
    pub(super) fn finish(&mut self, done: Result<(task::Id, RequestResult), JoinError>) {
        let (id, done) = match done {
            Ok((id, done)) => (id, Some(done)),
            // The request panicked or was cut off: its command is answered as well.
            Err(error) => (error.id(), None),
        };
        if let Some(asked) = self.asked.remove(&id) {
            self.num_commands -= usize::from(asked.is_command());
            self.end(asked, done);
        }
    }

    /// Ends a request; `done` is `None` if it was given up or failed by a fault of ours.
    pub(super) fn end(&mut self, asked: RequestPurpose, done: Option<RequestResult>) {
        match (asked, done) {
            (RequestPurpose::Put(name), done) => {
                let result = match done {
                    Some(RequestResult::Put(result)) => result,
                    _ => Err(given_up()),
                };
                self.end_put(name, result);
            }
            (RequestPurpose::Get { ticket, object }, done) => {
                let result = match done {
                    Some(RequestResult::Got(result)) => result,
                    _ => Err(given_up()),
                };
                self.end_get(ticket, object, result);
            }
            (RequestPurpose::Remove { ticket, names }, done) => {
                self.unblock(&names);
                self.end_removal(ticket, done);
            }
            (RequestPurpose::Purge { ticket, tenant }, done) => {
                self.end_purging(tenant);
                self.end_removal(ticket, done);
            }
            (RequestPurpose::Sweep(names), _) => {
                self.is_sweeping = false;
                self.unblock(&names);
            }
            (RequestPurpose::List, done) => {
                // Planned after a failure, too, or the listing would be repeated at once.
                self.plan_listing();
                match done {
                    Some(RequestResult::Listed(Ok(listing))) => {
                        self.setup.health.answered();
                        let changes = self.take_listing(listing);
                        if !changes.found.is_empty() {
                            self.report(Report::Found(changes.found));
                        }
                    }
                    Some(RequestResult::Listed(Err(trouble))) => self.note(&trouble),
                    _ => {}
                }
                // Only a listing that failed has left it; `take_listing` takes it out.
                self.newer = None;
            }
            (RequestPurpose::Probe, done) => {
                self.is_probing = false;
                let is_back = matches!(done, Some(RequestResult::Probed(true)));
                let (now, jitter) = (self.now(), self.setup.store.jitter());
                if is_back {
                    let condition = self.setup.health.back();
                    self.condition(condition);
                    // Others may have written and deleted while the store was gone.
                    self.next_listing = Instant::now();
                } else {
                    self.setup.health.still_gone(now, jitter);
                }
            }
        }
    }

    fn end_put(&mut self, name: BlockHash, result: Result<(), Trouble>) {
        let Some(put) = self.puts.remove(&name) else {
            return;
        };
        // A listing under way may have passed this name before the put ended.
        self.outdate(&[name]);
        let failure = match result {
            Ok(()) => {
                let condition = self.setup.health.wrote();
                self.condition(condition);
                let known = self.setup.index.get(name);
                // An object that was there before keeps its age.
                let before = known.filter(|before| before.key == put.key);
                self.setup.index.insert(ListedObject {
                    key: put.key,
                    bytes: put.bytes,
                    modified_s: before.map_or(now_s(), |before| before.modified_s),
                });
                // Two objects of one record would count twice.
                if let Some(second) = known.filter(|known| known.key < put.key) {
                    self.sweep(ObjectSweep::Delete(second.key));
                }
                None
            }
            Err(trouble) => {
                let failure = trouble.kind.failure(true);
                // The store has answered: this concerns writes only.
                if matches!(failure, Failure::ReadOnly | Failure::Full) {
                    let condition = self.setup.health.refused(self.now(), failure);
                    self.condition(condition);
                } else {
                    self.note(&trouble);
                }
                Some(failure)
            }
        };
        for ticket in put.tickets {
            self.answer(ticket, failure.map_or(CommandOutcome::Stored, CommandOutcome::Failed));
        }
    }

    fn end_get(
        &mut self,
        ticket: Ticket,
        object: ListedObject,
        result: Result<CommandOutcome, Trouble>,
    ) {
        let outcome = match result {
            Ok(outcome) => {
                self.setup.health.answered();
                let is_damaged = matches!(outcome, CommandOutcome::Failed(Failure::Corrupt));
                // If the index has changed meanwhile, a new and whole object may be in its place.
                if is_damaged && self.forget(object, LossReason::Corrupt) {
                    self.sweep(ObjectSweep::SetAside(object.key));
                }
                outcome
            }
            Err(trouble) => self.get_failed(object, &trouble),
        };
        self.answer(ticket, outcome);
    }

    fn get_failed(&mut self, object: ListedObject, trouble: &Trouble) -> CommandOutcome {
        // Another replica has deleted it since the last listing.
        if trouble.kind == TroubleKind::Missing {
            self.setup.health.answered();
            self.forget(object, LossReason::Evicted);
            return CommandOutcome::Missing;
        }
        self.note(trouble);
        CommandOutcome::Failed(trouble.kind.failure(false))
    }

    /// Forgets an object that is not what it was; not the one that came in its place.
    fn forget(&mut self, object: ListedObject, loss: LossReason) -> bool {
        let name = object.key.name;
        let is_known = self.setup.index.get(name) == Some(object);
        if is_known {
            self.setup.index.remove(name);
            self.outdate(&[name]);
            self.lost(vec![name], loss);
        }
        is_known
    }

    fn end_removal(&mut self, ticket: Ticket, done: Option<RequestResult>) {
        let result = match done {
            Some(RequestResult::Removed(result)) => result,
            _ => Err(given_up()),
        };
        let outcome = match result {
            Ok(num_gone) => {
                self.setup.health.answered();
                CommandOutcome::Removed(num_gone)
            }
            Err(trouble) => {
                self.note(&trouble);
                CommandOutcome::Failed(trouble.kind.failure(true))
            }
        };
        self.answer(ticket, outcome);
    }

    /// Updates the store's health after a failure.
    fn note(&mut self, trouble: &Trouble) {
        if trouble.kind.is_passing() {
            let (now, jitter) = (self.now(), self.setup.store.jitter());
            let condition = self.setup.health.unreachable(now, jitter);
            self.condition(condition);
        // `Refused` can come from this side, when a task panics: that is no answer of the store.
        } else if trouble.kind != TroubleKind::Refused {
            self.setup.health.answered();
        }
    }

    /// Some time between three quarters and five quarters of the interval from now, so that
    /// replicas that started together do not list together.
    pub(super) fn plan_listing(&mut self) {
        let interval = self.setup.store.options.refresh;
        let wait = interval.mul_f64(0.75 + self.setup.store.jitter() / 2.0);
        self.next_listing = Instant::now() + wait;
    }

    /// Takes over a listing and reports what is lost; what is found is for the caller to tell.
    pub(super) fn take_listing(&mut self, listing: Listing) -> Changes {
        let newer = self.newer.take().unwrap_or_default();
        let is_newer = |key: &_| newer.has(key);
        let mut changes = self.setup.index.take(listing, now_s(), is_newer);
        self.lost(std::mem::take(&mut changes.expired), LossReason::Expired);
        self.lost(std::mem::take(&mut changes.evicted), LossReason::Evicted);
        for key in std::mem::take(&mut changes.delete) {
            self.sweep(ObjectSweep::Delete(key));
        }
        changes
    }
}

fn given_up() -> Trouble {
    Trouble::new(TroubleKind::Late, "it was given up")
}
