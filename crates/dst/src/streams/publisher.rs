//! The process that publishes an engine's events: numbers, timestamps, a buffer for replays.
//!
//! It remembers what each number stood for, sent or not: that is the truth that an index is
//! checked against. Batches are made as a subscriber's decoder would hand them over, so what a
//! decoder fails to understand is damaged here, alike in the live message and in each reply.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use headstart_core::{BlockHash, CacheEvent, Rng, Tier};
use headstart_router::stream::{Damage, StreamBatch};

use super::engine::{EngineSpec, Happening};

/// A process among all that were ever started for one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessNo(pub usize);

/// One batch of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchPosition {
    /// The process.
    pub process: ProcessNo,
    /// The number.
    pub seq: u64,
}

/// The true contents of one sequence number.
#[derive(Clone, Debug)]
pub struct BatchRecord {
    /// Changes of the engine's cache.
    pub happenings: Vec<Happening>,
    /// One flag per stored place, in order: whether it comes with its tokens.
    pub introductions: Vec<bool>,
    /// Part of it that a subscriber does not understand.
    pub damage: Damage,
}

/// One life of a publisher.
#[derive(Debug)]
pub struct Process {
    /// Specification of its engine.
    pub engine: EngineSpec,
    number: ProcessNo,
    buffer_max: usize,
    buffer: VecDeque<StreamBatch>,
    /// The last batch that was sent.
    last: Option<u64>,
    records: Vec<BatchRecord>,
}

/// Treatment of a batch before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is sent whole.
    Sent,
    /// It cannot be serialized: its number is used up, and it is never sent.
    Burnt,
    /// A subscriber does not understand one of its events.
    Damaged,
    /// A subscriber does not understand it at all.
    Unreadable,
}

impl Process {
    /// One that has published nothing. Its buffer keeps the last `buffer_max` batches.
    #[must_use]
    pub fn new(number: ProcessNo, engine: EngineSpec, buffer_max: usize) -> Self {
        Self {
            engine,
            number,
            buffer_max,
            buffer: VecDeque::new(),
            last: None,
            records: Vec::new(),
        }
    }

    /// Gives `record` the next number. Returns the batch, unless its number is burnt.
    pub fn publish(
        &mut self,
        mut record: BatchRecord,
        mut batch: StreamBatch,
        fate: Fate,
        rng: &mut Rng,
    ) -> Option<StreamBatch> {
        batch.seq = self.records.len() as u64;
        // Before damage and mark: it is a hash of the bytes as they were sent.
        batch.fingerprint = fingerprint(&batch);
        batch.damage = damage(&mut batch.events, fate, rng);
        if batch.damage == Damage::Unreadable {
            // A batch that cannot be read has no timestamp either.
            batch.ts = None;
        }
        record.damage = batch.damage.clone();
        self.records.push(record);
        // Recorded but never sent, so its number is a hole.
        if fate == Fate::Burnt {
            return None;
        }
        batch.events.push(mark(BatchPosition { process: self.number, seq: batch.seq }));
        // Burnt numbers are left out: no subscriber can reach them.
        self.last = Some(batch.seq);
        self.buffer.push_back(batch.clone());
        if self.buffer.len() > self.buffer_max {
            self.buffer.pop_front();
        }
        Some(batch)
    }

    /// Returns the buffered batches from `from` on.
    pub fn replay(&self, from: u64) -> impl Iterator<Item = &StreamBatch> {
        self.buffer.iter().filter(move |batch| batch.seq >= from)
    }

    /// Whether it has sent something, and keeps nothing of that.
    #[must_use]
    pub fn keeps_nothing(&self) -> bool {
        self.last.is_some() && self.buffer.is_empty()
    }

    /// Returns the true contents of its sequence numbers.
    #[must_use]
    pub fn records(&self) -> &[BatchRecord] {
        &self.records
    }

    /// The last batch that a subscriber can have, if it has published one.
    #[must_use]
    pub fn last(&self) -> Option<BatchPosition> {
        Some(BatchPosition { process: self.number, seq: self.last? })
    }
}

/// Takes away what a decoder would.
fn damage(events: &mut Vec<CacheEvent>, fate: Fate, rng: &mut Rng) -> Damage {
    match fate {
        Fate::Sent | Fate::Burnt => Damage::None,
        Fate::Unreadable => {
            events.clear();
            Damage::Unreadable
        }
        Fate::Damaged if events.is_empty() => Damage::None,
        Fate::Damaged => {
            let lost = events.remove(rng.below(events.len()));
            let is_stored = matches!(lost, CacheEvent::Stored(_));
            Damage::Skipped {
                reasons: vec![("simulated", 1)],
                // A decoder that does not know an event cannot tell whether it removes something.
                may_have_removed: !is_stored || rng.below(4) == 0,
            }
        }
    }
}

/// The removal of a block that never was, by which an applied batch is known again: effects of a
/// stream name numbers only. [`unmark`] takes it away before an index sees it.
fn mark(position: BatchPosition) -> CacheEvent {
    let BatchPosition { process, seq } = position;
    CacheEvent::Removed {
        blocks: vec![BlockHash::from_u64(process.0 as u64), BlockHash::from_u64(seq)],
        tier: Tier::Remote,
        group: u8::MAX,
    }
}

/// The batch that these events came in; `None` where a follower made them up.
pub fn unmark(events: &mut Vec<CacheEvent>) -> Option<BatchPosition> {
    let position = position_of(events);
    events.pop();
    position
}

/// The same without a change.
#[must_use]
pub fn position_of(events: &[CacheEvent]) -> Option<BatchPosition> {
    let Some(CacheEvent::Removed { blocks, group: u8::MAX, .. }) = events.last() else {
        return None;
    };
    let [process, seq] = blocks[..] else {
        return None;
    };
    let number = |hash: BlockHash| u128::from_be_bytes(hash.0) as u64;
    Some(BatchPosition { process: ProcessNo(number(process) as usize), seq: number(seq) })
}

/// Stands for what a batch says, as the bytes of its payload would.
fn fingerprint(batch: &StreamBatch) -> u128 {
    let half = |seed: u64| {
        let mut hasher = DefaultHasher::new();
        (seed, batch.ts.map(f64::to_bits)).hash(&mut hasher);
        for event in &batch.events {
            match event {
                CacheEvent::Stored(stored) => {
                    (0, &stored.blocks, stored.parent, &stored.tokens).hash(&mut hasher);
                    (stored.tier, stored.group.index, &stored.extras).hash(&mut hasher);
                }
                CacheEvent::Removed { blocks, tier, group } => {
                    (1, blocks, tier, group).hash(&mut hasher);
                }
                CacheEvent::Cleared => 2.hash(&mut hasher),
            }
        }
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}
