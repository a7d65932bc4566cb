//! Moves units between the device, host memory and the backends below: the [`BlockMover`] of an
//! engine.
//!
//! ```text
//! device ─read─► draft ─seal─► record ─┬─► host memory (a map of records)
//!               (part by part) (a thread)└─► backend: disk, remote
//! host ─verify─┐
//! backend ─────┴─► staged ─► device
//! ```
//!
//! Host memory, staged records and those on their way are slots of one arena: a record that is in
//! several of these places exists once. Checksums are computed and verified on a thread of their
//! own, not on the one that computes.
//!
//! Does not decide anything: what is stored, loaded and forgotten is said in `headstart-cache`.
//! Where no slot is free a store fails, and a load waits for one.

mod config;
mod description;
mod filling;
mod notes;
mod packs;
mod parts;
mod sealer;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use headstart_core::transfer::{
    BlockMover, DevicePart, FoundUnit, PartName, Transfer, TransferId, TransferReport,
    TransferResult, Unit,
};
use headstart_core::{BlockHash, BlockId, Tier};

use crate::arena::Arena;
use crate::backend::{Backend, Command, CommandOutcome, Report, ResidentRecord, Ticket, Waker};
use crate::record::{Content, Draft, Meta, Record};

pub use config::{Below, Lifetimes, PartSlots, PartsConfig, StoreConfig};
use filling::{Filling, UnitDraft};
use packs::{PackRegistry, packs_of};
use parts::LoadedParts;
use sealer::{Sealer, SealerJob, SealerResult};

/// Commands that a backend did not take yet; beyond that stores fail.
const BACKLOG: usize = 1024;

/// Host memory and what is below.
pub struct TieredStore {
    config: StoreConfig,
    parts: Vec<usize>,
    arena: Arc<Arena>,
    host: HashMap<BlockHash, Record>,
    at_hand: HashMap<BlockHash, Record>,
    filling: Filling,
    below: Vec<(Tier, Box<dyn Backend>)>,
    sealer: Sealer,
    pending: HashMap<Ticket, CommandPurpose>,
    last_ticket: u64,
    /// Commands that wait to be taken, by index of the backend.
    backlog: VecDeque<(usize, Command)>,
    /// Reads that wait for a slot.
    reads: VecDeque<(usize, BlockHash, CommandPurpose)>,
    /// Loads of units that were not answered yet.
    loads: usize,
    /// Reads of single parts, if enabled.
    single: Option<LoadedParts>,
    packs: Option<PackRegistry>,
    moved: Vec<TransferReport>,
}

/// Purpose of a command to a backend.
#[derive(Clone, Copy, Debug)]
enum CommandPurpose {
    Store {
        id: TransferId,
        tier: Tier,
    },
    Load {
        id: TransferId,
    },
    /// Read to be stored further down.
    Demote {
        id: TransferId,
        to: Tier,
    },
    Part(PartName),
    /// Read to be copied to a pack, the number of which this is.
    PackUnit {
        pack: u64,
        unit: usize,
    },
    Pack {
        pack: u64,
    },
    /// The front of a pack that was found.
    Describe {
        index: usize,
        name: BlockHash,
    },
    Forget,
}

impl TieredStore {
    /// A store over what is below, nearest first. `waker` is called when there is something to
    /// poll.
    ///
    /// # Errors
    /// When the system gives no memory or thread.
    pub fn new(config: StoreConfig, below: Vec<Below>, waker: Waker) -> std::io::Result<Self> {
        let slots = config.host_units + config.staging_units;
        let arena = Arena::new(config.unit_bytes() as usize, slots)?;
        let mut moved = Vec::new();
        let mut backends = Vec::new();
        let mut packs_found = Vec::new();
        for Below { tier, backend, found } in below {
            moved.push(found_in(tier, &found, config.unit_bytes()));
            packs_found.push(packs_of(&found));
            backends.push((tier, backend));
        }
        if let Some(path) = &config.notes {
            let tails = notes::read(path);
            moved.push(TransferReport::Noted { tails });
        }
        let (single, packs) = match &config.parts {
            None => (None, None),
            Some(parts) => (
                Some(LoadedParts::new(parts, &config, waker.clone())?),
                Some(PackRegistry::new(parts, &config)?),
            ),
        };
        let mut store = Self {
            parts: config.unit_parts(),
            arena,
            host: HashMap::new(),
            at_hand: HashMap::new(),
            filling: Filling::default(),
            below: backends,
            sealer: Sealer::start(waker)?,
            pending: HashMap::new(),
            last_ticket: 0,
            backlog: VecDeque::new(),
            reads: VecDeque::new(),
            loads: 0,
            single,
            packs,
            moved,
            config,
        };
        for (index, names) in packs_found.into_iter().enumerate() {
            store.found_packs(index, names);
        }
        Ok(store)
    }

