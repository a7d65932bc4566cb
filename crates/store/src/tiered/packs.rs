//! Packs: found, and made in the background.
//!
//! ```text
//! asked ─► waits until no load is pending ─► reads the part of its units, few at once
//!            ─► tokens to their places (a thread) ─► sealed ─► put ─► can be read
//! ```
//!
//! One at a time. A pack is one record, so that after a crash it is there or not; and a copy, so
//! that whatever is wrong with one it may go. It must not outlive what it was copied from: it
//! expires with the first of its units.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use headstart_core::transfer::{Pack, TokenFormat, TransferId, TransferReport, TransferResult};
use headstart_core::{BlockHash, IdentityDigest, TenantTag, Tier};

use super::sealer::{SealerJob, Tokens};
use super::{CommandPurpose, PartsConfig, StoreConfig, TieredStore, description};
use crate::arena::Arena;
use crate::backend::{Command, CommandOutcome, Failure, ResidentRecord};
use crate::record::{Content, Draft, MAX_PARTS, Meta, PartBytes, Record};

/// Parts read or about to be copied at once for a pack.
const READS: usize = 4;

/// Descriptions of packs read at once.
const DESCRIPTIONS: usize = 4;

/// Longest pack, bytes: no segment of a disk is longer by default.
const MOST_BYTES: usize = 64 << 20;

/// Known packs, and those that are being made.
pub(super) struct PackRegistry {
    format: Arc<dyn TokenFormat>,
    /// Packs that can be read: by index of the backend where, and which part they have.
    known: HashMap<BlockHash, (usize, u16)>,
    waiting: VecDeque<PackRequest>,
    most_waiting: usize,
    current: Option<Packing>,
    /// Packs begun so far.
    count: u64,
    /// For the units that are read.
    arena: Arc<Arena>,
    /// Found, and not read yet.
    found: VecDeque<(usize, BlockHash)>,
    /// Found packs, unread or being read, that are still wanted.
    awaited: HashSet<BlockHash>,
    /// For the fronts of those.
    fronts: Arc<Arena>,
}

/// A pack that is to be made.
struct PackRequest {
    id: TransferId,
    pack: Pack,
    origin: UnitOrigin,
    index: usize,
}

/// Computation identity and tenant of units.
type UnitOrigin = (IdentityDigest, TenantTag);

/// Moves of tokens: their positions in the unit and in the pack.
type Moves = Vec<(u32, u32)>;

/// A pack that is being made.
struct Packing {
    asked: PackRequest,
    number: u64,
    /// Units that were not read yet, by their places in the run.
    left: BTreeMap<usize, Moves>,
    /// Units that are being read, by their places in the run.
    reading: HashMap<usize, Moves>,
    /// The first end of any unit.
    expires_s: Option<u64>,
    /// It was given to the backend.
    is_put: bool,
    /// It is not wanted any more.
    is_forgotten: bool,
}

impl PackRegistry {
    pub(super) fn new(parts: &PartsConfig, config: &StoreConfig) -> std::io::Result<Self> {
        let longest = config.unit_parts().into_iter().max().unwrap_or(0);
        let layout = config.layout();
        Ok(Self {
            format: parts.format.clone(),
            known: HashMap::new(),
            waiting: VecDeque::new(),
            most_waiting: parts.most_packs,
            current: None,
            count: 0,
            arena: Arena::new(layout.slot_bytes(longest), READS)?,
            found: VecDeque::new(),
            awaited: HashSet::new(),
            fronts: Arena::new(layout.slot_bytes(description::MOST_BYTES), DESCRIPTIONS)?,
        })
    }

    /// Returns the part that a pack holds, if the pack can be read.
    pub(super) fn part_of(&self, name: BlockHash) -> Option<u16> {
        self.known.get(&name).map(|(_, part)| *part)
    }

    /// These are gone from a backend.
    pub(super) fn lost(&mut self, index: usize, names: &[BlockHash]) {
        for name in names {
            self.awaited.remove(name);
            if self.known.get(name).is_some_and(|known| known.0 == index) {
                self.known.remove(name);
            }
        }
    }

    /// The pack that is being made, if it is this one.
    fn packing(&mut self, number: u64) -> Option<&mut Packing> {
        let current = self.current.as_mut();
        current.filter(|packing| packing.number == number)
    }
}

