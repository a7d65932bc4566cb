//! Copies in host memory: memcpy as the floor, beside it what a record costs there.
//!
//! All move the same bytes between slots of two arenas, which are far larger than any cache.

use std::ops::Range;
use std::thread;

use anyhow::{Context, Result};
use headstart_store::record::record_bytes;
use headstart_store::{Arena, Draft, Record, Slot};

use crate::clock::{Clock, Spent};
use crate::figures::{Figures, Key, Point, What};
use crate::options::{MIB, Options};
use crate::ours::{meta, split};
use crate::payload::PAGE;

/// Numbers of threads.
const THREADS: [usize; 2] = [1, 2];

/// Offset of a copy's bytes in their slot, as a record's parts begin behind its header: from and
/// to the same offset of a page is slow on some processors.
const SHIFT: usize = 512;

/// One round: each size of records with one thread and with two.
pub(crate) fn measure(options: &Options, figures: &mut Figures) -> Result<()> {
    for &kib in &options.record_kib {
        for threads in THREADS {
            let shape = Shape::new(options, kib, threads);
            let add = |what, spent| {
                let subject = if threads == 1 {
                    "1 thread"
                } else {
                    "2 threads"
                };
                let subject = subject.to_owned();
                figures.add(Key { subject, what, kib }, Point::of(shape.bytes(), spent));
            };
            shape.measure(add)?;
        }
    }
    Ok(())
}

/// Sizes of the copies, and their division into parts.
struct Shape {
    record_bytes: usize,
    parts: Vec<usize>,
    num_records: usize,
    threads: usize,
}

/// Work of each thread.
type Lanes<T> = Vec<Vec<T>>;

impl Shape {
    fn new(options: &Options, kib: usize, threads: usize) -> Self {
        let record_bytes = kib * 1024;
        let num_records = options.memory_mib * MIB / record_bytes;
        Self {
            record_bytes,
            parts: split(record_bytes, options.parts.min(record_bytes / PAGE)),
            num_records: num_records - num_records % threads,
            threads,
        }
    }

    /// Bytes of payload that each phase moves.
    fn bytes(&self) -> usize {
        self.num_records * self.record_bytes
    }

    fn measure(&self, mut add: impl FnMut(What, Spent)) -> Result<()> {
        let (sources, targets) = (self.slots(1)?, self.slots(2)?);
        let pairs: Vec<(Slot, Slot)> = sources.into_iter().zip(targets).collect();
        let copy = |(source, mut target): (Slot, Slot)| {
            target[..self.record_bytes].copy_from_slice(&source[..self.record_bytes]);
            (source, target)
        };
        // Once untimed: the first pass would pay for what the others find.
        let (_, pairs) = timed(self.lanes(pairs), copy)?;
        let (spent, pairs) = timed(pairs, copy)?;
        add(What::Copy, spent);

        let copy_parts = |(source, mut target): (Slot, Slot)| {
            let target_bytes = &mut target[SHIFT..];
            for range in self.ranges() {
                target_bytes[range.clone()].copy_from_slice(&source[range]);
            }
            (source, target)
        };
        let (spent, pairs) = timed(pairs, copy_parts)?;
        add(What::CopyParts, spent);

        let draft = |(source, target)| Some((source, Draft::new(target, meta(1), &self.parts)?));
        let drafts: Option<Vec<(Slot, Draft)>> = pairs.into_iter().flatten().map(draft).collect();
        let drafts = self.lanes(drafts.context("a record fits its slot")?);
        let fill = |(source, mut draft): (Slot, Draft)| {
            for (part, range) in self.ranges().enumerate() {
                draft.part_mut(part).copy_from_slice(&source[range]);
            }
            (source, draft)
        };
        let (spent, drafts) = timed(drafts, fill)?;
        add(What::Fill, spent);

        let seal = |(source, draft): (Slot, Draft)| (source, draft.seal());
        let (spent, records) = timed(drafts, seal)?;
        add(What::Seal, spent);

        let read_out = |(mut target, record): (Slot, Record)| {
            for (part, range) in self.ranges().enumerate() {
                target[range].copy_from_slice(record.part(part));
            }
            (target, record)
        };
        let (spent, records) = timed(records, read_out)?;
        add(What::ReadOut, spent);

        let as_stored = |(mut slot, record): (Slot, Record)| {
            slot[..record.bytes().len()].copy_from_slice(record.bytes());
            slot
        };
        let slots = records.into_iter().flatten().map(as_stored).collect();
        let verify = |slot: Slot| Record::verify(slot, meta(1).name);
        let (spent, verified) = timed(self.lanes(slots), verify)?;
        add(What::Verify, spent);
        let all: Result<Vec<Record>, _> = verified.into_iter().flatten().collect();
        all.map(drop).context("what was sealed is a record")
    }

    /// Ranges of the parts in a buffer without a header.
    fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.parts.iter().scan(0, |at, bytes| {
            let range = *at..*at + bytes;
            *at = range.end;
            Some(range)
        })
    }

    /// All slots of a new arena, written to once.
    fn slots(&self, byte: u8) -> Result<Vec<Slot>> {
        let arena = Arena::new(record_bytes(&self.parts), self.num_records)?;
        let mut slots: Vec<Slot> = std::iter::from_fn(|| arena.take()).collect();
        slots.iter_mut().for_each(|slot| slot.fill(byte));
        Ok(slots)
    }

    fn lanes<T>(&self, items: Vec<T>) -> Lanes<T> {
        let each = self.num_records / self.threads;
        let mut items = items.into_iter();
        let lane = |_| items.by_ref().take(each).collect();
        (0..self.threads).map(lane).collect()
    }
}

/// Does `work` on all items, each lane in a thread of its own.
fn timed<T: Send, R: Send>(
    lanes: Lanes<T>,
    work: impl Fn(T) -> R + Sync,
) -> Result<(Spent, Lanes<R>)> {
    let work = &work;
    let clock = Clock::of_process()?;
    let results = thread::scope(|scope| {
        let lanes = lanes.into_iter();
        let start = |lane: Vec<T>| scope.spawn(move || lane.into_iter().map(work).collect());
        let threads: Vec<_> = lanes.map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Vec<R>>| thread.join();
        threads
            .into_iter()
            .map(join)
            .collect::<Result<Lanes<R>, _>>()
    });
    let spent = clock.spent()?;
    let results = results.ok().context("a thread panicked")?;
    Ok((spent, results))
}