    /// Slots of host memory that are in use, and all of them.
    #[must_use]
    pub fn slots(&self) -> (usize, usize) {
        let all = self.arena.num_slots();
        (all - self.arena.free(), all)
    }

    fn store(&mut self, id: TransferId, unit: Unit, blocks: Vec<BlockId>, to: Vec<Tier>) {
        // The backends are behind: another record would hold its slot until they catch up.
        let is_busy = self.backlog.len() >= BACKLOG;
        let draft = self.arena.take().filter(|_| !is_busy).and_then(|slot| {
            let now_s = (self.config.now_s)();
            let lifetime_s = self.config.lifetimes.of(unit.tenant);
            let meta = Meta {
                name: unit.name,
                parent: unit.parent,
                identity: unit.identity,
                tenant: unit.tenant,
                tokens: self.config.unit_tokens,
                exactness: self.config.exactness,
                content: Content::Unit,
                created_s: now_s,
                expires_s: lifetime_s.map(|lifetime_s| now_s.saturating_add(lifetime_s)),
            };
            Draft::laid_out(slot, meta, &self.parts, self.config.layout())
        });
        match draft {
            Some(draft) => self.filling.add(UnitDraft { id, draft, blocks, to }),
            None => self.store_failed(id, to),
        }
    }

    fn store_failed(&mut self, id: TransferId, to: Vec<Tier>) {
        for tier in to {
            self.stored(id, tier, TransferResult::Failed);
        }
    }

    /// A record is complete: it goes where it shall.
    fn place(&mut self, id: TransferId, record: &Record, to: Vec<Tier>) {
        for tier in to {
            if tier == Tier::Host {
                self.host.insert(record.meta().name, record.clone());
                self.stored(id, tier, TransferResult::Done);
            } else {
                self.put(id, record.clone(), tier);
            }
        }
    }

    fn put(&mut self, id: TransferId, record: Record, tier: Tier) {
        let Some(index) = self.index_of(tier) else {
            return self.stored(id, tier, TransferResult::Failed);
        };
        let ticket = self.expect(CommandPurpose::Store { id, tier });
        self.give(index, Command::Put { ticket, record });
    }

    fn load(&mut self, id: TransferId, name: BlockHash, from: Tier) {
        self.loads += 1;
        if from == Tier::Host {
            match self.host.get(&name) {
                Some(record) => {
                    self.sealer.submit(SealerJob::Verify { id, record: record.clone() });
                }
                None => self.load_failed(id),
            }
            return;
        }
        match self.index_of(from) {
            Some(index) => self.get(index, name, CommandPurpose::Load { id }),
            None => self.load_failed(id),
        }
    }

    fn demote(&mut self, id: TransferId, name: BlockHash, from: Tier, to: Tier) {
        if from == Tier::Host {
            match self.host.get(&name).cloned() {
                Some(record) => self.put(id, record, to),
                None => self.stored(id, to, TransferResult::Failed),
            }
            return;
        }
        match self.index_of(from) {
            Some(index) => self.get(index, name, CommandPurpose::Demote { id, to }),
            None => self.stored(id, to, TransferResult::Failed),
        }
    }

    /// Reads a record, as soon as a slot is free.
    fn get(&mut self, index: usize, name: BlockHash, pending: CommandPurpose) {
        let Some(slot) = self.arena.take() else {
            return self.reads.push_back((index, name, pending));
        };
        let ticket = self.expect(pending);
        self.give(index, Command::Get { ticket, name, slot });
    }

