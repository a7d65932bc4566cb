//! The obvious backend: a map in memory. What others are tested against.

use std::collections::{BTreeMap, VecDeque};

use headstart_core::BlockHash;

use headstart_store::arena::Slot;
use headstart_store::backend::{Backend, Command, CommandOutcome, Failure, Report};
use headstart_store::record::{PartBytes, Record, VerifiedHeader};

/// Keeps everything, in a map.
#[derive(Debug, Default)]
pub(crate) struct Map {
    records: BTreeMap<BlockHash, Vec<u8>>,
    owners: BTreeMap<BlockHash, headstart_core::TenantTag>,
    reports: VecDeque<Report>,
}

impl Map {
    fn remove(&mut self, name: BlockHash) -> bool {
        self.owners.remove(&name);
        self.records.remove(&name).is_some()
    }

    fn outcome(&mut self, command: Command) -> CommandOutcome {
        match command {
            Command::Put { record, .. } => {
                let meta = record.meta();
                self.owners.insert(meta.name, meta.tenant);
                self.records.insert(meta.name, record.bytes().to_vec());
                CommandOutcome::Stored
            }
            Command::Get { name, mut slot, .. } => match self.records.get(&name) {
                None => CommandOutcome::Missing,
                Some(bytes) if bytes.len() > slot.len() => {
                    CommandOutcome::Failed(Failure::TooLarge)
                }
                Some(bytes) => {
                    slot[..bytes.len()].copy_from_slice(bytes);
                    let record = Record::verify(slot, name);
                    record.map_or(CommandOutcome::Failed(Failure::Corrupt), CommandOutcome::Loaded)
                }
            },
            Command::GetPart { name, part, slot, .. } => match self.records.get(&name) {
                None => CommandOutcome::Missing,
                Some(bytes) => part_of(bytes, name, part, slot),
            },
            Command::Remove { names, .. } => {
                let removed = names.iter().filter(|&&name| self.remove(name));
                CommandOutcome::Removed(removed.count())
            }
            Command::Purge { tenant, .. } => {
                let theirs = self.owners.iter().filter(|(_, owner)| **owner == tenant);
                let names: Vec<_> = theirs.map(|(name, _)| *name).collect();
                names.iter().for_each(|&name| {
                    self.remove(name);
                });
                CommandOutcome::Removed(names.len())
            }
        }
    }
}

fn part_of(bytes: &[u8], name: BlockHash, part: u16, mut slot: Slot) -> CommandOutcome {
    let Ok(header) = VerifiedHeader::read(bytes, bytes.len(), name) else {
        return CommandOutcome::Failed(Failure::Corrupt);
    };
    let Some(pages) = header.pages_of(part) else {
        return CommandOutcome::Missing;
    };
    let Some(room) = slot.get_mut(..pages.len()) else {
        return CommandOutcome::Failed(Failure::TooLarge);
    };
    room.copy_from_slice(&bytes[pages.clone()]);
    // An empty part lies in no page.
    let start = header.header().parts[usize::from(part)].range().start;
    let from = if pages.is_empty() { start } else { pages.start };
    let read = PartBytes::verify(slot, from, &header, part);
    read.map_or(CommandOutcome::Failed(Failure::Corrupt), CommandOutcome::Part)
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
