//! Parts of records, loaded one by one.
//!
//! ```text
//! asked ─► waits for a slot ─┬─► backend: the part's pages, verified ─┬─► loaded ─► released
//!                            └─► host memory: copied, verified ───────┘
//! ```
//!
//! Slots have two lengths, since the parts that are read to choose are shorter than those that are
//! chosen: each takes the memory that it needs. A part that is asked for twice is read once. A part
//! released before it arrives is still available when it does.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headstart_core::transfer::{PartName, TransferId, TransferReport, TransferResult};
use headstart_core::{Nanos, Tier};

use super::sealer::SealerJob;
use super::{CommandPurpose, PartSlots, PartsConfig, StoreConfig, TieredStore};
use crate::arena::{Arena, Slot};
use crate::backend::{Command, CommandOutcome, Waker};
use crate::line::{Alarm, ThroughputLine};
use crate::record::{Content, PartBytes};

/// Loaded parts, and those being loaded.
pub(super) struct LoadedParts {
    small: SlotClass,
    /// Longest part that goes there.
    small_bytes: usize,
    large: SlotClass,
    at_hand: HashMap<PartName, PartBytes>,
    on_their_way: HashMap<PartName, OnItsWay>,
    /// Loads that were not answered.
    pub(super) loads: usize,
    most_loads: usize,
    nearer: Option<Nearer>,
}

/// A part that is being loaded.
#[derive(Default)]
struct OnItsWay {
    /// Transfers that wait for it.
    waiting: Vec<TransferId>,
    /// When its tier was asked for it; `None` while it waits for a slot.
    asked: Option<Instant>,
}

/// When a part came.
#[derive(Clone, Copy, Default)]
struct Came {
    ago: Duration,
    /// Since its tier was asked for it.
    took: Duration,
}

/// Slots of one length, and what waits for them.
struct SlotClass {
    arena: Arc<Arena>,
    waiting: VecDeque<(PartName, PartSource)>,
}

/// Source of a part.
#[derive(Clone, Copy, Debug)]
enum PartSource {
    Host,
    /// By index of the backend.
    Below(usize),
}

/// A simulated line from loaded parts to the device, for measuring.
struct Nearer {
    line: ThroughputLine,
    began: Instant,
    /// By when it is due, and what came before it; with when it was asked for.
    under_way: BTreeMap<(Nanos, u64), (TransferId, PartName, Nanos)>,
    count: u64,
    alarm: Alarm,
}

impl SlotClass {
    fn new(slot_bytes: usize, slots: usize) -> std::io::Result<Self> {
        Ok(Self { arena: Arena::new(slot_bytes, slots)?, waiting: VecDeque::new() })
    }

    /// The first that waits, where there is a slot for it.
    fn next(&mut self) -> Option<(PartName, PartSource, Slot)> {
        if self.waiting.is_empty() {
            return None;
        }
        let slot = self.arena.take()?;
        let (name, source) = self.waiting.pop_front()?;
        Some((name, source, slot))
    }
}

impl LoadedParts {
    pub(super) fn new(
        parts: &PartsConfig,
        config: &StoreConfig,
        waker: Waker,
    ) -> std::io::Result<Self> {
        let lens = PartSlots::of(&config.unit_parts());
        let (small_slots, slots) = match lens.shorter {
            None => (0, parts.slots + parts.small_slots),
            Some(_) => (parts.small_slots, parts.slots),
        };
        let nearer = match parts.host_line {
            None => None,
            Some(rate) => Some(Nearer {
                line: ThroughputLine::new(rate),
                began: Instant::now(),
                under_way: BTreeMap::new(),
                count: 0,
                alarm: Alarm::start(waker)?,
            }),
        };
        Ok(Self {
            small: SlotClass::new(lens.small_bytes, small_slots)?,
            small_bytes: lens.shorter.unwrap_or(0),
            large: SlotClass::new(lens.large_bytes, slots)?,
            at_hand: HashMap::new(),
            on_their_way: HashMap::new(),
            loads: 0,
            most_loads: parts.most_loads,
            nearer,
        })
    }

    /// Memory that all slots take, bytes.
    #[cfg(test)]
    pub(super) fn slots_bytes(&self) -> usize {
        let classes = [&self.small, &self.large].map(|class| &class.arena);
        let bytes = classes.map(|arena| arena.num_slots() * arena.slot_bytes());
        bytes.iter().sum()
    }