/// Returns the moves of the tokens of each unit that has some in a pack.
fn moves_of(pack: &Pack, unit_tokens: u32) -> BTreeMap<usize, Moves> {
    let mut moves: BTreeMap<usize, Moves> = BTreeMap::new();
    for (to, &token) in (0..).zip(&pack.order) {
        let unit = moves.entry((token / unit_tokens) as usize).or_default();
        unit.push((token % unit_tokens, to));
    }
    moves
}

impl TieredStore {
    pub(super) fn pack(&mut self, id: TransferId, pack: Pack, origin: UnitOrigin, tier: Tier) {
        let is_possible = self.pack_parts(&pack).is_some();
        let index = self.index_of(tier).filter(|_| is_possible);
        match (&mut self.packs, index) {
            (Some(packs), Some(index)) if packs.waiting.len() < packs.most_waiting => {
                packs.waiting.push_back(PackRequest { id, pack, origin, index });
                self.pump_packs();
            }
            _ => self.tell_pack(id, TransferResult::Failed),
        }
    }

    /// The lengths of its parts, where it makes sense and is not too long.
    fn pack_parts(&self, pack: &Pack) -> Option<Vec<usize>> {
        let unit_tokens = self.config.unit_tokens;
        let chunk = *self.parts.get(usize::from(pack.part))?;
        if !description::is_sensible(&pack.units, &pack.order, unit_tokens) {
            return None;
        }
        let chunks = pack.order.len().div_ceil(unit_tokens as usize);
        // A description first, then chunks that are as long as the part of a unit.
        let mut parts = vec![chunk; 1 + chunks];
        parts[0] = description::bytes(pack.units.len(), pack.order.len());
        let bytes = self.config.layout().record_bytes(&parts);
        (parts.len() <= MAX_PARTS && bytes <= MOST_BYTES).then_some(parts)
    }

    /// Reads the descriptions of found packs; while no load is pending, continues packing.
    pub(super) fn pump_packs(&mut self) {
        self.read_fronts();
        let loads = self.loads + self.single.as_ref().map_or(0, |parts| parts.loads);
        // Packing is background work: it must not delay a prompt that waits for a load.
        if loads > 0 {
            return;
        }
        while let Some(packs) = &mut self.packs
            && packs.current.is_none()
            && let Some(asked) = packs.waiting.pop_front()
        {
            // A pack that cannot begin is answered at once, and the next one gets its turn.
            self.begin_pack(asked);
        }
        self.read_units();
    }

    fn begin_pack(&mut self, asked: PackRequest) {
        let (id, unit_tokens) = (asked.id, self.config.unit_tokens);
        let (Some(draft), Some(packs)) = (self.pack_draft(&asked), &mut self.packs) else {
            return self.tell_pack(id, TransferResult::Failed);
        };
        let description = description::write(&asked.pack, unit_tokens);
        self.sealer.submit(SealerJob::BeginPack { draft, description });
        packs.count += 1;
        packs.current = Some(Packing {
            left: moves_of(&asked.pack, unit_tokens),
            asked,
            number: packs.count,
            reading: HashMap::new(),
            expires_s: None,
            is_put: false,
            is_forgotten: false,
        });
    }

    /// A record for a pack, in memory of its own that is gone with it.
    fn pack_draft(&self, asked: &PackRequest) -> Option<Draft> {
        let PackRequest { pack, origin: (identity, tenant), .. } = asked;
        let parts = self.pack_parts(pack)?;
        let layout = self.config.layout();
        let memory = Arena::new(layout.record_bytes(&parts), 1).ok()?;
        let meta = Meta {
            name: pack.name,
            parent: pack.units.last().copied(),
            identity: *identity,
            tenant: *tenant,
            tokens: pack.order.len() as u32,
            exactness: self.config.exactness,
            content: Content::Pack,
            created_s: (self.config.now_s)(),
            expires_s: None,
        };
        Draft::laid_out(memory.take()?, meta, &parts, layout)
    }

