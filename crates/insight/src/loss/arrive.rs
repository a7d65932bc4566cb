//! A request at its placing: what its tokens are if they are not served.
//!
//! One pass over its blocks tells what is remembered of each, and notes the use of those that are
//! held. Contents are looked at only behind what is known. New blocks are remembered when they are
//! computed, not on arrival: a request may be abandoned before that.

use std::slice::ChunksExact;

use headstart_core::{Nanos, ReplicaId, Tier, TokenId};

use super::content::REACH;
use super::layout::PromptLayout;
use super::request::{New, UncountedBlocks};
use super::table::{BlockEntry, CopyState};
use super::{
    ArrivingRequest, Attributor, FRONT, FirstEviction, Pending, ReplicaHistory, TICK, ticks,
};
use crate::Bucket;

pub(super) fn arrive(
    memory: &mut Attributor,
    arrival: &ArrivingRequest<'_>,
    now: Nanos,
) -> Pending {
    let chosen = memory.place(arrival.replica);
    let best = arrival.overlaps.iter().max_by_key(|held| held.1);
    let best = best.map(|&(replica, tokens)| (memory.place(replica), tokens));
    let model = memory.replicas[usize::from(chosen)].model;
    let keys = arrival.keys.iter();
    let names: Vec<u64> = keys.map(|&key| memory.key.of_block(key, model)).collect();
    let size = arrival.block_size.max(1);
    let predicted_tokens = predicted(arrival);
    let mut walk = Walk {
        chosen,
        overlaps: arrival.overlaps,
        replicas: &memory.replicas,
        followed: best.map(|(place, tokens)| (place, (tokens / size) as usize)),
        // Keys may cover fewer blocks than the index reports; `computed` relies on this limit.
        computes_from: ((predicted_tokens / size) as usize).min(names.len()),
        now,
        layout: PromptLayout::of(arrival, predicted_tokens),
        evicted: None,
        unread: names.len(),
        fresh_from: names.len(),
        uncounted: UncountedBlocks::default(),
    };
    // All lines are requested before the loop: one wait for memory instead of one per block.
    memory.blocks.fetch(&names);
    for (block, &name) in names.iter().enumerate() {
        // The entry is read before it is counted as computing, or the request would wait for
        // itself.
        walk.meet(block, memory.blocks.find_mut(name));
        if block >= walk.computes_from {
            walk.uncounted.start(block, memory.blocks.enter(name));
        }
    }
    let Walk { computes_from, mut layout, evicted, unread, fresh_from, uncounted, .. } = walk;
    // Contents come after the blocks, because only the part without a known block is read.
    let new = look_at_contents(memory, arrival, model, unread, &mut layout);
    let tables = [
        // Counts are taken now, because they say what the memory had forgotten when it was asked.
        (memory.blocks.capacity(), memory.blocks.counts().0),
        (memory.contents.capacity(), memory.contents.counts().0),
    ];
    Pending {
        replica: arrival.replica,
        prompt_tokens: arrival.prompt_tokens,
        predicted_tokens,
        computes_from,
        // With tokens, `computed` also visits the blocks from `unread` on, to mark them as read.
        fresh_from: if arrival.tokens.is_some() { fresh_from.min(unread) } else { fresh_from },
        names,
        is_computing: true,
        is_read: arrival.tokens.is_some(),
        runs: layout.into_runs(),
        evicted,
        uncounted,
        new,
        forgotten: memory.lately.forgotten(tables, now),
    }
}

/// Tokens that the chosen replica is expected to hold.
fn predicted(arrival: &ArrivingRequest<'_>) -> u32 {
    let mut overlaps = arrival.overlaps.iter();
    let predicted = overlaps.find(|(replica, _)| *replica == arrival.replica);
    predicted.map_or(0, |&(_, tokens)| tokens.min(arrival.prompt_tokens))
}

