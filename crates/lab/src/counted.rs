//! A disk whose commands under way are counted: a study waits until there are none.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use headstart_store::backend::{Backend, Command, Report, Ticket};

/// A backend that counts its gets, also of parts, and its puts under way.
pub(super) struct CountedBackend {
    inner: Box<dyn Backend>,
    asked: HashSet<Ticket>,
    num_under_way: Arc<AtomicUsize>,
}

impl CountedBackend {
    /// `inner`, counted.
    pub(super) fn new(inner: Box<dyn Backend>) -> Self {
        Self { inner, asked: HashSet::new(), num_under_way: Arc::default() }
    }

    /// Returns the count, as of the last call to the backend.
    pub(super) fn num_under_way(&self) -> Arc<AtomicUsize> {
        self.num_under_way.clone()
    }
}

impl Backend for CountedBackend {
    fn submit(&mut self, command: Command) -> Result<(), Command> {
        let ticket = command.ticket();
        let is_counted = !matches!(command, Command::Remove { .. } | Command::Purge { .. });
        self.inner.submit(command)?;
        if is_counted {
            self.asked.insert(ticket);
            self.num_under_way.store(self.asked.len(), Relaxed);
        }
        Ok(())
    }

    fn poll(&mut self, reports: &mut Vec<Report>) {
        let first = reports.len();
        self.inner.poll(reports);
        for report in &reports[first..] {
            if let Report::Done { ticket, .. } = report {
                self.asked.remove(ticket);
            }
        }
        self.num_under_way.store(self.asked.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::{BlockHash, TenantTag};
    use headstart_store::{Arena, CommandOutcome};

    use super::*;
    use crate::backend_conformance::{Trial, check};
    use crate::backend_reference::Map;

    /// Finds nothing, at the next poll.
    #[derive(Default)]
    struct Empty(Vec<Ticket>);

    impl Backend for Empty {
        fn submit(&mut self, command: Command) -> Result<(), Command> {
            self.0.push(command.ticket());
            Ok(())
        }

        fn poll(&mut self, reports: &mut Vec<Report>) {
            let outcome = || CommandOutcome::Missing;
            let done = self.0.drain(..).map(|ticket| Report::Done { ticket, outcome: outcome() });
            reports.extend(done);
        }
    }

    #[test]
    fn it_conforms_and_everything_is_answered() {
        let trial = Trial { seed: 7, commands: 600, names: 40, part_bytes: 3_000 };
        let mut counted = CountedBackend::new(Box::<Map>::default());
        check(&mut counted, trial);
        assert_eq!(counted.num_under_way().load(Relaxed), 0);
    }

    #[test]
    fn reads_are_under_way_until_they_are_answered_and_removals_never() {
        let mut counted = CountedBackend::new(Box::<Empty>::default());
        let arena = Arena::new(1, 2).expect("memory");
        let slot = || arena.take().expect("a slot");
        let name = BlockHash::from_u64(1);
        let commands = [
            Command::Get { ticket: Ticket(1), name, slot: slot() },
            Command::GetPart { ticket: Ticket(2), name, part: 0, slot: slot() },
            Command::Remove { ticket: Ticket(3), names: vec![name] },
            Command::Purge { ticket: Ticket(4), tenant: TenantTag(1) },
        ];
        for command in commands {
            counted.submit(command).expect("it is taken");
        }
        let num_under_way = counted.num_under_way();
        assert_eq!(num_under_way.load(Relaxed), 2);
        counted.poll(&mut Vec::new());
        assert_eq!(num_under_way.load(Relaxed), 0);
    }
}