    fn forget(&mut self, tier: Tier, names: Vec<BlockHash>) {
        if tier == Tier::Host {
            names.iter().for_each(|name| {
                self.host.remove(name);
            });
        } else if let Some(index) = self.index_of(tier) {
            self.forget_packs(index, &names);
            let ticket = self.expect(CommandPurpose::Forget);
            self.give(index, Command::Remove { ticket, names });
        }
    }

    fn index_of(&self, tier: Tier) -> Option<usize> {
        self.below.iter().position(|(below, _)| *below == tier)
    }

    fn expect(&mut self, pending: CommandPurpose) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.pending.insert(ticket, pending);
        ticket
    }

    /// Hands a command over, behind those that wait.
    fn give(&mut self, index: usize, command: Command) {
        // Order matters: a removal must not overtake the put of the same name.
        if !self.backlog.is_empty() {
            return self.backlog.push_back((index, command));
        }
        if let Err(command) = self.below[index].1.submit(command) {
            self.backlog.push_back((index, command));
        }
    }

    fn give_backlog(&mut self) {
        while let Some((index, command)) = self.backlog.pop_front() {
            if let Err(command) = self.below[index].1.submit(command) {
                return self.backlog.push_front((index, command));
            }
        }
    }

    fn take_reports(&mut self) {
        let mut reports = Vec::new();
        for index in 0..self.below.len() {
            self.below[index].1.poll(&mut reports);
            for report in reports.drain(..) {
                match report {
                    Report::Done { ticket, outcome } => self.done(ticket, outcome),
                    Report::Lost { names, .. } => self.lost(index, names),
                    Report::Found(found) => self.found(index, &found),
                    // Transfers to a backend in trouble fail one by one; nothing
                    // else depends on its condition here.
                    Report::Condition(_) => {}
                }
            }
        }
    }

    fn lost(&mut self, index: usize, names: Vec<BlockHash>) {
        if let Some(packs) = &mut self.packs {
            packs.lost(index, &names);
        }
        let tier = self.below[index].0;
        self.moved.push(TransferReport::Lost { tier, names });
    }

    fn found(&mut self, index: usize, found: &[ResidentRecord]) {
        let units = found_in(self.below[index].0, found, self.config.unit_bytes());
        self.moved.push(units);
        self.found_packs(index, packs_of(found));
    }

    fn done(&mut self, ticket: Ticket, outcome: CommandOutcome) {
        let Some(pending) = self.pending.remove(&ticket) else {
            return;
        };
        match (pending, outcome) {
            (CommandPurpose::Store { id, tier }, CommandOutcome::Stored) => {
                self.stored(id, tier, TransferResult::Done);
            }
            (CommandPurpose::Store { id, tier }, _) => {
                self.stored(id, tier, TransferResult::Failed);
            }
            (CommandPurpose::Load { id }, CommandOutcome::Loaded(record)) if self.fits(&record) => {
                self.arrived(id, record);
            }
            (CommandPurpose::Load { id }, _) => self.load_failed(id),
            // Not compared with `fits`: the record only moves to another
            // tier, and no device reads it.
            (CommandPurpose::Demote { id, to }, CommandOutcome::Loaded(record)) => {
                self.put(id, record, to);
            }
            (CommandPurpose::Demote { id, to }, _) => self.stored(id, to, TransferResult::Failed),
            (CommandPurpose::Part(name), outcome) => self.part_read(name, outcome),
            (CommandPurpose::PackUnit { pack, unit }, outcome) => {
                self.pack_unit_read(pack, unit, outcome);
            }
            (CommandPurpose::Pack { pack }, outcome) => self.pack_put(pack, &outcome),
            (CommandPurpose::Describe { index, name }, outcome) => {
                self.described(index, name, outcome);
            }
            (CommandPurpose::Forget, _) => {}
        }
    }

    /// Whether a record has the parts and the exactness that the device expects. Names imply both;
    /// a mix-up would make the device serve wrong values.
    fn fits(&self, record: &Record) -> bool {
        let parts = (0..record.num_parts()).map(|part| record.part(part).len());
        record.meta().exactness == self.config.exactness && parts.eq(self.parts.iter().copied())
    }

    fn take_sealed(&mut self) {
        while let Some(sealed) = self.sealer.poll() {
            match sealed {
                SealerResult::Record { id, record, to } => self.place(id, &record, to),
                SealerResult::Unharmed { id, record } => self.arrived(id, record),
                SealerResult::Part { name, copied } => self.part_copied(name, copied),
                SealerResult::Copied => {}
                SealerResult::Packed { pack, record } => self.packed(pack, record),
                SealerResult::Damaged { id, name } => {
                    // Damaged in memory: every later load of it would fail as well.
                    self.host.remove(&name);
                    self.load_failed(id);
                }
            }
        }
    }

    fn stored(&mut self, id: TransferId, tier: Tier, result: TransferResult) {
        self.moved.push(TransferReport::Stored { id, tier, result });
    }

    fn arrived(&mut self, id: TransferId, record: Record) {
        self.loads -= 1;
        let ago = record.since().elapsed();
        self.at_hand.insert(record.meta().name, record);
        let result = TransferResult::Done;
        self.moved.push(TransferReport::Loaded { id, result, ago });
    }

    fn load_failed(&mut self, id: TransferId) {
        self.loads -= 1;
        self.moved.push(TransferReport::Loaded {
            id,
            result: TransferResult::Failed,
            ago: Duration::ZERO,
        });
    }
}