/// The pass over the blocks.
struct Walk<'a> {
    chosen: u16,
    overlaps: &'a [(ReplicaId, u32)],
    replicas: &'a [ReplicaHistory],
    /// The replica with the longest overlap, and its blocks.
    followed: Option<(u16, usize)>,
    computes_from: usize,
    now: Nanos,
    layout: PromptLayout,
    evicted: Option<FirstEviction>,
    /// The first block whose contents were not in a prompt yet: what an engine generated is known
    /// as a block before.
    unread: usize,
    /// Blocks in front of it are noted; those from it on when they are computed.
    fresh_from: usize,
    uncounted: UncountedBlocks,
}

impl Walk<'_> {
    /// A block, and what is remembered of it: what it is, if it is not served.
    fn meet(&mut self, block: usize, entry: Option<&mut BlockEntry>) {
        let Some(entry) = entry else {
            self.unread = self.unread.min(block);
            self.fresh_from = self.fresh_from.min(block);
            return;
        };
        if !entry.is_read() {
            self.unread = self.unread.min(block);
        }
        // The bucket is taken first, because `follow` and `note` change the entry.
        let bucket = self.remembered(entry);
        self.layout.remember(block, bucket);
        if self.evicted.is_none() && bucket == Some(Bucket::Evicted) {
            self.evicted = Some(self.eviction(entry));
        }
        self.follow(block, entry);
        self.note(block, entry);
    }

    /// Returns the bucket of a block that is not served, as far as the memory knows it.
    fn remembered(&self, entry: &BlockEntry) -> Option<Bucket> {
        // A block that is computed now wins over its past, as in the order of the waterfall.
        if entry.computing > 0 {
            return Some(Bucket::InFlight);
        }
        match entry.state() {
            CopyState::Unheld => None,
            CopyState::Removed => Some(Bucket::Evicted),
            CopyState::Held if self.was_reset(entry) => Some(Bucket::Reset),
            // The index does not know the block. If it was asked about its holder, an event was
            // lost, that of its removal rather than that of its storing, which was seen here. If
            // not (the holder is busy, or full), it may well be there, where it says what it has.
            CopyState::Held => {
                let has_events = self.replicas[usize::from(entry.holder)].has_events;
                let is_asked = || {
                    let mut asked = self.overlaps.iter();
                    asked.any(|(replica, _)| replica.0 == u32::from(entry.holder))
                };
                Some(if entry.holder != self.chosen && has_events && !is_asked() {
                    Bucket::HeldElsewhere
                } else {
                    Bucket::Evicted
                })
            }
        }
    }

    /// Whether its holder was reset since it stored or used it.
    fn was_reset(&self, entry: &BlockEntry) -> bool {
        let reset_at = self.replicas[usize::from(entry.holder)].reset_at;
        // Counters wrap: a difference of at most 0, as a signed number, means stored before the
        // reset.
        reset_at.is_some_and(|reset_at| entry.stored.wrapping_sub(reset_at) as i32 <= 0)
    }

    /// Moves an evicted or reset block to the replica with the longest overlap, if that holds it.
    fn follow(&self, block: usize, entry: &mut BlockEntry) {
        if let Some((place, blocks)) = self.followed
            && block < blocks
            // A block that its holder still has keeps that holder: an entry follows one copy.
            && (entry.state() == CopyState::Removed || self.was_reset(entry))
        {
            entry.hold(place, Tier::Device);
            entry.stored = self.replicas[usize::from(place)].stored;
        }
    }

    /// A block that is expected to be served is used now. One of which it is not known that it was
    /// ever computed has to wait until it is.
    fn note(&mut self, block: usize, entry: &mut BlockEntry) {
        let is_held = entry.state() != CopyState::Unheld && entry.computing == 0;
        if block >= self.computes_from || !is_held {
            self.fresh_from = self.fresh_from.min(block);
            return;
        }
        // A holder that already has it keeps its tiers; `hold` would add the device.
        if entry.state() != CopyState::Held || entry.holder != self.chosen {
            entry.hold(self.chosen, Tier::Device);
        }
        entry.at = ticks(self.now);
        entry.stored = self.replicas[usize::from(self.chosen)].stored;
    }

    fn eviction(&self, entry: &BlockEntry) -> FirstEviction {
        let holder = &self.replicas[usize::from(entry.holder)];
        let age = u64::from(ticks(self.now).saturating_sub(entry.at)) * TICK;
        FirstEviction {
            age: std::time::Duration::from_nanos(age),
            blocks_since: holder.stored.wrapping_sub(entry.stored),
        }
    }
}