    fn read_units(&mut self) {
        while let Some(packs) = &mut self.packs
            && let Some(packing) = &mut packs.current
            && !packing.left.is_empty()
            && let Some(slot) = packs.arena.take()
            && let Some((unit, moves)) = packing.left.pop_first()
        {
            packing.reading.insert(unit, moves);
            let pack = packing.number;
            let (index, part) = (packing.asked.index, packing.asked.pack.part);
            let name = packing.asked.pack.units[unit];
            let ticket = self.expect(CommandPurpose::PackUnit { pack, unit });
            let command = Command::GetPart { ticket, name, part, slot };
            self.give(index, command);
        }
    }

    pub(super) fn pack_unit_read(&mut self, pack: u64, unit: usize, outcome: CommandOutcome) {
        let read = match outcome {
            CommandOutcome::Part(part) if self.may_be_packed(&part) => Some(part),
            _ => None,
        };
        let unit_tokens = self.config.unit_tokens;
        let Some(packs) = &mut self.packs else {
            return;
        };
        let format = packs.format.clone();
        // The pack was given up while this unit was read.
        let Some(packing) = packs.packing(pack) else {
            return;
        };
        let (Some(from), Some(moves)) = (read, packing.reading.remove(&unit)) else {
            return self.end_pack(TransferResult::Failed);
        };
        let ends = [packing.expires_s, from.meta().expires_s];
        let expires_s = ends.into_iter().flatten().min();
        packing.expires_s = expires_s;
        let is_last = packing.left.is_empty() && packing.reading.is_empty();
        let tokens = Tokens { from, moves, unit_tokens };
        self.sealer.submit(SealerJob::CopyTokens { tokens, format });
        // The sealer works in order, so all tokens are in place before it ends the pack.
        if is_last {
            self.sealer.submit(SealerJob::EndPack { pack, expires_s });
        }
    }

    /// Whether a part is of a unit like ours, computed as the pack's and of the same tenant.
    fn may_be_packed(&self, part: &PartBytes) -> bool {
        let packing = self.packs.as_ref().and_then(|packs| packs.current.as_ref());
        let meta = part.meta();
        let theirs = (meta.identity, meta.tenant);
        packing.is_some_and(|packing| packing.asked.origin == theirs)
            && meta.exactness == self.config.exactness
            && self.is_unit(part)
    }

    /// All tokens are in their places.
    pub(super) fn packed(&mut self, pack: u64, record: Record) {
        let packs = self.packs.as_mut();
        // The pack was given up while it was sealed.
        let Some(packing) = packs.and_then(|packs| packs.packing(pack)) else {
            return;
        };
        packing.is_put = true;
        let index = packing.asked.index;
        let ticket = self.expect(CommandPurpose::Pack { pack });
        self.give(index, Command::Put { ticket, record });
    }

    /// A backend has it, or not.
    pub(super) fn pack_put(&mut self, pack: u64, outcome: &CommandOutcome) {
        let Some(packs) = &mut self.packs else {
            return;
        };
        let Some(packing) = packs.packing(pack) else {
            return;
        };
        // If it was forgotten during the put, its removal follows the put.
        let is_there = matches!(outcome, CommandOutcome::Stored) && !packing.is_forgotten;
        let (index, pack) = (packing.asked.index, &packing.asked.pack);
        let (name, part) = (pack.name, pack.part);
        let result = if is_there {
            packs.known.insert(name, (index, part));
            TransferResult::Done
        } else {
            TransferResult::Failed
        };
        self.end_pack(result);
    }

    /// Ends the current pack without waiting for its pending reads.
    fn end_pack(&mut self, result: TransferResult) {
        let current = self.packs.as_mut().and_then(|packs| packs.current.take());
        if let Some(packing) = current {
            self.tell_pack(packing.asked.id, result);
        }
    }

    /// Packs that are wanted no more, among other records.
    pub(super) fn forget_packs(&mut self, index: usize, names: &[BlockHash]) {
        let Some(packs) = &mut self.packs else {
            return;
        };
        packs.lost(index, names);
        let is_it = |asked: &PackRequest| asked.index == index && names.contains(&asked.pack.name);
        let waiting = std::mem::take(&mut packs.waiting).into_iter();
        let (gone, waiting): (VecDeque<PackRequest>, VecDeque<PackRequest>) =
            waiting.partition(is_it);
        packs.waiting = waiting;
        let current = packs.current.as_mut();
        let ends = match current.filter(|packing| is_it(&packing.asked)) {
            Some(packing) => {
                packing.is_forgotten = true;
                // A put under way is not interrupted: `pack_put` ends the pack then.
                !packing.is_put
            }
            None => false,
        };
        for asked in gone {
            self.tell_pack(asked.id, TransferResult::Failed);
        }
        if ends {
            self.end_pack(TransferResult::Failed);
        }
    }