impl BlockMover for TieredStore {
    fn submit(&mut self, transfer: Transfer) {
        match transfer {
            Transfer::Store { id, unit, blocks, to } => self.store(id, unit, blocks, to),
            Transfer::Demote { id, name, from, to } => self.demote(id, name, from, to),
            Transfer::Load { id, name, from } => self.load(id, name, from),
            Transfer::Keep { name, tier } => {
                if let Some(record) = self.at_hand.get(&name).filter(|_| tier == Tier::Host) {
                    // A clone shares the slot, so both maps together hold the bytes once.
                    self.host.insert(name, record.clone());
                }
            }
            Transfer::Release { name } => {
                self.at_hand.remove(&name);
            }
            Transfer::Note { tails } => {
                if let Some(path) = self.config.notes.clone() {
                    self.sealer.note(path, tails);
                }
            }
            Transfer::LoadPart { id, name, from } => self.load_part(id, name, from),
            Transfer::ReleaseParts { names } => self.release_parts(&names),
            Transfer::Pack { id, pack, origin, tier } => self.pack(id, pack, origin, tier),
            Transfer::Forget { tier, names } => self.forget(tier, names),
        }
    }

    fn read(&mut self, part: usize, device: &dyn DevicePart) {
        self.filling.read(part, device);
    }

    fn end_reads(&mut self) {
        let (parts_read, opened) = self.filling.take();
        for UnitDraft { id, draft, to, .. } in opened {
            // After an early end, some parts still hold bytes of earlier records.
            if parts_read == self.parts.len() {
                self.sealer.submit(SealerJob::Seal { id, draft, to });
            } else {
                self.store_failed(id, to);
            }
        }
    }

    fn poll(&mut self, moved: &mut Vec<TransferReport>) {
        self.take_sealed();
        self.give_backlog();
        self.take_reports();
        // After the reports, because they free slots that these reads wait for.
        while !self.reads.is_empty() && self.arena.free() > 0 {
            if let Some((index, name, pending)) = self.reads.pop_front() {
                self.get(index, name, pending);
            }
        }
        self.pump_parts();
        self.take_from_line();
        self.pump_packs();
        moved.append(&mut self.moved);
    }

    fn part(&self, name: BlockHash, part: usize) -> Option<&[u8]> {
        self.at_hand.get(&name).map(|record| record.part(part))
    }

    fn loaded_part(&self, name: PartName) -> Option<&[u8]> {
        self.single.as_ref()?.bytes(name)
    }
}

/// Records of our length: those of others who use the same place would be counted as if they took
/// as much room as ours, and be told to go for it.
fn found_in(tier: Tier, found: &[ResidentRecord], unit_bytes: u64) -> TransferReport {
    let ours = found
        .iter()
        .filter(|resident| resident.content == Content::Unit && resident.bytes == unit_bytes);
    let units = ours.map(|resident| FoundUnit {
        name: resident.name,
        parent: resident.parent,
        tenant: resident.tenant,
    });
    TransferReport::Found { tier, units: units.collect() }
}

#[cfg(test)]
mod tests;
