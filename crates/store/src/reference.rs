//! The obvious backend: a map in memory. What others are tested against.

use std::collections::{BTreeMap, VecDeque};

use headstart_core::BlockHash;

use crate::backend::{Backend, Command, Failure, Outcome, Report};
use crate::record::Record;

/// Keeps everything, in a map.
#[derive(Debug, Default)]
pub struct Map {
    records: BTreeMap<BlockHash, Vec<u8>>,
    owners: BTreeMap<BlockHash, headstart_core::TenantTag>,
    reports: VecDeque<Report>,
}

impl Map {
    /// Bytes of the record called `name`.
    #[must_use]
    pub fn bytes(&self, name: BlockHash) -> Option<&[u8]> {
        self.records.get(&name).map(Vec::as_slice)
    }

    fn remove(&mut self, name: BlockHash) -> bool {
        self.owners.remove(&name);
        self.records.remove(&name).is_some()
    }

    fn outcome(&mut self, command: Command) -> Outcome {
        match command {
            Command::Put { record, .. } => {
                let meta = record.meta();
                self.owners.insert(meta.name, meta.tenant);
                self.records.insert(meta.name, record.bytes().to_vec());
                Outcome::Stored
            }
            Command::Get { name, mut slot, .. } => match self.records.get(&name) {
                None => Outcome::Missing,
                Some(bytes) if bytes.len() > slot.len() => Outcome::Failed(Failure::TooLarge),
                Some(bytes) => {
                    slot[..bytes.len()].copy_from_slice(bytes);
                    let record = Record::verify(slot, name);
                    record.map_or(Outcome::Failed(Failure::Corrupt), Outcome::Loaded)
                }
            },
            Command::Remove { names, .. } => {
                let removed = names.iter().filter(|&&name| self.remove(name));
                Outcome::Removed(removed.count())
            }
            Command::Purge { tenant, .. } => {
                let theirs = self.owners.iter().filter(|(_, owner)| **owner == tenant);
                let names: Vec<_> = theirs.map(|(name, _)| *name).collect();
                names.iter().for_each(|&name| {
                    self.remove(name);
                });
                Outcome::Removed(names.len())
            }
        }
    }
}

impl Backend for Map {
    fn submit(&mut self, command: Command) -> Result<(), Command> {
        let ticket = command.ticket();
        let outcome = self.outcome(command);
        self.reports.push_back(Report::Done { ticket, outcome });
        Ok(())
    }

    fn poll(&mut self, reports: &mut Vec<Report>) {
        reports.extend(self.reports.drain(..));
    }
}