    pub(super) fn bytes(&self, name: PartName) -> Option<&[u8]> {
        self.at_hand.get(&name).map(PartBytes::bytes)
    }

    /// A part of this length waits for a slot.
    fn wait(&mut self, name: PartName, source: PartSource, len: usize) {
        // If all parts have one length there are no small slots.
        let class = if len <= self.small_bytes && self.small.arena.num_slots() > 0 {
            &mut self.small
        } else {
            &mut self.large
        };
        class.waiting.push_back((name, source));
    }

    /// The first that waits and for which there is a slot; its tier is asked for it now.
    fn next(&mut self) -> Option<(PartName, PartSource, Slot)> {
        let next = self.small.next().or_else(|| self.large.next())?;
        if let Some(on_its_way) = self.on_their_way.get_mut(&next.0) {
            on_its_way.asked = Some(Instant::now());
        }
        Some(next)
    }
}

impl Nearer {
    fn now(&self) -> Nanos {
        Nanos::default() + self.began.elapsed()
    }

    fn begin(&mut self, id: TransferId, name: PartName, bytes: usize) {
        let now = self.now();
        let due = self.line.due(now, bytes);
        // Tells parts apart that are due at the same time.
        self.count += 1;
        self.under_way.insert((due, self.count), (id, name, now));
        self.set_alarm();
    }

    /// The next that is there.
    fn next(&mut self) -> Option<(TransferId, PartName, Came)> {
        let now = self.now();
        let first = self.under_way.first_entry()?;
        let (due, _) = *first.key();
        if due > now {
            // Polls also come for other reasons: wake again when the part is due.
            self.set_alarm();
            return None;
        }
        let (id, name, asked) = first.remove();
        let came = Came { ago: now.since(due), took: due.since(asked) };
        Some((id, name, came))
    }

    fn set_alarm(&self) {
        let next = self.under_way.first_key_value();
        let next = next.map(|((due, _), _)| self.began + due.since(Nanos::default()));
        self.alarm.set(next);
    }
}

impl TieredStore {
    pub(super) fn load_part(&mut self, id: TransferId, name: PartName, from: Tier) {
        let len = self.part_bytes(name);
        let source = match from {
            Tier::Host => Some(PartSource::Host),
            _ => self.index_of(from).map(PartSource::Below),
        };
        let parts = self.single.as_mut();
        let Some(parts) = parts.filter(|parts| parts.loads < parts.most_loads) else {
            // Not counted in `loads` yet, so `end_load` would count down too far.
            return self.tell_part(id, TransferResult::Failed, Came::default());
        };
        parts.loads += 1;
        if let Some(part) = parts.at_hand.get(&name) {
            // Only a measurement has a line; without one, a loaded part is there at once.
            return match (&mut parts.nearer, from) {
                (Some(nearer), Tier::Host) => nearer.begin(id, name, part.bytes().len()),
                _ => self.end_load(id, TransferResult::Done, Came::default()),
            };
        }
        if let Some(on_its_way) = parts.on_their_way.get_mut(&name) {
            return on_its_way.waiting.push(id);
        }
        let (Some(len), Some(source)) = (len, source) else {
            return self.end_load(id, TransferResult::Failed, Came::default());
        };
        let on_its_way = OnItsWay { waiting: vec![id], asked: None };
        parts.on_their_way.insert(name, on_its_way);
        parts.wait(name, source, len);
        self.pump_parts();
    }

    pub(super) fn release_parts(&mut self, names: &[PartName]) {
        if let Some(parts) = &mut self.single {
            names.iter().for_each(|name| {
                parts.at_hand.remove(name);
            });
            self.pump_parts();
        }
    }

    /// Starts reads for which there are slots.
    pub(super) fn pump_parts(&mut self) {
        while let Some((name, source, slot)) = self.single.as_mut().and_then(LoadedParts::next) {
            match source {
                PartSource::Below(index) => {
                    let ticket = self.expect(CommandPurpose::Part(name));
                    let PartName { record, part } = name;
                    let command = Command::GetPart { ticket, name: record, part, slot };
                    self.give(index, command);
                }
                PartSource::Host => match self.host.get(&name.record).cloned() {
                    Some(record) => self.sealer.submit(SealerJob::CopyPart { name, record, slot }),
                    None => {
                        // The slot is free before the answer, because another part may
                        // wait for it.
                        drop(slot);
                        self.part_arrived(name, None);
                    }
                },
            }
        }
    }