/// Tells what of the unknown part is known in another namespace or behind another prefix, and what
/// is to be remembered of it once it is computed.
fn look_at_contents(
    memory: &mut Attributor,
    arrival: &ArrivingRequest<'_>,
    model: u64,
    unread: usize,
    layout: &mut PromptLayout,
) -> New {
    let mut new = New { namespace: (arrival.namespace ^ model) as u32, ..New::default() };
    let (from, to) = layout.unknown();
    let size = arrival.block_size.max(1) as usize;
    let read_from = from.min(unread * size);
    let Some(tokens) = arrival.tokens.filter(|tokens| tokens.len() >= to) else {
        return new;
    };
    // Every block before the floor is known and was read, so there is nothing to look up.
    if read_from >= to {
        return new;
    }
    let fronts = FrontPart { unread: read_from.div_ceil(size), unknown: from.div_ceil(size) };
    let front = look_at_fronts(memory, tokens[..to].chunks_exact(size), fronts, &mut new, layout);
    // From somewhat before, so that windows span the border to what is known.
    let first = read_from.saturating_sub(REACH);
    let contents = &mut memory.contents;
    new.texts = contents.look(&tokens[first..to], &mut |start, end| {
        let (start, end) = ((first + start).max(from), first + end);
        if end <= start {
            return;
        }
        // A known text that runs past the end of a known front comes from the same prompt.
        if let Some((known, bucket)) = front
            && (start..end).contains(&(known * size))
        {
            let next = (known..end / size).take_while(|&block| !is_front(block));
            next.for_each(|block| layout.remember(block, Some(bucket)));
        }
        layout.diverged(start, end);
    });
    new
}

/// Blocks at which two parts of a prompt begin.
#[derive(Clone, Copy)]
struct FrontPart {
    /// The first whose front is not noted yet.
    unread: usize,
    /// The first that is not known.
    unknown: usize,
}

/// Tells how far the prompt's front, whatever its namespace, is known behind the block `unknown`:
/// to which block, and what that is. Notes those from the block `unread` on.
fn look_at_fronts(
    memory: &mut Attributor,
    prompt: ChunksExact<'_, TokenId>,
    part: FrontPart,
    new: &mut New,
    layout: &mut PromptLayout,
) -> Option<(usize, Bucket)> {
    let mut name = 0;
    let mut blocks = Vec::new();
    for (block, tokens) in prompt.enumerate() {
        // Names chain, so each covers the whole front; the loop starts at the first block every
        // time.
        name = memory.key.of_tokens(name, tokens);
        if block >= part.unread && is_front(block) {
            blocks.push(block);
            new.fronts.push(name);
        }
    }
    // The table is read only after all names are known, so that its lines arrive together.
    memory.fronts.fetch(&new.fronts);
    let mut front = None;
    for (block, &name) in blocks.into_iter().zip(&new.fronts) {
        if block < part.unknown {
            continue;
        }
        if let Some(seen) = memory.fronts.find(name) {
            // In its own namespace: the memory of blocks has forgotten it.
            let bucket = if seen == new.namespace { Bucket::Evicted } else { Bucket::Namespace };
            layout.remember(block, Some(bucket));
            // A longer front replaces a shorter one, because its name covers all blocks before.
            front = Some((block + 1, bucket));
        }
    }
    front
}

/// Whether fronts up to and with this block are remembered.
fn is_front(block: usize) -> bool {
    block < FRONT || block % FRONT == FRONT - 1
}