    /// Queues found packs to be read; those that can be used are reported then. Without packing all
    /// are removed, since nothing would use or count them.
    pub(super) fn found_packs(&mut self, index: usize, names: Vec<BlockHash>) {
        match &mut self.packs {
            Some(packs) => {
                // Those used last come last, and are wanted first.
                let new = names.into_iter().rev();
                let new = new.filter(|name| !packs.known.contains_key(name));
                for name in new.filter(|&name| packs.awaited.insert(name)) {
                    packs.found.push_back((index, name));
                }
                self.read_fronts();
            }
            None => self.drop_packs(index, names),
        }
    }

    fn drop_packs(&mut self, index: usize, names: Vec<BlockHash>) {
        if !names.is_empty() {
            let ticket = self.expect(CommandPurpose::Forget);
            self.give(index, Command::Remove { ticket, names });
        }
    }

    fn read_fronts(&mut self) {
        while let Some(packs) = &mut self.packs
            && !packs.found.is_empty()
            && let Some(slot) = packs.fronts.take()
            && let Some((index, name)) = packs.found.pop_front()
        {
            // The pack was lost or forgotten while it waited.
            if !packs.awaited.contains(&name) {
                continue;
            }
            let ticket = self.expect(CommandPurpose::Describe { index, name });
            let part = 0;
            let command = Command::GetPart { ticket, name, part, slot };
            self.give(index, command);
        }
    }

    /// The front of a pack was read.
    pub(super) fn described(&mut self, index: usize, name: BlockHash, outcome: CommandOutcome) {
        let is_awaited = |packs: &mut PackRegistry| packs.awaited.remove(&name);
        if !self.packs.as_mut().is_some_and(is_awaited) {
            return;
        }
        let found = match outcome {
            CommandOutcome::Part(front) => self.found_pack(name, &front),
            // The backend could not read it now. The pack may be usable, so it stays.
            CommandOutcome::Failed(Failure::Offline | Failure::Aborted) => return,
            _ => None,
        };
        let (Some(found), Some(packs)) = (found, &mut self.packs) else {
            // A pack that cannot be used here would only take room.
            return self.drop_packs(index, vec![name]);
        };
        packs.known.insert(name, (index, found.part));
        let tier = self.below[index].0;
        let packs = vec![found];
        self.moved.push(TransferReport::FoundPacks { tier, packs });
    }

    /// Parses the description of a pack, if it is one of ours.
    fn found_pack(&self, name: BlockHash, front: &PartBytes) -> Option<Pack> {
        let unit_tokens = self.config.unit_tokens;
        let found = description::read(name, front.bytes(), unit_tokens)?;
        let chunk = *self.parts.get(usize::from(found.part))?;
        let chunks = found.order.len().div_ceil(unit_tokens as usize);
        // Part 0 was read, so the record has at least one part.
        let lens = front.header().header().parts[1..].iter();
        let mut lens = lens.map(|part| part.bytes as usize);
        let meta = front.meta();
        let is_ours = meta.content == Content::Pack
            && meta.exactness == self.config.exactness
            && meta.tokens as usize == found.order.len()
            && meta.parent == found.units.last().copied()
            && lens.len() == chunks
            && lens.all(|len| len == chunk);
        is_ours.then_some(found)
    }

    fn tell_pack(&mut self, id: TransferId, result: TransferResult) {
        self.moved.push(TransferReport::Packed { id, result });
    }
}

/// The packs among the records that a backend found.
pub(super) fn packs_of(found: &[ResidentRecord]) -> Vec<BlockHash> {
    let packs = found.iter();
    let packs = packs.filter(|resident| resident.content == Content::Pack);
    packs.map(|resident| resident.name).collect()
}