    /// A backend answered.
    pub(super) fn part_read(&mut self, name: PartName, outcome: CommandOutcome) {
        let part = match outcome {
            CommandOutcome::Part(part) if self.fits_part(name, &part) => Some(part),
            _ => None,
        };
        self.part_arrived(name, part);
    }

    /// A part was copied from host memory, or is damaged there.
    pub(super) fn part_copied(&mut self, name: PartName, copied: Option<PartBytes>) {
        if copied.is_none() {
            self.host.remove(&name.record);
        }
        let copied = copied.filter(|part| self.fits_part(name, part));
        self.part_arrived(name, copied);
    }

    fn part_arrived(&mut self, name: PartName, part: Option<PartBytes>) {
        let Some(parts) = &mut self.single else {
            return;
        };
        let OnItsWay { waiting, asked } = parts.on_their_way.remove(&name).unwrap_or_default();
        let (result, came) = match part {
            Some(part) => {
                let since = part.since();
                let came = Came {
                    ago: since.elapsed(),
                    took: asked.map_or(Duration::ZERO, |at| since.saturating_duration_since(at)),
                };
                parts.at_hand.insert(name, part);
                (TransferResult::Done, came)
            }
            None => (TransferResult::Failed, Came::default()),
        };
        for id in waiting {
            self.end_load(id, result, came);
        }
    }

    /// Takes what came through the line.
    pub(super) fn take_from_line(&mut self) {
        while let Some(parts) = &mut self.single
            && let Some((id, name, came)) = parts.nearer.as_mut().and_then(Nearer::next)
        {
            let result = if parts.at_hand.contains_key(&name) {
                TransferResult::Done
            } else {
                // Released meanwhile.
                TransferResult::Failed
            };
            self.end_load(id, result, came);
        }
    }

    fn end_load(&mut self, id: TransferId, result: TransferResult, came: Came) {
        if let Some(parts) = &mut self.single {
            parts.loads -= 1;
        }
        self.tell_part(id, result, came);
    }

    fn tell_part(&mut self, id: TransferId, result: TransferResult, came: Came) {
        let took = match result {
            TransferResult::Done => came.took,
            TransferResult::Failed => Duration::ZERO,
        };
        self.moved.push(TransferReport::PartLoaded { id, result, ago: came.ago, took });
    }

    /// Returns the known content of a part's record, and the expected length of the part; `None` if
    /// there can be none.
    fn part_of(&self, name: PartName) -> (Content, Option<usize>) {
        let PartName { record, part } = name;
        let packed = self.packs.as_ref().and_then(|packs| packs.part_of(record));
        let len = |part: u16| self.parts.get(usize::from(part)).copied();
        match packed {
            // Part 0 of a pack is its description, which is not loaded as a part.
            Some(packed) => (Content::Pack, len(packed).filter(|_| part > 0)),
            None => (Content::Unit, len(part)),
        }
    }

    fn part_bytes(&self, name: PartName) -> Option<usize> {
        self.part_of(name).1
    }

    /// Whether a part is what was asked for, of a record that this device can use: as long and as
    /// exact as its own.
    fn fits_part(&self, name: PartName, part: &PartBytes) -> bool {
        let (content, len) = self.part_of(name);
        let meta = part.meta();
        let is_it = meta.name == name.record && part.part() == name.part;
        let is_right = meta.content == content
            && meta.exactness == self.config.exactness
            && len == Some(part.bytes().len());
        // The parts of a pack were compared when it was found or made.
        is_it && is_right && (content == Content::Pack || self.is_unit(part))
    }

    /// Whether a part is one of a unit that has the parts that the device expects.
    pub(super) fn is_unit(&self, part: &PartBytes) -> bool {
        let lens = part.header().header().parts.iter();
        let lens = lens.map(|part| part.bytes as usize);
        part.meta().content == Content::Unit && lens.eq(self.parts.iter().copied())
    }
}
